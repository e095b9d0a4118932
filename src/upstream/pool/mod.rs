//! Connections to servers: made at the first use, kept warm, ended when idle, made anew after a crash.
//!
//! ```text
//! entry (start once, rest, idle) ─▶ start (handshake) ─▶ connection (calls, tools)
//!        ─▶ http (servers elsewhere)
//!        ─▶ stdio ─▶ process ─▶ guardian (when the bridge is killed)
//!        ─▶ inbox (every message is read here first) ─▶ crate::mcp (reads them)
//! ```

mod activity;
mod connection;
mod entry;
mod environment;
mod guardian;
mod handler;
mod http;
mod inbox;
mod listing;
mod outcome;
mod process;
mod secrets;
mod start;
mod starting;
mod stderr;
mod stdio;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(super) use activity::Purpose;
pub use entry::ServerState;
pub(super) use entry::{Pool, Use};
pub use guardian::{SUBCOMMAND as GUARDIAN, guard};
pub(super) use listing::{Age, Listener, Listing};
pub use outcome::{CallOutcome, Tool, ToolList};

use starting::Starting;

use super::events::Events;
use super::questions::Answers;
use crate::settings::Environment;

/// How long things may take, and how many there may be.
#[derive(Debug, Clone)]
pub struct Limits {
    /// From the start of a server until it is ready.
    pub startup: Duration,
    /// One call.
    pub call: Duration,
    /// All pages of a list of tools.
    pub listing: Duration,
    /// Pages of a list of tools.
    pub pages: usize,
    /// Calls of one server under way at once; more of them wait.
    pub calls_at_once: usize,
    /// After which a server that nobody uses is stopped; None = never.
    pub idle: Option<Duration>,
    /// The same of a server that was started only to know its tools.
    pub docs_idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            startup: Duration::from_secs(60),
            call: Duration::from_secs(120),
            listing: Duration::from_secs(60),
            pages: 1_000,
            calls_at_once: 64,
            idle: Some(Duration::from_secs(300)),
            docs_idle: Duration::from_secs(5),
        }
    }
}

/// What every connection needs.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) limits: Limits,
    pub(super) environment: Environment,
    pub(super) cwd: PathBuf,
    pub(super) events: Events,
    pub(super) answers: Arc<dyn Answers>,
    pub(super) listener: Arc<dyn Listener>,
    guardian: Arc<guardian::Guardian>,
    starting: Starting,
    /// Whether a server may be this bridge itself.
    pub(super) allow_self: bool,
}

impl Context {
    pub(super) fn new(
        limits: Limits,
        environment: Environment,
        cwd: PathBuf,
        answers: Arc<dyn Answers>,
        listener: Arc<dyn Listener>,
        guardian: Option<PathBuf>,
    ) -> Self {
        let guardian = Arc::new(guardian::Guardian::new(guardian));
        let events = Events::default();
        let starting = Starting::default();
        Self { limits, environment, cwd, events, answers, listener, guardian, starting, allow_self: false }
    }
}
