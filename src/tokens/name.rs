//! Names of users. A name is also the name of a folder.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// The longest name.
const LONGEST: usize = 64;
/// What the names of users of an issuer begin with.
const OF_ISSUER: &str = "oidc.";
/// What they begin with when the issuer's name is no name of a folder.
const HASHED: &str = "oidc-sha256.";

/// The name of a user: lower-case letters, digits, and `.`, `_`, `-`, `@` after the first character.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalName(Arc<str>);

/// A text that is not the name of a user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "invalid name {0:?}: expected up to {LONGEST} lower-case letters, digits, '.', '_', '-' or '@', the first a letter or a digit"
    )]
    Invalid(String),
    #[error("invalid name '{0}': names that begin with 'oidc' are for the users of an issuer")]
    Reserved(String),
}

impl PrincipalName {
    /// Returns the user that an issuer names; None for a text that is no name at all.
    pub fn of_issuer(subject: &str) -> Option<Self> {
        let is_text = !subject.is_empty()
            && subject.len() <= 255
            && subject.bytes().all(|byte| byte.is_ascii_graphic() && !b"/\\".contains(&byte));
        if !is_text {
            return None;
        }
        let plain = format!("{OF_ISSUER}{subject}");
        Some(Self(if is_name(&plain) {
            plain.into()
        } else {
            let digest = hex::encode(Sha256::digest(subject));
            format!("{HASHED}{}", &digest[..40]).into()
        }))
    }

    /// Returns the user of an issuer that an operator means: `oidc.SUBJECT`, whatever the subject, or the name of the folder.
    pub fn meant_of_issuer(text: &str) -> Option<Self> {
        let is_hash = |hash: &str| hash.len() == 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        match text.strip_prefix(HASHED) {
            Some(hash) if is_hash(hash) && is_name(text) => Some(Self(text.into())),
            _ => Self::of_issuer(text.strip_prefix(OF_ISSUER)?),
        }
    }

    /// Returns the name as rules and folders have it.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= LONGEST
        && text.bytes().next().is_some_and(is_plain)
        && text.bytes().all(|byte| is_plain(byte) || b"._-@".contains(&byte))
}

impl FromStr for PrincipalName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match is_name(text) {
            false => Err(NameError::Invalid(text.chars().take(2 * LONGEST).collect())),
            true if text.starts_with(OF_ISSUER) || text.starts_with(HASHED) => {
                Err(NameError::Reserved(text.into()))
            }
            true => Ok(Self(text.into())),
        }
    }
}

impl fmt::Display for PrincipalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_names_of_folders() {
        for good in ["alice", "ci-1", "a.b@example.com", "0"] {
            assert_eq!(good.parse::<PrincipalName>().unwrap().as_str(), good);
        }
        let long = "a".repeat(65);
        for bad in ["", "..", "../x", ".x", "-x", "a/b", "Alice", "a b", "ä", "a\0", &long] {
            assert!(matches!(bad.parse::<PrincipalName>(), Err(NameError::Invalid(_))), "{bad}");
        }
        for reserved in ["oidc.alice", "oidc-sha256.00"] {
            assert!(matches!(reserved.parse::<PrincipalName>(), Err(NameError::Reserved(_))));
        }
    }

    #[test]
    fn users_of_an_issuer_never_have_the_name_of_another_user() {
        let name = |subject| PrincipalName::of_issuer(subject).map(|name| name.as_str().to_owned());
        assert_eq!(name("alice").as_deref(), Some("oidc.alice"));
        let hashed = name("auth0|Alice").unwrap();
        assert!(hashed.starts_with("oidc-sha256.") && hashed.len() <= LONGEST);
        assert_ne!(name("auth0|Alice"), name("auth0|alice"));
        for bad in ["", "../x", "a/b", "a b", "a\n", "ä", "a\\b"] {
            assert_eq!(name(bad), None, "{bad}");
        }
        let meant = |text: &str| PrincipalName::meant_of_issuer(text).map(|name| name.as_str().to_owned());
        assert_eq!(meant("oidc.alice").as_deref(), Some("oidc.alice"));
        assert_eq!((meant("oidc.auth0|Alice"), meant(&hashed)), (Some(hashed.clone()), Some(hashed)));
        for other in ["alice", "oidc.", "oidc.../x", "oidc-sha256.00", "oidc", "cbr_00"] {
            assert_eq!(meant(other), None, "{other}");
        }
    }
}
