//! The version of the state folder: a number in a file of it says how the other files are written.
//!
//! Folders without that file are of version 1, the first. A program that writes something in another way has a higher
//! version: it marks the folder before it writes, and reads what earlier versions have left.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The version that this program writes, and the highest that it reads.
pub const VERSION: u32 = 1;
/// The file. With the ending of JSON it would be read as definitions of servers.
pub const FILE: &str = "schema-version";
/// Bytes of the file that are read.
const LONGEST: u64 = 64;

/// Why a state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateFolderError {
    #[error("the state folder '{}' was written by a newer codebridge: it has version {found}, and this program reads versions up to {VERSION}", .folder.display())]
    Newer { folder: PathBuf, found: u32 },
    #[error("'{}' is not the version of a state folder", .0.display())]
    Malformed(PathBuf),
}

impl StateFolderError {
    pub fn hint(&self) -> String {
        match self {
            Self::Newer { .. } => {
                "update codebridge, or set MCP_BRIDGE_STATE_DIR to another folder; nothing was changed".into()
            }
            Self::Malformed(_) => format!(
                "write the number of the version to it: `{VERSION}`, unless a newer codebridge has used the folder"
            ),
        }
    }
}

/// Returns the version of a folder; None if it has no number. What cannot be read has errors of its own where it is used.
///
/// # Errors
/// The program must not use the folder.
pub fn check(folder: &Path) -> Result<Option<u32>, StateFolderError> {
    let path = folder.join(FILE);
    let file = match fs::File::open(&path) {
        Ok(file) => file,
        // The folder is ours, and the number somebody else's: it may be a newer one.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && folder.read_dir().is_ok() => {
            return Err(StateFolderError::Malformed(path));
        }
        Err(_) => return Ok(None),
    };
    let mut text = String::new();
    let number = file.take(LONGEST).read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
    match number {
        Some(found @ 1..=VERSION) => Ok(Some(found)),
        Some(found @ 1..) => Err(StateFolderError::Newer { folder: folder.to_owned(), found }),
        _ => Err(StateFolderError::Malformed(path)),
    }
}

/// Writes the version into a folder that exists and has none. A folder that cannot be written stays as it is.
pub fn mark(folder: &Path) {
    let path = folder.join(FILE);
    if !folder.is_dir() || path.exists() {
        return;
    }
    let write = || -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".unfinished-").tempfile_in(folder)?;
        writeln!(file, "{VERSION}")?;
        file.as_file().sync_all()?;
        // Another process may have been faster.
        file.persist_noclobber(&path).map(drop).or_else(|refused| match refused.error.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(refused.error),
        })
    };
    if let Err(error) = write() {
        tracing::debug!(path = %path.display(), %error, "could not write the version of the state folder");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_this_version_and_of_none_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        assert_eq!(check(&missing).unwrap(), None);
        mark(&missing);
        assert!(!missing.exists());
        assert_eq!(check(dir.path()).unwrap(), None);
        mark(dir.path());
        assert_eq!(check(dir.path()).unwrap(), Some(VERSION));
        mark(dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_newer_folder_and_a_damaged_number_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let written = |text: &str| {
            fs::write(dir.path().join(FILE), text).unwrap();
            let error = check(dir.path()).unwrap_err();
            mark(dir.path());
            assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), text, "it is not overwritten");
            error
        };
        assert!(matches!(written("2\n"), StateFolderError::Newer { found: 2, .. }));
        for text in ["", "0", "-1", "one", "1 2", "99999999999"] {
            assert!(matches!(written(text), StateFolderError::Malformed(_)), "{text}");
        }
    }
}
