//! Why HTTP cannot be served.

use std::io;
use std::path::PathBuf;

use crate::tokens::TokenError;

/// Why HTTP cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("invalid address '{0}': expected HOST:PORT or unix:PATH")]
    Address(String),
    #[error("could not listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("could not listen on unix:{}: something else is there, or another process listens on it", .0.display())]
    Taken(PathBuf),
    #[error("could not read {what} '{}': {why}", file.display())]
    Tls { what: &'static str, file: PathBuf, why: String },
    #[error("the certificate and the key do not make a server: {0}")]
    Certificate(rustls::Error),
    #[error("invalid issuer '{0}': expected a URL with https, or with http on this machine")]
    Issuer(String),
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl HttpError {
    /// Returns what to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Address(_) => Some("for example --http 127.0.0.1:8765, or --http unix:/run/codebridge.sock".into()),
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("stop the process that uses the port, or use another one; port 0 takes a free one".into())
            }
            Self::Taken(_) => Some("use another path, or remove the file if nothing needs it".into()),
            Self::Tls { .. } | Self::Certificate(_) => {
                Some("both files are PEM: --tls-cert has the certificate and those that sign it, --tls-key its key".into())
            }
            _ => None,
        }
    }
}
