//! Connections to servers: made at the first use, kept warm, ended when idle, made anew after a crash.
//!
//! ```text
//! entry (start once, rest, idle) ─▶ start (handshake) ─▶ connection (calls, tools)
//!        ─▶ http (servers elsewhere)
//!        ─▶ stdio ─▶ process ─▶ the reaper (when the bridge is killed)
//!        ─▶ inbox (every message is read here first) ─▶ crate::mcp (reads them)
//! ```

mod activity;
mod connection;
mod context;
mod entry;
mod environment;
mod handler;
mod http;
mod listing;
mod notices;
mod outcome;
mod process;
mod secrets;
mod start;
mod starting;
mod stderr;
mod stdio;
#[cfg(test)]
mod tests;

pub(super) use activity::Purpose;
pub(super) use context::Context;
pub use context::Limits;
pub use entry::ServerState;
pub(super) use entry::{Pool, ServerUse};
pub(super) use listing::{Age, Listener, Listing};
pub use outcome::{CallOutcome, Tool, ToolList};
