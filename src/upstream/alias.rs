//! The names of servers and tools in Python.

use std::collections::{HashMap, HashSet};

/// The keywords of Python in lower case.
const KEYWORDS: &[&str] = &[
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else",
    "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not",
    "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Returns a name as a Python identifier: lower case, every run of other characters `_`, no leading digit, no keyword.
pub fn alias(name: &str) -> String {
    let mut alias = String::with_capacity(name.len() + 1);
    let mut in_run = false;
    for c in name.chars().flat_map(char::to_lowercase) {
        if matches!(c, 'a'..='z' | '0'..='9' | '_') {
            alias.push(c);
            in_run = false;
        } else if !in_run {
            alias.push('_');
            in_run = true;
        }
    }
    if alias.is_empty() || alias.starts_with(|c: char| c.is_ascii_digit()) {
        alias.insert(0, '_');
    }
    if KEYWORDS.contains(&alias.as_str()) {
        alias.push('_');
    }
    alias
}

/// Returns a unique alias for each name: a second one of the same alias gets `_2`, and so on.
pub fn aliases<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    // The next number to try for an alias, so that many equal aliases do not each start at 2.
    let mut next_number: HashMap<String, usize> = HashMap::new();
    let unique = |name| {
        let alias = alias(name);
        let mut free = alias.clone();
        while taken.contains(&free) {
            let number = next_number.entry(alias.clone()).or_insert(2);
            free = format!("{alias}_{number}");
            *number += 1;
        }
        taken.insert(free.clone());
        free
    };
    names.into_iter().map(unique).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_an_identifier() {
        for (name, expected) in [
            ("github", "github"),
            ("GitHub", "github"),
            ("my-server", "my_server"),
            ("a - b", "a_b"),
            ("a__b", "a__b"),
            ("API-post-search", "api_post_search"),
            ("3d", "_3d"),
            ("class", "class_"),
            ("None", "none"),
            ("grüße!", "gr_e_"),
            ("日本", "_"),
            ("", "_"),
            ("-", "_"),
            ("@scope/name", "_scope_name"),
            ("\u{212a}elvin", "kelvin"),
        ] {
            assert_eq!(alias(name), expected, "{name}");
        }
    }

    #[test]
    fn no_alias_is_given_twice() {
        assert_eq!(aliases(["a b", "a-b", "a_b", "A.B"]), ["a_b", "a_b_2", "a_b_3", "a_b_4"]);
        assert_eq!(aliases(["x_2", "x", "x"]), ["x_2", "x", "x_3"]);
        assert_eq!(aliases(["x", "x", "x_2"]), ["x", "x_2", "x_2_2"]);
        assert_eq!(aliases([]), Vec::<String>::new());
    }

    #[test]
    fn ten_thousand_of_one_name_take_no_time() {
        let names = aliases(std::iter::repeat_n("same", 10_000));
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 10_000);
    }
}
