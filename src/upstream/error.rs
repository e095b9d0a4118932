//! Errors of using a server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::upstream::discovery::{Skip, TrustError};

/// Why a server could not be used, or why a call has no result. A tool that fails itself gives a result instead.
///
/// None of the texts contains a credential of the server's definition. A `method` is a tool or a method of the protocol.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UpstreamError {
    #[error("no server named '{name}'{}", did_you_mean(.nearest))]
    Unknown {
        name: String,
        /// A similar name that there is.
        nearest: Option<Arc<str>>,
    },
    #[error("server '{server}' is not used: {why}")]
    Skipped { server: Arc<str>, why: Skip },
    /// The person was asked whether to trust its definition, and said no.
    #[error("server '{server}' is not used: its definition in the working directory was refused")]
    Distrusted { server: Arc<str> },
    #[error(transparent)]
    Trust(#[from] Arc<TrustError>),
    #[error("server '{server}' has no tool '{tool}'{}", did_you_mean(.nearest))]
    UnknownTool {
        server: Arc<str>,
        tool: String,
        /// A similar name that there is.
        nearest: Option<Arc<str>>,
    },
    /// The server was not called, because it does not take these arguments.
    #[error("could not call '{tool}' of server '{server}': {why}")]
    Arguments { server: Arc<str>, tool: String, why: String },
    #[error("could not start server '{server}': {why}{}", end_of(.stderr))]
    Start {
        server: Arc<str>,
        why: String,
        /// The command, if there is no such program.
        missing_program: Option<String>,
        /// Whether the issuer of its TLS certificate is unknown.
        unknown_issuer: bool,
        /// The end of its standard error.
        stderr: String,
    },
    /// The server failed several times and is not started again yet.
    #[error("server '{server}' failed {failures} times in a row; next attempt in {} s: {last}", .wait.as_secs_f64().ceil())]
    BackingOff {
        server: Arc<str>,
        failures: u32,
        wait: Duration,
        /// The last failure.
        last: String,
    },
    /// The server ended while a call was under way. The next call starts it again.
    #[error("server '{server}' ended during the call: {how}{}", end_of(.stderr))]
    Ended {
        server: Arc<str>,
        /// Its exit status, or how the connection ended.
        how: String,
        /// The end of its standard error.
        stderr: String,
    },
    #[error("server '{server}' did not answer '{method}' within {limit:?}")]
    TimedOut {
        server: Arc<str>,
        method: String,
        limit: Duration,
        /// Whether the limit is from the server's definition.
        by_definition: bool,
    },
    #[error("the call of '{method}' on server '{server}' was cancelled")]
    Cancelled { server: Arc<str>, method: String },
    /// The server answered with an error of the protocol.
    #[error("server '{server}' refused '{method}': {message} ({code})")]
    Refused {
        server: Arc<str>,
        method: String,
        /// The code of JSON-RPC.
        code: i32,
        message: String,
        data: Option<Box<Value>>,
    },
    #[error(
        "the result of {server}.{tool} is dropped: it has {bytes} bytes, and the results before it were not read"
    )]
    Unread { server: Arc<str>, tool: String, bytes: usize },
    #[error("could not read the answer of server '{server}' to '{method}': {why}")]
    Malformed { server: Arc<str>, method: String, why: String },
    /// A message could not be sent.
    #[error("could not reach server '{server}': {why}")]
    Unreachable { server: Arc<str>, why: String },
    #[error("the bridge is shutting down")]
    ShuttingDown,
}

impl UpstreamError {
    /// Returns the error and, on a line of its own, what to do about it.
    pub fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self}\nhint: {hint}"),
            None => self.to_string(),
        }
    }

    /// Returns what the user can do about it, when that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Skipped { why: Skip::MissingVariable(name), .. } => {
                Some(format!("set {name} where the bridge is started, or write '${{{name}:-default}}'"))
            }
            Self::Skipped { server, why: Skip::Untrusted(_) } => Some(format!(
                "if you know where this folder comes from, run `{}` in it",
                trust_command(server)
            )),
            Self::Unknown { nearest: None, .. } => {
                Some("list servers with `codebridge servers`, or runtime.discovered_servers() in code".into())
            }
            Self::Start { missing_program: Some(program), .. } => {
                Some(format!("install {}, or set 'command' to its full path", package_of(program)))
            }
            Self::Start { unknown_issuer: true, .. } => Some(
                "if you trust the server, set SSL_CERT_FILE where the bridge is started to a PEM file with the certificate of \
                 its issuer and those of the system"
                    .into(),
            ),
            Self::TimedOut { by_definition: true, .. } => {
                Some("raise 'tool_timeout_sec' in the server's definition".into())
            }
            Self::Unread { .. } => Some("await the results of earlier calls before more are made".into()),
            Self::TimedOut { .. } => Some("give the call a longer timeout".into()),
            _ => None,
        }
    }
}

/// Returns what has to be installed to have a program.
fn package_of(program: &str) -> String {
    match Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or(program) {
        "node" | "npm" | "npx" => "Node.js".into(),
        "uv" | "uvx" => "uv".into(),
        "python" | "python3" => "Python".into(),
        name => format!("'{name}'"),
    }
}

/// Returns the command that approves the definition of a server, to be typed in its folder.
pub fn trust_command(name: &str) -> String {
    let quoted = shlex::try_quote(name).map_or_else(|_| name.to_owned(), |word| word.into_owned());
    format!("codebridge servers trust {quoted}")
}

fn did_you_mean(nearest: &Option<Arc<str>>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}

fn end_of(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; the end of its stderr:\n{stderr}") }
}
