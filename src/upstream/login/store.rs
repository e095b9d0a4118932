//! Where logins are kept: the credentials in the keyring of the desktop, else in the file of the login. The file is always there:
//! it says to which server a login belongs, and removing it ends the login at once.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use codebridge_runtimes::exec::visible_line;
use codebridge_runtimes::random_hex;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::error::Problem;
use super::files::{InKeyring, Lock, LoginFiles, StoredLogin};
use super::keyring::{Keyring, KeyringError};

/// Requests that wait while the keyring does not give a login fail with it.
const SAME_FAILURE: Duration = Duration::from_secs(2);

/// The logins of a user.
#[derive(Debug, Clone)]
pub(super) struct LoginStore {
    files: LoginFiles,
    keyring: Keyring,
    /// Whether credentials go to the keyring.
    uses_keyring: bool,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// What the keyring gave, by its names.
    known: Mutex<HashMap<String, Known>>,
    /// Why the keyring did not take a login: a person is not asked again each time that one is renewed.
    refusal: OnceLock<KeyringError>,
}

#[derive(Debug)]
struct Known {
    revision: String,
    login: Result<StoredLogin, (KeyringError, Instant)>,
}

impl LoginStore {
    /// Returns the logins of a state folder. Nothing is read before it is needed.
    pub(super) fn new(state_dir: &Path, keyring: Keyring, uses_keyring: bool) -> Self {
        Self { files: LoginFiles::at(state_dir), keyring, uses_keyring, shared: Arc::default() }
    }

    /// Returns all logins, without the credentials that are in the keyring.
    pub(super) fn list(&self) -> Result<Vec<StoredLogin>, Problem> {
        self.files.list().map_err(|error| self.file(error))
    }

    /// Returns what the file of a login says; None if there is no login.
    pub(super) fn look(&self, server: &str, url: &str) -> Result<Option<StoredLogin>, Problem> {
        self.files.read(server, url).map_err(|error| self.file(error))
    }

    /// Returns the login to a server at this URL; None if there is none.
    pub(super) async fn read(&self, server: &str, url: &str) -> Result<Option<StoredLogin>, Problem> {
        let Some(login) = self.look(server, url)? else { return Ok(None) };
        self.complete(login).await.map(Some)
    }

    /// Adds the credentials, if they are in the keyring.
    pub(super) async fn complete(&self, login: StoredLogin) -> Result<StoredLogin, Problem> {
        let Some(place) = login.keyring.clone() else { return Ok(login) };
        // One at a time: a person is asked once.
        let mut known = self.shared.known.lock().await;
        match known.get(&place.key).filter(|known| known.revision == place.revision) {
            Some(Known { login: Ok(login), .. }) => return Ok(login.clone()),
            Some(Known { login: Err((why, at)), .. }) if at.elapsed() < SAME_FAILURE => {
                return Err(Problem::Keyring(why.clone()));
            }
            _ => {}
        }
        let found = self.keyring.read(&place.key).await.and_then(|text| {
            let found: Option<StoredLogin> = serde_json::from_str(&text).ok();
            // Another one under this name would send its token to another server.
            let found = found.filter(|found| found.server == login.server && found.url == login.url);
            found
                .map(|found| StoredLogin { keyring: Some(place.clone()), ..found })
                .ok_or(KeyringError::Missing)
        });
        let kept = found.clone().map_err(|why| (why, Instant::now()));
        known.insert(place.key, Known { revision: place.revision, login: kept });
        found.map_err(Problem::Keyring)
    }

    /// Writes the file of a login as it is: when that fails, so would a new one.
    pub(super) fn write_again(&self, server: &str, url: &str) -> Result<(), Problem> {
        let login = self.look(server, url)?;
        login.map_or(Ok(()), |login| self.files.write(&login).map_err(|error| self.file(error)))
    }

    /// Writes a login in place of the one before. Returns why it is not in the keyring, if it should be.
    pub(super) async fn write(&self, login: &StoredLogin) -> Result<Option<KeyringError>, Problem> {
        let before = self.look(&login.server, &login.url)?.and_then(|login| login.keyring);
        let whole = StoredLogin { keyring: None, ..login.clone() };
        let place = match self.put_into_keyring(&whole).await {
            Some(Ok(place)) => place,
            other => {
                self.files.write(&whole).map_err(|error| self.file(error))?;
                if let (None, Some(place)) = (&other, before) {
                    self.remove_from_keyring(&place).await;
                }
                return Ok(other.and_then(Result::err));
            }
        };
        let beside = whole.without_credentials(place.clone());
        self.files.write(&beside).map_err(|error| self.file(error))?;
        let login = StoredLogin { keyring: Some(place.clone()), ..whole };
        let known = Known { revision: place.revision, login: Ok(login) };
        self.shared.known.lock().await.insert(place.key, known);
        Ok(None)
    }

    /// Returns None if it is not used.
    async fn put_into_keyring(&self, login: &StoredLogin) -> Option<Result<InKeyring, KeyringError>> {
        if !self.uses_keyring {
            return None;
        }
        if let Some(why) = self.shared.refusal.get() {
            return Some(Err(why.clone()));
        }
        let place = InKeyring {
            key: self.files.key(&login.server, &login.url),
            revision: random_hex::<8>(),
            renewed: login.refresh_token.is_some(),
        };
        let label = format!("codebridge: login to {}", visible_line(&login.server));
        let text = serde_json::to_string(login).ok()?;
        let written = self.keyring.write(&place.key, &label, &text).await;
        match &written {
            Err(why) if why.is_surprising() && *why != KeyringError::TooLong => {
                tracing::warn!(server = login.server, %why, "a login is kept in a file, and not in the keyring");
                let _ = self.shared.refusal.set(why.clone());
            }
            _ => {}
        }
        Some(written.map(|()| place))
    }

    /// Removes a login, at once where it is used. Returns why its credentials are still in the keyring.
    pub(super) async fn remove(&self, login: &StoredLogin) -> Result<Option<KeyringError>, Problem> {
        self.files.remove(login).map_err(|error| self.file(error))?;
        match &login.keyring {
            Some(place) => Ok(self.remove_from_keyring(place).await),
            None if self.uses_keyring => {
                // One from before the keyring refused may still be there; it is not worth an error.
                let _ = self.keyring.remove(&self.files.key(&login.server, &login.url)).await;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    async fn remove_from_keyring(&self, place: &InKeyring) -> Option<KeyringError> {
        self.shared.known.lock().await.remove(&place.key);
        let why = self.keyring.remove(&place.key).await.err()?;
        tracing::warn!(%why, "a login that is no longer used could not be removed from the keyring");
        Some(why)
    }

    /// Waits until nobody else changes the login to a server.
    pub(super) async fn lock(&self, server: &str, url: &str) -> Result<Lock, Problem> {
        let (files, server, url) = (self.files.clone(), server.to_owned(), url.to_owned());
        let locked = spawn_blocking(move || files.lock(&server, &url)).await;
        locked.unwrap_or_else(|error| Err(error.into())).map_err(|error| self.file(error))
    }

    /// Returns why new logins are not kept in the keyring; None if they are. Nobody is asked.
    pub(super) async fn keyring_state(&self) -> Option<KeyringError> {
        match self.uses_keyring {
            true => self.keyring.has("probe").await.err(),
            false => Some(KeyringError::Off),
        }
    }

    pub(super) fn file(&self, source: io::Error) -> Problem {
        Problem::File { path: self.files.folder().to_path_buf(), source: Arc::new(source) }
    }
}
