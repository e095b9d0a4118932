//! What a server definition says, after everything in it was expanded.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How to reach a server.
#[derive(Clone, PartialEq, Eq)]
pub enum Launch {
    /// A child process that speaks on its standard input and output.
    Stdio {
        /// The program: a name to look up or a path.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables that it gets beside what every server inherits.
        env: Vec<(String, String)>,
        /// Where it runs; unset = where the bridge does.
        cwd: Option<PathBuf>,
    },
    /// A server elsewhere.
    Http {
        /// The endpoint.
        url: String,
        /// Headers of every request.
        headers: Vec<(String, String)>,
        /// Whether it is said to be of the older transport, which sends a stream of events.
        older: bool,
    },
}

impl Launch {
    /// `stdio` or `http`.
    pub fn transport(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
        }
    }

    /// The folder that a child process starts in.
    pub fn cwd(&self) -> Option<&Path> {
        match self {
            Self::Stdio { cwd, .. } => cwd.as_deref(),
            Self::Http { .. } => None,
        }
    }
}

impl fmt::Debug for Launch {
    /// Without anything that may be a credential: arguments, values of variables and headers, queries of URLs.
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
        }
    }
}

/// A URL without user, password, query and fragment.
fn public_url(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let url = &url[..end];
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_string() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// A server that can be started.
#[derive(Clone, PartialEq, Eq)]
pub struct Definition {
    /// How to reach it.
    pub launch: Launch,
    /// How long it may take until it is ready, when the definition says so.
    pub startup_timeout: Option<Duration>,
    /// How long one call may take, when the definition says so.
    pub call_timeout: Option<Duration>,
    /// The variables and files that it refers to, with their values.
    pub filled_in: Vec<(String, String)>,
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("launch", &self.launch).finish_non_exhaustive()
    }
}

/// Where a definition stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file.
    pub path: Arc<Path>,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}

/// Why a definition is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Skip {
    /// The user switched it off.
    #[error("it is disabled")]
    Disabled,
    /// It would start this bridge.
    #[error("it is this bridge itself; MCP_BRIDGE_ALLOW_SELF_SERVER=1 lists it all the same")]
    Itself,
    /// Another one of the same name came first.
    #[error("'{0}' defines a server of this name first")]
    Duplicate(Source),
    /// It refers to a variable that is not set.
    #[error("the environment variable '{0}' that it refers to is not set")]
    MissingVariable(String),
    /// It is not of a form that is known.
    #[error("{0}")]
    Invalid(String),
}

/// One definition of some file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub name: Arc<str>,
    /// Its name in Python; empty for one that is not used.
    pub alias: Arc<str>,
    /// What it is for, in the user's words.
    pub description: Option<String>,
    /// Where it is defined.
    pub source: Source,
    /// How to start it, or why it is not used.
    pub definition: Result<Arc<Definition>, Skip>,
}

#[cfg(test)]
mod tests {
    use super::*;

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
        };
        for launch in [stdio, http] {
            let text = format!("{launch:?}");
            assert!(!text.contains("hunter2"), "{text}");
        }
        assert_eq!(public_url("https://a@b:1/x?y"), "https://b:1/x");
        assert_eq!(public_url("no url"), "no url");
    }
}
