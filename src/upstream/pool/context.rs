//! What all connections share: limits, environment, events.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use super::listing::Listener;
use super::starting::Starting;
use crate::reaper::Reaper;
use crate::settings::Environment;
use crate::telemetry::Telemetry;
use crate::upstream::discovery::Surroundings;
use crate::upstream::events::{BACKLOG, Event};
use crate::upstream::login::Logins;
use crate::upstream::questions::Callers;

/// Limits of time and number.
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
    /// Concurrent calls of one server; further ones wait.
    pub calls_at_once: usize,
    /// How long a server may be idle before it is stopped; None = for ever.
    pub idle: Option<Duration>,
    /// The same for a server that was started only to list its tools.
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

/// What all connections share.
#[derive(Debug)]
pub(in crate::upstream) struct Context {
    pub(in crate::upstream) limits: Limits,
    pub(in crate::upstream) environment: Arc<Environment>,
    pub(in crate::upstream) cwd: PathBuf,
    pub(in crate::upstream) events: broadcast::Sender<Event>,
    /// The runs under way, whose clients servers may ask.
    pub(in crate::upstream) runs: Callers,
    pub(in crate::upstream) listener: Arc<dyn Listener>,
    pub(super) reaper: Reaper,
    pub(super) starting: Starting,
    pub(super) telemetry: Telemetry,
    pub(in crate::upstream) logins: Logins,
    /// Whether a server may be this bridge itself.
    pub(in crate::upstream) allow_self: bool,
}

impl Context {
    pub(in crate::upstream) fn new(
        limits: Limits,
        surroundings: &Surroundings,
        listener: Arc<dyn Listener>,
        reaper: Reaper,
        telemetry: Telemetry,
    ) -> Self {
        Self {
            limits,
            environment: Arc::clone(&surroundings.environment),
            cwd: surroundings.cwd.clone(),
            events: broadcast::Sender::new(BACKLOG),
            runs: Callers::default(),
            listener,
            reaper,
            starting: Starting::default(),
            telemetry,
            logins: Logins::new(&surroundings.state_dir, &surroundings.environment, surroundings.keyring),
            allow_self: surroundings.allow_self,
        }
    }
}
