//! English word stems: Porter2, and the irregular forms that it does not know.
//!
//! Only lower-case ASCII words are stemmed; any other word is its own stem.

use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};

static PORTER2: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// Irregular forms and their base form, sorted.
const IRREGULAR: [(&str, &str); 62] = [
    ("aliases", "alias"),
    ("analyses", "analysis"),
    ("bought", "buy"),
    ("broke", "break"),
    ("broken", "break"),
    ("brought", "bring"),
    ("built", "build"),
    ("came", "come"),
    ("caught", "catch"),
    ("children", "child"),
    ("chose", "choose"),
    ("chosen", "choose"),
    ("creation", "create"),
    ("creations", "create"),
    ("drawn", "draw"),
    ("drew", "draw"),
    ("driven", "drive"),
    ("drove", "drive"),
    ("fell", "fall"),
    ("found", "find"),
    ("froze", "freeze"),
    ("frozen", "freeze"),
    ("gone", "go"),
    ("grew", "grow"),
    ("grown", "grow"),
    ("heard", "hear"),
    ("held", "hold"),
    ("hid", "hide"),
    ("hidden", "hide"),
    ("indices", "index"),
    ("kept", "keep"),
    ("knew", "know"),
    ("laid", "lay"),
    ("led", "lead"),
    ("lent", "lend"),
    ("lost", "lose"),
    ("made", "make"),
    ("matrices", "matrix"),
    ("meant", "mean"),
    ("men", "man"),
    ("met", "meet"),
    ("mice", "mouse"),
    ("paid", "pay"),
    ("ran", "run"),
    ("said", "say"),
    ("saw", "see"),
    ("seen", "see"),
    ("sent", "send"),
    ("shown", "show"),
    ("sold", "sell"),
    ("spent", "spend"),
    ("spoke", "speak"),
    ("spoken", "speak"),
    ("stood", "stand"),
    ("taken", "take"),
    ("taught", "teach"),
    ("thrown", "throw"),
    ("told", "tell"),
    ("took", "take"),
    ("vertices", "vertex"),
    ("written", "write"),
    ("wrote", "write"),
];

/// Returns the stem of a word.
pub(super) fn stem(word: &str) -> String {
    if word.len() <= 2 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let word = IRREGULAR.binary_search_by_key(&word, |(form, _)| form).map_or(word, |at| IRREGULAR[at].1);
    PORTER2.stem(word).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_share_a_stem() {
        for family in [
            &["create", "creates", "created", "creating", "creation"][..],
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
    fn an_irregular_form_has_the_stem_of_its_base_form() {
        assert!(IRREGULAR.is_sorted());
        for (form, word) in IRREGULAR {
            assert_eq!(stem(form), stem(word), "{form}");
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
