//! Who is logged in where.

use jiff::Timestamp;

use super::files::StoredLogin;
use super::keyring::KeyringError;

/// A login, without its credentials.
#[derive(Debug, Clone)]
pub struct Account {
    pub server: String,
    pub url: String,
    pub issuer: String,
    /// Who logged in, if the provider said so.
    pub name: Option<String>,
    pub scopes: Vec<String>,
    /// The permissions that the server wants, and that were not granted.
    pub missing: Vec<String>,
    pub expires: Option<Timestamp>,
    /// Whether it is renewed without the person.
    pub is_renewed: bool,
    /// Whether its credentials are in the keyring, and not in its file.
    pub in_keyring: bool,
    /// Why the keyring did not take them just now.
    pub not_in_keyring: Option<KeyringError>,
}

impl Account {
    pub(super) fn of(login: StoredLogin) -> Self {
        let missing = login.wanted.iter().filter(|scope| !login.scopes.contains(scope)).cloned().collect();
        Self {
            is_renewed: login.is_renewed(),
            in_keyring: login.keyring.is_some(),
            not_in_keyring: None,
            server: login.server,
            url: login.url,
            issuer: login.issuer,
            name: login.account,
            scopes: login.scopes,
            missing,
            expires: login.expires,
        }
    }

    /// Returns whether it can be used.
    pub fn is_valid(&self) -> bool {
        self.is_renewed || self.expires.is_none_or(|expires| Timestamp::now() < expires)
    }
}
