//! Which tools fit a wish: a ranking over what servers say of their tools.
//!
//! A server's documentation is taken apart once ([`Terms`], kept on disk with it); the terms of all servers make an
//! [`Index`]; a query is read as concepts, each with every way to say it that we know, and tools are scored by them.
//! It is words alone: no network, no model, the same answer every time.
//!
//! ```text
//! words ─▶ stem ─▶ terms ─▶ index ─┐
//!                    synonyms, typos ─▶ query ─▶ rank
//! ```

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
pub use sentences::{Refrains, first_sentence};
pub use terms::{FIELD_COUNT, Field, Terms};
pub use weights::Weights;
