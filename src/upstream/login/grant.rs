//! What a provider grants: read from its answer, renewed before it expires, and taken back.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use codebridge_runtimes::exec::visible_line;
use http::{Method, Request, header};
use jiff::{SignedDuration, Timestamp};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use rmcp::transport::auth::{OAuthClientConfig, OAuthTokenResponse};
use rmcp::transport::{CredentialStore as _, InMemoryCredentialStore, StoredCredentials};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{LoginError, Problem};
use super::files::StoredLogin;
use super::provider::Provider;
use super::target::Target;

/// Claims that name an account to a person, the best first.
const NAMES: [&str; 4] = ["email", "preferred_username", "name", "sub"];
/// Characters of the name of an account.
const LONGEST_NAME: usize = 100;

/// A token is renewed so many seconds before it expires, or after half of its time.
const EARLY: i64 = 60;

/// What a provider grants.
#[derive(Deserialize)]
pub(super) struct Grant {
    pub(super) access_token: String,
    token_type: String,
    #[serde(default)]
    pub(super) refresh_token: Option<String>,
    #[serde(default)]
    expires_in: Option<u64>,
    #[serde(default)]
    id_token: Option<String>,
}

impl Grant {
    /// Reads the answer of a provider.
    pub(super) fn read(response: &OAuthTokenResponse) -> Result<Self, Problem> {
        let read = serde_json::to_value(response).and_then(serde_json::from_value::<Self>);
        let grant = read.map_err(|_| Problem::Refused("its answer has no token".into()))?;
        let is_plain = grant.access_token.bytes().all(|byte| byte.is_ascii_graphic());
        if !grant.token_type.eq_ignore_ascii_case("bearer") || grant.access_token.is_empty() || !is_plain {
            return Err(Problem::Refused("its answer has a token of another kind".into()));
        }
        Ok(grant)
    }

    /// Returns when it expires, and when to renew it, if that is known.
    pub(super) fn times(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let Some(lifetime) = self.expires_in else { return (None, None) };
        let lifetime = i64::try_from(lifetime).unwrap_or(i64::MAX);
        let now = Timestamp::now();
        let after = |seconds| now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        (Some(after(lifetime)), Some(after(lifetime - EARLY.min(lifetime / 2))))
    }

    /// Returns who logged in. The provider itself has sent it, over TLS: its signature says nothing more.
    pub(super) fn account(&self) -> Option<String> {
        let claims = URL_SAFE_NO_PAD.decode(self.id_token.as_ref()?.split('.').nth(1)?).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        let name = NAMES.iter().find_map(|name| claims[*name].as_str())?;
        Some(visible_line(name).chars().take(LONGEST_NAME).collect())
    }
}

/// Renews a login at the provider that the server names now, if that is the one that granted it.
pub(super) async fn renew(target: &Target, login: &StoredLogin) -> Result<StoredLogin, LoginError> {
    let mut provider = Provider::of(target)
        .await
        .map_err(|error| LoginError { problem: Problem::NotRenewed(error.problem.to_string()), ..error })?;
    if provider.issuer != login.issuer {
        return Err(target.failed(Problem::Expired));
    }
    let mut client = OAuthClientConfig::new(&login.client_id, &login.redirect_uri);
    if let Some(secret) = &login.client_secret {
        client = client.with_client_secret(secret);
    }
    let renewed = exchange(&mut provider, client, login).await;
    let (grant, scopes) = renewed.map_err(|problem| {
        target.failed(match problem {
            Problem::Expired => Problem::Expired,
            other => Problem::NotRenewed(other.to_string()),
        })
    })?;
    let (expires, renew_at) = grant.times();
    Ok(StoredLogin {
        expires,
        renew_at,
        access_token: grant.access_token,
        refresh_token: grant.refresh_token,
        scopes,
        ..login.clone()
    })
}

async fn exchange(
    provider: &mut Provider,
    client: OAuthClientConfig,
    login: &StoredLogin,
) -> Result<(Grant, Vec<String>), Problem> {
    let kept = json!({
        "access_token": login.access_token, "token_type": "bearer", "refresh_token": login.refresh_token,
    });
    let kept: OAuthTokenResponse = serde_json::from_value(kept).map_err(|_| Problem::Expired)?;
    let credentials = StoredCredentials::new(login.client_id.clone(), Some(kept), login.scopes.clone(), None);
    let store = InMemoryCredentialStore::new();
    let stored = store.save(credentials).await;
    stored.map_err(|error| provider.problem(&error))?;
    provider.manager.set_credential_store(store.clone());
    let configured = provider.manager.configure_client(client);
    configured.map_err(|error| provider.problem(&error))?;
    let response = provider.manager.refresh_token().await.map_err(|error| provider.problem(&error))?;
    let scopes = store.load().await.ok().flatten().map(|kept| kept.granted_scopes).unwrap_or_default();
    Ok((Grant::read(&response)?, scopes))
}

/// Has the provider end a login: <https://www.rfc-editor.org/rfc/rfc7009>. Returns whether it said that it has.
pub(super) async fn revoke(target: &Target, login: &StoredLogin) -> bool {
    let Ok(provider) = Provider::of(target).await else { return false };
    let endpoint = provider.metadata.additional_fields.get("revocation_endpoint").and_then(Value::as_str);
    let Some(endpoint) = endpoint.and_then(|url| url.parse::<Url>().ok()) else { return false };
    if provider.issuer != login.issuer {
        return false;
    }
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(endpoint.as_str())
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    // With the refresh token, providers end the tokens that came of it.
    let token = login.refresh_token.as_ref().unwrap_or(&login.access_token);
    let mut form = format!("token={}", encoded(token));
    match &login.client_secret {
        Some(secret) => {
            let pair = STANDARD.encode(format!("{}:{}", encoded(&login.client_id), encoded(secret)));
            request = request.header(header::AUTHORIZATION, format!("Basic {pair}"));
        }
        None => form.push_str(&format!("&client_id={}", encoded(&login.client_id))),
    }
    let Ok(request) = request.body(form.into_bytes()) else { return false };
    provider.fetch.send(request).await.is_ok_and(|answer| answer.status().is_success())
}
