//! What all of the user's servers offer, known or yet to be asked.
//!
//! It joins the rooms: definitions have keys, under which the catalogue keeps what the pool hears. Documentation is there
//! for every definition that is used, whether its server runs or not; a server that was never asked is started for it,
//! and soon stopped again. Disk and index are never touched on a thread that serves others.
//!
//! ```text
//! service ─▶ sweep (servers that were never asked) ─▶ pool ─▶ keeper ─▶ keys, catalog, failures
//! ```

mod failures;
mod keeper;
mod keys;
mod service;
mod sweep;
#[cfg(test)]
mod tests;

pub(super) use keeper::Keeper;
pub use service::{Refreshed, Searched, UnknownServer};
pub(super) use sweep::Sweep;
