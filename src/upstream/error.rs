//! Errors of using a server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use crate::audit::AuditError;
use crate::policy::Kind;
use crate::upstream::denied::Denied;
use crate::upstream::discovery::{Skip, TrustError, UnknownProfile};
use crate::upstream::login::LoginError;
use crate::upstream::shell::{login_command, shell_word, trust_command};

/// What helps a server that could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// There is no such program.
    Install(Box<str>),
    /// The issuer of its TLS certificate is unknown.
    TrustIssuer,
    /// It was not ready in time.
    MoreTime,
    /// It printed something that is not MCP.
    OtherCommand,
}

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
    /// No server is used: the profile that was chosen does not exist.
    #[error(transparent)]
    Profile(#[from] UnknownProfile),
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
    /// The server was not called, because the policy or the person does not allow it.
    #[error("the call of {server}.{tool} is denied: {why}")]
    Denied { server: Arc<str>, tool: String, why: Arc<Denied> },
    /// A resource or a prompt of a server, which the policy or the person does not allow.
    #[error("the {kind} '{name}' of server '{server}' is denied: {why}")]
    DeniedOffer { kind: Kind, server: Arc<str>, name: String, why: Arc<Denied> },
    /// Something else that the policy or the person does not allow.
    #[error("the {kind} '{name}' is denied: {why}")]
    NotAllowed { kind: Kind, name: String, why: Arc<Denied> },
    #[error(
        "could not {} server '{server}'{}: {why}{}{}", if .url.is_some() { "reach" } else { "start" }, at(.url), first_of(.printed),
        end_of(.stderr)
    )]
    Start {
        server: Arc<str>,
        /// That of a remote server.
        url: Option<Box<str>>,
        why: String,
        remedy: Option<Remedy>,
        /// The first lines of its standard output that are not MCP.
        printed: Box<str>,
        /// The end of its standard error.
        stderr: String,
    },
    /// A remote server answered with an error of HTTP instead of a message.
    #[error("server '{server}' {} (HTTP {status} from {url}){body}", refusal(*.status))]
    Http {
        server: Arc<str>,
        status: StatusCode,
        url: String,
        /// The start of the body, after a colon.
        body: String,
        /// Whether the request had the header of a login.
        has_login: bool,
    },
    /// The login of the user cannot be used.
    #[error(transparent)]
    Login(Box<LoginError>),
    /// The same, or that the server wants one, for one of many users, who logs in on a page of the console.
    #[error("{error}")]
    LoginOnPage {
        server: Arc<str>,
        error: Box<UpstreamError>,
        /// None where the console cannot be reached.
        page: Option<String>,
        principal: Arc<str>,
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
    /// The server was not called, because the call has to be in the audit log and cannot be written there.
    #[error("the call of {server}.{tool} is not made: {why}")]
    Unrecorded { server: Arc<str>, tool: String, why: Arc<AuditError> },
    /// What was recorded of a call that failed, in a replay.
    #[error("{text}")]
    Replayed { text: String, kind: Option<&'static str> },
    #[error("the bridge is shutting down")]
    ShuttingDown,
}

impl UpstreamError {
    /// Returns the word for it in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "unknown_server",
            Self::Skipped { .. } | Self::Distrusted { .. } | Self::Profile(_) | Self::Trust(_) => {
                "unused_server"
            }
            Self::UnknownTool { .. } => "unknown_tool",
            Self::Arguments { .. } => "invalid_arguments",
            Self::Denied { .. } | Self::DeniedOffer { .. } | Self::NotAllowed { .. } => "denied",
            Self::Start { .. } | Self::BackingOff { .. } => "start_failed",
            Self::Http { .. } => "http_error",
            Self::Login(_) => "login",
            Self::LoginOnPage { error, .. } => error.kind(),
            Self::Ended { .. } => "server_ended",
            Self::TimedOut { .. } => "timeout",
            Self::Cancelled { .. } | Self::ShuttingDown => "cancelled",
            Self::Refused { .. } => "refused",
            Self::Unread { .. } => "unread",
            Self::Malformed { .. } => "malformed",
            Self::Unreachable { .. } => "unreachable",
            Self::Unrecorded { .. } => "unrecorded",
            Self::Replayed { .. } => "replayed",
        }
    }

    /// Returns whether the server wants a login.
    pub(super) fn is_about_login(&self) -> bool {
        match self {
            Self::Login(_) | Self::LoginOnPage { .. } => true,
            Self::Http { status, .. } => *status == StatusCode::UNAUTHORIZED,
            _ => false,
        }
    }

    /// Returns the error and, on a line of its own, what to do about it.
    pub fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self}\nhint: {hint}"),
            None => self.to_string(),
        }
    }

    /// Returns the error for a reader who knows which server it is about.
    pub fn reason(&self) -> String {
        match self {
            Self::Start { url: None, why, printed, stderr, .. } => {
                format!("{why}{}{}", first_of(printed), end_of(stderr))
            }
            Self::Start { url: Some(url), why, .. } => format!("it could not be reached at {url}: {why}"),
            Self::Http { status, url, body, .. } => {
                format!("it {} (HTTP {status} from {url}){body}", refusal(*status))
            }
            Self::Skipped { why, .. } => why.to_string(),
            Self::LoginOnPage { error, .. } => error.reason(),
            _ => self.to_string(),
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
            Self::Skipped { why: Skip::NotInProfile(_), .. } => Some(
                "add it to the profile, or choose another one with MCP_BRIDGE_PROFILE (--profile)".into(),
            ),
            Self::Profile(_) => Some("choose another one with MCP_BRIDGE_PROFILE (--profile)".into()),
            Self::Skipped { why: Skip::Disabled | Skip::Invalid(_) | Skip::Duplicate(_), .. } => {
                Some("change its definition: `codebridge servers` shows the file and the line".into())
            }
            Self::UnknownTool { server, nearest: None, .. } => Some(format!(
                "list its tools with `codebridge tools show {}`, or runtime.query_tool_docs({}) in code",
                shell_word(server),
                json!(server)
            )),
            Self::Unknown { nearest: None, .. } => {
                Some("list servers with `codebridge servers`, or runtime.discovered_servers() in code".into())
            }
            Self::Denied { server, tool, why } => why.hint(server, tool),
            Self::Unrecorded { why, .. } => Some(why.hint()),
            Self::NotAllowed { why, .. } | Self::DeniedOffer { why, .. } => why.hint_of_other(),
            Self::Start { remedy, .. } => remedy.as_ref().map(Remedy::hint),
            Self::Http { server, status, has_login, .. } => hint_at(server, *status, *has_login),
            Self::Login(error) => error.hint(),
            Self::LoginOnPage { server, page, principal, .. } => {
                let command = format!("{} --principal {principal}", login_command(server));
                Some(match page {
                    Some(page) => format!("log in at {page}, or have the operator run `{command}`"),
                    None => format!("have the operator of the bridge run `{command}`"),
                })
            }
            Self::TimedOut { by_definition: true, .. } => {
                Some("raise 'tool_timeout_sec' in the server's definition".into())
            }
            Self::Unread { .. } => Some("await the results of earlier calls before more are made".into()),
            Self::TimedOut { .. } => {
                Some("give the call a longer timeout, up to MCP_BRIDGE_MAX_TIMEOUT (--max-timeout)".into())
            }
            _ => None,
        }
    }
}

impl Remedy {
    fn hint(&self) -> String {
        match self {
            Self::Install(program) => {
                format!("install {}, or set 'command' to its full path", package_of(program))
            }
            Self::TrustIssuer => {
                "if you trust the server, set \"caFile\" in its definition to a PEM file with the certificate of its issuer"
                    .into()
            }
            Self::MoreTime => "raise 'startup_timeout_sec' in the server's definition".into(),
            Self::OtherCommand => {
                "standard output is for MCP alone: 'command' and 'args' must start a server over stdio".into()
            }
        }
    }
}

/// Returns what a status of HTTP says.
fn refusal(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "wants a login",
        StatusCode::FORBIDDEN => "denies access",
        StatusCode::NOT_FOUND => "has no MCP at its URL",
        StatusCode::TOO_MANY_REQUESTS => "limits the number of requests",
        status if status.is_server_error() => "failed",
        _ => "refused the request",
    }
}

fn hint_at(server: &str, status: StatusCode, has_login: bool) -> Option<String> {
    let hint = match status {
        StatusCode::UNAUTHORIZED if !has_login => {
            return Some(format!(
                "run `{}`, or put a token into \"headers\" of its definition",
                login_command(server)
            ));
        }
        StatusCode::FORBIDDEN if !has_login => {
            return Some(format!("to ask for more permissions, run `{}`", login_command(server)));
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Some("check the token in \"headers\" of its definition: it may have expired, or lack permissions")
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Some("check \"url\" in its definition"),
        StatusCode::TOO_MANY_REQUESTS => Some("wait, and try again"),
        status if status.is_server_error() => Some("the fault is at the server: try again later"),
        _ => None,
    };
    hint.map(str::to_owned)
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

fn did_you_mean(nearest: &Option<Arc<str>>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}

fn at(url: &Option<Box<str>>) -> String {
    url.as_ref().map_or_else(String::new, |url| format!(" at {url}"))
}

fn first_of(printed: &str) -> String {
    if printed.is_empty() { String::new() } else { format!("; it printed '{printed}' instead of MCP") }
}

fn end_of(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; the end of its stderr:\n{stderr}") }
}
