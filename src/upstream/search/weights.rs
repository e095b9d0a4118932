//! The numeric parameters of the ranking.

use super::terms::FIELD_COUNT;

/// The numeric parameters of the ranking.
///
/// They were optimized for queries of several styles over the tools of real servers and then rounded: a change of any one
/// by a fifth matters little.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// The weight of an occurrence in each field, in the order of [`super::Field`].
    pub fields: [f32; FIELD_COUNT],
    /// How much the length of each field reduces that weight: 0 not at all, 1 in full.
    pub lengths: [f32; FIELD_COUNT],
    /// The number of occurrences from which on more of them matter little.
    pub saturation: f32,
    /// The impact from which on a tool counts in full when the rarity of a term is computed.
    pub full_mention: f32,
    /// The weight of a synonym, relative to the word itself.
    pub same: f32,
    /// The weight of a related word.
    pub related: f32,
    /// The weight of a corrected typo.
    pub typo: f32,
    /// The weight of the single words of a phrase, relative to the phrase.
    pub parts: f32,
    /// The weight of the words that a question word stands for.
    pub question: f32,
    /// How much a synonym has the rarity of all synonyms together: 0 not at all, 1 in full.
    pub shared_rarity: f32,
    /// How much a tool gains by matching more of the query.
    pub coverage: f32,
    /// How much a tool gains when its name has no other words than the query.
    pub name_fit: f32,
    /// The factor that a tool gains when the query names its server.
    pub server: f32,
    /// The score that it gains for that alone.
    pub base: f32,
    /// How much weight the server's name then loses as a search word.
    pub server_word: f32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            fields: [3.6, 0.8, 2.2, 0.35, 0.45, 0.1],
            lengths: [0.7, 0.6, 0.4, 0.6, 0.5, 0.8],
            saturation: 1.6,
            full_mention: 0.6,
            same: 0.95,
            related: 0.6,
            typo: 0.9,
            parts: 0.5,
            question: 0.5,
            shared_rarity: 0.3,
            coverage: 0.8,
            name_fit: 0.5,
            server: 1.5,
            base: 0.5,
            server_word: 0.4,
        }
    }
}
