//! Why there is no login, or why it cannot be used.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::fetch::FetchError;
use super::keyring::KeyringError;
use crate::upstream::http_client::CertificateFileError;
use crate::upstream::shell::login_command;

/// Why a person could not log in to a server, or why the login cannot be used. None of the texts contains a credential; what
/// others have written is shortened and has no control characters.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{} '{server}': {problem}", problem.task())]
pub struct LoginError {
    pub server: Arc<str>,
    pub problem: Problem,
}

/// What went wrong.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Problem {
    #[error("it is a child process, which takes its credentials from its variables")]
    Local,
    #[error("its definition has a login already, in the header 'Authorization'")]
    HasHeader,
    #[error("its URL is invalid")]
    Url,
    #[error("{0}")]
    Certificates(CertificateFileError),
    #[error("{0}")]
    Fetch(FetchError),
    #[error("it does not say where to log in")]
    Undiscovered,
    /// The server or the provider says what must not be believed or used.
    #[error("{0}")]
    Unsafe(String),
    #[error("its provider registers no clients by itself")]
    Unregistered {
        redirect_uri: String,
        /// The port that the definition has to name.
        port: Option<u16>,
    },
    #[error("its provider did not register this client: {0}")]
    NotRegistered(String),
    #[error("its provider refused: {0}")]
    Refused(String),
    #[error("could not wait for the browser on {address}: {source}")]
    Listen { address: String, source: Arc<io::Error> },
    #[error("nobody logged in within {} minutes", .0.as_secs() / 60)]
    TimedOut(Duration),
    #[error("this is neither a code nor the address of the last page")]
    Pasted,
    /// The provider says in the address who it is.
    #[error("a code is not enough at this provider")]
    PastedCode,
    /// The browser would bring the code where others can read it.
    #[error("the console is reached without TLS, where others can read a login")]
    OpenPage,
    #[error("the browser came back from another login, or a second time")]
    Strange,
    #[error("the login has expired")]
    Expired,
    #[error("the login could not be renewed: {0}")]
    NotRenewed(String),
    #[error("could not use '{}': {source}", path.display())]
    File { path: PathBuf, source: Arc<io::Error> },
    /// The credentials of a login are there, and it does not give them.
    #[error("its login is in the keyring, and {0}")]
    Keyring(KeyringError),
    #[error("the login is not used any more, but it is still in the keyring: {0}")]
    StillInKeyring(KeyringError),
}

impl Problem {
    fn task(&self) -> &'static str {
        match self {
            Self::Expired | Self::NotRenewed(_) | Self::Keyring(_) => "could not use server",
            Self::StillInKeyring(_) => "could not finish the logout from",
            _ => "could not log in to",
        }
    }
}

impl LoginError {
    /// Returns whether another login helps.
    pub fn is_expired(&self) -> bool {
        matches!(self.problem, Problem::Expired | Problem::Keyring(KeyringError::Missing))
    }

    /// Returns what the user can do about it, when that is known.
    pub fn hint(&self) -> Option<String> {
        match &self.problem {
            Problem::PastedCode => Some("paste the address of the last page".into()),
            Problem::Expired
            | Problem::TimedOut(_)
            | Problem::Pasted
            | Problem::Keyring(KeyringError::Missing) => {
                Some(format!("run `{}`", login_command(&self.server)))
            }
            Problem::NotRenewed(_) => {
                Some(format!("try again later, or log in again: `{}`", login_command(&self.server)))
            }
            Problem::Keyring(_) => Some(format!(
                "unlock the keyring, or keep the login in a file: `MCP_BRIDGE_KEYRING=0 {}`",
                login_command(&self.server)
            )),
            Problem::Local => Some("put them into \"env\" of its definition".into()),
            Problem::HasHeader => Some("remove the header to log in with a browser".into()),
            Problem::Undiscovered => {
                Some("if it needs a token, put it into \"headers\" of its definition".into())
            }
            Problem::Unregistered { redirect_uri, port } => {
                let port = port.map_or_else(String::new, |port| format!(", \"redirectPort\": {port}"));
                Some(format!(
                    "register a client there with the redirect URI {redirect_uri}, and write its id into its definition: \
                     \"oauth\": {{\"clientId\": \"…\"{port}}}"
                ))
            }
            Problem::OpenPage => Some(format!(
                "open the console over HTTPS, or have the operator run `{}` with --principal",
                login_command(&self.server)
            )),
            Problem::Listen { .. } => {
                Some("set another \"redirectPort\" in \"oauth\" of its definition".into())
            }
            _ => None,
        }
    }
}
