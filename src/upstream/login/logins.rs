//! The logins of one user: how to begin, to use and to end them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::account::Account;
use super::bearer::Bearer;
use super::error::{LoginError, Problem};
use super::pending::PendingLogin;
use super::store::LoginStore;
use super::target::Target;
use crate::upstream::discovery::Launch;

/// The logins of a user, in the user's state folder.
#[derive(Debug, Clone)]
pub struct Logins {
    store: LoginStore,
}

impl Logins {
    /// Returns the logins of a state folder. Nothing is read before it is needed.
    pub fn at(state_dir: &Path) -> Self {
        Self { store: LoginStore::at(state_dir) }
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
        PendingLogin::begin(self.store.clone(), Target::of(server, launch)?, scopes).await
    }

    /// Returns all logins, by server.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self) -> Result<Vec<Account>, LoginError> {
        let logins = self.store.list().map_err(|error| self.failed("", error))?;
        Ok(logins.into_iter().map(Account::of).collect())
    }

    /// Removes the logins to a server, whatever its URL was, and returns them.
    ///
    /// # Errors
    /// The folder cannot be read or written.
    pub fn forget(&self, server: &str) -> Result<Vec<Account>, LoginError> {
        let failed = |error| self.failed(server, error);
        let mut logins = self.store.list().map_err(failed)?;
        logins.retain(|login| login.server == server);
        for login in &logins {
            self.store.remove(login).map_err(failed)?;
        }
        Ok(logins.into_iter().map(Account::of).collect())
    }

    fn failed(&self, server: &str, source: io::Error) -> LoginError {
        let path = self.store.folder().to_path_buf();
        LoginError { server: server.into(), problem: Problem::File { path, source: Arc::new(source) } }
    }
}
