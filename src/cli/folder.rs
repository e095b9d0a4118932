//! A folder that gets files from a sandbox. Their names are hostile: none leads out of the folder, and no link is followed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use codebridge_runtimes::exec::visible_line;
use codebridge_runtimes::random_hex;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, mkdirat, open, openat, renameat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;

/// Bytes of a name that every file system takes.
const LONGEST_NAME: usize = 255;
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The open files of this process, which is how a file without a name gets one.
const OPEN_FILES: &str = "/proc/self/fd";

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("could not write '{}': it exists", .0.display())]
    Exists(PathBuf),
    #[error("could not write to '{}': it is a file, not a folder", .0.display())]
    NotAFolder(PathBuf),
    #[error("did not write '{}': its name is one of a hidden file", .0.display())]
    Hidden(PathBuf),
    #[error("could not write '{}': {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file is not the reason.
    #[error("could not copy '{name}' from the sandbox: {why}")]
    Source { name: String, why: String },
    #[error(
        "did not copy '{name}' from the sandbox: it has {bytes}, and --out copies {left} more from /workspace"
    )]
    TooLarge { name: String, bytes: String, left: String },
}

impl WriteError {
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::Exists(_) => Some("replace existing files with --force, or write elsewhere".into()),
            Self::NotAFolder(path) if path.extension().is_some_and(|extension| extension == "py") => {
                Some(format!("name a folder before the script: codebridge exec --out DIR {}", path.display()))
            }
            Self::NotAFolder(_) => Some("name a folder; it is made if it does not exist".into()),
            Self::TooLarge { .. } => Some(
                "--out copies as many bytes as /workspace can hold; --workspace-size SIZE makes it larger"
                    .into(),
            ),
            Self::Hidden(_) | Self::Io { .. } | Self::Source { .. } => None,
        }
    }
}

/// The folder, and whether files in it may be replaced.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    force: bool,
    root: OwnedFd,
    /// Whether a file may get its name when it is whole: if this process is killed before that, nothing of it is left.
    may_be_unnamed: bool,
}

/// A file that is being written without a name, or under another one. Dropped before [`NewFile::finish`], it is removed.
#[derive(Debug)]
pub(super) struct NewFile {
    folder: OwnedFd,
    /// The other name, if the file has one.
    staging: Option<String>,
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
                return Err(WriteError::NotAFolder(path.to_owned()));
            }
            made => made.map_err(failed)?,
        }
        // The user may have named a link; what is in it may not be one.
        let root = open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let root = root.map_err(|error| failed(error.into()))?;
        let may_be_unnamed = Path::new(OPEN_FILES).exists();
        Ok(Self { path: path.to_owned(), force, root, may_be_unnamed })
    }

    /// Returns what to say before the files are made, if some of them may exist.
    pub(super) fn note(&self) -> Option<String> {
        let mut entries = self.path.read_dir().ok().filter(|_| !self.force)?;
        let _ = entries.next()?;
        Some(format!(
            "note: '{}' is not empty: files in it are not replaced without --force",
            self.path.display()
        ))
    }

    /// Begins a file below the folder, under a name from a sandbox.
    pub(super) fn file(&self, path: &[u8]) -> Result<NewFile, WriteError> {
        let hidden = |part: &OsString| part.as_bytes().starts_with(b".") || part == "__pycache__";
        let parts: Vec<OsString> = path.split(|byte| *byte == b'/').map(safe).collect();
        if parts.iter().any(hidden) {
            return Err(WriteError::Hidden(self.path.join(parts.iter().collect::<PathBuf>())));
        }
        self.named_file(path)
    }

    /// Begins a file below the folder, under a name that the user chose.
    pub(super) fn named_file(&self, path: &[u8]) -> Result<NewFile, WriteError> {
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
        let (file, staging) = stage(folder.as_fd(), self.may_be_unnamed).map_err(failed)?;
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

    fn give_name(&mut self) -> Result<(), Errno> {
        if let (None, Some(file)) = (&self.staging, &self.file) {
            let unnamed = format!("{OPEN_FILES}/{}", file.as_raw_fd());
            let link = |name: &OsStr| linkat(CWD, &unnamed, &self.folder, name, AtFlags::SYMLINK_FOLLOW);
            match link(&self.name) {
                Err(Errno::EXIST) if self.force => {}
                done => return done,
            }
            // A link replaces nothing.
            let staging = staging_name();
            link(staging.as_ref())?;
            self.staging = Some(staging);
        }
        let Some(staging) = &self.staging else { return Ok(()) };
        match self.force {
            true => renameat(&self.folder, staging, &self.folder, &self.name),
            false => rename_new(self.folder.as_fd(), staging.as_ref(), &self.name),
        }
    }

    /// Gives the file its name; returns its path.
    pub(super) fn finish(mut self) -> Result<PathBuf, WriteError> {
        match self.give_name() {
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
        if let (Some(_), Some(staging)) = (self.file.take(), &self.staging) {
            let _ = unlinkat(&self.folder, staging, AtFlags::empty());
        }
    }
}

fn staging_name() -> String {
    format!(".{}.part", random_hex::<8>())
}

/// Makes a file, without a name where the file system has that.
fn stage(folder: BorrowedFd<'_>, may_be_unnamed: bool) -> Result<(OwnedFd, Option<String>), Errno> {
    let (flags, mode) = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::from(0o666));
    if may_be_unnamed && let Some(file) = unnamed(folder, flags, mode)? {
        return Ok((file, None));
    }
    let staging = staging_name();
    let file = openat(folder, &staging, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
    Ok((file, Some(staging)))
}

/// Makes a file without a name; None if the file system does not have that.
#[cfg(target_os = "linux")]
fn unnamed(folder: BorrowedFd<'_>, flags: OFlags, mode: Mode) -> Result<Option<OwnedFd>, Errno> {
    match openat(folder, ".", flags | OFlags::TMPFILE, mode) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOTSUP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Other systems have no such files.
#[cfg(not(target_os = "linux"))]
fn unnamed(_: BorrowedFd<'_>, _: OFlags, _: Mode) -> Result<Option<OwnedFd>, Errno> {
    Ok(None)
}

/// Renames a file, unless there is one of the new name.
fn rename_new(folder: BorrowedFd<'_>, old: &OsStr, new: &OsStr) -> Result<(), Errno> {
    match renameat_with(folder, old, folder, new, RenameFlags::NOREPLACE) {
        // The file system cannot do that; it was looked for a moment ago.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => renameat(folder, old, folder, new),
        done => done,
    }
}

/// Returns a name that is only a name, on every system and terminal.
fn safe(part: &[u8]) -> OsString {
    let text = String::from_utf8_lossy(part);
    let visible = visible_line(&text);
    let bytes = match part {
        b"" | b"." | b".." => b"_".to_vec(),
        _ if visible != text => visible.replace('\u{fffd}', "_").into_bytes(),
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
        for path in ["../x", "/etc/x", "a/../../x", "..", ".", "", "a\n\x1b[2Jb", "a//b", "\u{202e}gpj.exe"] {
            let folder = Folder::create(&out, false).unwrap();
            let written = put(&folder, path.as_bytes(), "x").unwrap();
            assert!(
                written.starts_with(&out) && !written.to_str().unwrap().contains(['\n', '\x1b', '\u{202e}']),
                "{path:?}"
            );
            assert!(written.components().all(|part| part.as_os_str() != ".."), "{written:?}");
            fs::remove_dir_all(&out).unwrap();
        }
        put(&Folder::create(&out, false).unwrap(), &[b'x'; 4000], "x").unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "something is beside the folder");
    }

    #[test]
    fn what_would_be_kept_is_said_before() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        assert_eq!(Folder::create(&out, false).unwrap().note(), None);
        fs::write(out.join("plot.py"), "").unwrap();
        assert!(Folder::create(&out, false).unwrap().note().is_some_and(|note| note.contains("--force")));
        assert_eq!(Folder::create(&out, true).unwrap().note(), None);
        let file = Folder::create(&out.join("plot.py"), true).unwrap_err();
        assert!(file.to_string().ends_with("it is a file, not a folder"), "{file}");
        assert!(file.hint().is_some_and(|hint| hint.contains("exec --out DIR ")));
    }

    #[test]
    fn hidden_files_are_not_written_unless_the_user_names_them() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(dir.path(), true).unwrap();
        for path in [".envrc", ".git/config", "a/.git/hooks/x", "__pycache__/b.pyc", "..."] {
            assert!(matches!(put(&folder, path.as_bytes(), "x"), Err(WriteError::Hidden(_))), "{path}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        folder.named_file(b".mine").unwrap().finish().unwrap();
        assert!(dir.path().join(".mine").is_file());
    }

    #[test]
    fn a_file_has_no_name_until_it_is_whole() {
        for may_be_unnamed in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let names = || {
                let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
                names.collect::<Vec<_>>()
            };
            let careful = Folder { may_be_unnamed, ..Folder::create(dir.path(), false).unwrap() };
            let mut file = careful.file(b"x").unwrap();
            file.write(b"half").unwrap();
            // Without support of the file system it has a name.
            assert_eq!(names().len(), usize::from(file.staging.is_some()));
            assert!(may_be_unnamed || file.staging.is_some());
            fs::write(dir.path().join("x"), "old").unwrap();
            assert!(matches!(file.finish(), Err(WriteError::Exists(_))));
            assert_eq!(
                (names(), fs::read(dir.path().join("x")).unwrap()),
                (vec!["x".into()], b"old".to_vec())
            );
            let forced = Folder { may_be_unnamed, ..Folder::create(dir.path(), true).unwrap() };
            put(&forced, b"x", "new").unwrap();
            assert_eq!(
                (names(), fs::read(dir.path().join("x")).unwrap()),
                (vec!["x".into()], b"new".to_vec())
            );
        }
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
        assert!(refusal.ends_with("mine': it is a file, not a folder"), "{refusal}");
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
