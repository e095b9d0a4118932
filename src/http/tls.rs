//! The certificate of the listener.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::error::HttpError;

/// Reads a certificate and its key.
///
/// # Errors
/// A file cannot be read, or they do not fit.
pub(super) fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, HttpError> {
    let failed = |what, file: &Path, why: &dyn std::fmt::Display| HttpError::Tls {
        what,
        file: file.to_path_buf(),
        why: why.to_string(),
    };
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(certificate).and_then(|certificates| certificates.collect());
    let chain = chain.map_err(|error| failed("the certificate", certificate, &error))?;
    if chain.is_empty() {
        return Err(failed("the certificate", certificate, &"it has no certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| failed("the key", key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(HttpError::Certificate)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(HttpError::Certificate)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
