//! The folder that one session sees as `/packages`. It is beside the sets, so that their files can be linked; `/run`, where
//! sandboxes have their other files, is another file system, and often one from which nothing can be executed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use codebridge_runtimes::random_hex;

use super::files::{link_tree, make_folder, move_tree};
use super::store::{LOCK, Lock, sweep, try_lock};
use super::{InstallError, PackageSet, Store};

/// The packages of one session, removed when this is dropped. While it lives, its lock says so to other processes.
#[derive(Debug)]
pub struct SessionFolder {
    folder: PathBuf,
    /// Names and versions of what was added.
    present: Mutex<BTreeMap<String, String>>,
    _lock: Lock,
}

impl SessionFolder {
    /// Makes an empty folder. Those of processes that are gone are removed.
    pub(super) fn create(store: &Store) -> Result<Self, InstallError> {
        let sessions = store.folder("sessions")?;
        sweep(&sessions);
        let folder = sessions.join(random_hex::<8>());
        // Locked before it has a name that a sweep looks at.
        let hidden = sessions.join(format!(".{}", random_hex::<8>()));
        make_folder(&hidden)?;
        let lock = try_lock(&hidden.join(LOCK)).map_err(InstallError::io("lock", &hidden))?;
        let lock = lock.ok_or_else(|| InstallError::Failed("a new folder is locked".into()))?;
        make_folder(&hidden.join("packages"))?;
        fs::rename(&hidden, &folder).map_err(InstallError::io("write", &folder))?;
        Ok(Self { folder, present: Mutex::default(), _lock: lock })
    }

    /// Returns the folder to mount.
    pub fn path(&self) -> PathBuf {
        self.folder.join("packages")
    }

    /// Returns what was added so far.
    pub fn present(&self) -> BTreeMap<String, String> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds the packages of a set, in this form of it, so that the sandbox never sees half of one. Blocks.
    pub fn add(&self, set: &PackageSet, files: &Path) -> Result<(), InstallError> {
        let staging = self.folder.join("staging");
        let _ = fs::remove_dir_all(&staging);
        let linked = link_tree(files, &staging).and_then(|()| move_tree(&staging, &self.path()));
        let _ = fs::remove_dir_all(&staging);
        linked?;
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        present.extend(set.description.packages.iter().map(|pin| (pin.name.clone(), pin.version.clone())));
        Ok(())
    }
}

impl Drop for SessionFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::debug!(%error, "could not remove the packages of a session");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_process_that_is_gone_is_removed_and_others_stay() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::at(cache.path().into());
        let one = SessionFolder::create(&store).unwrap();
        let dead = cache.path().join("sessions/dead");
        fs::create_dir_all(dead.join("packages")).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        let two = SessionFolder::create(&store).unwrap();
        assert!(one.path().is_dir() && two.path().is_dir() && !dead.exists());
        let path = one.path();
        drop(one);
        assert!(!path.exists());
    }
}
