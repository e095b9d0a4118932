//! HTTP clients for remote servers: what all of them have in common, and the certificates that a definition names.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, Identity};

use super::discovery::HttpOptions;

/// How long connecting may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Why a file of certificates cannot be used. It may hold a key: nothing of it is shown.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CertificateFileError {
    #[error("could not read '{}' ('{key}' of its definition): {source}", path.display())]
    Read { key: &'static str, path: PathBuf, source: Arc<io::Error> },
    #[error("'{}' ('{key}' of its definition) {problem}", path.display())]
    Content { key: &'static str, path: PathBuf, problem: &'static str },
}

/// Returns the start of a client.
pub(super) fn plain_builder() -> ClientBuilder {
    // Another part of the program may have installed the same provider before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_LIMIT)
}

/// Returns the start of a client with the certificates of a definition. `shows_certificate` = that of the definition is shown to the servers that ask for one.
pub(super) fn builder(
    options: &HttpOptions,
    shows_certificate: bool,
) -> Result<ClientBuilder, CertificateFileError> {
    let mut builder = plain_builder();
    if let Some(path) = &options.ca_file {
        let key = "caFile";
        let certificates = Certificate::from_pem_bundle(&read(key, path)?).unwrap_or_default();
        if certificates.is_empty() {
            let problem = "has no certificate in PEM";
            return Err(CertificateFileError::Content { key, path: path.clone(), problem });
        }
        builder = builder.tls_certs_merge(certificates);
    }
    if let Some(path) = options.client_cert.as_ref().filter(|_| shows_certificate) {
        let key = "clientCert";
        let mut pem = read(key, path)?;
        if let Some(path) = &options.client_key {
            pem.push(b'\n');
            pem.extend(read("clientKey", path)?);
        }
        let problem = "has no certificate with a key in PEM that is not encrypted";
        let identity = Identity::from_pem(&pem).map_err(|_| CertificateFileError::Content {
            key,
            path: path.clone(),
            problem,
        })?;
        builder = builder.identity(identity);
    }
    Ok(builder)
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, CertificateFileError> {
    fs::read(path).map_err(|source| CertificateFileError::Read {
        key,
        path: path.to_path_buf(),
        source: Arc::new(source),
    })
}
