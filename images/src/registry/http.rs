//! HTTP where the registry library has no answer: documents of bounded size, and identity tokens.

use std::path::Path;
use std::time::Duration;

use oci_client::client::{Certificate, CertificateEncoding};
use oci_client::secrets::RegistryAuth;
use reqwest::header::{ACCEPT, WWW_AUTHENTICATE};
use reqwest::{Client, NoProxy, Proxy, Response, StatusCode};
use serde::Deserialize;

use super::credentials::CredentialError;
use super::endpoints::{Endpoint, Scheme};
use super::environment::Environment;
use super::error::Reason;
use crate::manifest::{MANIFEST_LIMIT, MANIFEST_TYPES};

/// How long to wait for a registry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// Name lookup, connection and TLS handshake.
    pub(crate) connect: Duration,
    /// Between two pieces of an answer.
    pub(crate) read: Duration,
    /// For a small document as a whole.
    pub(crate) document: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(10), read: seconds(30), document: seconds(60) }
    }
}

/// Returns a client for one address.
pub(crate) fn client(
    endpoint: &Endpoint,
    environment: &Environment,
    timeouts: Timeouts,
) -> Result<Client, Reason> {
    // The cryptography of TLS; one that is installed already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificates_error = |error: reqwest::Error| Reason::no_certificates(&error);
    let proxy_error = |error: reqwest::Error| Reason::unreachable(&error);
    let mut builder = Client::builder()
        .user_agent(AGENT)
        .connect_timeout(timeouts.connect)
        .read_timeout(timeouts.read)
        // Without TLS nothing has to be verified, and no authorities have to be read from disk for it.
        .tls_danger_accept_invalid_certs(endpoint.scheme != Scheme::Https);
    let mut own = Vec::new();
    for certificate in certificates(&endpoint.host) {
        own.push(reqwest::Certificate::from_pem(&certificate.data).map_err(certificates_error)?);
    }
    builder = builder.tls_certs_merge(own);
    let direct = NoProxy::from_string(&environment.no_proxy());
    if let Some(url) = environment.https_proxy() {
        builder = builder.proxy(Proxy::https(url).map_err(proxy_error)?.no_proxy(direct.clone()));
    }
    if let Some(url) = environment.http_proxy() {
        builder = builder.proxy(Proxy::http(url).map_err(proxy_error)?.no_proxy(direct));
    }
    builder.build().map_err(certificates_error)
}

/// The `User-Agent` of every request.
pub(crate) const AGENT: &str = concat!("codebridge/", env!("CARGO_PKG_VERSION"));

/// Returns a registry's own certificates, from where podman and docker look for them
/// (<https://man.archlinux.org/man/containers-certs.d.5>).
pub(crate) fn certificates(host: &str) -> Vec<Certificate> {
    let mut found = Vec::new();
    for folder in ["/etc/containers/certs.d", "/etc/docker/certs.d"] {
        let Ok(entries) = std::fs::read_dir(Path::new(folder).join(host)) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|ending| ending == "crt")
                && let Ok(data) = std::fs::read(&path)
            {
                found.push(Certificate { encoding: CertificateEncoding::Pem, data });
            }
        }
    }
    found
}

/// Returns a manifest or an index of bounded size, whatever the registry says of its size.
pub(crate) async fn document(
    client: &Client,
    url: &str,
    auth: &RegistryAuth,
    logged_in: bool,
) -> Result<Vec<u8>, Reason> {
    let unreachable = |error: reqwest::Error| Reason::unreachable(&error);
    let request = client.get(url).header(ACCEPT, MANIFEST_TYPES.join(", "));
    let request = match auth {
        RegistryAuth::Anonymous => request,
        RegistryAuth::Bearer(token) => request.bearer_auth(token),
        RegistryAuth::Basic(user, password) => request.basic_auth(user, Some(password)),
    };
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let content = bounded(response, MANIFEST_LIMIT).await.map_err(unreachable)?;
    match (status, content) {
        (StatusCode::OK, Some(content)) => Ok(content),
        (StatusCode::OK, None) => {
            Err(Reason::senseless(format!("its manifest has more than {MANIFEST_LIMIT} bytes")))
        }
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => Err(Reason::Unauthorized { logged_in }),
        (StatusCode::NOT_FOUND, _) => Err(Reason::NotFound),
        (status, content) => {
            let text = content.unwrap_or_default();
            Err(Reason::status(status.as_u16(), &String::from_utf8_lossy(&text)))
        }
    }
}

/// Returns an answer's content; None when it is larger than the limit.
async fn bounded(mut response: Response, limit: u64) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut content = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if (content.len() + piece.len()) as u64 > limit {
            return Ok(None);
        }
        content.extend_from_slice(&piece);
    }
    Ok(Some(content))
}

/// Exchanges the identity token of an earlier login for a token for one repository
/// (<https://distribution.github.io/distribution/spec/auth/oauth/>).
pub(crate) async fn exchange(
    client: &Client,
    base: &str,
    repository: &str,
    identity: &str,
) -> Result<String, Reason> {
    #[derive(Deserialize)]
    struct Answer {
        access_token: String,
    }
    let unreachable = |error: reqwest::Error| Reason::unreachable(&error);
    let answer = client.get(format!("{base}/v2/")).send().await.map_err(unreachable)?;
    let challenge = answer.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
    let bearer = challenge.and_then(parse_bearer);
    let Some((realm, service)) = bearer else {
        return Err(CredentialError::NoTokenService.into());
    };
    let form = [
        ("grant_type", "refresh_token"),
        ("client_id", "codebridge"),
        ("service", &service),
        ("scope", &format!("repository:{repository}:pull")),
        ("refresh_token", identity),
    ];
    let response = client.post(realm).form(&form).send().await.map_err(unreachable)?;
    if !response.status().is_success() {
        return Err(Reason::Unauthorized { logged_in: true });
    }
    let content = bounded(response, MANIFEST_LIMIT).await.map_err(unreachable)?.unwrap_or_default();
    let answer: Result<Answer, _> = serde_json::from_slice(&content);
    answer
        .map(|answer| answer.access_token)
        .map_err(|_| Reason::senseless("its token service answers without a token"))
}

/// Parses the token service and the name of the registry there, from `Bearer realm="…",service="…"`.
fn parse_bearer(challenge: &str) -> Option<(String, String)> {
    let rest = challenge.trim_start();
    let scheme = rest.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("bearer "))?;
    let (mut realm, mut service) = (None, String::new());
    for part in rest[scheme.len()..].split(',') {
        let Some((key, value)) = part.split_once('=') else { continue };
        let value = value.trim().trim_matches('"').to_string();
        match key.trim() {
            "realm" => realm = Some(value),
            "service" => service = value,
            _ => {}
        }
    }
    Some((realm?, service))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_names_the_token_service() {
        let expected = Some(("https://x/token".to_string(), "reg".to_string()));
        assert_eq!(parse_bearer(r#"Bearer realm="https://x/token",service="reg""#), expected);
        assert_eq!(
            parse_bearer(r#" bearer service=reg, realm="https://x/token", scope="a:b:c,d""#),
            expected
        );
        for text in ["", "Basic realm=\"x\"", "Bearer service=\"x\"", "Bearer", "ÄÄÄÄÄÄÄÄÄ"] {
            assert_eq!(parse_bearer(text), None, "{text}");
        }
    }
}
