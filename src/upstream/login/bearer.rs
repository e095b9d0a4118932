//! The login in requests to a server: read for each request, so that a login or a logout counts at once, and renewed before it
//! expires.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderValue;
use jiff::Timestamp;

use super::error::{LoginError, Problem};
use super::files::{Lock, StoredLogin};
use super::grant::renew;
use super::store::LoginStore;
use super::target::Target;

/// Credentials that are kept in mind, so that they are not shown: the latest ones.
const MOST_SEEN: usize = 16;

/// The login to a server, in one connection.
#[derive(Clone)]
pub(in crate::upstream) struct Bearer(Arc<Inner>);

struct Inner {
    store: LoginStore,
    target: Target,
    /// Credentials that were used, for [`Bearer::redact`].
    seen: Mutex<Vec<String>>,
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bearer").field(&self.0.target).finish()
    }
}

impl Bearer {
    pub(super) fn new(store: LoginStore, target: Target) -> Self {
        Self(Arc::new(Inner { store, target, seen: Mutex::default() }))
    }

    /// Returns the header of a request; None without a login.
    ///
    /// # Errors
    /// The login has expired, or cannot be renewed or read.
    pub(in crate::upstream) async fn header(&self) -> Result<Option<HeaderValue>, LoginError> {
        let Some(login) = self.read().await? else { return Ok(None) };
        let is_before = |time: Option<Timestamp>| time.is_none_or(|time| Timestamp::now() < time);
        let is_valid = is_before(login.expires);
        if is_before(login.renew_at) || (login.refresh_token.is_none() && is_valid) {
            return self.value(&login).map(Some);
        }
        match self.renew(&login).await {
            Ok(login) => self.value(&login).map(Some),
            // It still holds for some seconds.
            Err(LoginError { problem: Problem::NotRenewed(_), .. }) if is_valid => {
                self.value(&login).map(Some)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns another header after the server has refused this one; None if there is no other.
    ///
    /// # Errors
    /// The login has expired, or cannot be renewed or read.
    pub(in crate::upstream) async fn header_after(
        &self,
        refused: &HeaderValue,
    ) -> Result<Option<HeaderValue>, LoginError> {
        let Some(login) = self.read().await? else { return Ok(None) };
        let value = self.value(&login)?;
        if value != *refused {
            return Ok(Some(value));
        }
        if login.refresh_token.is_none() {
            return Ok(None);
        }
        let login = self.renew(&login).await?;
        self.value(&login).map(Some)
    }

    /// Keeps which permissions the server wants, so that the next login asks for them too.
    pub(in crate::upstream) async fn wants(&self, scopes: &[String]) {
        let wanted = async {
            let _lock = self.lock().await?;
            let Some(mut login) = self.read().await? else { return Ok(()) };
            let before = login.wanted.len();
            for scope in scopes {
                if !login.wanted.contains(scope) && login.wanted.len() < 64 {
                    login.wanted.push(scope.clone());
                }
            }
            if login.wanted.len() == before { Ok(()) } else { self.write(&login).await }
        };
        let wanted: Result<(), LoginError> = wanted.await;
        if let Err(error) = wanted {
            tracing::warn!(%error, "could not keep which permissions a server wants");
        }
    }

    /// Returns the text without the credentials that this login has used.
    pub(in crate::upstream) fn redact(&self, text: &str) -> String {
        let seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "[login]"))
    }

    /// Renews a login, also when nobody waits for it any more: many providers take a refresh token only once, and the new one must
    /// be kept.
    async fn renew(&self, stale: &StoredLogin) -> Result<StoredLogin, LoginError> {
        if stale.refresh_token.is_none() {
            return Err(self.0.target.failed(Problem::Expired));
        }
        let (bearer, stale) = (self.clone(), stale.clone());
        let renewed = tokio::spawn(async move { bearer.renew_and_keep(&stale).await }).await;
        renewed.unwrap_or_else(|error| Err(self.0.target.failed(Problem::NotRenewed(error.to_string()))))
    }

    async fn renew_and_keep(&self, stale: &StoredLogin) -> Result<StoredLogin, LoginError> {
        let _lock = self.lock().await?;
        // Another process may have used the refresh token.
        let login = self.read().await?.ok_or_else(|| self.0.target.failed(Problem::Expired))?;
        if login.access_token != stale.access_token {
            return Ok(login);
        }
        // With a full disk, a refresh token that is taken only once would be used up and the next one lost.
        let Inner { store, target, .. } = &*self.0;
        store.write_again(&target.server, &target.key).map_err(|problem| target.failed(problem))?;
        let renewed = renew(target, &login).await?;
        tracing::debug!(server = %target.server, "renewed a login");
        self.write(&renewed).await?;
        Ok(renewed)
    }

    async fn lock(&self) -> Result<Lock, LoginError> {
        let target = &self.0.target;
        self.0.store.lock(&target.server, &target.key).await.map_err(|problem| target.failed(problem))
    }

    async fn read(&self) -> Result<Option<StoredLogin>, LoginError> {
        let Inner { store, target, .. } = &*self.0;
        let read = store.read(&target.server, &target.key).await;
        let login = read.map_err(|problem| target.failed(problem))?;
        if let Some(login) = &login {
            self.see(login);
        }
        Ok(login)
    }

    async fn write(&self, login: &StoredLogin) -> Result<(), LoginError> {
        self.see(login);
        let written = self.0.store.write(login).await;
        written.map(drop).map_err(|problem| self.0.target.failed(problem))
    }

    fn see(&self, login: &StoredLogin) {
        let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let secrets = [Some(&login.access_token), login.refresh_token.as_ref(), login.client_secret.as_ref()];
        for secret in secrets.into_iter().flatten().filter(|secret| !secret.is_empty()) {
            if !seen.contains(secret) {
                seen.insert(0, secret.clone());
            }
        }
        seen.truncate(MOST_SEEN);
    }

    fn value(&self, login: &StoredLogin) -> Result<HeaderValue, LoginError> {
        let value = HeaderValue::from_str(&format!("Bearer {}", login.access_token));
        let mut value = value.map_err(|_| self.0.target.failed(Problem::Expired))?;
        value.set_sensitive(true);
        Ok(value)
    }
}
