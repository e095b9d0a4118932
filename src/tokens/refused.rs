//! Users of an issuer whom the operator refuses, whatever tokens the issuer gives them: an empty file for each.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::store::FOLDER;
use super::{PrincipalName, TokenError};

/// The folder of the files, in the folder of the tokens.
const REFUSED: &str = "refused";

/// The refused users of a state folder.
#[derive(Debug, Clone)]
pub struct Refused(PathBuf);

impl Refused {
    /// Returns those of a state folder. Nothing is read before it is needed.
    pub fn at(state_dir: &Path) -> Self {
        Self(state_dir.join(FOLDER).join(REFUSED))
    }

    /// Refuses a user from now on.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn add(&self, user: &PrincipalName) -> Result<(), TokenError> {
        let write = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(self.file(user))?
                .sync_all()
        };
        write().map_err(|source| TokenError::Write { folder: self.0.clone(), source })
    }

    /// Refuses a user no longer; false if nobody did.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self, user: &PrincipalName) -> Result<bool, TokenError> {
        match fs::remove_file(self.file(user)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(source) => Err(TokenError::Remove { folder: self.0.clone(), source }),
        }
    }

    /// Whether a user is refused.
    ///
    /// # Errors
    /// Nobody knows: the folder cannot be read.
    pub fn has(&self, user: &PrincipalName) -> Result<bool, TokenError> {
        match fs::symlink_metadata(self.file(user)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(source) => Err(self.unreadable(source)),
        }
    }

    /// Returns all of them by name, with the time since when.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self) -> Result<Vec<(PrincipalName, Timestamp)>, TokenError> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|source| self.unreadable(source))?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| self.unreadable(source))?;
            let user = entry.file_name().to_str().and_then(PrincipalName::meant_of_issuer);
            let since = entry.metadata().and_then(|metadata| metadata.modified()).ok();
            let since = since.and_then(|since| Timestamp::try_from(since).ok());
            all.extend(user.map(|user| (user, since.unwrap_or_default())));
        }
        all.sort();
        Ok(all)
    }

    /// The name of a user is one of a file, too.
    fn file(&self, user: &PrincipalName) -> PathBuf {
        self.0.join(user.as_str())
    }

    fn unreadable(&self, source: io::Error) -> TokenError {
        TokenError::Read { folder: self.0.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_of_an_issuer_is_refused_until_it_is_allowed_again() {
        let folder = tempfile::tempdir().unwrap();
        let refused = Refused::at(folder.path());
        let user = |subject| PrincipalName::of_issuer(subject).unwrap();
        let (alice, bob) = (user("alice"), user("auth0|Bob"));
        assert!(refused.list().unwrap().is_empty() && !refused.has(&alice).unwrap());
        for _ in 0..2 {
            refused.add(&bob).unwrap();
        }
        assert!(refused.has(&bob).unwrap() && !refused.has(&alice).unwrap());
        let names: Vec<_> = refused.list().unwrap().into_iter().map(|(user, _)| user).collect();
        assert_eq!(names, std::slice::from_ref(&bob));
        assert!(refused.remove(&bob).unwrap() && !refused.remove(&bob).unwrap());
        assert!(!refused.has(&bob).unwrap());
        // What cannot be read refuses nobody silently.
        fs::remove_dir(&refused.0).unwrap();
        fs::write(&refused.0, "").unwrap();
        assert!(matches!(refused.has(&bob), Err(TokenError::Read { .. })));
    }
}
