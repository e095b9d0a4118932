//! Suggests a name for one that does not exist.

use std::path::{Path, PathBuf};

/// The similarity from which a name is suggested.
const THRESHOLD: f64 = 0.8;
/// Letters of a name that is compared. The time grows with the product of both lengths, and anybody chooses them.
const MOST_LETTERS: usize = 64;
/// Bytes of a name that is looked at: letters may be far apart.
const MOST_BYTES: usize = 512;
/// Entries of a folder that are looked at.
const MOST_ENTRIES: usize = 4_000;

/// Returns the most similar name, if one is similar enough; the first of several. Long names are similar to none.
pub(crate) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = letters(name)?;
    let mut best = None;
    let mut similarity = THRESHOLD;
    for candidate in names {
        let Some(letters) = letters(candidate) else { continue };
        let this = strsim::jaro_winkler(&wanted, &letters);
        if this > similarity {
            (best, similarity) = (Some(candidate), this);
        }
    }
    best
}

/// Returns what has the most similar name in the folder of a path that does not exist.
pub(crate) fn nearest_entry(path: &Path, is_wanted: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let folder = path.parent()?;
    let place = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = place.read_dir().ok()?.take(MOST_ENTRIES).flatten();
    let names: Vec<String> = entries
        .filter(|entry| is_wanted(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let name = nearest(path.file_name()?.to_str()?, names.iter().map(String::as_str))?;
    Some(folder.join(name))
}

/// Returns the letters and digits in lower case: mistakes are often in case and separators. None if there are too many.
fn letters(name: &str) -> Option<String> {
    if name.len() > MOST_BYTES {
        return None;
    }
    let mut letters = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase);
    let first = letters.by_ref().take(MOST_LETTERS).collect();
    letters.next().is_none().then_some(first)
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

    #[test]
    fn names_of_any_length_cost_nothing() {
        // Compared letter by letter these would take hours.
        let long = "x".repeat(50 << 20);
        let spread = format!("x{}", "-".repeat(50 << 20));
        for name in [&long, &spread] {
            assert_eq!(nearest(name, std::iter::repeat_n("create_issue", 10_000)), None);
            assert_eq!(nearest("create_issu", [name, "create_issue"]), Some("create_issue"));
        }
        let most = "x".repeat(MOST_LETTERS);
        assert_eq!(nearest(&most, [&most[1..]]), Some(&most[1..]));
        assert_eq!(nearest(&format!("{most}x"), [most.as_str()]), None);
    }
}
