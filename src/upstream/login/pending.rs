//! A login that waits for the person.

use std::time::Duration;

use reqwest::Url;
use rmcp::transport::auth::OAuthClientConfig;
use rmcp::transport::{CredentialStore as _, InMemoryCredentialStore};
use tokio::sync::watch;

use super::account::Account;
use super::callback::{Answer, Callback};
use super::error::{LoginError, Problem};
use super::fetch::is_loopback;
use super::files::StoredLogin;
use super::grant::Grant;
use super::provider::Provider;
use super::store::LoginStore;
use super::target::Target;

/// How long a person may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// A port that a person may register.
const EXAMPLE_PORT: u16 = 8123;
/// Asks for a refresh token, at providers of OpenID Connect.
const OFFLINE: &str = "offline_access";

/// Where the browser comes back to.
pub(super) enum Return {
    /// A port of this machine, for as long as the login takes.
    Loopback,
    /// A page of the console, at this redirect URI.
    Page(String),
}

/// A login that waits for the person.
pub struct PendingLogin {
    store: LoginStore,
    target: Target,
    provider: Provider,
    client: OAuthClientConfig,
    scopes: Vec<String>,
    credentials: InMemoryCredentialStore,
    /// None if the browser comes back to a page.
    callback: Option<Callback>,
    redirect_uri: String,
    /// What the person has pasted.
    pasted: watch::Sender<Option<Answer>>,
    /// The page where the person logs in.
    url: String,
    state: String,
}

impl std::fmt::Debug for PendingLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingLogin").field("target", &self.target).finish_non_exhaustive()
    }
}

impl PendingLogin {
    pub(super) async fn begin(
        store: LoginStore,
        target: Target,
        scopes: Vec<String>,
        back: Return,
    ) -> Result<Self, LoginError> {
        let failed = |problem| target.failed(problem);
        if let Return::Page(uri) = &back
            && !is_safe(uri)
        {
            return Err(failed(Problem::OpenPage));
        }
        let mut provider = Provider::of(&target).await?;
        let (callback, redirect_uri) = match back {
            Return::Page(uri) => (None, uri),
            Return::Loopback => {
                let callback = Callback::listen(target.options.oauth.redirect).await.map_err(failed)?;
                let uri = callback.redirect_uri.clone();
                (Some(callback), uri)
            }
        };
        let scopes = scopes_for(&provider, &target, &store, scopes).await;
        let credentials = InMemoryCredentialStore::new();
        provider.manager.set_credential_store(credentials.clone());
        let client = client(&mut provider, &target, &redirect_uri, &scopes).await;
        let client = client.map_err(|problem| failed(with_port(problem, &target, callback.as_ref())))?;
        let names: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let url = provider.manager.get_authorization_url(&names).await;
        let url = url.map_err(|error| failed(provider.problem(&error)))?;
        let mut url: Url = url.parse().map_err(|_| failed(Problem::Url))?;
        if scopes.iter().any(|scope| scope == OFFLINE) {
            // Without it, providers of OpenID Connect ignore that scope.
            url.query_pairs_mut().append_pair("prompt", "consent");
        }
        let state = url.query_pairs().find(|(name, _)| name == "state").map(|(_, value)| value.into_owned());
        let state = state.ok_or_else(|| failed(Problem::Url))?;
        let (url, pasted) = (url.into(), watch::Sender::default());
        Ok(Self {
            store,
            target,
            provider,
            client,
            scopes,
            credentials,
            callback,
            redirect_uri,
            pasted,
            url,
            state,
        })
    }

    /// Returns the page where the person logs in.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the provider's name for itself.
    pub fn issuer(&self) -> &str {
        &self.provider.issuer
    }

    /// Returns what tells the login from others, in the address of the page.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// Waits until the browser comes back or the person has pasted something, and completes the login. The future must be kept until
    /// it ends: without it, what the browser brings is lost.
    ///
    /// # Errors
    /// Nobody came back, the provider refused, or the login cannot be kept.
    pub async fn wait(&self) -> Result<Account, LoginError> {
        let mut pasted = self.pasted.subscribe();
        let answer = async {
            tokio::select! {
                answer = browser(self.callback.as_ref(), &self.state) => answer,
                Ok(answer) = pasted.wait_for(Option::is_some) => answer.clone(),
            }
        };
        let answer = tokio::time::timeout(PATIENCE, answer).await.ok().flatten();
        let answer = answer.ok_or_else(|| self.target.failed(Problem::TimedOut(PATIENCE)))?;
        self.complete(answer).await
    }

    /// Completes the login with the query of the page that the browser came back to. It can be tried once.
    ///
    /// # Errors
    /// It belongs to another login, the provider refused, or the login cannot be kept.
    pub async fn finish(self, query: &str) -> Result<Account, LoginError> {
        let url = format!("{}?{query}", self.redirect_uri).parse().ok();
        let answer = url.and_then(|url| Answer::read(&url, &self.state));
        self.complete(answer.ok_or_else(|| self.target.failed(Problem::Strange))?).await
    }

    /// Has [`Self::wait`] complete the login with what the person has pasted: the address of the last page, or a code.
    ///
    /// # Errors
    /// It is neither.
    pub fn paste(&self, text: &str) -> Result<(), LoginError> {
        let answer = Answer::read_pasted(text, &self.state);
        let answer = answer.ok_or_else(|| self.target.failed(Problem::Pasted))?;
        let confirms =
            self.provider.metadata.additional_fields.get("authorization_response_iss_parameter_supported");
        if matches!(&answer, Answer::Code { issuer: None, .. })
            && confirms.and_then(serde_json::Value::as_bool) == Some(true)
        {
            return Err(self.target.failed(Problem::PastedCode));
        }
        self.pasted.send_replace(Some(answer));
        Ok(())
    }

    async fn complete(&self, answer: Answer) -> Result<Account, LoginError> {
        let failed = |problem| self.target.failed(problem);
        let (code, issuer) = match answer {
            Answer::Code { code, issuer } => (code, issuer),
            Answer::Refused(why) => return Err(failed(Problem::Refused(why))),
        };
        let manager = &self.provider.manager;
        let exchanged =
            manager.exchange_code_for_token_with_issuer(&code, &self.state, issuer.as_deref()).await;
        let response = exchanged.map_err(|error| failed(without(self.provider.problem(&error), &code)))?;
        let grant = Grant::read(&response).map_err(failed)?;
        let (expires, renew_at) = grant.times();
        let kept = self.credentials.load().await.ok().flatten();
        let login = StoredLogin {
            server: self.target.server.to_string(),
            url: self.target.key.clone(),
            issuer: self.provider.issuer.clone(),
            account: grant.account(),
            client_id: self.client.client_id.clone(),
            client_secret: self.client.client_secret.clone(),
            redirect_uri: self.redirect_uri.clone(),
            scopes: kept.map_or_else(|| self.scopes.clone(), |kept| kept.granted_scopes),
            wanted: Vec::new(),
            expires,
            renew_at,
            access_token: grant.access_token,
            refresh_token: grant.refresh_token,
            keyring: None,
        };
        // After a renewal of the login before this one.
        let _lock = self.store.lock(&login.server, &login.url).await.map_err(failed)?;
        let not_in_keyring = self.store.write(&login).await.map_err(failed)?;
        let kept = self.store.look(&login.server, &login.url).map_err(failed)?;
        let in_keyring = kept.is_some_and(|kept| kept.keyring.is_some());
        Ok(Account { in_keyring, not_in_keyring, ..Account::of(login) })
    }
}

/// Returns a problem with a port that can be registered, if the browser comes back to a port.
fn with_port(problem: Problem, target: &Target, callback: Option<&Callback>) -> Problem {
    match problem {
        Problem::Unregistered { .. } if callback.is_some() => {
            let port = target.options.oauth.redirect.map_or(EXAMPLE_PORT, |redirect| redirect.port);
            let redirect_uri = format!("http://127.0.0.1:{port}/callback");
            Problem::Unregistered { redirect_uri, port: Some(port) }
        }
        other => other,
    }
}

async fn browser(callback: Option<&Callback>, state: &str) -> Option<Answer> {
    match callback {
        Some(callback) => Some(callback.wait(state).await),
        None => std::future::pending().await,
    }
}

/// Whether nobody on the way can read what the browser brings to a page.
pub(in crate::upstream) fn is_safe(uri: &str) -> bool {
    uri.parse::<Url>().is_ok_and(|url| url.scheme() == "https" || url.scheme() == "http" && is_loopback(&url))
}

/// Returns a problem without the code: a provider may repeat it.
fn without(problem: Problem, code: &str) -> Problem {
    match problem {
        Problem::Refused(text) => Problem::Refused(text.replace(code, "[code]")),
        other => other,
    }
}

/// Returns the permissions to ask for: those of the user, else of the definition, else of the server; and those that a login
/// before this one had, or lacked.
async fn scopes_for(
    provider: &Provider,
    target: &Target,
    store: &LoginStore,
    given: Vec<String>,
) -> Vec<String> {
    let of_definition = &target.options.oauth.scopes;
    let mut scopes = match (given.is_empty(), of_definition.is_empty()) {
        (false, _) => given,
        (true, false) => of_definition.clone(),
        (true, true) => provider.manager.select_initial_scopes(&[]).await,
    };
    if let Ok(Some(before)) = store.look(&target.server, &target.key) {
        let is_same = before.issuer == provider.issuer;
        scopes.extend(before.scopes.into_iter().chain(before.wanted).filter(|_| is_same));
    }
    let offered = provider.metadata.scopes_supported.as_deref().unwrap_or_default();
    if !scopes.is_empty() && offered.iter().any(|scope| scope == OFFLINE) {
        scopes.push(OFFLINE.to_owned());
    }
    let mut seen = std::collections::HashSet::new();
    scopes.retain(|scope| seen.insert(scope.clone()));
    scopes
}

/// Makes the client that logs in: the one that the user has registered, or published, or one that is registered now.
async fn client(
    provider: &mut Provider,
    target: &Target,
    redirect_uri: &str,
    scopes: &[String],
) -> Result<OAuthClientConfig, Problem> {
    let options = &target.options.oauth;
    let reads_documents = provider.metadata.additional_fields.get("client_id_metadata_document_supported");
    let reads_documents = reads_documents.and_then(serde_json::Value::as_bool) == Some(true);
    let id = match (&options.client_id, &options.client_metadata_url) {
        (Some(id), _) => Some(id),
        (None, Some(url)) if reads_documents => Some(url),
        _ => None,
    };
    if let Some(id) = id {
        let mut client = OAuthClientConfig::new(id, redirect_uri);
        if let Some(secret) = &options.client_secret {
            client = client.with_client_secret(secret);
        }
        let configured = provider.manager.configure_client(client.clone());
        return configured.map(|()| client).map_err(|error| provider.problem(&error));
    }
    if provider.metadata.registration_endpoint.is_none() {
        return Err(Problem::Unregistered { redirect_uri: redirect_uri.to_owned(), port: None });
    }
    if redirect_uri.starts_with("https:") {
        // Providers take a program with such a page for none of a person's own machine.
        let web = OAuthClientConfig::new("", redirect_uri).with_application_type("web");
        provider.manager.configure_client(web).map_err(|error| provider.problem(&error))?;
    }
    let names: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let name = env!("CARGO_PKG_NAME");
    let first = match provider.manager.register_client(name, redirect_uri, &names).await {
        Ok(client) => return Ok(client),
        Err(error) => provider.problem(&error),
    };
    // Some providers let a client have only the permissions that it was registered with, and others refuse those that belong to a
    // server and not to them.
    if names.is_empty() || !matches!(first, Problem::NotRegistered(_)) {
        return Err(first);
    }
    provider.manager.register_client(name, redirect_uri, &[]).await.map_err(|_| first)
}
