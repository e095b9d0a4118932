//! A folder that gets files from a sandbox. Their names are hostile: none leads out of the folder, and no link is followed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use codebridge_runtimes::random_hex;
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, mkdirat, open, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

/// Bytes of a name that every file system takes.
const LONGEST_NAME: usize = 255;
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("could not write '{}': it exists", .0.display())]
    Exists(PathBuf),
    #[error("could not write '{}': {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file is not the reason.
    #[error("could not copy '{name}' from the sandbox: {why}")]
    Source { name: String, why: String },
}

impl WriteError {
    pub(super) fn hint(&self) -> Option<&'static str> {
        matches!(self, Self::Exists(_)).then_some("replace existing files with --force, or write elsewhere")
    }
}

/// The folder, and whether files in it may be replaced.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    force: bool,
    root: OwnedFd,
}

/// A file that is being written under another name. Dropped before [`NewFile::finish`], it is removed.
#[derive(Debug)]
pub(super) struct NewFile {
    folder: OwnedFd,
    staging: String,
    name: OsString,
    path: PathBuf,
    force: bool,
    file: Option<File>,
    pub(super) bytes: u64,
}

impl Folder {
    /// Makes the folder if it is not there.
    pub(super) fn create(path: &Path, force: bool) -> Result<Self, WriteError> {
        let failed = |source| WriteError::Io { path: path.to_owned(), source };
        match fs::create_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(failed(io::Error::from(io::ErrorKind::NotADirectory)));
            }
            made => made.map_err(failed)?,
        }
        // The user may have named a link; what is in it may not be one.
        let root = open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        Ok(Self { path: path.to_owned(), force, root: root.map_err(|error| failed(error.into()))? })
    }

    /// Begins a file below the folder.
    pub(super) fn file(&self, path: &[u8]) -> Result<NewFile, WriteError> {
        let parts: Vec<OsString> = path.split(|byte| *byte == b'/').map(safe).collect();
        let shown = parts.iter().fold(self.path.clone(), |path, part| path.join(part));
        let failed = |source: Errno| WriteError::Io { path: shown.clone(), source: source.into() };
        let (name, folders) = parts.split_last().ok_or_else(|| failed(Errno::INVAL))?;
        let mut folder =
            self.root.try_clone().map_err(|source| WriteError::Io { path: shown.clone(), source })?;
        for part in folders {
            match mkdirat(&folder, part, Mode::from(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error)),
            }
            folder = openat(&folder, part, FOLDER, Mode::empty()).map_err(failed)?;
        }
        if !self.force && statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(WriteError::Exists(shown));
        }
        let staging = format!(".{}.part", random_hex::<8>());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&folder, &staging, flags, Mode::from(0o666)).map_err(failed)?;
        let (name, path, file) = (name.clone(), shown.clone(), Some(File::from(file)));
        Ok(NewFile { folder, staging, name, path, force: self.force, file, bytes: 0 })
    }
}

impl NewFile {
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(bytes).map_err(|source| WriteError::Io { path: self.path.clone(), source })?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Gives the file its name; returns its path.
    pub(super) fn finish(mut self) -> Result<PathBuf, WriteError> {
        let renamed = match self.force {
            true => renameat(&self.folder, &self.staging, &self.folder, &self.name),
            false => rename_new(self.folder.as_fd(), self.staging.as_ref(), &self.name),
        };
        match renamed {
            Ok(()) => {
                self.file = None;
                Ok(self.path.clone())
            }
            Err(Errno::EXIST) => Err(WriteError::Exists(self.path.clone())),
            Err(source) => Err(WriteError::Io { path: self.path.clone(), source: source.into() }),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _ = unlinkat(&self.folder, &self.staging, AtFlags::empty());
        }
    }
}

/// Renames a file, unless there is one of the new name.
fn rename_new(folder: std::os::fd::BorrowedFd<'_>, old: &OsStr, new: &OsStr) -> Result<(), Errno> {
    match renameat_with(folder, old, folder, new, RenameFlags::NOREPLACE) {
        // The file system cannot do that; it was looked for a moment ago.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => renameat(folder, old, folder, new),
        done => done,
    }
}

/// Returns a name that is only a name, on every system and terminal.
fn safe(part: &[u8]) -> OsString {
    let text = String::from_utf8_lossy(part);
    let bytes: Vec<u8> = match part {
        b"" | b"." | b".." => b"_".to_vec(),
        _ if text.chars().any(char::is_control) => {
            text.chars().map(|c| if c.is_control() { '_' } else { c }).collect::<String>().into_bytes()
        }
        _ => part.to_vec(),
    };
    OsString::from_vec(bytes[..bytes.len().min(LONGEST_NAME)].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Folder, path: &[u8], content: &str) -> Result<PathBuf, WriteError> {
        let mut file = folder.file(path)?;
        file.write(content.as_bytes())?;
        file.finish()
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        for path in ["../x", "/etc/x", "a/../../x", "..", ".", "", "a\n\x1b[2Jb", "a//b"] {
            let folder = Folder::create(&out, false).unwrap();
            let written = put(&folder, path.as_bytes(), "x").unwrap();
            assert!(
                written.starts_with(&out) && !written.to_str().unwrap().contains(['\n', '\x1b']),
                "{path:?}"
            );
            assert!(written.components().all(|part| part.as_os_str() != ".."), "{written:?}");
            fs::remove_dir_all(&out).unwrap();
        }
        put(&Folder::create(&out, false).unwrap(), &[b'x'; 4000], "x").unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "something is beside the folder");
    }

    #[test]
    fn no_link_is_followed_and_nothing_is_replaced_without_being_asked() {
        let dir = tempfile::tempdir().unwrap();
        let (out, other) = (dir.path().join("out"), dir.path().join("other"));
        fs::create_dir_all(&out).unwrap();
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("file"), "old").unwrap();
        std::os::unix::fs::symlink(&other, out.join("link")).unwrap();
        std::os::unix::fs::symlink(other.join("file"), out.join("file")).unwrap();
        fs::write(out.join("mine"), "old").unwrap();
        let refusal = Folder::create(&out.join("mine"), true).unwrap_err().to_string();
        assert!(refusal.ends_with("mine': not a directory"), "{refusal}");
        let careful = Folder::create(&out, false).unwrap();
        assert!(matches!(put(&careful, b"mine", "new"), Err(WriteError::Exists(_))));
        assert!(matches!(put(&careful, b"file", "new"), Err(WriteError::Exists(_))));
        for force in [false, true] {
            let folder = Folder::create(&out, force).unwrap();
            assert!(matches!(put(&folder, b"link/x", "new"), Err(WriteError::Io { .. })));
        }
        let forced = Folder::create(&out, true).unwrap();
        put(&forced, b"mine", "new").unwrap();
        put(&forced, b"file", "new").unwrap();
        assert_eq!(fs::read_to_string(out.join("mine")).unwrap(), "new");
        assert_eq!(fs::read_to_string(other.join("file")).unwrap(), "old");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
        drop(forced.file(b"half").unwrap());
        let names: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3, "{names:?}");
    }
}
