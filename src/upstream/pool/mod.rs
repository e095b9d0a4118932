//! Connections to servers: opened at the first use, kept open, closed when idle, opened again after a crash.
//!
//! ```text
//! entry (one start at a time, backoff, idle) ─▶ start (handshake) ─▶ connection (calls, tools)
//!        ─▶ http (remote servers)
//!        ─▶ stdio ─▶ process ─▶ the reaper (when the bridge is killed)
//!        ─▶ crate::mcp (reads every message first)
//! ```

mod activity;
mod changes;
mod connection;
mod context;
mod entry;
mod environment;
mod failures;
mod handler;
mod http;
mod inputs;
mod listen;
mod listing;
mod notices;
mod offer_docs;
mod offers;
mod outbox;
mod outcome;
mod process;
mod rounds;
mod secrets;
mod start;
mod starting;
mod stderr;
mod stdio;
mod tasks;
#[cfg(test)]
mod tests;
mod updates;
mod watch;
mod wire;

pub(super) use activity::Purpose;
pub(super) use context::Context;
pub use context::Limits;
pub use entry::ServerState;
pub(super) use entry::{Pool, PoolRequest};
pub(super) use http::{HttpError, http_client};
pub(super) use listing::{Age, Listener, Listing, OfferedDocs};
pub use offers::OfferPages;
pub(super) use outcome::ToolList;
pub use outcome::{CallOutcome, Tool};
pub(super) use secrets::Secrets;
pub use watch::ResourceWatch;
