//! What a definition says of a remote server beside its URL: how to log in, and which certificates to use.

use std::fmt;
use std::path::PathBuf;

/// The settings of connections to a remote server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpOptions {
    pub oauth: OAuthOptions,
    /// Certificates of issuers that are trusted beside those of the system, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Our certificate, in PEM.
    pub client_cert: Option<PathBuf>,
    /// Its key; None = it is in the file of the certificate.
    pub client_key: Option<PathBuf>,
}

/// How to log in with OAuth, as far as it is not found out.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OAuthOptions {
    /// The client that the user has registered at the provider.
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    /// A document about this client, published by the user. Its URL is the client's id at providers that read such documents.
    pub client_metadata_url: Option<String>,
    /// The permissions to ask for; empty = those that the server names.
    pub scopes: Vec<String>,
    /// Where the provider sends the browser back to; None = any free port.
    pub redirect: Option<Redirect>,
}

/// A place on this machine, as it was registered at a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redirect {
    /// `localhost` or `127.0.0.1`: providers compare texts.
    pub host: &'static str,
    pub port: u16,
}

impl fmt::Debug for OAuthOptions {
    /// Leaves out the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthOptions")
            .field("client_id", &self.client_id)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}
