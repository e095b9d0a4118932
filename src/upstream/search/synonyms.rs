//! Synonyms and related words, from `synonyms.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::words::stems;

/// The built-in list.
pub(super) static SYNONYMS: LazyLock<Synonyms> =
    LazyLock::new(|| Synonyms::parse(include_str!("synonyms.txt")));

/// Synonyms and related words of words and phrases.
#[derive(Debug, Default)]
pub(super) struct Synonyms {
    /// Keyed by a stem, or by the stems of a phrase with a space between.
    entries: HashMap<String, Vec<Synonym>>,
    /// How many words the longest phrase has.
    pub(super) longest: usize,
}

/// A word or phrase that may stand in documentation instead of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Synonym {
    pub(super) similarity: Similarity,
    /// The stem of each of its words.
    pub(super) stems: Vec<String>,
}

/// How similar a meaning is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Similarity {
    Same,
    Related,
}

impl Synonyms {
    /// Returns the synonyms of a word or phrase, given as stems with a space between.
    pub(super) fn of(&self, stems: &str) -> Option<&[Synonym]> {
        self.entries.get(stems).map(Vec::as_slice)
    }

    fn parse(text: &str) -> Self {
        let mut synonyms = Self::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            if let Some((left, right)) = line.split_once('>') {
                let left = phrases(left);
                synonyms.add(&left, &phrases(right), Similarity::Related);
                synonyms.add(&left, &left, Similarity::Related);
            } else if let Some((left, right)) = line.split_once('~') {
                let (left, right) = (phrases(left), phrases(right));
                synonyms.add(&left, &left, Similarity::Same);
                synonyms.add(&left, &right, Similarity::Related);
                synonyms.add(&right, &left, Similarity::Related);
            } else {
                let group = phrases(line);
                synonyms.add(&group, &group, Similarity::Same);
            }
        }
        synonyms
    }

    fn add(&mut self, from: &[Vec<String>], to: &[Vec<String>], similarity: Similarity) {
        for left in from {
            self.longest = self.longest.max(left.len());
            let entry = self.entries.entry(left.join(" ")).or_default();
            for right in to.iter().filter(|right| *right != left) {
                match entry.iter_mut().find(|synonym| synonym.stems == *right) {
                    Some(known) => known.similarity = known.similarity.min(similarity),
                    None => entry.push(Synonym { similarity, stems: right.clone() }),
                }
            }
        }
    }
}

/// Returns the stems of each phrase of a list.
fn phrases(list: &str) -> Vec<Vec<String>> {
    list.split(',').map(stems).filter(|stems| !stems.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::search::stem::stem;

    fn ways(synonyms: &Synonyms, stems: &str) -> Vec<(String, Similarity)> {
        let mut ways: Vec<_> = synonyms
            .of(stems)
            .unwrap_or_default()
            .iter()
            .map(|synonym| (synonym.stems.join(" "), synonym.similarity))
            .collect();
        ways.sort();
        ways
    }

    #[test]
    fn lines_of_all_three_kinds_are_read() {
        use Similarity::{Related, Same};
        let synonyms = Synonyms::parse("a, b c # note\nd, e ~ f\ng, h > i j\n\n# a, z\na > b c");
        assert_eq!(ways(&synonyms, "a"), [("b c".into(), Same)]);
        assert_eq!(ways(&synonyms, "b c"), [("a".into(), Same)]);
        assert_eq!(ways(&synonyms, "d"), [("e".into(), Same), ("f".into(), Related)]);
        assert_eq!(ways(&synonyms, "f"), [("d".into(), Related), ("e".into(), Related)]);
        assert_eq!(ways(&synonyms, "g"), [("h".into(), Related), ("i j".into(), Related)]);
        assert_eq!(ways(&synonyms, "i j"), []);
        assert_eq!(synonyms.longest, 2);
    }

    #[test]
    fn every_line_of_the_built_in_list_has_an_effect() {
        for line in include_str!("synonyms.txt").lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            assert!(line.is_empty() || line.contains(['>', '~', ',']), "{line}");
            let sides: Vec<_> = line.split(['>', '~']).collect();
            assert!(sides.len() <= 2, "{line}");
            assert!(line.is_empty() || sides.iter().all(|side| !phrases(side).is_empty()), "{line}");
            assert!(!line.contains(",,") && !line.ends_with(','), "{line}");
        }
    }

    #[test]
    fn forms_of_a_word_share_an_entry() {
        assert_eq!(SYNONYMS.of(&stem("deleting")), SYNONYMS.of(&stem("delete")));
        assert!(SYNONYMS.of("delet").is_some_and(|ways| ways.iter().any(|way| way.stems == ["remov"])));
        assert!(SYNONYMS.longest <= 5);
    }
}
