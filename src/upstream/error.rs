//! What can go wrong with a server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::upstream::discovery::Skip;

/// A server could not be used, or a call of it came to nothing. A tool's own failure is no such error but a result.
///
/// No credential of the server's definition is in any of the texts.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UpstreamError {
    /// Nobody defines such a server.
    #[error("no server is called '{name}'{}", Nearest(.nearest))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        nearest: Option<Arc<str>>,
    },
    /// Its definition is not used.
    #[error("the server '{server}' is not used: {why}")]
    Skipped {
        /// Its name.
        server: Arc<str>,
        /// Why not.
        why: Skip,
    },
    /// It has no such tool.
    #[error("the server '{server}' has no tool '{tool}'{}", Nearest(.nearest))]
    UnknownTool {
        /// Its name.
        server: Arc<str>,
        /// What was asked for.
        tool: String,
        /// What may have been meant.
        nearest: Option<Arc<str>>,
    },
    /// A call with arguments that the tool cannot take; the server was not told of it.
    #[error("'{tool}' of the server '{server}' cannot be called like this: {why}")]
    Arguments {
        /// Its name.
        server: Arc<str>,
        /// The tool.
        tool: String,
        /// What is wrong with them.
        why: String,
    },
    /// It did not come up.
    #[error("failed to start the server '{server}': {why}{}", Said(.stderr))]
    Start {
        /// Its name.
        server: Arc<str>,
        /// Why not.
        why: String,
        /// The last that it wrote to standard error.
        stderr: String,
    },
    /// It has failed again and again, and is given a rest.
    #[error("the server '{server}' failed {failures} times in a row and is tried again in {} s: {last}", .wait.as_secs_f64().ceil())]
    Resting {
        /// Its name.
        server: Arc<str>,
        /// How often.
        failures: u32,
        /// How much longer.
        wait: Duration,
        /// The last failure.
        last: String,
    },
    /// It ended while a call was under way. The next call starts it anew.
    #[error("the server '{server}' ended during the call: {how}{}", Said(.stderr))]
    Ended {
        /// Its name.
        server: Arc<str>,
        /// Its exit status, or how the connection ended.
        how: String,
        /// The last that it wrote to standard error.
        stderr: String,
    },
    /// It took too long.
    #[error("'{method}' of the server '{server}' was not answered within {limit:?}")]
    TimedOut {
        /// Its name.
        server: Arc<str>,
        /// The tool or method.
        method: String,
        /// How long it could have taken.
        limit: Duration,
        /// Whether the server's definition says so.
        by_definition: bool,
    },
    /// Whoever asked does not want to know any more.
    #[error("the call of '{method}' of the server '{server}' was cancelled")]
    Cancelled {
        /// Its name.
        server: Arc<str>,
        /// The tool or method.
        method: String,
    },
    /// It answered with an error of the protocol.
    #[error("the server '{server}' refused '{method}': {message} ({code})")]
    Refused {
        /// Its name.
        server: Arc<str>,
        /// The tool or method.
        method: String,
        /// The code of JSON-RPC.
        code: i32,
        /// Its words.
        message: String,
        /// More of it.
        data: Option<Box<Value>>,
    },
    /// It answered with something that is no answer.
    #[error("the answer of the server '{server}' to '{method}' cannot be read: {why}")]
    Malformed {
        /// Its name.
        server: Arc<str>,
        /// The tool or method.
        method: String,
        /// What is wrong with it.
        why: String,
    },
    /// A message did not get through.
    #[error("the server '{server}' cannot be reached: {why}")]
    Unreachable {
        /// Its name.
        server: Arc<str>,
        /// Why not.
        why: String,
    },
    /// The bridge is going.
    #[error("the bridge is shutting down")]
    ShuttingDown,
}

impl UpstreamError {
    /// What to do about it, when more can be said than the message does.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Skipped { why: Skip::MissingVariable(name), .. } => {
                Some(format!("set {name} where the bridge is started, or write '${{{name}:-default}}'"))
            }
            Self::Unknown { nearest: None, .. } => {
                Some("`codebridge servers` lists them, and runtime.discovered_servers() in code".into())
            }
            Self::TimedOut { by_definition: true, .. } => {
                Some("its definition sets that limit: see 'tool_timeout_sec' there".into())
            }
            Self::TimedOut { .. } => Some("give the call a longer timeout".into()),
            _ => None,
        }
    }
}

struct Nearest<'a>(&'a Option<Arc<str>>);

impl fmt::Display for Nearest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "; did you mean '{name}'?"),
            None => Ok(()),
        }
    }
}

struct Said<'a>(&'a String);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, "; its last words were:\n{}", self.0)
    }
}
