//! English word stems (Porter2).

use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};

static PORTER2: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// Returns the stem of a word; a word that is not in lower-case ASCII letters is its own stem.
pub(super) fn stem(word: &str) -> String {
    if word.len() <= 2 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return word.to_owned();
    }
    PORTER2.stem(word).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_share_a_stem() {
        for family in [
            &["create", "creates", "created", "creating"][..],
            &["delete", "deleted", "deletes", "deleting", "deletion"],
            &["query", "queries", "queried", "querying"],
            &["stop", "stopped", "stopping", "stops"],
            &["schedule", "scheduled", "scheduler", "schedules"],
            &["restrict", "restriction", "restricted"],
            &["aggregate", "aggregation", "aggregated"],
            &["execute", "execution", "executing"],
            &["merge", "merged", "merging"],
        ] {
            let stems: Vec<_> = family.iter().map(|word| stem(word)).collect();
            assert!(stems.iter().all(|s| *s == stems[0]), "{family:?} {stems:?}");
        }
    }

    #[test]
    fn a_word_that_is_not_english_is_its_own_stem() {
        for word in ["k8s", "größe", "", "a", "名前", "ss", "s"] {
            assert_eq!(stem(word), word);
        }
        assert_eq!(stem("yyyyyy"), "yyyyyi");
    }
}
