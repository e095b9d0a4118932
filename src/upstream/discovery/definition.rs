//! A server definition after its variables were expanded.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use codebridge_runtimes::exec::visible_line;

use super::http_options::HttpOptions;
use super::openapi::OpenApi;
use super::public_url::public_url;

/// How to reach a server.
#[derive(Clone, PartialEq, Eq)]
pub enum Launch {
    /// A child process that communicates over its standard input and output.
    Stdio {
        /// A name to look up or a path.
        command: String,
        args: Vec<String>,
        /// Variables beside those that every server inherits.
        env: Vec<(String, String)>,
        /// Its working folder; None = that of the bridge.
        cwd: Option<PathBuf>,
    },
    /// A remote server.
    Http {
        url: String,
        headers: Vec<(String, String)>,
        /// Whether the definition asks for the older transport, which sends a stream of events.
        older: bool,
        options: Arc<HttpOptions>,
    },
    /// No MCP server, but an HTTP API with a description.
    OpenApi(Arc<OpenApi>),
}

impl Launch {
    /// Returns `stdio`, `http` or `openapi`.
    pub fn transport(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
            Self::OpenApi(_) => "openapi",
        }
    }

    /// Returns the URL of a remote server, without user, password, query and fragment.
    pub fn public_url(&self) -> Option<String> {
        match self {
            Self::Http { url, .. } => Some(public_url(url)),
            Self::Stdio { .. } | Self::OpenApi(_) => None,
        }
    }

    /// Whether the definition may have a credential for a remote server. Any header can be one: `Authorization`, `X-Api-Key`,
    /// `Cookie` and names of the server's own.
    pub fn has_login(&self) -> bool {
        matches!(self, Self::Http { headers, .. } if !headers.is_empty())
    }

    /// Returns the working folder of a child process.
    pub fn cwd(&self) -> Option<&Path> {
        match self {
            Self::Stdio { cwd, .. } => cwd.as_deref(),
            Self::Http { .. } | Self::OpenApi(_) => None,
        }
    }
}

impl fmt::Debug for Launch {
    /// Leaves out what may be a credential: arguments, values of variables and headers, queries of URLs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            |pairs: &[(String, String)]| pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        match self {
            Self::Stdio { command, args, env, cwd } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &args.len())
                .field("env", &names(env))
                .field("cwd", cwd)
                .finish(),
            Self::Http { url, headers, .. } => f
                .debug_struct("Http")
                .field("url", &public_url(url))
                .field("headers", &names(headers))
                .finish(),
            Self::OpenApi(openapi) => openapi.fmt(f),
        }
    }
}

/// A server that can be started.
#[derive(Clone, PartialEq, Eq)]
pub struct Definition {
    pub launch: Launch,
    /// How long the start may take, if the definition limits it.
    pub startup_timeout: Option<Duration>,
    /// How long a call may take, if the definition limits it.
    pub call_timeout: Option<Duration>,
    /// The variables and files that were expanded, with their values.
    pub filled_in: Vec<(String, String)>,
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("launch", &self.launch).finish_non_exhaustive()
    }
}

/// The place of a definition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    pub path: Arc<Path>,
    /// From 1.
    pub line: usize,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}

/// A definition that needs the user's approval.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Proposal {
    /// Identifies the definition in its folder.
    pub(super) digest: String,
    pub(super) source: Source,
    /// What is used of the definition, and all of it as JSON: in ASCII, as it is written in its file, with nothing expanded.
    pub text: String,
}

impl Proposal {
    /// Returns the question whether to approve the definition.
    pub fn request(&self, server: &str) -> String {
        // Indented, so that clients which format text show it as it is.
        let text = self.text.replace('\n', "\n    ");
        let source = visible_line(&self.source.to_string());
        format!(
            "Code wants to use the MCP server '{server}', which '{source}' in the working directory defines. A server runs \
             outside of the sandbox, with your rights and with the variables that its definition names. Approve it only if \
             you know where this folder comes from.\n\n    {text}"
        )
    }
}

/// Why a definition is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Skip {
    #[error("it is disabled")]
    Disabled,
    /// A profile was chosen that does not have it.
    #[error("it is not in the profile '{0}'")]
    NotInProfile(Arc<str>),
    #[error("it is this bridge itself; MCP_BRIDGE_ALLOW_SELF_SERVER=1 allows that")]
    Itself,
    /// It is in the working directory, and the user has not approved it.
    #[error("it is defined in the working directory and not trusted yet")]
    Untrusted(Arc<Proposal>),
    /// An earlier definition has the same name.
    #[error("'{0}' defines a server of the same name")]
    Duplicate(Source),
    #[error("environment variable '{0}' is not set")]
    MissingVariable(String),
    /// A value is missing or wrong.
    #[error("{0}")]
    Invalid(String),
}

/// A server as defined in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub name: Arc<str>,
    /// Its name in Python; empty if it is not used.
    pub alias: Arc<str>,
    /// The user's description.
    pub description: Option<String>,
    pub source: Source,
    /// The definition, or why it is not used.
    pub definition: Result<Arc<Definition>, Skip>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_header_may_be_a_login() {
        let launch = |names: &[&str]| Launch::Http {
            url: "https://example.org/mcp".into(),
            headers: names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect(),
            older: false,
            options: Arc::default(),
        };
        assert!(launch(&["authorization"]).has_login() && launch(&["X-Api-Key"]).has_login());
        assert!(!launch(&[]).has_login());
    }

    #[test]
    fn credentials_are_not_in_what_is_printed() {
        let stdio = Launch::Stdio {
            command: "npx".into(),
            args: vec!["--key=hunter2".into()],
            env: vec![("TOKEN".into(), "hunter2".into())],
            cwd: None,
        };
        let http = Launch::Http {
            url: "https://me:hunter2@example.org/mcp?key=hunter2#hunter2".into(),
            headers: vec![("Authorization".into(), "Bearer hunter2".into())],
            older: false,
            options: Arc::default(),
        };
        for launch in [stdio, http] {
            let text = format!("{launch:?}");
            assert!(!text.contains("hunter2"), "{text}");
        }
        assert_eq!(public_url("https://a@b:1/x?y"), "https://b:1/x");
        assert_eq!(public_url("no url"), "no url");
    }
}
