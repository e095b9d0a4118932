//! A folder that entries are created in by name, and that no name leads out of.
//!
//! No path is passed to the kernel: every step goes from one open folder to the next. Links are read and followed here, and
//! their targets are inside the root, as they will be in a sandbox. Nobody else writes to the folder.

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::error::{UnpackError, refused, shown};

/// Folders within folders. Removing a tree holds a descriptor for each.
const DEPTH_LIMIT: usize = 128;
/// As in the kernel.
const LINK_LIMIT: usize = 40;

/// Identifies a place in the tree, whatever links led to it.
pub(super) type Key = (u64, u64);

/// The tree, with the open folders on the path of the last entry.
pub(super) struct Tree {
    root: OwnedFd,
    open: Vec<Level>,
    /// Whether no link was followed to the open folders, so that the next entry can reuse them.
    direct: bool,
    keys: (RandomState, RandomState),
    /// Permissions that the kernel removes from new files.
    umask: u32,
}

struct Level {
    name: Vec<u8>,
    folder: OwnedFd,
    key: Key,
}

/// A folder of the tree and a name in it.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) name: Vec<u8>,
    pub(super) key: Key,
}

/// What to do about missing folders on the path of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Create,
    Report,
}

/// Flags to open a folder that is only walked through.
#[cfg(target_os = "linux")]
const WALK: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const WALK: OFlags = OFlags::RDONLY;

/// Kernels differ in the width of a mode.
fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode as rustix::fs::RawMode)
}

fn io_error(entry: &[u8]) -> impl Fn(Errno) -> UnpackError {
    move |errno| UnpackError::Write { entry: shown(entry), source: errno.into() }
}

/// Returns the names in a path; None when one of them goes up.
fn components(path: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let names = || path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    if names().any(|name| name == b"..") { None } else { Some(names()) }
}

impl Tree {
    /// Opens the tree below this folder.
    pub(super) fn open(folder: &std::path::Path) -> io::Result<Self> {
        let flags = WALK | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, folder, flags, Mode::empty())?;
        let keys = (RandomState::new(), RandomState::new());
        Ok(Self { root, open: Vec::new(), direct: true, keys, umask: umask() })
    }

    fn folder(&self) -> BorrowedFd<'_> {
        self.open.last().map_or(self.root.as_fd(), |level| level.folder.as_fd())
    }

    /// Returns the key of a name in the open folder.
    pub(super) fn key_of(&self, name: &[u8]) -> Key {
        let parent = self.open.last().map_or((0, 0), |level| level.key);
        let hash = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            hasher.write_u64(parent.0);
            hasher.write_u64(parent.1);
            hasher.write(name);
            hasher.finish()
        };
        (hash(&self.keys.0), hash(&self.keys.1))
    }

    /// Returns the keys of the open folders, outermost first.
    pub(super) fn keys_of_open(&self) -> impl Iterator<Item = Key> {
        self.open.iter().map(|level| level.key)
    }

    /// Returns the path of a name in the open folder, without links.
    pub(super) fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let mut path = Vec::new();
        for level in &self.open {
            path.extend_from_slice(&level.name);
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    /// Opens the folder of an entry; None for the root itself, or when a folder is missing.
    pub(super) fn locate(&mut self, path: &[u8], missing: Missing) -> Result<Option<Place>, UnpackError> {
        let escape = |how| UnpackError::Escape { entry: shown(path), how };
        if path.first() == Some(&b'/') {
            return Err(escape("its name is absolute"));
        }
        let mut names: VecDeque<&[u8]> =
            components(path).ok_or_else(|| escape("its name goes up"))?.collect();
        let Some(name) = names.pop_back() else { return Ok(None) };
        if !self.enter(names, path, missing)? {
            return Ok(None);
        }
        let key = self.key_of(name);
        Ok(Some(Place { name: name.to_vec(), key }))
    }

    /// Opens a folder by a path from [`Self::path_of`]; false when a part of it is not a folder any more.
    pub(super) fn locate_again(&mut self, path: &[u8]) -> Result<bool, UnpackError> {
        let names = components(path).map(Iterator::collect).unwrap_or_default();
        self.rewind(&names);
        for name in names.into_iter().skip(self.open.len()) {
            if !self.step(name, path)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Keeps the open folders that the new path starts with.
    fn rewind(&mut self, names: &VecDeque<&[u8]>) {
        let same = self.open.iter().zip(names).take_while(|(level, name)| level.name == **name).count();
        self.open.truncate(if self.direct { same } else { 0 });
        self.direct = true;
    }

    fn enter(
        &mut self,
        mut names: VecDeque<&[u8]>,
        path: &[u8],
        missing: Missing,
    ) -> Result<bool, UnpackError> {
        self.rewind(&names);
        names.drain(..self.open.len());
        let mut names: VecDeque<Vec<u8>> = names.into_iter().map(<[u8]>::to_vec).collect();
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            if name == b".." {
                // Only links contain it. A process with this root would stay in it, but such a link is not meant for the
                // image.
                let how = "a link in its path goes above the root";
                self.open.pop().ok_or_else(|| UnpackError::Escape { entry: shown(path), how })?;
                continue;
            }
            if self.open.len() >= DEPTH_LIMIT {
                return Err(refused(path, "its path is too deep"));
            }
            if self.step(&name, path)? {
                continue;
            }
            match rustix::fs::readlinkat(self.folder(), name.as_slice(), Vec::new()) {
                Ok(target) => {
                    links += 1;
                    if links > LINK_LIMIT {
                        return Err(refused(path, "its path has too many links"));
                    }
                    self.direct = false;
                    let target = target.into_bytes();
                    if target.first() == Some(&b'/') {
                        self.open.clear();
                    }
                    let parts = target.split(|byte| *byte == b'/');
                    for part in parts.rev().filter(|part| !matches!(*part, b"" | b".")) {
                        names.push_front(part.to_vec());
                    }
                }
                Err(Errno::INVAL) => {
                    return Err(refused(path, "a part of its path is not a folder"));
                }
                Err(Errno::NOENT) if missing == Missing::Report => return Ok(false),
                // Nothing is created through a link: the links of an image lead to what exists.
                Err(Errno::NOENT) if !self.direct => {
                    let how = "a link in its path leads to something that the image does not have";
                    return Err(UnpackError::Escape { entry: shown(path), how });
                }
                Err(Errno::NOENT) => {
                    self.create_folder(&name, 0o755, path)?;
                    if !self.step(&name, path)? {
                        return Err(io_error(path)(Errno::NOTDIR));
                    }
                }
                Err(errno) => return Err(io_error(path)(errno)),
            }
        }
        Ok(true)
    }

    /// Opens a folder in the open folder; false when there is none of this name.
    fn step(&mut self, name: &[u8], path: &[u8]) -> Result<bool, UnpackError> {
        let flags = WALK | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(self.folder(), name, flags, Mode::empty()) {
            Ok(folder) => {
                let key = self.key_of(name);
                self.open.push(Level { name: name.to_vec(), folder, key });
                Ok(true)
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
            Err(errno) => Err(io_error(path)(errno)),
        }
    }

    /// Creates something in the open folder, in place of whatever has its name.
    fn create_instead<T>(
        &self,
        name: &[u8],
        path: &[u8],
        create: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, UnpackError> {
        let created = match create() {
            Err(Errno::EXIST) => {
                self.remove(name, path)?;
                create()
            }
            done => done,
        };
        created.map_err(io_error(path))
    }

    /// Creates an empty file in the open folder, in place of whatever has its name.
    pub(super) fn create_file(&self, name: &[u8], mode: u32, path: &[u8]) -> Result<File, UnpackError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || rustix::fs::openat(self.folder(), name, flags, permissions(mode));
        let file = self.create_instead(name, path, create)?;
        if mode & self.umask != 0 {
            rustix::fs::fchmod(&file, permissions(mode)).map_err(io_error(path))?;
        }
        Ok(file.into())
    }

    /// Creates a folder in the open folder, or gives an existing one these permissions.
    pub(super) fn create_folder(&self, name: &[u8], mode: u32, path: &[u8]) -> Result<(), UnpackError> {
        let create = |tree: &Self| rustix::fs::mkdirat(tree.folder(), name, permissions(mode));
        let mut existed = false;
        match create(self) {
            Ok(()) => {}
            Err(Errno::EXIST) if self.kind(name, path)? == Some(FileType::Directory) => existed = true,
            Err(Errno::EXIST) => {
                self.remove(name, path)?;
                create(self).map_err(io_error(path))?;
            }
            Err(errno) => return Err(io_error(path)(errno)),
        }
        if existed || mode & self.umask != 0 {
            let folder = self.open_folder(name).map_err(io_error(path))?;
            rustix::fs::fchmod(folder, permissions(mode)).map_err(io_error(path))?;
        }
        Ok(())
    }

    /// Creates a symbolic link in the open folder. Its target is checked when it is followed.
    pub(super) fn create_symlink(&self, name: &[u8], target: &[u8], path: &[u8]) -> Result<(), UnpackError> {
        self.create_instead(name, path, || rustix::fs::symlinkat(target, self.folder(), name))
    }

    /// Creates another name for the file at `target`.
    pub(super) fn create_hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<Place, UnpackError> {
        let error = |why| refused(path, why);
        let Some(source) = self.locate(target, Missing::Report)? else {
            return Err(error("it is a hard link to something that the image does not have"));
        };
        match self.kind(&source.name, path)? {
            Some(FileType::RegularFile | FileType::Symlink) => {}
            Some(_) => return Err(error("it is a hard link to something that is not a file")),
            None => return Err(error("it is a hard link to something that the image does not have")),
        }
        let folder = rustix::io::fcntl_dupfd_cloexec(self.folder(), 0).map_err(io_error(path))?;
        let place = self.locate(path, Missing::Create)?.ok_or_else(|| error("it has no name"))?;
        if place.key == source.key {
            return Err(error("it is a hard link to itself"));
        }
        let (from, to) = (source.name.as_slice(), place.name.as_slice());
        let create = || rustix::fs::linkat(&folder, from, self.folder(), to, AtFlags::empty());
        self.create_instead(to, path, create)?;
        Ok(place)
    }

    /// Returns the type of a name in the open folder, without following links.
    pub(super) fn kind(&self, name: &[u8], path: &[u8]) -> Result<Option<FileType>, UnpackError> {
        match rustix::fs::statat(self.folder(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(io_error(path)(errno)),
        }
    }

    /// Sets the modification time of a name in the open folder.
    pub(super) fn set_time(&self, name: &[u8], seconds: i64) {
        // The file system may not support the time; the image is usable without.
        let _ = rustix::fs::utimensat(self.folder(), name, &times(seconds), AtFlags::SYMLINK_NOFOLLOW);
    }

    /// Returns the names in the open folder.
    pub(super) fn names(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, UnpackError> {
        let folder = self.open_folder(b".").map_err(io_error(path))?;
        names_of(&folder).map_err(io_error(path))
    }

    /// Opens a folder in the open folder, until [`Self::ascend`].
    pub(super) fn descend(&mut self, name: &[u8], path: &[u8]) -> Result<bool, UnpackError> {
        if self.open.len() >= DEPTH_LIMIT {
            return Err(refused(path, "its path is too deep"));
        }
        self.step(name, path)
    }

    pub(super) fn ascend(&mut self) {
        self.open.pop();
    }

    fn open_folder(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(self.folder(), name, flags, Mode::empty())
    }

    /// Renames a file in the open folder, in place of whatever has the new name.
    pub(super) fn rename(&self, name: &[u8], to: &[u8], path: &[u8]) -> Result<(), UnpackError> {
        rustix::fs::renameat(self.folder(), name, self.folder(), to).map_err(io_error(path))
    }

    /// Removes whatever has this name in the open folder.
    pub(super) fn remove(&self, name: &[u8], path: &[u8]) -> Result<(), UnpackError> {
        remove_at(self.folder(), name, 0).map_err(io_error(path))
    }
}

fn names_of(folder: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

fn remove_at(folder: BorrowedFd<'_>, name: &[u8], depth: usize) -> Result<(), Errno> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        // Linux says EISDIR, POSIX EPERM.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(Errno::NOENT) => return Ok(()),
        done => return done,
    }
    if depth > DEPTH_LIMIT {
        return Err(Errno::NAMETOOLONG);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    for name in names_of(&inner)? {
        remove_at(inner.as_fd(), &name, depth + 1)?;
    }
    rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)
}

/// Returns a modification time for system calls.
pub(super) fn times(seconds: i64) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

/// Returns the umask without changing it for a moment, as umask(2) would; all permissions where it is unknown.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o777)
}
