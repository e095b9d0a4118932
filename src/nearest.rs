//! Suggests a name for one that does not exist.

/// The similarity from which a name is suggested.
const THRESHOLD: f64 = 0.8;

/// Returns the most similar name, if one is similar enough; the first of several.
pub(crate) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = letters(name);
    let mut best = None;
    let mut similarity = THRESHOLD;
    for candidate in names {
        let this = strsim::jaro_winkler(&wanted, &letters(candidate));
        if this > similarity {
            (best, similarity) = (Some(candidate), this);
        }
    }
    best
}

/// Returns the letters and digits in lower case: mistakes are often in case and separators.
fn letters(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_name_is_suggested() {
        let names = ["create_issue", "create_pull_request", "close_issue", "search"];
        for (name, expected) in [
            ("creat_issue", Some("create_issue")),
            ("createIssue", Some("create_issue")),
            ("create-pul-request", Some("create_pull_request")),
            ("SEARCH", Some("search")),
            ("wombat", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, names), expected, "{name}");
        }
        assert_eq!(nearest("aab", ["aabx", "aaby"]), Some("aabx"));
        assert_eq!(nearest("x", []), None);
    }
}
