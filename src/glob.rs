//! Names with `*`.

/// Returns whether a name fits a pattern, in which each `*` stands for any characters.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, behind)) = left.split_once(part) else { return false };
        left = behind;
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("get_*", "get_issue", true),
            ("get_*", "forget_issue", false),
            ("*", "", true),
            ("*_issue", "get_issue", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("**", "x", true),
            ("a.c", "abc", false),
            ("Get", "get", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
