//! The MCP registry: servers that somebody has published, and how they are started.
//!
//! What a registry says is foreign text: it is bounded, checked and shown before anything is done with it. Nothing here starts a
//! server, and nothing here writes a definition.
//!
//! ```text
//! client (pages, cache) ─▶ document (JSON ─▶ entries) ─▶ entry
//!                          recipe (an entry ─▶ a definition) ─▶ entry
//! ```

mod cache;
mod client;
mod document;
mod entry;
mod error;
mod listed;
mod recipe;

pub use cache::old_answers;
pub use client::{Found, Registry};
pub use entry::{Entry, Input};
pub use error::RegistryError;
pub use listed::{Listed, ListedOption, Need};
pub use recipe::{Recipe, Unusable, Wanted};
