//! What the registry library leaves to be desired: documents of bounded size, and identity tokens.

use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use oci_client::client::{Certificate, CertificateEncoding};
use reqwest::header::{ACCEPT, WWW_AUTHENTICATE};
use reqwest::{Client, NoProxy, Proxy, Response, StatusCode};
use serde::Deserialize;

use super::endpoints::{Endpoint, Scheme};
use super::environment::Environment;
use super::error::{Reason, chain};
use crate::manifest::{MANIFEST_LIMIT, MANIFEST_TYPES};

/// How long to wait for a registry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// Name lookup, connection and TLS handshake.
    pub(super) connect: Duration,
    /// Between two pieces of an answer.
    pub(super) read: Duration,
    /// For a small document as a whole.
    pub(super) document: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(10), read: seconds(30), document: seconds(60) }
    }
}

/// What proves who we are, in a request.
#[derive(Debug, Clone)]
pub(super) enum Proof {
    Nothing,
    Bearer(String),
    Basic(String, String),
}

/// Makes sure that TLS has its cryptography.
pub(super) fn install_provider() {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // Somebody else's choice of the same process is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// A client for one address.
pub(super) fn client(
    endpoint: &Endpoint,
    environment: &Environment,
    timeouts: Timeouts,
) -> Result<Client, Reason> {
    install_provider();
    let error = |error: reqwest::Error| Reason::Unreachable(chain(&error));
    let mut builder = Client::builder()
        .user_agent(AGENT)
        .connect_timeout(timeouts.connect)
        .read_timeout(timeouts.read)
        // Without TLS nothing has to be verified, and no authorities have to be read from disk for it.
        .tls_danger_accept_invalid_certs(endpoint.scheme != Scheme::Https);
    let mut own = Vec::new();
    for certificate in certificates(&endpoint.host) {
        own.push(reqwest::Certificate::from_pem(&certificate.data).map_err(error)?);
    }
    builder = builder.tls_certs_merge(own);
    let spared = NoProxy::from_string(&environment.no_proxy());
    if let Some(url) = environment.https_proxy() {
        builder = builder.proxy(Proxy::https(url).map_err(error)?.no_proxy(spared.clone()));
    }
    if let Some(url) = environment.http_proxy() {
        builder = builder.proxy(Proxy::http(url).map_err(error)?.no_proxy(spared));
    }
    builder.build().map_err(error)
}

/// How we call ourselves.
pub(super) const AGENT: &str = concat!("codebridge/", env!("CARGO_PKG_VERSION"));

/// A registry's own certificates, where podman and docker look for them
/// (<https://man.archlinux.org/man/containers-certs.d.5>).
pub(super) fn certificates(host: &str) -> Vec<Certificate> {
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

/// A manifest or an index, however large the registry says it is.
pub(super) async fn document(
    client: &Client,
    url: &str,
    proof: &Proof,
    known: bool,
) -> Result<Vec<u8>, Reason> {
    let unreachable = |error: reqwest::Error| Reason::Unreachable(chain(&error));
    let request = client.get(url).header(ACCEPT, MANIFEST_TYPES.join(", "));
    let request = match proof {
        Proof::Nothing => request,
        Proof::Bearer(token) => request.bearer_auth(token),
        Proof::Basic(user, password) => request.basic_auth(user, Some(password)),
    };
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let content = bounded(response, MANIFEST_LIMIT).await.map_err(unreachable)?;
    match (status, content) {
        (StatusCode::OK, Some(content)) => Ok(content),
        (StatusCode::OK, None) => {
            Err(Reason::Answer(format!("its manifest has more than {MANIFEST_LIMIT} bytes")))
        }
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => Err(Reason::Unauthorized { known }),
        (StatusCode::NOT_FOUND, _) => Err(Reason::NotFound),
        (status, content) => {
            let text = content.unwrap_or_default();
            Err(Reason::answer(status.as_u16(), &String::from_utf8_lossy(&text)))
        }
    }
}

/// An answer's content; None when it is larger than that.
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

/// A token for one repository, for an identity token that an earlier login gave
/// (<https://distribution.github.io/distribution/spec/auth/oauth/>).
pub(super) async fn exchange(
    client: &Client,
    base: &str,
    repository: &str,
    identity: &str,
) -> Result<String, Reason> {
    #[derive(Deserialize)]
    struct Answer {
        access_token: String,
    }
    let unreachable = |error: reqwest::Error| Reason::Unreachable(chain(&error));
    let greeting = client.get(format!("{base}/v2/")).send().await.map_err(unreachable)?;
    let challenge = greeting.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
    let bearer = challenge.and_then(parse_bearer);
    let Some((realm, service)) = bearer else {
        let text = "an identity token is stored for it, and it does not say where such are taken";
        return Err(Reason::Credentials(text.into()));
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
        return Err(Reason::Unauthorized { known: true });
    }
    let content = bounded(response, MANIFEST_LIMIT).await.map_err(unreachable)?.unwrap_or_default();
    let answer: Result<Answer, _> = serde_json::from_slice(&content);
    answer
        .map(|answer| answer.access_token)
        .map_err(|error| Reason::Answer(format!("its token cannot be read: {error}")))
}

/// Where tokens are given and for which service, from `Bearer realm="…",service="…"`.
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
    fn challenges_say_where_tokens_are() {
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
