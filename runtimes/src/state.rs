//! The state folder: records of what every bridge of this user runs, so that it can be found and removed.
//!
//! ```text
//! <base>/<instance>/owner.json              written first, by the bridge that owns the instance
//! <base>/<instance>/sandboxes/<name>.json   one record per sandbox: written before launch, removed after reclaim
//! <base>/<instance>/sandboxes/<name>.spare  while it waits for its first use
//! <base>/<instance>/bundles/<name>/         config.json of crun and runc
//! <base>/<instance>/roots/<hash>/           skeletons of composed roots, shared by the instance's sandboxes
//! <base>/<instance>/oci/<runtime>/          the runtimes' own state
//! ```
//! The owner writes; its reaper and later bridges only remove, and only when the owner is dead.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::owner::Owner;
use crate::root::{ComposedRoot, RootError};
use crate::runtime::RuntimeId;
use crate::spec::{RootFs, SandboxName};

/// The age after which an incomplete instance folder is removed; a folder is complete a moment after it was made.
const UNFINISHED_AGE: Duration = Duration::from_secs(3600);

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("could not {action} '{path}': {source}")]
    Io {
        /// The verb that follows "could not".
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("'{path}' belongs to user {uid} or others may write to it; remove it or set XDG_RUNTIME_DIR")]
    Foreign { path: PathBuf, uid: u32 },
    #[error(transparent)]
    Root(#[from] RootError),
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_path_buf();
    move |source| StateError::Io { action, path, source }
}

/// The record of a sandbox, written before its launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub name: SandboxName,
    pub runtime: RuntimeId,
    pub root: RootFs,
    /// Seconds since 1970.
    pub created: u64,
}

impl Record {
    /// Returns the record of a sandbox that is about to be launched.
    pub(crate) fn now(name: &SandboxName, runtime: &RuntimeId, root: RootFs) -> Self {
        Self { name: name.clone(), runtime: runtime.clone(), root, created: unix_seconds() }
    }

    /// Returns the seconds since its launch.
    pub fn age(&self) -> u64 {
        unix_seconds().saturating_sub(self.created)
    }
}

/// The folder of all instances of this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir {
    base: PathBuf,
}

impl StateDir {
    /// Returns the usual folder: `/run/codebridge` for root, because the users of sandboxes must be able to pass through it;
    /// else below `XDG_RUNTIME_DIR`; else in the temporary folder. Folders that cannot be written are skipped.
    pub fn usual() -> Self {
        let uid = rustix::process::getuid();
        let run = uid.is_root().then(|| PathBuf::from("/run"));
        let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let places = run.into_iter().chain(own).map(|place| place.join("codebridge"));
        let temporary = || std::env::temp_dir().join(format!("codebridge-{}", uid.as_raw()));
        Self { base: places.into_iter().find(|place| can_be_written(place)).unwrap_or_else(temporary) }
    }

    /// Returns a state folder in another place, for tests.
    pub fn at(base: impl Into<PathBuf>) -> Self {
        Self { base: base.into() }
    }

    /// Makes the folder of a new instance and records its owner.
    pub fn create_instance(&self, owner: &Owner) -> Result<Instance, StateError> {
        create_folder(&self.base)?;
        let meta = fs::symlink_metadata(&self.base).map_err(io_error("look at", &self.base))?;
        let uid = rustix::process::getuid().as_raw();
        if !meta.is_dir() || meta.uid() != uid || meta.mode() & 0o022 != 0 {
            return Err(StateError::Foreign { path: self.base.clone(), uid: meta.uid() });
        }
        let path = self.base.join(&owner.instance);
        fill_instance(&path, owner).inspect_err(|_| {
            // Without an owner nobody would remove it for an hour.
            let _ = fs::remove_dir_all(&path);
        })?;
        Ok(Instance { path, owner: owner.clone(), names: Arc::default() })
    }

    /// Returns every instance, whoever owns it. One whose owner cannot be read is kept and logged.
    pub fn instances(&self) -> Vec<Instance> {
        let Ok(entries) = fs::read_dir(&self.base) else { return Vec::new() };
        let mut found: Vec<_> = entries.flatten().filter_map(|entry| Instance::open(entry.path())).collect();
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }

    /// Removes instance folders that were never completed: their bridge ended before it recorded its owner, and so before it
    /// started anything. Young folders may still be completed.
    pub(crate) fn remove_unfinished(&self) {
        let Ok(entries) = fs::read_dir(&self.base) else { return };
        for entry in entries.flatten() {
            let old =
                entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|time| time.elapsed().ok());
            let unfinished = !entry.path().join("owner.json").exists();
            if unfinished && old.is_some_and(|age| age > UNFINISHED_AGE) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[derive(Debug, Clone)]
pub struct Instance {
    path: PathBuf,
    owner: Owner,
    /// How many sandbox names were given out.
    names: Arc<AtomicU32>,
}

impl Instance {
    /// Opens an instance folder; None when it has no readable owner, which is logged unless there is none.
    pub fn open(path: PathBuf) -> Option<Self> {
        let owner = read_json_or_warn(&path.join("owner.json"))?;
        Some(Self { path, owner, names: Arc::default() })
    }

    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a name that no other sandbox of this instance has.
    pub fn next_name(&self) -> SandboxName {
        let number = self.names.fetch_add(1, Ordering::Relaxed) + 1;
        SandboxName::of_instance(&self.owner.instance, number)
    }

    pub fn bundle(&self, name: &SandboxName) -> PathBuf {
        self.path.join("bundles").join(name.as_str())
    }

    /// Returns the state folder of crun or runc.
    pub fn runtime_root(&self, kind: &str) -> PathBuf {
        self.path.join("oci").join(kind)
    }

    /// Returns the folder of the skeleton of such a root.
    pub fn skeleton_path(&self, root: &ComposedRoot) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        (&root.folders, &root.writable, &root.links, &root.files).hash(&mut hasher);
        root.binds.iter().for_each(|bind| bind.target.hash(&mut hasher));
        self.path.join("roots").join(format!("{:016x}", hasher.finish()))
    }

    /// Makes the skeleton unless it exists; concurrent callers end up with one.
    pub fn ensure_skeleton(&self, root: &ComposedRoot) -> Result<PathBuf, StateError> {
        let path = self.skeleton_path(root);
        if path.is_dir() {
            return Ok(path);
        }
        let staging = tempfile::Builder::new()
            .prefix(".new-")
            .tempdir_in(self.path.join("roots"))
            .map_err(io_error("create a folder in", &self.path))?;
        let inner = staging.path().join("root");
        root.write_skeleton(&inner)?;
        match fs::rename(&inner, &path) {
            Err(_) if path.is_dir() => Ok(path),
            other => other.map(|()| path.clone()).map_err(io_error("rename a folder to", &path)),
        }
    }

    /// Records a sandbox, before anything of it exists.
    pub fn record(&self, record: &Record) -> Result<(), StateError> {
        write_json(&self.record_path(&record.name), record)
    }

    /// Notes whether a sandbox still waits for its first use, for lists.
    pub fn mark_spare(&self, name: &SandboxName, is_spare: bool) {
        let path = self.spare_path(name);
        // A mark that cannot be written is missing in lists, and in nothing else.
        let _ = if is_spare { fs::write(path, "") } else { fs::remove_file(path) };
    }

    /// Returns whether a sandbox waits for its first use.
    pub fn is_spare(&self, name: &SandboxName) -> bool {
        self.spare_path(name).exists()
    }

    fn spare_path(&self, name: &SandboxName) -> PathBuf {
        self.path.join("sandboxes").join(format!("{name}.spare"))
    }

    /// Removes the record of a sandbox whose removal is verified.
    pub fn forget(&self, name: &SandboxName) {
        let _ = fs::remove_file(self.spare_path(name));
        let _ = fs::remove_dir_all(self.bundle(name));
        let _ = fs::remove_file(self.record_path(name));
    }

    /// Returns the records that can be read.
    pub fn records(&self) -> Vec<Record> {
        let read = self.record_paths().into_iter().filter_map(|(_, path)| read_record(&path).ok()?);
        let mut found: Vec<Record> = read.collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// Returns the sandboxes with a record that cannot be read, and why. Nobody knows what has to be removed for them.
    pub(crate) fn unreadable_records(&self) -> Vec<(SandboxName, StateError)> {
        let unreadable =
            |(name, path): (SandboxName, PathBuf)| Some((name, read_record::<Record>(&path).err()?));
        self.record_paths().into_iter().filter_map(unreadable).collect()
    }

    fn record_paths(&self) -> Vec<(SandboxName, PathBuf)> {
        let entries = fs::read_dir(self.path.join("sandboxes")).into_iter().flatten().flatten();
        // A file with another name is one that was being written.
        let named = |entry: fs::DirEntry| {
            let name = entry.file_name().to_str()?.strip_suffix(".json")?.to_string();
            Some((SandboxName::try_from(name).ok()?, entry.path()))
        };
        entries.filter_map(named).collect()
    }

    /// Removes the folder and everything in it. The owner's file goes last: as long as it exists, a later sweep tries again.
    pub fn remove(&self) -> Result<(), StateError> {
        let owner = self.path.join("owner.json");
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let path = entry.path();
            if path != owner {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                ignore_missing(if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) })
                    .map_err(io_error("remove", &path))?;
            }
        }
        ignore_missing(fs::remove_dir_all(&self.path)).map_err(io_error("remove", &self.path))
    }

    fn record_path(&self, name: &SandboxName) -> PathBuf {
        self.path.join("sandboxes").join(format!("{name}.json"))
    }
}

pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns whether what was written at this time, in seconds since 1970, is younger than that. The age is unknown if the clock was
/// set back meanwhile: then it is not.
pub(crate) fn is_younger(written: u64, age: u64) -> bool {
    unix_seconds().checked_sub(written).is_some_and(|since| since < age)
}

/// Treats what somebody else has removed as removed.
fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Makes a folder that others may pass through but not read: the ids of a user namespace have to reach their root.
fn create_folder(path: &Path) -> Result<(), StateError> {
    match fs::DirBuilder::new().mode(0o711).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        other => other.map_err(io_error("create the folder", path))?,
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o711)).map_err(io_error("set the mode of", path))
}

fn fill_instance(path: &Path, owner: &Owner) -> Result<(), StateError> {
    create_folder(path)?;
    for sub in ["sandboxes", "bundles", "roots", "oci"] {
        create_folder(&path.join(sub))?;
    }
    write_json(&path.join("owner.json"), owner)
}

/// Writes a file so that a reader never sees half of it.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StateError> {
    let error = |source| StateError::Io { action: "write", path: path.to_path_buf(), source };
    let mut staging = path.as_os_str().to_owned();
    staging.push(format!(".{}.new", std::process::id()));
    let text = serde_json::to_vec(value).map_err(|e| error(io::Error::other(e)))?;
    fs::write(&staging, text).and_then(|()| fs::rename(&staging, path)).map_err(|source| {
        // On a full disk, half of it.
        let _ = fs::remove_file(&staging);
        error(source)
    })
}

/// Reads a file of a cache; one that cannot be read is as good as none.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    read_record(path).ok()?
}

/// Reads a record that says what has to be removed; one that cannot be read is kept and logged.
pub(crate) fn read_json_or_warn<T: DeserializeOwned>(path: &Path) -> Option<T> {
    read_record(path).unwrap_or_else(|error| {
        tracing::warn!(%error, "what it records is not removed; remove the file when it is no longer needed");
        None
    })
}

/// Reads a record; None when there is none.
fn read_record<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StateError> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A file beside the folders of instances.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        other => other.map_err(io_error("read", path))?,
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| io_error("read", path)(error.into()))
}

/// Returns whether a folder is writable, or can be made.
fn can_be_written(folder: &Path) -> bool {
    let writable = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    match (folder.is_dir(), folder.parent()) {
        (true, _) => writable(folder),
        (false, Some(parent)) => parent.is_dir() && writable(parent),
        (false, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_before_the_clock_was_set_back_is_not_young() {
        let now = unix_seconds();
        assert!(is_younger(now, 60) && is_younger(now - 60, 3600));
        assert!(!is_younger(now - 60, 60) && !is_younger(now + 60, 3600) && !is_younger(now + 3600, 60));
    }

    #[test]
    fn a_folder_can_be_used_when_it_is_writable_or_can_be_made() {
        let base = tempfile::tempdir().unwrap();
        let file = base.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(can_be_written(base.path()) && can_be_written(&base.path().join("new")));
        assert!(!can_be_written(&file.join("new")) && !can_be_written(&base.path().join("missing/new")));
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let base = tempfile::tempdir().unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = StateDir::at(base.path()).create_instance(&Owner::this_process("a".into())).unwrap_err();
        assert!(matches!(error, StateError::Foreign { .. }), "{error}");
    }

    #[test]
    fn incomplete_folders_are_removed_when_they_are_old() {
        let base = tempfile::tempdir().unwrap();
        let state = StateDir::at(base.path());
        let [old, young] = ["old", "young"].map(|name| base.path().join(name));
        fs::create_dir(&old).unwrap();
        fs::create_dir(&young).unwrap();
        fs::File::open(&old).unwrap().set_modified(SystemTime::now() - 2 * UNFINISHED_AGE).unwrap();
        state.remove_unfinished();
        assert!(!old.exists() && young.exists());
    }

    #[test]
    fn an_instance_that_cannot_be_completed_leaves_no_folder() {
        let base = tempfile::tempdir().unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o700)).unwrap();
        // The owner cannot be written.
        fs::create_dir_all(base.path().join("abc/owner.json")).unwrap();
        StateDir::at(base.path()).create_instance(&Owner::this_process("abc".into())).unwrap_err();
        assert!(!base.path().join("abc").exists());
    }

    #[test]
    fn a_damaged_instance_is_skipped_and_the_others_are_found() {
        let base = tempfile::tempdir().unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let state = StateDir::at(base.path());
        let instance = state.create_instance(&Owner::this_process("good".into())).unwrap();
        fs::create_dir(base.path().join("bad")).unwrap();
        fs::write(base.path().join("bad/owner.json"), "{").unwrap();
        let found: Vec<_> = state.instances().into_iter().map(|found| found.path).collect();
        assert_eq!(found, [instance.path]);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_told_from_one_that_is_not_there() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("codebridge-a-1.json");
        assert!(matches!(read_record::<Record>(&path), Ok(None)));
        fs::write(&path, "{").unwrap();
        let error = read_record::<Record>(&path).unwrap_err().to_string();
        assert!(error.starts_with(&format!("could not read '{}'", path.display())), "{error}");
    }
}
