//! Words that mean the same or something near, from `synonyms.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::stem::stem;
use super::words::for_each_word;

/// The list that comes with the program.
pub(super) static SYNONYMS: LazyLock<Synonyms> =
    LazyLock::new(|| Synonyms::parse(include_str!("synonyms.txt")));

/// Other ways to say words and phrases.
#[derive(Debug, Default)]
pub(super) struct Synonyms {
    /// By stem, or by stems with a space between.
    entries: HashMap<String, Vec<Synonym>>,
    longest: usize,
}

/// Another way to say a word or phrase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Synonym {
    pub(super) nearness: Nearness,
    /// The stem of each of its words.
    pub(super) stems: Vec<String>,
}

/// How near a meaning is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Nearness {
    Same,
    Related,
}

impl Synonyms {
    /// What else may be meant by stems with a space between.
    pub(super) fn of(&self, stems: &str) -> Option<&[Synonym]> {
        self.entries.get(stems).map(Vec::as_slice)
    }

    /// How many words the longest phrase has.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    fn parse(text: &str) -> Self {
        let mut synonyms = Self::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            if let Some((left, right)) = line.split_once('>') {
                let left = phrases(left);
                synonyms.add(&left, &phrases(right), Nearness::Related);
                synonyms.add(&left, &left, Nearness::Related);
            } else if let Some((left, right)) = line.split_once('~') {
                let (left, right) = (phrases(left), phrases(right));
                synonyms.add(&left, &left, Nearness::Same);
                synonyms.add(&left, &right, Nearness::Related);
                synonyms.add(&right, &left, Nearness::Related);
            } else {
                let group = phrases(line);
                synonyms.add(&group, &group, Nearness::Same);
            }
        }
        synonyms
    }

    fn add(&mut self, from: &[Vec<String>], to: &[Vec<String>], nearness: Nearness) {
        for left in from {
            self.longest = self.longest.max(left.len());
            let entry = self.entries.entry(left.join(" ")).or_default();
            for right in to.iter().filter(|right| *right != left) {
                match entry.iter_mut().find(|synonym| synonym.stems == *right) {
                    Some(known) => known.nearness = known.nearness.min(nearness),
                    None => entry.push(Synonym { nearness, stems: right.clone() }),
                }
            }
        }
    }
}

/// The stems of each phrase of a list.
fn phrases(list: &str) -> Vec<Vec<String>> {
    let stems = |phrase| {
        let mut stems = Vec::new();
        for_each_word(phrase, |word| stems.push(stem(word)));
        stems
    };
    list.split(',').map(stems).filter(|stems| !stems.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(synonyms: &Synonyms, stems: &str) -> Vec<(String, Nearness)> {
        let mut ways: Vec<_> = synonyms
            .of(stems)
            .unwrap_or_default()
            .iter()
            .map(|synonym| (synonym.stems.join(" "), synonym.nearness))
            .collect();
        ways.sort();
        ways
    }

    #[test]
    fn the_three_kinds_of_lines_are_read() {
        use Nearness::{Related, Same};
        let synonyms = Synonyms::parse("a, b c # note\nd, e ~ f\ng, h > i j\n\n# a, z\na > b c");
        assert_eq!(ways(&synonyms, "a"), [("b c".into(), Same)]);
        assert_eq!(ways(&synonyms, "b c"), [("a".into(), Same)]);
        assert_eq!(ways(&synonyms, "d"), [("e".into(), Same), ("f".into(), Related)]);
        assert_eq!(ways(&synonyms, "f"), [("d".into(), Related), ("e".into(), Related)]);
        assert_eq!(ways(&synonyms, "g"), [("h".into(), Related), ("i j".into(), Related)]);
        assert_eq!(ways(&synonyms, "i j"), []);
        assert_eq!(synonyms.longest(), 2);
    }

    #[test]
    fn our_own_list_has_no_line_without_effect() {
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
        assert!(SYNONYMS.longest() <= 5);
    }
}
