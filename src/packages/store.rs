//! The store of this user: resolved sets of packages, unpacked once, and the folders of sessions beside them.
//!
//! It is in the cache folder: everything in it can be downloaded again. A set is complete when it has its place: it is made in a
//! staging folder and renamed. Processes that want the same set wait for each other.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use codebridge_images::{Digest, add_compiled_packages};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::files::{self, ignore_missing};
use super::pins::{Pin, requirements_text};
use super::{ImagePython, InstallError};
use crate::sizes::Amount;

/// Part of every key: another layout does not find what this one made.
const LAYOUT: &str = "1";
/// The pause between two attempts to take a lock: a blocking call could not be cancelled.
const PACE: Duration = Duration::from_millis(20);
/// Staging folders of this age belong to nobody: an installation takes less.
const STALE: Duration = Duration::from_secs(2 * 3600);
/// Seconds in which a set that was found is linked by a session: the longest time of an installation.
const RECENT: u64 = 15 * 60;
/// The name of the folder in archives of compiled modules: that of the mount.
const COMPILED: &str = "packages";
/// The file in the folder of a session that is locked while the session lives.
pub(super) const LOCK: &str = "lock";
const DESCRIPTION: &str = "set.json";
const NOEXEC: &str = "native modules of these packages cannot be loaded: $XDG_CACHE_HOME/codebridge (~/.cache/codebridge) of the \
                      host is on a file system that is mounted noexec; hint: the operator sets XDG_CACHE_HOME to another folder";
/// Its time of change is that of the last use.
const USED: &str = "used";

#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

/// A set in the store.
#[derive(Debug, Clone)]
pub struct PackageSet {
    folder: PathBuf,
    pub description: StoredSet,
}

/// What the store knows of a set.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredSet {
    pub id: String,
    pub python: String,
    pub platform: String,
    pub bytes: u64,
    pub packages: Vec<Pin>,
    /// Seconds since its last use.
    #[serde(skip_deserializing)]
    pub unused: u64,
}

/// A lock on a file, held until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Store {
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns the folder of this name, which exists.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf, InstallError> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).map_err(InstallError::io("make", &path))?;
        Ok(path)
    }

    /// Returns a new folder, which is removed when it is dropped.
    pub(super) fn staging(&self) -> Result<tempfile::TempDir, InstallError> {
        let folder = self.folder("staging")?;
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > STALE) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        tempfile::TempDir::new_in(&folder).map_err(InstallError::io("make", folder))
    }

    /// Waits until no other process makes this set.
    pub(super) async fn lock(&self, id: &str) -> Result<Lock, InstallError> {
        let path = self.folder("locks")?.join(id);
        loop {
            if let Some(lock) = try_lock(&path).map_err(InstallError::io("lock", &path))? {
                return Ok(lock);
            }
            tokio::time::sleep(PACE).await;
        }
    }

    /// Returns the id of a set: what it has and what it is for.
    pub(super) fn id_of(pins: &[Pin], python: &ImagePython) -> String {
        let text = [LAYOUT, &python.short_version(), &python.platform(), &requirements_text(pins)].join("\n");
        Digest::of(text.as_bytes()).hex()[..32].to_string()
    }

    /// Returns a set if the store has it.
    pub(super) fn find(&self, id: &str) -> Option<PackageSet> {
        let folder = self.root.join("sets").join(id);
        let stored = read_description(&folder)?;
        // Only for `prune`.
        let _ = fs::write(folder.join(USED), "");
        Some(PackageSet { folder, description: stored })
    }

    /// Adds what was unpacked in `staging/files` as a set.
    pub(super) fn add(
        &self,
        id: &str,
        pins: &[Pin],
        python: &ImagePython,
        staging: tempfile::TempDir,
    ) -> Result<PackageSet, InstallError> {
        let folder = staging.path();
        let size = files::seal(&folder.join("files"))?;
        let stored = StoredSet {
            id: id.to_owned(),
            python: python.short_version(),
            platform: python.platform(),
            bytes: size.bytes,
            packages: pins.to_vec(),
            unused: 0,
        };
        let json = serde_json::to_vec(&stored).map_err(|error| InstallError::Failed(error.to_string()))?;
        let write = |name: &str, content: &[u8]| {
            let path = folder.join(name);
            fs::write(&path, content).map_err(InstallError::io("write", path))
        };
        write(DESCRIPTION, &json)?;
        write(USED, b"")?;
        for name in ["requirements.in", "constraints.txt", "report.json"] {
            ignore_missing(fs::remove_file(folder.join(name))).map_err(InstallError::io("clean", folder))?;
        }
        let target = self.folder("sets")?.join(id);
        fs::rename(folder, &target).map_err(InstallError::io("write", &target))?;
        // It has another name now, and nothing is left to remove.
        let _ = staging.keep();
        Ok(PackageSet { folder: target, description: stored })
    }

    /// Returns every set, the one that was used last first.
    pub fn list(&self) -> io::Result<Vec<StoredSet>> {
        let entries = match fs::read_dir(self.root.join("sets")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut sets: Vec<_> =
            entries.flatten().filter_map(|entry| read_description(&entry.path())).collect();
        sets.sort_by(|a, b| (a.unused, &a.id).cmp(&(b.unused, &b.id)));
        Ok(sets)
    }

    /// Removes a set. Sessions that have its packages keep them: they have links of their own.
    pub fn remove(&self, id: &str) -> io::Result<()> {
        // Another name first, so that nobody finds half of it.
        let staging = self.root.join("staging");
        fs::create_dir_all(&staging)?;
        let hidden = tempfile::TempDir::new_in(staging)?;
        fs::rename(self.root.join("sets").join(id), hidden.path().join("set"))?;
        hidden.close()
    }

    /// Removes the sets that were unused for longest until the others have at most so many bytes. What was used a moment ago stays:
    /// a session may be about to link it.
    pub(super) fn shrink(&self, most: u64) {
        let sets = self.list().unwrap_or_default();
        let mut total: u64 = sets.iter().map(|set| set.bytes).sum();
        for set in sets.iter().rev().filter(|set| set.unused >= RECENT) {
            if total <= most {
                break;
            }
            match self.remove(&set.id) {
                Ok(()) => total = total.saturating_sub(set.bytes),
                Err(error) => tracing::debug!(%error, "could not remove a set of packages"),
            }
        }
    }

    /// Returns what [`Store::remove_unused`] would remove.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn unused(&self, least: u64) -> io::Result<Amount> {
        let sets = self.list()?.into_iter().filter(|set| set.unused >= least);
        let left_over = left_over(&self.root.join("sessions"));
        let mut amount = Amount::of(left_over.iter().map(PathBuf::as_path));
        sets.for_each(|set| amount += Amount { count: 1, bytes: set.bytes });
        Ok(amount)
    }

    /// Removes the sets that were not used for so many seconds, and the folders of sessions that have ended.
    ///
    /// # Errors
    /// A set cannot be removed.
    pub fn remove_unused(&self, least: u64) -> io::Result<Amount> {
        let sessions = self.root.join("sessions");
        let mut removed = Amount::of(left_over(&sessions).iter().map(PathBuf::as_path));
        sweep(&sessions);
        for set in self.list()?.into_iter().filter(|set| set.unused >= least) {
            // Another bridge may have begun to use it.
            let folder = self.root.join("sets").join(&set.id);
            if read_description(&folder).is_some_and(|now| now.unused >= least) {
                self.remove(&set.id)?;
                removed += Amount { count: 1, bytes: set.bytes };
            }
        }
        Ok(removed)
    }

    /// Removes what is neither a set nor in use: resolutions, folders of sessions that have ended, locks.
    pub fn clean(&self) -> io::Result<()> {
        ignore_missing(fs::remove_dir_all(self.root.join("resolutions")))?;
        sweep(&self.root.join("sessions"));
        Ok(())
    }
}

fn read_description(folder: &Path) -> Option<StoredSet> {
    let text = fs::read(folder.join(DESCRIPTION)).ok()?;
    let mut stored: StoredSet = serde_json::from_slice(&text).ok()?;
    let used =
        fs::metadata(folder.join(USED)).and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    stored.unused = used.elapsed().unwrap_or_default().as_secs();
    // The name of the folder is what the set is found by.
    (folder.file_name() == Some(OsStr::new(&stored.id))).then_some(stored)
}

/// Takes the lock on a file if it is free.
pub(super) fn try_lock(path: &Path) -> io::Result<Option<Lock>> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock { _file: file })),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes the folders of processes that are gone.
pub(super) fn sweep(sessions: &Path) {
    for path in left_over(sessions) {
        let _ = fs::remove_dir_all(&path);
    }
}

/// Returns the folders of processes that are gone.
fn left_over(sessions: &Path) -> Vec<PathBuf> {
    let is_left_over = |entry: &fs::DirEntry| {
        let path = entry.path();
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        // One without a lock is half removed.
        let is_free =
            || !path.join(LOCK).exists() || try_lock(&path.join(LOCK)).is_ok_and(|lock| lock.is_some());
        let is_old = || {
            let changed = entry.metadata().and_then(|meta| meta.modified()).ok();
            changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age.as_secs() > 3600)
        };
        if is_hidden { is_old() } else { is_free() }
    };
    let entries = fs::read_dir(sessions).into_iter().flatten().flatten();
    entries.filter(is_left_over).map(|entry| entry.path()).collect()
}

impl PackageSet {
    /// Returns the folder of the packages as they were unpacked.
    pub fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Returns what does not work because the file system of the store allows no programs. The session's own folder is beside it.
    pub fn warning(&self) -> Option<&'static str> {
        (files::is_noexec(&self.folder) && files::has_native(&self.files())).then_some(NOEXEC)
    }

    /// Returns the folder of the packages with modules compiled for an image, if there is one.
    pub fn compiled_for(&self, image: &str) -> Option<PathBuf> {
        Some(self.image_folder(image).join(COMPILED)).filter(|path| path.is_dir())
    }

    fn image_folder(&self, image: &str) -> PathBuf {
        self.folder.join(format!("image-{}", &Digest::of(image.as_bytes()).hex()[..16]))
    }

    /// Adds the modules that a sandbox of an image compiled: an archive with paths such as
    /// `packages/a/__pycache__/b.cpython-314.pyc`. Blocks.
    pub fn add_compiled(
        &self,
        image: &str,
        archive: impl Read + Send,
        stop: &AtomicBool,
    ) -> Result<usize, InstallError> {
        let staging =
            tempfile::TempDir::new_in(&self.folder).map_err(InstallError::io("write", &self.folder))?;
        files::link_tree(&self.files(), &staging.path().join(COMPILED))?;
        let added = add_compiled_packages(staging.path(), archive, stop)
            .map_err(|error| InstallError::Failed(error.to_string()))?;
        let target = self.image_folder(image);
        match fs::rename(staging.path(), &target) {
            Ok(()) => drop(staging.keep()),
            // Another process was faster.
            Err(_) if target.is_dir() => {}
            Err(error) => return Err(InstallError::io("write", target)(error)),
        }
        Ok(added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_too_large_loses_what_was_unused_for_longest() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::at(cache.path().into());
        for (id, minutes) in [("new", 1), ("old", 60), ("older", 600)] {
            let folder = store.folder("sets").unwrap().join(id);
            fs::create_dir(&folder).unwrap();
            let json =
                serde_json::json!({ "id": id, "python": "", "platform": "", "bytes": 10, "packages": [] });
            fs::write(folder.join(DESCRIPTION), json.to_string()).unwrap();
            let used = File::create(folder.join(USED)).unwrap();
            used.set_modified(SystemTime::now() - Duration::from_secs(minutes * 60)).unwrap();
        }
        let left = || store.list().unwrap().into_iter().map(|set| set.id).collect::<Vec<_>>();
        store.shrink(30);
        assert_eq!(left(), ["new", "old", "older"]);
        store.shrink(20);
        assert_eq!(left(), ["new", "old"]);
        store.shrink(0);
        assert_eq!(left(), ["new"]);
    }
}
