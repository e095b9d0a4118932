//! What a definition says of an OpenAPI document: where it is, and how its operations are called.

use std::fmt;
use std::path::PathBuf;

use super::http_options::HttpOptions;
use super::public_url::public_url;

/// An OpenAPI document that is used as a server.
#[derive(Clone, PartialEq, Eq)]
pub struct OpenApi {
    pub document: DocumentPlace,
    /// Where its paths begin, in place of what the document says.
    pub base_url: Option<String>,
    pub auth: Option<Auth>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// What variables filled in there, which code must not see.
    pub filled_in: Vec<String>,
    /// The certificates of connections; a login is not supported.
    pub options: HttpOptions,
}

/// Where a document is.
#[derive(Clone, PartialEq, Eq)]
pub enum DocumentPlace {
    File(PathBuf),
    Url(String),
}

/// The credentials of requests.
#[derive(Clone, PartialEq, Eq)]
pub enum Auth {
    Header {
        name: String,
        value: String,
    },
    Query {
        name: String,
        value: String,
    },
    Basic {
        user: String,
        password: String,
    },
    /// Client credentials of OAuth 2.
    OAuth2 {
        /// Where tokens are issued; None = where a local document says.
        token_url: Option<String>,
        client_id: String,
        client_secret: String,
        scopes: Vec<String>,
    },
}

impl Auth {
    /// Returns the name of what is secret in it, and the secret.
    pub fn secret(&self) -> (&str, &str) {
        match self {
            Self::Header { name, value } | Self::Query { name, value } => (name, value),
            Self::Basic { password, .. } => ("password", password),
            Self::OAuth2 { client_secret, .. } => ("clientSecret", client_secret),
        }
    }

    /// Returns the texts of which each part changes what is sent; for the key of the definition.
    pub fn parts(&self) -> Vec<&str> {
        match self {
            Self::Header { name, value } => vec!["header", name, value],
            Self::Query { name, value } => vec!["query", name, value],
            Self::Basic { user, password } => vec!["basic", user, password],
            Self::OAuth2 { token_url, client_id, client_secret, scopes } => {
                let mut parts =
                    vec!["oauth2", token_url.as_deref().unwrap_or_default(), client_id, client_secret];
                parts.extend(scopes.iter().map(String::as_str));
                parts
            }
        }
    }
}

impl fmt::Debug for Auth {
    /// Leaves out everything but the name of the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Auth").field(&self.secret().0).finish()
    }
}

impl fmt::Debug for OpenApi {
    /// Leaves out what may be a credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenApi")
            .field("document", &self.document)
            .field("base_url", &self.base_url.as_deref().map(public_url))
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for DocumentPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for DocumentPlace {
    /// Writes the path, or the URL without user, password, query and fragment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Url(url) => f.write_str(&public_url(url)),
        }
    }
}
