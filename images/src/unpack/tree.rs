//! A folder into which entries are put by name, and out of which no name leads.
//!
//! Nothing here is done by path: every step goes from one open folder to the next, links are read and followed by hand,
//! and what a link says is taken as inside the root, as it will be when the root is one. Nobody else writes here.

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::error::{UnpackError, shown};

/// Folders within folders. Removing a tree holds a descriptor for each.
const DEPTH_LIMIT: usize = 128;
/// As in the kernel.
const LINK_LIMIT: usize = 40;

/// Stands for a place in the tree, whatever links led to it.
pub(super) type Key = (u64, u64);

/// The tree, with the folders open that lead to where the last entry went.
pub(super) struct Tree {
    root: OwnedFd,
    open: Vec<Level>,
    /// The names that led here, when there is no link among them: the next entry is often a neighbour.
    direct: bool,
    keys: (RandomState, RandomState),
    /// Permissions that the kernel takes away from what is made.
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

/// What to do about folders that an entry's name takes for granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Tell,
}

/// How a folder is opened that is only a place for others.
#[cfg(target_os = "linux")]
const A_FOLDER: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const A_FOLDER: OFlags = OFlags::RDONLY;

/// The kernels do not agree on how wide a mode is.
fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode as rustix::fs::RawMode)
}

fn write_error(entry: &[u8]) -> impl Fn(Errno) -> UnpackError {
    move |errno| UnpackError::Write { entry: shown(entry), source: errno.into() }
}

/// The names of a path; None when one of them leads up.
fn components(path: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let names = || path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    if names().any(|name| name == b"..") { None } else { Some(names()) }
}

impl Tree {
    /// The tree below this folder.
    pub(super) fn open(folder: &std::path::Path) -> io::Result<Self> {
        let flags = A_FOLDER | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, folder, flags, Mode::empty())?;
        let keys = (RandomState::new(), RandomState::new());
        Ok(Self { root, open: Vec::new(), direct: true, keys, umask: umask() })
    }

    fn folder(&self) -> BorrowedFd<'_> {
        self.open.last().map_or(self.root.as_fd(), |level| level.folder.as_fd())
    }

    fn folder_key(&self) -> Key {
        self.open.last().map_or((0, 0), |level| level.key)
    }

    fn key_of(&self, parent: Key, name: &[u8]) -> Key {
        let hash = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            hasher.write_u64(parent.0);
            hasher.write_u64(parent.1);
            hasher.write(name);
            hasher.finish()
        };
        (hash(&self.keys.0), hash(&self.keys.1))
    }

    /// The place of the folder that is open now and of all above it, outermost first.
    pub(super) fn keys_of_open(&self) -> impl Iterator<Item = Key> {
        self.open.iter().map(|level| level.key)
    }

    /// The path of something in the open folder, without any link.
    pub(super) fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let mut path = Vec::new();
        for level in &self.open {
            path.extend_from_slice(&level.name);
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    /// Opens the folder that an entry belongs into; None for the root itself, or for what is not there.
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
        let key = self.key_of(self.folder_key(), name);
        Ok(Some(Place { name: name.to_vec(), key }))
    }

    /// Opens a folder by a path that this tree gave; false when it, or a folder above it, is no folder any more.
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

    /// Keeps as much of what is open as leads the same way.
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
                // Only links say this. A process whose root this is would stay in it; who writes such a link does not
                // mean the image.
                let how = "a link on the way goes above the root";
                self.open.pop().ok_or_else(|| UnpackError::Escape { entry: shown(path), how })?;
                continue;
            }
            if self.open.len() >= DEPTH_LIMIT {
                return Err(UnpackError::Entry { entry: shown(path), why: "it lies too deep" });
            }
            if self.step(&name, path)? {
                continue;
            }
            match rustix::fs::readlinkat(self.folder(), name.as_slice(), Vec::new()) {
                Ok(target) => {
                    links += 1;
                    if links > LINK_LIMIT {
                        return Err(UnpackError::Entry {
                            entry: shown(path),
                            why: "its name leads through too many links",
                        });
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
                    return Err(UnpackError::Entry {
                        entry: shown(path),
                        why: "something above it is no folder",
                    });
                }
                Err(Errno::NOENT) if missing == Missing::Tell => return Ok(false),
                // Through a link nothing is made: an image's own links lead to what is there.
                Err(Errno::NOENT) if !self.direct => {
                    let how = "a link on the way leads to what the image does not have";
                    return Err(UnpackError::Escape { entry: shown(path), how });
                }
                Err(Errno::NOENT) => {
                    self.make_folder(&name, 0o755, path)?;
                    if !self.step(&name, path)? {
                        return Err(write_error(path)(Errno::NOTDIR));
                    }
                }
                Err(errno) => return Err(write_error(path)(errno)),
            }
        }
        Ok(true)
    }

    /// Opens a folder of the open folder; false when there is none of this name.
    fn step(&mut self, name: &[u8], path: &[u8]) -> Result<bool, UnpackError> {
        let flags = A_FOLDER | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(self.folder(), name, flags, Mode::empty()) {
            Ok(folder) => {
                let key = self.key_of(self.folder_key(), name);
                self.open.push(Level { name: name.to_vec(), folder, key });
                Ok(true)
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
            Err(errno) => Err(write_error(path)(errno)),
        }
    }

    /// Makes an empty file in the open folder in place of whatever has its name.
    pub(super) fn make_file(&mut self, name: &[u8], mode: u32, path: &[u8]) -> Result<File, UnpackError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = |tree: &Self| rustix::fs::openat(tree.folder(), name, flags, permissions(mode));
        let file = match make(self) {
            Err(Errno::EXIST) => {
                self.remove(name, path)?;
                make(self)
            }
            done => done,
        };
        let file = file.map_err(write_error(path))?;
        if mode & self.umask != 0 {
            rustix::fs::fchmod(&file, permissions(mode)).map_err(write_error(path))?;
        }
        Ok(file.into())
    }

    /// Makes a folder in the open folder, or gives the one that is there these permissions.
    pub(super) fn make_folder(&mut self, name: &[u8], mode: u32, path: &[u8]) -> Result<(), UnpackError> {
        let make = |tree: &Self| rustix::fs::mkdirat(tree.folder(), name, permissions(mode));
        let mut there = false;
        match make(self) {
            Ok(()) => {}
            Err(Errno::EXIST) if self.kind(name, path)? == Some(FileType::Directory) => there = true,
            Err(Errno::EXIST) => {
                self.remove(name, path)?;
                make(self).map_err(write_error(path))?;
            }
            Err(errno) => return Err(write_error(path)(errno)),
        }
        if there || mode & self.umask != 0 {
            let folder = self.open_folder(name).map_err(write_error(path))?;
            rustix::fs::fchmod(folder, permissions(mode)).map_err(write_error(path))?;
        }
        Ok(())
    }

    /// Makes a symbolic link in the open folder; what it says is nobody's business before somebody follows it.
    pub(super) fn make_symlink(
        &mut self,
        name: &[u8],
        target: &[u8],
        path: &[u8],
    ) -> Result<(), UnpackError> {
        let make = |tree: &Self| rustix::fs::symlinkat(target, tree.folder(), name);
        match make(self) {
            Err(Errno::EXIST) => {
                self.remove(name, path)?;
                make(self).map_err(write_error(path))
            }
            done => done.map_err(write_error(path)),
        }
    }

    /// Makes one more name, at `place`, for the file at `target`.
    pub(super) fn make_hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<Place, UnpackError> {
        let error = |why| UnpackError::Entry { entry: shown(path), why };
        let Some(source) = self.locate(target, Missing::Tell)? else {
            return Err(error("it is a hard link to what the image does not have"));
        };
        match self.kind(&source.name, path)? {
            Some(FileType::RegularFile | FileType::Symlink) => {}
            Some(_) => return Err(error("it is a hard link to what is no file")),
            None => return Err(error("it is a hard link to what the image does not have")),
        }
        let folder = rustix::io::fcntl_dupfd_cloexec(self.folder(), 0).map_err(write_error(path))?;
        let place = self.locate(path, Missing::Make)?.ok_or_else(|| error("it has no name"))?;
        if place.key == source.key {
            return Err(error("it is a hard link to itself"));
        }
        let make = |tree: &Self| {
            rustix::fs::linkat(
                &folder,
                source.name.as_slice(),
                tree.folder(),
                place.name.as_slice(),
                AtFlags::empty(),
            )
        };
        match make(self) {
            Err(Errno::EXIST) => {
                self.remove(&place.name, path)?;
                make(self).map_err(write_error(path))?;
            }
            done => done.map_err(write_error(path))?,
        }
        Ok(place)
    }

    /// What has this name in the open folder; links are not followed.
    pub(super) fn kind(&self, name: &[u8], path: &[u8]) -> Result<Option<FileType>, UnpackError> {
        match rustix::fs::statat(self.folder(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(write_error(path)(errno)),
        }
    }

    /// Sets the time of change of something in the open folder.
    pub(super) fn set_time(&self, name: &[u8], seconds: i64) {
        // A time that the file system cannot hold is not worth an image.
        let _ = rustix::fs::utimensat(self.folder(), name, &times(seconds), AtFlags::SYMLINK_NOFOLLOW);
    }

    /// The names in a folder of the open folder; an empty name is the open folder itself.
    pub(super) fn names_in(&self, name: &[u8], path: &[u8]) -> Result<Vec<Vec<u8>>, UnpackError> {
        let folder =
            self.open_folder(if name.is_empty() { b"." } else { name }).map_err(write_error(path))?;
        names_of(&folder).map_err(write_error(path))
    }

    /// Opens a folder of the open folder, to go on from there; as [`Self::step`], for callers that come back.
    pub(super) fn descend(&mut self, name: &[u8], path: &[u8]) -> Result<bool, UnpackError> {
        if self.open.len() >= DEPTH_LIMIT {
            return Err(UnpackError::Entry { entry: shown(path), why: "it lies too deep" });
        }
        self.step(name, path)
    }

    pub(super) fn ascend(&mut self) {
        self.open.pop();
    }

    /// The place of a name in the open folder.
    pub(super) fn key_in_open(&self, name: &[u8]) -> Key {
        self.key_of(self.folder_key(), name)
    }

    fn open_folder(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(self.folder(), name, flags, Mode::empty())
    }

    /// Gives a file of the open folder another name, in place of whatever has it.
    pub(super) fn rename(&self, name: &[u8], to: &[u8], path: &[u8]) -> Result<(), UnpackError> {
        rustix::fs::renameat(self.folder(), name, self.folder(), to).map_err(write_error(path))
    }

    /// Removes whatever has this name in the open folder.
    pub(super) fn remove(&self, name: &[u8], path: &[u8]) -> Result<(), UnpackError> {
        remove_at(self.folder(), name, 0).map_err(write_error(path))
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

/// A time of change, as the calls want it.
pub(super) fn times(seconds: i64) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

/// Asked of the kernel without changing it for a moment, which other threads would notice; all, where it does not say.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o777)
}
