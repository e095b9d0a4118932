//! Files in the folder of the catalogue: how changes are noticed, and the names that they have.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// The extension of what was learned of a server's results.
pub(super) const SEEN: &str = "seen";
/// The extension of what the search model made of them.
pub(super) const VECTORS: &str = "vectors";
/// The prefix of files that are being written.
pub(super) const UNFINISHED: &str = ".unfinished-";

/// Metadata that differs between two contents of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    pub(super) size: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// Returns the stamp of a file; None if there is no file.
    pub(super) fn at(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path).ok().filter(Metadata::is_file).map(|metadata| Self::of(&metadata))
    }

    pub(super) fn of(metadata: &Metadata) -> Self {
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        Self { inode: metadata.ino(), size: metadata.size(), changed }
    }
}

/// Creates the folder, which only its owner may read: the tools of a user are private.
pub(in crate::upstream) fn create_folder(folder: &Path) -> io::Result<()> {
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file of the catalogue under another name, and renames it: readers see the old or the new one.
pub(in crate::upstream) fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let folder = path.parent().unwrap_or(Path::new("."));
    create_folder(folder)?;
    let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path).map_err(|refused| refused.error)
}
