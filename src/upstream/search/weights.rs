//! The numbers of the ranking.

use super::analysis::FIELDS;

/// Every number that the ranking depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// What an occurrence in each field counts.
    pub fields: [f32; FIELDS],
    /// How much a longer field makes it count less.
    pub lengths: [f32; FIELDS],
    /// Where more occurrences stop counting.
    pub saturation: f32,
    /// Exponent of the rarity of a word.
    pub rarity: f32,
    /// Rare-word counting: an impact of at least this counts as one whole document.
    pub soft_document: f32,
    /// What a word that means the same counts, against the word itself.
    pub synonym: f32,
    /// What a word that means something near counts.
    pub related: f32,
    /// What a word counts that may have been meant.
    pub typo: f32,
    /// What two words side by side count beyond themselves.
    pub pair: f32,
    /// What it counts that a query names the server.
    pub server: f32,
    /// How much finding more of the query's words counts.
    pub coverage: f32,
    /// What the second best reading of a word adds.
    pub second: f32,
    pub verb: f32,
    pub name_fit: f32,
    pub unnamed: f32,
    pub question: f32,
    pub intent: f32,
    pub parts: f32,
    pub server_word: f32,
    pub neighbours: f32,
    pub near_count: f32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            fields: [3.6, 0.8, 2.2, 0.35, 0.45, 0.1, 0.0, 0.0],
            lengths: [0.7, 0.6, 0.4, 0.6, 0.5, 0.8, 0.7, 0.7],
            saturation: 1.6,
            rarity: 0.95,
            soft_document: 0.6,
            synonym: 0.95,
            related: 0.6,
            typo: 0.9,
            pair: 0.0,
            server: 1.5,
            coverage: 0.8,
            second: 0.1,
            verb: 0.3,
            name_fit: 0.5,
            unnamed: 1.0,
            question: 0.5,
            intent: 0.1,
            parts: 1.0,
            server_word: 0.4,
            neighbours: 0.1,
            near_count: 3.0,
        }
    }
}
