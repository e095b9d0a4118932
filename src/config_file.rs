//! A file of definitions, of a client or of our own: read, copied, and replaced in one step.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// The mode of a file that is its user's alone.
const PRIVATE: u32 = 0o600;

/// A file that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("could not read '{path}': {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("could not write '{path}': {source}")]
    Write { path: PathBuf, source: io::Error },
}

/// A file as it was when it was read.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    /// The file itself: behind links, which people use to share configurations.
    path: PathBuf,
    /// None if there is no file.
    text: Option<String>,
}

impl ConfigFile {
    pub(crate) fn read(path: &Path) -> Result<Self, FileError> {
        let error = |source| FileError::Read { path: path.to_owned(), source };
        match fs::read_to_string(path) {
            Ok(text) => Ok(Self { path: path.canonicalize().map_err(error)?, text: Some(text) }),
            // A link to nothing would be replaced by a file.
            Err(missing) if missing.kind() == ErrorKind::NotFound && !path.is_symlink() => {
                Ok(Self { path: path.to_owned(), text: None })
            }
            Err(source) => Err(error(source)),
        }
    }

    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// Writes another text, and returns the copy of the old file.
    pub(crate) fn replace(&self, text: &str) -> Result<Option<PathBuf>, FileError> {
        let old = self.metadata()?;
        // Such files contain credentials: a new one is the user's alone.
        let mode = old.as_ref().map_or(PRIVATE, MetadataExt::mode);
        let file = self.beside(text, old.as_ref(), mode)?;
        let backup = match &self.text {
            Some(old) => Some(self.back_up(old, mode)?),
            None => None,
        };
        self.put(file)?;
        Ok(backup)
    }

    /// Writes another text, which from then on is the user's alone. There is no copy of the old one.
    pub(crate) fn replace_private(&self, text: &str) -> Result<(), FileError> {
        let old = self.metadata()?;
        self.put(self.beside(text, old.as_ref(), PRIVATE)?)
    }

    fn write_error(&self, source: io::Error) -> FileError {
        FileError::Write { path: self.path.clone(), source }
    }

    fn metadata(&self) -> Result<Option<Metadata>, FileError> {
        let old = self.text.is_some().then(|| fs::metadata(&self.path)).transpose();
        old.map_err(|error| self.write_error(error))
    }

    /// Writes a file that is to replace this one.
    fn beside(&self, text: &str, old: Option<&Metadata>, mode: u32) -> Result<NamedTempFile, FileError> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let write = || {
            fs::create_dir_all(folder)?;
            let mut file = tempfile::Builder::new()
                .prefix(".codebridge-")
                .permissions(Permissions::from_mode(PRIVATE))
                .tempfile_in(folder)?;
            file.write_all(text.as_bytes())?;
            // With `sudo` the file stays the user's.
            if let Some(old) = old.filter(|old| old.uid() != rustix::process::geteuid().as_raw()) {
                fchown(file.as_file(), Some(old.uid()), Some(old.gid()))?;
            }
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
            file.as_file().sync_all()?;
            Ok(file)
        };
        write().map_err(|error| self.write_error(error))
    }

    fn put(&self, file: NamedTempFile) -> Result<(), FileError> {
        file.persist(&self.path).map(drop).map_err(|refused| self.write_error(refused.error))
    }

    /// Copies the old text beside the file, under the first name that is free.
    fn back_up(&self, old: &str, mode: u32) -> Result<PathBuf, FileError> {
        let mut number = 0;
        loop {
            let mut name = self.path.clone().into_os_string();
            name.push(if number == 0 { ".bak".to_owned() } else { format!(".bak{number}") });
            let path = PathBuf::from(name);
            let written = File::create_new(&path).and_then(|mut file| {
                file.set_permissions(Permissions::from_mode(mode))?;
                file.write_all(old.as_bytes())
            });
            match written {
                Ok(()) => return Ok(path),
                Err(exists) if exists.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(source) => return Err(FileError::Write { path, source }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_link_and_its_mode_and_every_old_text_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("real.json"), "one").unwrap();
        fs::set_permissions(at("real.json"), Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("real.json", at("link.json")).unwrap();

        for (text, backup) in [("two", "real.json.bak"), ("three", "real.json.bak1")] {
            let copy = ConfigFile::read(&at("link.json")).unwrap().replace(text).unwrap();
            assert_eq!(copy.unwrap().file_name().unwrap(), backup);
        }
        assert!(at("link.json").is_symlink());
        let texts = ["real.json", "real.json.bak", "real.json.bak1"]
            .map(|name| fs::read_to_string(at(name)).unwrap());
        assert_eq!(texts, ["three", "one", "two"]);
        for entry in fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(fs::metadata(entry.path()).unwrap().mode() & 0o777, 0o640, "{entry:?}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn a_new_file_is_made_with_its_folders_for_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c.json");
        let file = ConfigFile::read(&path).unwrap();
        assert_eq!(file.text(), "");
        assert_eq!(file.replace("{}").unwrap(), None);
        assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_private_file_is_its_users_alone_from_then_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("servers.json");
        fs::write(&path, "one").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        ConfigFile::read(&path).unwrap().replace_private("two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_read_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("nowhere", at("broken.json")).unwrap();
        fs::write(at("latin.json"), b"{\"a\": \"\xe9\"}").unwrap();
        fs::create_dir(at("folder.json")).unwrap();
        for name in ["broken.json", "latin.json", "folder.json"] {
            let error = ConfigFile::read(&at(name)).unwrap_err().to_string();
            assert!(error.starts_with("could not read '") && error.contains(name), "{error}");
        }
    }
}
