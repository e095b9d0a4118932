//! The layout of the store on disk, and how files are written so that they are whole.
//!
//! ```text
//! <dir>/lock                    shared: something is being added; exclusive: what nothing refers to is removed
//! <dir>/blobs/sha256/<hex>      verified manifests, configurations and compressed layers
//! <dir>/partial/sha256-<hex>    a layer being downloaded, locked meanwhile; the next download resumes it
//! <dir>/names/<hash>.json       a name and its image
//! <dir>/names/<hash>.lock       held while that name is pulled
//! <dir>/roots/<id>/rootfs/      an unpacked image; <id> is the digest of its configuration, as in every engine
//! <dir>/roots/<id>/image.json   its metadata, and a fingerprint of its root
//! <dir>/roots/<id>/compiled     whether its modules are compiled; locked meanwhile
//! <dir>/roots/<id>.lock         exclusive: being unpacked or removed; shared: in use
//! <dir>/roots/.new-<id>/        being unpacked; owned by the holder of the exclusive lock
//! ```

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::StoreError;
use crate::digest::Digest;

/// The paths of a store.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    dir: PathBuf,
}

/// The id of an image: the hexadecimal digits of its configuration's digest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ImageId(String);

impl ImageId {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first digits, for display.
    pub fn short(&self) -> &str {
        &self.0[..self.0.len().min(12)]
    }
}

impl std::fmt::Display for ImageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for ImageId {
    type Err = StoreError;

    /// Accepts digits with or without `sha256:` before them.
    fn from_str(text: &str) -> Result<Self, StoreError> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if digits.is_empty() || digits.len() > 128 || !digits.bytes().all(plain) {
            return Err(StoreError::Id(text.chars().take(160).collect()));
        }
        Ok(Self(digits.to_string()))
    }
}

impl From<&Digest> for ImageId {
    fn from(config: &Digest) -> Self {
        Self(config.hex().to_string())
    }
}

impl Folders {
    pub(super) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Creates all folders. The ids of sandboxes have to pass through to the roots; the rest is private.
    pub(super) fn make(&self) -> Result<(), StoreError> {
        let searchable = [self.dir.clone(), self.roots()];
        let private =
            [self.blobs().join("sha256"), self.blobs().join("sha512"), self.partial(), self.names()];
        for (folders, mode) in [(&searchable[..], 0o711), (&private[..], 0o700)] {
            for folder in folders {
                if folder.is_dir() {
                    continue;
                }
                let error = StoreError::io("create the folder", folder);
                DirBuilder::new().recursive(true).mode(0o711).create(folder).map_err(error)?;
                // Whatever the umask says.
                let error = StoreError::io("set the permissions of", folder);
                fs::set_permissions(folder, fs::Permissions::from_mode(mode)).map_err(error)?;
            }
        }
        Ok(())
    }

    pub(super) fn blobs(&self) -> PathBuf {
        self.dir.join("blobs")
    }

    pub(super) fn blob(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(digest.algorithm()).join(digest.hex())
    }

    pub(super) fn partial(&self) -> PathBuf {
        self.dir.join("partial")
    }

    pub(super) fn partial_of(&self, digest: &Digest) -> PathBuf {
        self.partial().join(format!("{}-{}", digest.algorithm(), digest.hex()))
    }

    pub(super) fn names(&self) -> PathBuf {
        self.dir.join("names")
    }

    /// Returns the file of a name, which may contain characters that file names must not.
    pub(super) fn name(&self, name: &str, ending: &str) -> PathBuf {
        self.names().join(format!("{}.{ending}", &Digest::of(name.as_bytes()).hex()[..40]))
    }

    pub(super) fn roots(&self) -> PathBuf {
        self.dir.join("roots")
    }

    pub(super) fn root(&self, id: &ImageId) -> PathBuf {
        self.roots().join(id.as_str())
    }

    pub(super) fn new_root(&self, id: &ImageId) -> PathBuf {
        self.roots().join(format!(".new-{id}"))
    }

    pub(super) fn root_lock(&self, id: &ImageId) -> PathBuf {
        self.roots().join(format!("{id}.lock"))
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }
}

/// Writes a file so that it is whole or absent, also after a crash.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let folder = path.parent().unwrap_or(path);
    let write = || -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".write-").tempfile_in(folder)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(StoreError::io("write", path))
}

/// Returns the entries of a folder; none when there is no folder.
pub(super) fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>, StoreError> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect::<io::Result<_>>().map_err(StoreError::io("read the folder", folder)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(StoreError::io("read the folder", folder)(error)),
    }
}

/// Removes a file, or a folder with its content, if it exists.
pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    let done = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", path)(error)),
        _ => Ok(()),
    }
}
