//! The tokens on disk.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{PrincipalName, Scopes};

/// The folder of the tokens, in the state folder.
pub(super) const FOLDER: &str = "tokens";
/// What every token begins with, so that scanners for secrets recognise it.
const PREFIX: &str = "cbr_";
/// Random bytes of a token.
const BYTES: usize = 32;
/// Bytes of a file.
const LONGEST_FILE: u64 = 4096;

/// The hash of a token, which is also its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(String);

impl TokenId {
    /// Returns the id of a text that a client has sent; None if it is no token.
    pub fn of_sent(secret: &str) -> Option<Self> {
        secret.starts_with(PREFIX).then(|| Self::of(secret))
    }

    /// Returns the id of a token.
    pub fn of(secret: &str) -> Self {
        Self(hex::encode(Sha256::digest(secret)))
    }

    /// Returns the id of the token with a file of this name.
    fn of_file(name: &str) -> Option<Self> {
        let is_hash = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hash.then(|| Self(name.to_owned()))
    }

    /// Returns as much of it as people type.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short())
    }
}

/// What is known of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub id: TokenId,
    pub principal: PrincipalName,
    pub scopes: Scopes,
    pub created: Timestamp,
    pub expires: Option<Timestamp>,
}

impl Kept {
    /// Returns whether it still holds.
    pub fn is_valid(&self) -> bool {
        self.expires.is_none_or(|expires| Timestamp::now() < expires)
    }
}

/// All tokens of a folder.
#[derive(Debug, Default)]
pub struct TokenList {
    /// By name and age; expired ones too.
    pub kept: Vec<Kept>,
    pub unusable: Vec<Unusable>,
}

/// A file in the place of a token that gives nobody access.
#[derive(Debug)]
pub struct Unusable {
    pub id: TokenId,
    pub why: String,
}

/// What the file of a token has.
enum Content {
    Missing,
    Token(Kept),
    Malformed(String),
}

/// A token as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct File {
    name: String,
    scopes: Scopes,
    created: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
}

/// A token that is to be made.
#[derive(Debug)]
pub struct NewToken {
    pub principal: PrincipalName,
    pub scopes: Scopes,
    pub lifetime: Option<Duration>,
}

/// Why a token could not be made, listed or revoked.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("could not read the tokens in '{}': {source}", folder.display())]
    Read { folder: PathBuf, source: io::Error },
    #[error("could not write the token in '{}': {source}", folder.display())]
    Write { folder: PathBuf, source: io::Error },
    #[error("could not revoke a token in '{}': {source}", folder.display())]
    Remove { folder: PathBuf, source: io::Error },
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
    #[error("no token has the name or the id '{0}'")]
    Unknown(String),
    #[error("'{0}' is not a refused user of the issuer")]
    NotRefused(String),
}

/// The tokens of a state folder.
#[derive(Debug, Clone)]
pub struct Tokens {
    folder: PathBuf,
}

/// Returns a new token.
///
/// # Errors
/// The system has no random numbers.
pub fn new_secret() -> Result<String, TokenError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(TokenError::Random)?;
    Ok(format!("{PREFIX}{}", hex::encode(bytes)))
}

impl Tokens {
    /// Returns the tokens of a state folder. Nothing is read before it is needed.
    pub fn at(state_dir: &Path) -> Self {
        Self { folder: state_dir.join(FOLDER) }
    }

    /// Makes a token, and returns it: it is not kept anywhere.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn add(&self, new: NewToken) -> Result<String, TokenError> {
        let secret = new_secret()?;
        let created = Timestamp::now();
        let expires = new.lifetime.map(|time| created.checked_add(time).unwrap_or(Timestamp::MAX));
        let file = File { name: new.principal.to_string(), scopes: new.scopes, created, expires };
        let failed = |source| TokenError::Write { folder: self.folder.clone(), source };
        self.write(&TokenId::of(&secret), &file).map_err(failed)?;
        Ok(secret)
    }

    fn write(&self, id: &TokenId, file: &File) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let text = serde_json::to_string(file)?;
        let mut written =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.folder.join(&id.0))?;
        written.write_all(text.as_bytes())?;
        written.sync_all()
    }

    /// Returns a token by its id; None if there is none that holds.
    ///
    /// # Errors
    /// There may be one: its file cannot be read.
    pub fn get(&self, id: &TokenId) -> Result<Option<Kept>, TokenError> {
        match self.read(id).map_err(|source| TokenError::Read { folder: self.folder.clone(), source })? {
            Content::Token(kept) => Ok(Some(kept).filter(Kept::is_valid)),
            Content::Missing => Ok(None),
            Content::Malformed(why) => {
                tracing::warn!(token = %id, why, "refused a token");
                Ok(None)
            }
        }
    }

    fn read(&self, id: &TokenId) -> io::Result<Content> {
        let mut bytes = Vec::new();
        let read = fs::File::open(self.folder.join(&id.0))
            .and_then(|file| file.take(LONGEST_FILE).read_to_end(&mut bytes));
        match read {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Content::Missing),
            read => read?,
        };
        let file = match serde_json::from_slice::<File>(&bytes) {
            Ok(file) => file,
            Err(error) => return Ok(Content::Malformed(format!("its file is malformed: {error}"))),
        };
        let principal = match file.name.parse::<PrincipalName>() {
            Ok(principal) => principal,
            Err(error) => return Ok(Content::Malformed(error.to_string())),
        };
        let File { scopes, created, expires, .. } = file;
        Ok(match scopes.are_allowed() {
            true => Content::Token(Kept { id: id.clone(), principal, scopes, created, expires }),
            false => Content::Malformed("no token can have its scopes".into()),
        })
    }

    /// Returns all tokens. One that cannot be read hides no other.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self) -> Result<TokenList, TokenError> {
        let failed = |source| TokenError::Read { folder: self.folder.clone(), source };
        let mut all = TokenList::default();
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(all),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let Some(id) = name.to_str().and_then(TokenId::of_file) else { continue };
            let why = match self.read(&id) {
                Ok(Content::Token(kept)) => {
                    all.kept.push(kept);
                    continue;
                }
                Ok(Content::Missing) => continue,
                Ok(Content::Malformed(why)) => why,
                Err(error) => format!("its file cannot be read: {error}"),
            };
            all.unusable.push(Unusable { id, why });
        }
        all.kept.sort_by(|a, b| (&a.principal, a.created, &a.id).cmp(&(&b.principal, b.created, &b.id)));
        all.unusable.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }

    /// Removes the tokens of a name, or one by its id, and returns them. Of one that cannot be read only the id is known.
    ///
    /// # Errors
    /// There is none, or it cannot be removed.
    pub fn revoke(&self, name_or_id: &str) -> Result<TokenList, TokenError> {
        let is_id = |id: &TokenId| name_or_id.len() >= 8 && id.0.starts_with(name_or_id);
        let mut meant = self.list()?;
        meant.kept.retain(|kept| kept.principal.as_str() == name_or_id || is_id(&kept.id));
        meant.unusable.retain(|unusable| is_id(&unusable.id));
        let ids: Vec<&TokenId> = meant
            .kept
            .iter()
            .map(|kept| &kept.id)
            .chain(meant.unusable.iter().map(|unusable| &unusable.id))
            .collect();
        if ids.is_empty() {
            return Err(TokenError::Unknown(name_or_id.chars().take(100).collect()));
        }
        for id in ids {
            match fs::remove_file(self.folder.join(&id.0)) {
                Err(source) if source.kind() != ErrorKind::NotFound => {
                    return Err(TokenError::Remove { folder: self.folder.clone(), source });
                }
                _ => {}
            }
        }
        Ok(meant)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn find(tokens: &Tokens, secret: &str) -> Option<Kept> {
        tokens.get(&TokenId::of_sent(secret)?).unwrap()
    }

    fn new(name: &str, lifetime: Option<Duration>) -> NewToken {
        NewToken { principal: name.parse().unwrap(), scopes: Scopes::mcp(), lifetime }
    }

    #[test]
    fn a_token_is_found_until_it_is_revoked_and_is_not_on_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::at(folder.path());
        assert!(tokens.list().unwrap().kept.is_empty());
        let secret = tokens.add(new("alice", None)).unwrap();
        let other = tokens.add(new("bob", None)).unwrap();
        assert_eq!(find(&tokens, &secret).unwrap().principal.as_str(), "alice");
        assert_eq!(find(&tokens, &format!("{secret}0")), None);
        for entry in fs::read_dir(folder.path().join(FOLDER)).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            assert!(!fs::read_to_string(&path).unwrap().contains(&secret[PREFIX.len()..]));
        }
        let id = find(&tokens, &other).unwrap().id;
        assert_eq!(tokens.revoke("alice").unwrap().kept.len(), 1);
        assert_eq!(tokens.revoke(id.short()).unwrap().kept[0].principal.as_str(), "bob");
        assert_eq!((find(&tokens, &secret), find(&tokens, &other)), (None, None));
        assert!(matches!(tokens.revoke("alice"), Err(TokenError::Unknown(_))));
    }

    #[test]
    fn an_expired_token_is_listed_and_not_found() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::at(folder.path());
        let secret = tokens.add(new("alice", Some(Duration::ZERO))).unwrap();
        assert_eq!((find(&tokens, &secret), tokens.list().unwrap().kept.len()), (None, 1));
    }

    #[test]
    fn a_token_that_cannot_be_read_is_not_taken_for_one_that_was_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::at(folder.path());
        let id = TokenId::of(&tokens.add(new("alice", None)).unwrap());
        let path = tokens.folder.join(&id.0);
        fs::remove_file(&path).unwrap();
        assert_eq!(tokens.get(&id).unwrap(), None);
        // What nobody can read, root neither.
        fs::create_dir(&path).unwrap();
        assert!(matches!(tokens.get(&id), Err(TokenError::Read { .. })));
    }

    #[test]
    fn a_token_that_cannot_be_used_hides_no_other_and_can_be_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::at(folder.path());
        let add = |name| TokenId::of(&tokens.add(new(name, None)).unwrap());
        let (alice, broken, folder_of) = (add("alice"), add("bob"), add("carol"));
        fs::write(tokens.folder.join(&broken.0), b"\xff{").unwrap();
        fs::remove_file(tokens.folder.join(&folder_of.0)).unwrap();
        fs::create_dir(tokens.folder.join(&folder_of.0)).unwrap();
        let list = tokens.list().unwrap();
        assert_eq!((list.kept.len(), list.unusable.len()), (1, 2), "{list:?}");
        assert!(matches!(tokens.revoke("bob"), Err(TokenError::Unknown(_))), "nobody knows that it is his");
        let revoked = tokens.revoke(broken.short()).unwrap();
        assert!(revoked.kept.is_empty() && revoked.unusable[0].why.contains("malformed"), "{revoked:?}");
        assert!(matches!(tokens.revoke(folder_of.short()), Err(TokenError::Remove { .. })));
        assert_eq!(tokens.revoke("alice").unwrap().kept[0].id, alice);
    }

    #[test]
    fn a_file_that_grants_too_much_is_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::at(folder.path());
        let secret = tokens.add(new("alice", None)).unwrap();
        let path = tokens.folder.join(&TokenId::of(&secret).0);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"mcp\"", "\"mcp\",\"approve\"")).unwrap();
        assert_eq!(find(&tokens, &secret), None);
        fs::write(&path, text.replace("alice", "../x")).unwrap();
        assert_eq!(find(&tokens, &secret), None);
        assert!(tokens.list().unwrap().unusable[0].why.starts_with("invalid name \"../x\""));
    }
}
