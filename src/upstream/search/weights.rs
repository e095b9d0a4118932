//! The numeric parameters of the ranking.
//!
//! They were optimized for queries of several styles over the tools of real servers and then rounded: a change of any one
//! by a fifth matters little.

use super::terms::FIELD_COUNT;

/// The weight of an occurrence in each field, in the order of [`super::Field`].
pub(super) const FIELDS: [f32; FIELD_COUNT] = [3.6, 0.8, 2.2, 0.35, 0.45, 0.1];
/// How much the length of each field reduces that weight: 0 not at all, 1 in full.
pub(super) const LENGTHS: [f32; FIELD_COUNT] = [0.7, 0.6, 0.4, 0.6, 0.5, 0.8];
/// The number of occurrences from which on more of them matter little.
pub(super) const SATURATION: f32 = 1.6;
/// The impact from which on a tool counts in full when the rarity of a term is computed.
pub(super) const FULL_MENTION: f32 = 0.6;
/// The weight of a synonym, relative to the word itself.
pub(super) const SAME: f32 = 0.95;
/// The weight of a related word.
pub(super) const RELATED: f32 = 0.6;
/// The weight of a corrected typo.
pub(super) const TYPO: f32 = 0.9;
/// The weight of the single words of a phrase, relative to the phrase.
pub(super) const PARTS: f32 = 0.5;
/// The weight of the words that a question word stands for.
pub(super) const QUESTION: f32 = 0.5;
/// How much a synonym has the rarity of all synonyms together: 0 not at all, 1 in full.
pub(super) const SHARED_RARITY: f32 = 0.3;
/// How much a tool gains by matching more of the query.
pub(super) const COVERAGE: f32 = 0.8;
/// How much a tool gains when its name has no other words than the query.
pub(super) const NAME_FIT: f32 = 0.5;
/// The factor that a tool gains when the query names its server.
pub(super) const SERVER: f32 = 1.5;
/// The score that it gains for that alone.
pub(super) const BASE: f32 = 0.5;
/// How much weight the server's name then loses as a search word.
pub(super) const SERVER_WORD: f32 = 0.4;
