//! Search for tools: ranks the tools of all servers by how well their documentation matches a query.
//!
//! The words of a server's documentation are counted once ([`Terms`], stored with it). The terms of all servers make an
//! [`Index`]. A query becomes a list of concepts, each with its synonyms and corrected typos, and tools are scored by them
//! with BM25F. There is no network and no model: the same query has the same answer every time.
//!
//! ```text
//! words, sentences ─▶ terms ─▶ index ─▶ query (synonyms, typos) ─▶ rank
//! ```
//!
//! What each part contributes is measured in `bench/results`.

#[cfg(test)]
mod fuzz;
mod index;
mod query;
mod rank;
mod sentences;
mod stem;
mod stop;
mod synonyms;
mod terms;
#[cfg(test)]
mod tests;
mod typos;
mod weights;
mod words;

pub use index::{Index, IndexedServer};
pub use rank::Hit;
pub use sentences::{Boilerplate, first_sentence};
pub use terms::{FIELD_COUNT, Field, Terms};
