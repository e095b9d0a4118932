//! The numbers of the ranking.

use super::terms::FIELD_COUNT;

/// Every number that the ranking depends on.
///
/// They were found by searching for what serves queries of several kinds over real tools best, and then rounded: each
/// can be changed by a fifth without much harm.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// What an occurrence in each field counts, in the order of [`super::Field`].
    pub fields: [f32; FIELD_COUNT],
    /// How much a longer field makes it count less: 0 not at all, 1 in full.
    pub lengths: [f32; FIELD_COUNT],
    /// Where more occurrences stop counting more.
    pub saturation: f32,
    /// How much a tool must speak of a word to count in full when rare words are told from common ones.
    pub speaks: f32,
    /// What a word that means the same counts, against the word itself.
    pub same: f32,
    /// What a word that means something near counts.
    pub related: f32,
    /// What a word counts that may have been meant.
    pub typo: f32,
    /// What the words of a phrase count each for itself, against the phrase.
    pub parts: f32,
    /// What the words count that a question word stands for.
    pub question: f32,
    /// How far another way to say a word is as common as all of them together.
    pub common: f32,
    /// How much it counts to find more of the query's words.
    pub coverage: f32,
    /// How much it counts that a tool's name speaks of nothing else.
    pub name_fit: f32,
    /// What a tool gains when the query names its server.
    pub server: f32,
    /// What it counts by itself.
    pub base: f32,
    /// What the server's name then loses as a word.
    pub server_word: f32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            fields: [3.6, 0.8, 2.2, 0.35, 0.45, 0.1],
            lengths: [0.7, 0.6, 0.4, 0.6, 0.5, 0.8],
            saturation: 1.6,
            speaks: 0.6,
            same: 0.95,
            related: 0.6,
            typo: 0.9,
            parts: 0.5,
            question: 0.5,
            common: 0.3,
            coverage: 0.8,
            name_fit: 0.5,
            server: 1.5,
            base: 0.5,
            server_word: 0.4,
        }
    }
}
