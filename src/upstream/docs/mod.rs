//! The documentation of all servers' tools: from the catalogue, or from the servers themselves.
//!
//! Every definition has a key, under which the catalogue keeps what its server lists. Documentation is available
//! whether a server runs or not; one that was never asked is started for it and stopped again soon. Disk and index
//! are never used on a thread that serves others.
//!
//! ```text
//! service ─▶ sweep (asks servers in the background)
//!         ─▶ cache ─▶ keys (of definitions), failures (of servers), functions (saved ones), catalog
//! ```

mod cache;
mod failures;
mod functions;
mod keys;
mod service;
mod sweep;
#[cfg(test)]
mod tests;

pub(super) use cache::DocsCache;
pub use cache::Known;
pub use failures::{LastFailure, Reason};
pub use functions::ToTest;
pub(super) use service::Docs;
pub use service::{Refreshed, Searched, UnknownServer};
