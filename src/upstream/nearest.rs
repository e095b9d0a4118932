//! What was probably meant by a name that nobody has.

/// How alike a name has to be.
const ALIKE: f64 = 0.8;

/// The name that is most like another one, if any is like it at all; the first of several.
pub(super) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = letters(name);
    let mut best = None;
    let mut likeness = ALIKE;
    for candidate in names {
        let this = strsim::jaro_winkler(&wanted, &letters(candidate));
        if this > likeness {
            (best, likeness) = (Some(candidate), this);
        }
    }
    best
}

/// Names differ in case and in what stands between words more often than in letters.
fn letters(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_by_what_it_is_like() {
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
