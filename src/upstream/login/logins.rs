//! The logins of one user: how to begin, to use and to end them.

use std::path::Path;
use std::sync::Arc;

use super::account::Account;
use super::bearer::Bearer;
use super::error::{LoginError, Problem};
use super::files::StoredLogin;
use super::grant::revoke;
use super::keyring::{Keyring, KeyringError};
use super::pending::{PendingLogin, Return};
use super::store::LoginStore;
use super::target::Target;
use crate::settings::Environment;
use crate::upstream::discovery::Launch;

/// The logins of a user, in the user's state folder.
#[derive(Debug, Clone)]
pub struct Logins {
    store: LoginStore,
}

impl Logins {
    /// Returns the logins of a state folder, with their credentials in the keyring of this process or in files. Nothing is read
    /// before it is needed.
    pub fn new(state_dir: &Path, environment: &Environment, uses_keyring: bool) -> Self {
        Self { store: LoginStore::new(state_dir, Keyring::of(environment), uses_keyring) }
    }

    /// Returns why the credentials of new logins are not kept in the keyring; None if they are. Nobody is asked.
    pub async fn keyring_state(&self) -> Option<KeyringError> {
        self.store.keyring_state().await
    }

    /// Returns the login of a connection to a server; None for a server that needs none.
    pub(in crate::upstream) fn bearer(&self, server: &Arc<str>, launch: &Launch) -> Option<Bearer> {
        Some(Bearer::new(self.store.clone(), Target::of(server, launch).ok()?))
    }

    /// Begins a login: finds the provider, and registers there. `scopes` = the permissions to ask for; none = those that the
    /// definition or the server names.
    ///
    /// # Errors
    /// There is no login, or it is not safe.
    pub async fn begin(
        &self,
        server: &Arc<str>,
        launch: &Launch,
        scopes: Vec<String>,
    ) -> Result<PendingLogin, LoginError> {
        PendingLogin::begin(self.store.clone(), Target::of(server, launch)?, scopes, Return::Loopback).await
    }

    /// Begins a login after which the browser comes back to a page of the console, at this redirect URI.
    ///
    /// # Errors
    /// There is no login, or it is not safe.
    pub async fn begin_on_page(
        &self,
        server: &Arc<str>,
        launch: &Launch,
        redirect_uri: String,
    ) -> Result<PendingLogin, LoginError> {
        let target = Target::of(server, launch)?;
        PendingLogin::begin(self.store.clone(), target, Vec::new(), Return::Page(redirect_uri)).await
    }

    /// Returns the login to a server; None if there is none.
    ///
    /// # Errors
    /// Nobody can log in to it, or the folder cannot be read.
    pub fn account(&self, server: &Arc<str>, launch: &Launch) -> Result<Option<Account>, LoginError> {
        let target = Target::of(server, launch)?;
        let login = self.store.look(server, &target.key).map_err(|problem| target.failed(problem))?;
        Ok(login.map(Account::of))
    }

    /// Returns all logins, by server.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self) -> Result<Vec<Account>, LoginError> {
        let logins = self.store.list().map_err(|problem| failed("", problem))?;
        Ok(logins.into_iter().map(Account::of).collect())
    }

    /// Removes the logins to a server, whatever its URL was, and returns them. The provider is asked to end the one to the URL that
    /// is defined now.
    ///
    /// # Errors
    /// The folder cannot be read or written, or the credentials are still in the keyring.
    pub async fn forget(
        &self,
        server: &str,
        definition: Option<(&Arc<str>, &Launch)>,
    ) -> Result<Vec<Account>, LoginError> {
        let failed = |problem| failed(server, problem);
        let mut logins = self.store.list().map_err(failed)?;
        logins.retain(|login| login.server == server);
        let target = definition.and_then(|(server, launch)| Target::of(server, launch).ok());
        let mut remains = None;
        for login in &logins {
            // A renewal under way would write it again.
            let _lock = self.store.lock(server, &login.url).await.map_err(failed)?;
            let Some(login) = &self.store.look(server, &login.url).map_err(failed)? else { continue };
            let target = target.as_ref().filter(|target| target.key == login.url);
            let whole = match target {
                Some(_) => self.store.complete(login.clone()).await.ok(),
                None => None,
            };
            remains = self.store.remove(login).await.map_err(failed)?.or(remains);
            if let Some(target) = target
                && !is_ended(target, whole.as_ref()).await
            {
                tracing::warn!(server, "the provider did not end the login: it ends when it expires");
            }
        }
        if let Some(why) = remains {
            return Err(failed(Problem::StillInKeyring(why)));
        }
        Ok(logins.into_iter().map(Account::of).collect())
    }
}

async fn is_ended(target: &Target, login: Option<&StoredLogin>) -> bool {
    match login {
        Some(login) => revoke(target, login).await,
        None => false,
    }
}

fn failed(server: &str, problem: Problem) -> LoginError {
    LoginError { server: server.into(), problem }
}

#[cfg(test)]
mod tests {
    use super::super::files::a_login;
    use super::*;

    #[tokio::test]
    async fn a_logout_waits_for_a_renewal_and_removes_what_it_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::new(folder.path(), &Environment::default(), false);
        let (server, url) = ("a", "https://a.example/mcp");
        let store = &logins.store;
        store.write(&a_login(server, url)).await.unwrap();
        let lock = store.lock(server, url).await.unwrap();
        let renewal = async {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            store.write(&StoredLogin { access_token: "new".into(), ..a_login(server, url) }).await.unwrap();
            drop(lock);
        };
        let (forgotten, ()) = tokio::join!(logins.forget(server, None), renewal);
        assert_eq!(forgotten.unwrap().len(), 1);
        assert!(store.look(server, url).unwrap().is_none());
    }
}
