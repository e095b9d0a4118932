//! The images on this machine, shared by all bridges of this user.
//!
//! `folders` has the layout on disk; `blobs` stores content by digest, `names` the images of names, `roots` unpacked
//! images; `compiled` adds modules to roots; `upkeep` lists and removes. `lock` excludes other processes.

mod blobs;
mod compiled;
mod error;
mod folders;
mod lock;
mod names;
mod roots;
mod upkeep;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use folders::Folders;
use lock::{Kind, Lock};

pub(crate) use blobs::Receiving;
pub use compiled::Compiling;
pub use error::StoreError;
pub use folders::ImageId;
pub(crate) use lock::pause;
pub use roots::Root;
pub(crate) use roots::{Claim, NewRoot};
pub use upkeep::{Listed, Prunable, Prune, Pruned, Usage};

/// The images in one folder.
#[derive(Debug, Clone)]
pub struct Store {
    folders: Folders,
}

impl Store {
    /// Returns the store in this folder, which need not exist yet.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { folders: Folders::at(dir.into()) }
    }

    pub fn dir(&self) -> &Path {
        self.folders.dir()
    }

    /// Returns a lock to hold while content is added that nothing refers to yet, so that it is not pruned.
    pub(crate) async fn adding(&self) -> Result<Lock, StoreError> {
        self.folders.make()?;
        let path = self.folders.lock();
        Lock::take(&path, Kind::Shared, || ()).await.map_err(StoreError::io("lock", &path))
    }
}

/// Returns the seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests;
