//! The provider of a server: found and asked by `rmcp`, whose checks of issuer, resource and redirects these are. What they leave
//! open is checked here: PKCE must be offered, and every URL must be safe to ask.

use std::sync::Arc;

use codebridge_runtimes::exec::visible_line;
use http::{Method, Request, StatusCode, header};
use reqwest::Url;
use rmcp::transport::auth::{AuthorizationMetadata, AuthorizationMetadataSource};
use rmcp::transport::{AuthError, AuthorizationManager, ProtectedResourceMetadataInvalidReason as Reason};
use serde_json::json;

use super::error::{LoginError, Problem};
use super::fetch::{Fetch, SharedFetch, shown_host};
use super::target::Target;

/// Characters of a text of others that are shown.
const SHOWN: usize = 300;
/// Bytes of a challenge that are read.
const LONGEST_CHALLENGE: usize = 8 << 10;
const PKCE: &str = "S256";

/// The provider of a server.
pub(super) struct Provider {
    pub(super) fetch: Arc<Fetch>,
    pub(super) manager: AuthorizationManager,
    pub(super) metadata: AuthorizationMetadata,
    pub(super) issuer: String,
}

impl Provider {
    /// Finds the provider that a server names.
    pub(super) async fn of(target: &Target) -> Result<Self, LoginError> {
        let fetch = Fetch::new(target.url.clone(), target.headers.clone(), &target.options).await;
        let mut fetch = fetch.map_err(|error| target.failed(Problem::Certificates(error)))?;
        fetch.limit = target.limit;
        find(target, Arc::new(fetch)).await.map_err(|problem| target.failed(problem))
    }

    /// Returns what an error of the library says.
    pub(super) fn problem(&self, error: &AuthError) -> Problem {
        problem(&self.fetch, error)
    }
}

async fn find(target: &Target, fetch: Arc<Fetch>) -> Result<Provider, Problem> {
    let challenge = challenge(target, &fetch).await?;
    let client = Arc::new(SharedFetch(Arc::clone(&fetch)));
    let manager = AuthorizationManager::new_with_oauth_http_client(target.resource.clone(), client).await;
    let mut manager = manager.map_err(|error| problem(&fetch, &error))?;
    let found = manager.resolve_metadata_from_challenge(challenge.as_deref()).await;
    let found = found.map_err(|error| problem(&fetch, &error))?;
    if found.source == AuthorizationMetadataSource::LegacyEndpointFallback {
        return Err(Problem::Undiscovered);
    }
    let metadata = found.metadata;
    let issuer = metadata.issuer.clone().ok_or_else(|| Problem::Unsafe("its provider has no name".into()))?;
    let mut urls = vec![&metadata.authorization_endpoint, &metadata.token_endpoint];
    urls.extend(&metadata.registration_endpoint);
    for url in urls {
        let url: Url =
            url.parse().map_err(|_| Problem::Unsafe("its provider names an invalid URL".into()))?;
        fetch.check(&url).map_err(Problem::Fetch)?;
    }
    let methods = metadata.code_challenge_methods_supported.as_deref().unwrap_or_default();
    if !methods.iter().any(|method| method == PKCE) {
        return Err(Problem::Unsafe(format!(
            "its provider does not offer PKCE with {PKCE}, which protects logins"
        )));
    }
    manager.set_metadata(metadata.clone());
    // An earlier candidate that did not answer does not matter any more.
    let _ = fetch.take_error();
    Ok(Provider { fetch, manager, metadata, issuer })
}

/// Returns what the server says to a first message without a login; None if it takes it, or says nothing.
async fn challenge(target: &Target, fetch: &Fetch) -> Result<Option<String>, Problem> {
    let message = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") },
        },
    });
    let request = Request::builder()
        .method(Method::POST)
        .uri(target.url.as_str())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, text/event-stream")
        .body(message.to_string().into_bytes())
        .map_err(|_| Problem::Url)?;
    let answer = fetch.send(request).await.map_err(Problem::Fetch)?;
    if answer.status() != StatusCode::UNAUTHORIZED {
        return Ok(None);
    }
    let challenges = answer.headers().get_all(header::WWW_AUTHENTICATE).iter();
    let bearer = challenges.filter_map(|value| value.to_str().ok()).find(|value| {
        value.len() <= LONGEST_CHALLENGE
            && value.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"))
    });
    Ok(bearer.map(str::to_owned))
}

fn problem(fetch: &Fetch, error: &AuthError) -> Problem {
    if let Some(error) = fetch.take_error() {
        return Problem::Fetch(error);
    }
    match error {
        AuthError::DiscoveryRequestFailed { url, source } => Problem::Unsafe(format!(
            "could not use '{}': {}",
            shown_host(url.as_str()),
            shown(&source.to_string())
        )),
        AuthError::ProtectedResourceMetadataInvalid { reason, .. } => Problem::Unsafe(match &**reason {
            Reason::ResourceMismatch { permitted, .. } => {
                format!("what it says of its login is for another server, '{}'", shown(permitted.as_str()))
            }
            _ => "what it says of its login is invalid".into(),
        }),
        AuthError::AuthorizationServersUnavailable { authorization_servers, .. } => {
            let first = authorization_servers.first().map_or("", String::as_str);
            Problem::Unsafe(format!("its provider '{}' does not describe a login", shown_host(first)))
        }
        AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => {
            Problem::Unsafe(format!(
                "its provider says that it is '{}', and should be '{}'",
                shown(received_issuer),
                shown(expected_issuer)
            ))
        }
        AuthError::AuthorizationServerMissingIssuer { expected_issuer } => {
            Problem::Unsafe(format!("its provider does not confirm that it is '{}'", shown(expected_issuer)))
        }
        AuthError::PkceUnsupported => {
            Problem::Unsafe(format!("its provider does not offer PKCE with {PKCE}, which protects logins"))
        }
        AuthError::RegistrationFailed(text) => Problem::NotRegistered(shown(text)),
        AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired => Problem::Expired,
        AuthError::TokenRefreshFailed(text) => Problem::NotRenewed(shown(text)),
        AuthError::TokenExchangeFailed(text) | AuthError::AuthorizationFailed(text) => {
            Problem::Refused(shown(text))
        }
        other => Problem::Refused(shown(&other.to_string())),
    }
}

/// Returns the start of a text that others have written, in a line.
pub(super) fn shown(text: &str) -> String {
    let line = visible_line(text.trim());
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
