//! What pages on the listener need of it: who may see them, and what belongs to whom.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::response::Response;
use http::{Extensions, HeaderMap};
use tokio::sync::OwnedSemaphorePermit;

use super::connections::Connection;
use super::credentials::Identity;
use super::guard::Refusal;
use super::routes::{App, TOO_MANY_CONNECTIONS, TOO_MANY_REQUESTS};
use super::users::User;
use crate::tokens::{PrincipalName, Scope};
use crate::workspace::Workspace;

/// The listener, as its pages see it.
#[derive(Debug, Clone)]
pub struct Site(Arc<App>);

/// Who has shown a token for the console. It holds as long as the token.
#[derive(Debug, Clone)]
pub struct Admitted(Identity);

/// A request for a page that is under way: the workspace of its user stays meanwhile.
#[derive(Debug)]
pub struct Presence {
    user: Arc<User>,
    _permit: OwnedSemaphorePermit,
}

impl Presence {
    pub fn workspace(&self) -> &Workspace {
        self.user.workspace()
    }
}

impl Admitted {
    /// Returns the user.
    pub fn principal(&self) -> &PrincipalName {
        &self.0.principal
    }

    /// Whether it may answer questions that rules ask.
    pub fn may_approve(&self) -> bool {
        self.0.scopes.has(Scope::Approve)
    }
}

impl Site {
    pub(super) fn new(app: Arc<App>) -> Self {
        Self(app)
    }

    /// Returns who a token for the console belongs to.
    ///
    /// # Errors
    /// It does not hold, or is not for the console.
    pub async fn admit(&self, token: &str) -> Result<Admitted, Refusal> {
        self.0.credentials.of_token(token, Scope::Console).await.map(Admitted)
    }

    /// Whether the token holds once: then a link may have it.
    pub fn admits_once(&self) -> bool {
        self.0.credentials.hold_once()
    }

    /// Whether tokens of an issuer are accepted.
    pub fn has_issuer(&self) -> bool {
        self.0.credentials.issuer.is_some()
    }

    /// Returns what is admitted by now: the scopes of a token can be changed. None if its token holds no longer.
    pub fn still(&self, admitted: &Admitted) -> Option<Admitted> {
        let now = self.0.credentials.now(&admitted.0)?;
        now.scopes.has(Scope::Console).then_some(Admitted(now))
    }

    /// Begins a request of a user.
    ///
    /// # Errors
    /// The user has too many of them, or too many connections.
    pub fn enter(&self, admitted: &Admitted, extensions: &Extensions) -> Result<Presence, Refusal> {
        if let Some(connection) = extensions.get::<Connection>()
            && !connection.introduce(&admitted.0.principal)
        {
            return Err(TOO_MANY_CONNECTIONS);
        }
        let user = self.0.users.of(&admitted.0);
        user.was_used();
        let permit = Arc::clone(&user.requests).try_acquire_owned().map_err(|_| TOO_MANY_REQUESTS)?;
        Ok(Presence { user, _permit: permit })
    }

    /// Whether the workspace of a request is still the one of its user, and requests may go on.
    pub fn goes_on(&self, presence: &Presence) -> bool {
        !self.0.is_ending.load(Ordering::Relaxed) && self.0.users.has(&presence.user)
    }

    /// Returns the answer to a request that is refused, which is counted and logged.
    pub fn refuse(&self, refusal: Refusal, headers: &HeaderMap, extensions: &Extensions) -> Response {
        self.0.refuse(refusal, headers, extensions)
    }

    /// Returns the start of the URLs under which the browser of a request reaches it.
    pub fn base(&self, headers: &HeaderMap) -> Option<String> {
        self.0.base(headers)
    }

    /// Whether browsers reach it over HTTPS.
    pub fn is_https(&self, headers: &HeaderMap) -> bool {
        self.0.is_https(headers)
    }

    /// Returns the port on which it listens.
    pub fn port(&self) -> Option<u16> {
        self.0.port
    }
}
