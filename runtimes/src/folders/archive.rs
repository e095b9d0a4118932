//! A folder as a tar archive that anybody may read: for a copy of it, here or on another machine.

use std::ffi::{CStr, OsStr};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use crate::exec::visible_line;

/// The number of files and folders in a copy.
const MOST_ENTRIES: usize = 100_000;
/// The number of folders within each other.
const DEEPEST: usize = 64;
/// How many names a message has.
const NAMED: usize = 3;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("could not read the folder '{path}': {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("the folder '{path}' cannot be copied to the sandbox: it has more than {} MiB", .limit >> 20)]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("the folder '{path}' cannot be copied to the sandbox: it has more than {MOST_ENTRIES} files")]
    TooMany { path: PathBuf },
}

/// What a copy lacks because the folder's owner cannot read it, or because it is no file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LeftOut {
    named: Vec<String>,
    count: usize,
}

impl LeftOut {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn add(&mut self, path: &Path) {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(visible_line(&path.to_string_lossy()));
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named.join(", "))?;
        match self.count - self.named.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) bytes: Vec<u8>,
    pub(crate) left_out: LeftOut,
}

/// Reads a folder, up to `limit` bytes. What its owner cannot read is left out, also when this process could. No link is followed;
/// set-user-id bits, owners, devices, pipes and sockets are not copied.
pub(crate) fn archive(folder: &Path, limit: u64) -> Result<Archive, ArchiveError> {
    let read = |error: Errno| ArchiveError::Read { path: folder.to_path_buf(), source: error.into() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = openat(CWD, folder, flags, Mode::empty()).map_err(read)?;
    let owner = fstat(&root).map_err(read)?;
    let mut walk = Walk {
        folder,
        owner: (owner.st_uid, owner.st_gid),
        left: limit,
        limit,
        entries: 0,
        archive: Builder::new(Vec::new()),
        left_out: LeftOut::default(),
    };
    walk.folder(root, Path::new(""), 0)?;
    let bytes = walk.archive.into_inner().unwrap_or_default();
    Ok(Archive { bytes, left_out: walk.left_out })
}

/// What is special in a folder that code reads.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Oddities {
    /// What its owner cannot read.
    pub unread: LeftOut,
    /// The named pipes, to which code can write also on a read-only mount.
    pub pipes: LeftOut,
}

/// Looks at the first `most` files and folders in a folder.
pub fn look_at(folder: &Path, most: usize) -> io::Result<Oddities> {
    let root = openat(CWD, folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let owner = fstat(&root)?;
    let mut all = Oddities::default();
    let (mut open, mut left) = (vec![(root, PathBuf::new())], most);
    while let Some((folder, below)) = open.pop() {
        for entry in Dir::read_from(&folder)?.flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Some(less) = left.checked_sub(1) else { return Ok(all) };
            left = less;
            let path = below.join(OsStr::from_bytes(name.to_bytes()));
            let Ok(stat) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind == FileType::Fifo {
                all.pipes.add(&path);
            }
            if !matches!(kind, FileType::RegularFile | FileType::Directory) {
                continue;
            }
            // Another file system is not mounted where ids are mapped, and is elsewhere.
            let readable = may_read((owner.st_uid, owner.st_gid), &stat);
            if !readable || stat.st_dev != owner.st_dev {
                all.unread.add(&path);
            }
            if readable && kind == FileType::Directory && path.components().count() < DEEPEST {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                open.extend(openat(&folder, name, flags, Mode::empty()).ok().map(|open| (open, path)));
            }
        }
    }
    Ok(all)
}

/// Returns whether a user can read a file or folder, whoever this process is.
fn may_read((uid, gid): (u32, u32), stat: &Stat) -> bool {
    let needed = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory { 0o5 } else { 0o4 };
    let class = match (stat.st_uid == uid, stat.st_gid == gid) {
        (true, _) => 6,
        (_, true) => 3,
        _ => 0,
    };
    uid == 0 || (stat.st_mode >> class) & needed == needed
}

struct Walk<'a> {
    folder: &'a Path,
    owner: (u32, u32),
    left: u64,
    limit: u64,
    entries: usize,
    archive: Builder<Vec<u8>>,
    left_out: LeftOut,
}

impl Walk<'_> {
    fn folder(&mut self, open: OwnedFd, below: &Path, depth: usize) -> Result<(), ArchiveError> {
        let Ok(entries) = Dir::read_from(&open) else {
            self.left_out.add(below);
            return Ok(());
        };
        for entry in entries {
            // What cannot be listed to its end has lost its disk; the rest is missing like a file that cannot be read.
            let Ok(entry) = entry else {
                self.left_out.add(below);
                break;
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return Err(ArchiveError::TooMany { path: self.folder.to_path_buf() });
            }
            let path = below.join(OsStr::from_bytes(name.to_bytes()));
            self.entry(&open, name, &path, depth)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        folder: &OwnedFd,
        name: &CStr,
        path: &Path,
        depth: usize,
    ) -> Result<(), ArchiveError> {
        // Without NONBLOCK, a pipe would wait for somebody who writes to it.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = match openat(folder, name, flags, Mode::empty()) {
            Ok(open) => open,
            Err(Errno::LOOP) => {
                self.link(folder, name, path);
                return Ok(());
            }
            Err(_) => {
                self.left_out.add(path);
                return Ok(());
            }
        };
        let Some(stat) = fstat(&open).ok().filter(|stat| may_read(self.owner, stat)) else {
            self.left_out.add(path);
            return Ok(());
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if depth < DEEPEST => {
                self.put(path, EntryType::Directory, &stat, &[]);
                self.folder(open, path, depth + 1)?;
            }
            FileType::RegularFile => self.file(open, path, &stat)?,
            _ => self.left_out.add(path),
        }
        Ok(())
    }

    fn file(&mut self, open: OwnedFd, path: &Path, stat: &Stat) -> Result<(), ArchiveError> {
        let too_large = || ArchiveError::TooLarge { path: self.folder.to_path_buf(), limit: self.limit };
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size > self.left {
            return Err(too_large());
        }
        let mut content = Vec::new();
        // It may grow meanwhile.
        if File::from(open).take(self.left + 1).read_to_end(&mut content).is_err() {
            self.left_out.add(path);
            return Ok(());
        }
        let read = content.len() as u64;
        self.left = self.left.checked_sub(read).ok_or_else(too_large)?;
        self.put(path, EntryType::Regular, stat, &content);
        Ok(())
    }

    fn link(&mut self, folder: &OwnedFd, name: &CStr, path: &Path) {
        let Ok(target) = readlinkat(folder, name, Vec::new()) else {
            self.left_out.add(path);
            return;
        };
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        header.set_size(0);
        if self.archive.append_link(&mut header, path, OsStr::from_bytes(target.to_bytes())).is_err() {
            self.left_out.add(path);
        }
    }

    fn put(&mut self, path: &Path, kind: EntryType, stat: &Stat, content: &[u8]) {
        let executable = kind == EntryType::Directory || stat.st_mode & 0o100 != 0;
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(if executable { 0o755 } else { 0o644 });
        header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
        header.set_size(content.len() as u64);
        if self.archive.append_data(&mut header, path, content).is_err() {
            self.left_out.add(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn names(archive: &Archive) -> Vec<String> {
        let mut reader = tar::Archive::new(&archive.bytes[..]);
        let entries = reader.entries().unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<_> = entries
            .map(|entry| format!("{} {:o}", entry.path().unwrap().display(), entry.header().mode().unwrap()))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_folders_and_links_are_copied_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let place = |name: &str| base.path().join(name);
        fs::create_dir(place("sub")).unwrap();
        fs::write(place("sub/secret"), "s").unwrap();
        fs::set_permissions(place("sub/secret"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(place("tool"), "#!").unwrap();
        fs::set_permissions(place("tool"), fs::Permissions::from_mode(0o4755)).unwrap();
        symlink("/etc/passwd", place("link")).unwrap();
        let _socket = UnixListener::bind(place("socket")).unwrap();
        let archive = archive(base.path(), 1 << 20).unwrap();
        assert_eq!(names(&archive), ["link 777", "sub 755", "sub/secret 644", "tool 755"]);
        assert_eq!(archive.left_out.to_string(), "socket");
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_not_followed() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("other")).unwrap();
        symlink(base.path().join("other"), base.path().join("share")).unwrap();
        assert!(matches!(archive(&base.path().join("share"), 1), Err(ArchiveError::Read { .. })));
    }

    #[test]
    fn what_another_owner_keeps_is_found() {
        if !rustix::process::getuid().is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(base.path(), Some(1000), Some(1000)).unwrap();
        for (name, mode) in [("open", 0o644), ("secret", 0o600)] {
            fs::write(base.path().join(name), "x").unwrap();
            fs::set_permissions(base.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, base.path().join("pipe"), FileType::Fifo, mode, 0).unwrap();
        let Oddities { unread, pipes } = look_at(base.path(), 10).unwrap();
        assert_eq!((unread.to_string(), pipes.to_string()), ("secret".into(), "pipe".into()));
        assert_eq!(look_at(base.path(), 0).unwrap(), Oddities::default());
        fs::remove_file(base.path().join("pipe")).unwrap();
        let archive = archive(base.path(), 1 << 20).unwrap();
        assert_eq!(
            (names(&archive).as_slice(), archive.left_out.to_string()),
            (&["open 644".to_string()][..], "secret".into())
        );
    }

    #[test]
    fn a_folder_that_is_too_large_is_refused() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("a"), [0; 600]).unwrap();
        fs::write(base.path().join("b"), [0; 600]).unwrap();
        assert!(archive(base.path(), 1200).is_ok());
        assert!(matches!(archive(base.path(), 1199), Err(ArchiveError::TooLarge { .. })));
    }

    #[test]
    fn what_the_owner_cannot_read_is_named_up_to_a_number() {
        let mut left_out = LeftOut::default();
        for name in ["a", "b\nc", "d", "e", "f"] {
            left_out.add(Path::new(name));
        }
        assert_eq!(left_out.to_string(), "a, b\u{fffd}c, d and 2 more");
    }
}
