//! Unpacks a flattened root filesystem, as `podman export` writes it, into an empty folder.
//!
//! The archive is untrusted: nothing is written outside the folder, devices are left out, setuid bits are dropped, and
//! everything belongs to who unpacks it.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tar::{Archive, EntryType};

/// Why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// Reading the archive or writing an entry failed.
    #[error("failed to unpack {entry} into '{folder}': {source}")]
    Io {
        /// Which entry, as far as it is known.
        entry: String,
        /// Into which folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An entry leads out of the folder.
    #[error("the archive's entry '{0}' leads out of its root; nothing of this image is used")]
    Escape(PathBuf),
}

/// Unpacks all of `archive` below `folder`.
pub(crate) fn unpack(archive: impl Read, folder: &Path) -> Result<(), UnpackError> {
    let error = |entry: String| {
        let folder = folder.to_path_buf();
        move |source| UnpackError::Io { entry, folder, source }
    };
    let mut archive = Archive::new(archive);
    archive.set_preserve_ownerships(false);
    archive.set_preserve_permissions(true);
    archive.set_unpack_xattrs(false);
    archive.set_overwrite(true);
    // A folder without write permission would refuse its own content: modes of folders are set at the end.
    let mut folders = Vec::new();
    for entry in archive.entries().map_err(error("the archive".into()))? {
        let mut entry = entry.map_err(error("the archive".into()))?;
        let path = entry.path().map_err(error("a name".into()))?.into_owned();
        let name = format!("'{}'", path.display());
        let mode = entry.header().mode().unwrap_or(0o755) & 0o777;
        match entry.header().entry_type() {
            EntryType::Block | EntryType::Char | EntryType::Fifo => continue,
            EntryType::Directory => folders.push((path.clone(), mode)),
            _ => {}
        }
        entry.set_mask(0o7000);
        if !entry.unpack_in(folder).map_err(error(name))? {
            return Err(UnpackError::Escape(path));
        }
    }
    for (path, mode) in folders.into_iter().rev() {
        let place = folder.join(path);
        if fs::symlink_metadata(&place).is_ok_and(|meta| meta.is_dir()) {
            let open = fs::Permissions::from_mode(mode | 0o700);
            fs::set_permissions(&place, open).map_err(error(format!("'{}'", place.display())))?;
        }
    }
    Ok(())
}
