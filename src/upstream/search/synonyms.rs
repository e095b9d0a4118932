//! Words that mean the same or something near, from `synonyms.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::stem::stem;
use super::words::for_each_word;

/// How near a meaning is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Nearness {
    Same,
    Related,
}

/// Another way to say a word or phrase: the stems of its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Synonym {
    pub(super) nearness: Nearness,
    pub(super) stems: Vec<String>,
}

/// The lists, by stem or by stems with a space between.
#[derive(Debug, Default)]
pub(super) struct Synonyms {
    entries: HashMap<String, Vec<Synonym>>,
    /// Words of the longest phrase.
    pub(super) longest: usize,
}

pub(super) static SYNONYMS: LazyLock<Synonyms> =
    LazyLock::new(|| Synonyms::parse(include_str!("synonyms.txt")));

impl Synonyms {
    pub(super) fn parse(text: &str) -> Self {
        let mut synonyms = Self::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            if let Some((left, right)) = line.split_once('>') {
                synonyms.relate(&phrases(left), &phrases(right), Nearness::Related);
            } else if let Some((left, right)) = line.split_once('~') {
                let (left, right) = (phrases(left), phrases(right));
                synonyms.relate(&left, &right, Nearness::Related);
                synonyms.relate(&right, &left, Nearness::Related);
                synonyms.relate(&left, &left, Nearness::Same);
            } else {
                let group = phrases(line);
                synonyms.relate(&group, &group, Nearness::Same);
            }
        }
        synonyms
    }

    fn relate(&mut self, from: &[Vec<String>], to: &[Vec<String>], nearness: Nearness) {
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

    /// What else may be meant by stems with a space between.
    pub(super) fn of(&self, stems: &str) -> Option<&[Synonym]> {
        self.entries.get(stems).map(Vec::as_slice)
    }

    /// Stems that have an entry.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }
}

/// The stems of each phrase of a list.
fn phrases(list: &str) -> Vec<Vec<String>> {
    list.split(',')
        .map(|phrase| {
            let mut stems = Vec::new();
            for_each_word(phrase, |word| stems.push(stem(word)));
            stems
        })
        .filter(|stems| !stems.is_empty())
        .collect()
}
