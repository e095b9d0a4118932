//! `<dir>/roots/<id>/`: one unpacked image each, whole or not there.
//!
//! ```text
//! <dir>/roots/<id>/rootfs/      the root filesystem
//! <dir>/roots/<id>/env.json     the environment that the image sets
//! <dir>/roots/.new-*/           being unpacked; whoever finds one whose lock is free removes it
//! <dir>/roots/<id>.lock         held while somebody unpacks that image; dies with its holder
//! ```

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::unpack::{UnpackError, unpack};

/// Why the store could not give an image.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An operation on a file failed.
    #[error("failed to {action} '{path}': {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The archive cannot be unpacked.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// An id that is no plain hexadecimal number would name a path.
    #[error("'{0}' is no image id")]
    Id(String),
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_path_buf();
    move |source| StoreError::Io { action, path, source }
}

/// The store of unpacked images.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// The store in this folder, which need not exist yet.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    fn place(&self, id: &str) -> Result<PathBuf, StoreError> {
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(StoreError::Id(id.to_string()));
        }
        Ok(self.dir.join("roots").join(id))
    }

    /// The root filesystem of an image and its environment, when it is here.
    pub fn get(&self, id: &str) -> Result<Option<(PathBuf, Vec<String>)>, StoreError> {
        let place = self.place(id)?;
        let Ok(text) = fs::read(place.join("env.json")) else { return Ok(None) };
        Ok(serde_json::from_slice(&text).ok().map(|env| (place.join("rootfs"), env)))
    }

    /// Unpacks an image unless it is here; concurrent callers, also of other processes, end with one copy.
    ///
    /// Blocks while another unpacks the same image. `archive` is opened only when it is needed.
    pub fn ensure<R: Read>(
        &self,
        id: &str,
        env: &[String],
        archive: impl FnOnce() -> io::Result<R>,
    ) -> Result<PathBuf, StoreError> {
        let place = self.place(id)?;
        let roots = self.dir.join("roots");
        fs::create_dir_all(&roots).map_err(io_error("make the folder", &roots))?;
        let lock_path = roots.join(format!("{id}.lock"));
        let lock = File::create(&lock_path).map_err(io_error("open", &lock_path))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|e| io_error("lock", &lock_path)(e.into()))?;
        if let Some((rootfs, _)) = self.get(id)? {
            return Ok(rootfs);
        }
        let staging = tempfile::Builder::new()
            .prefix(".new-")
            .permissions(<fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755))
            .tempdir_in(&roots)
            .map_err(io_error("make a folder in", &roots))?;
        let rootfs = staging.path().join("rootfs");
        fs::create_dir(&rootfs).map_err(io_error("make the folder", &rootfs))?;
        unpack(archive().map_err(io_error("read the archive for", &place))?, &rootfs)?;
        let env_path = staging.path().join("env.json");
        let text = serde_json::to_vec(env).unwrap_or_default();
        fs::write(&env_path, text).map_err(io_error("write", &env_path))?;
        // A place without env.json is what a broken removal left.
        if place.exists() {
            fs::remove_dir_all(&place).map_err(io_error("remove", &place))?;
        }
        fs::rename(staging.path(), &place).map_err(io_error("rename a folder to", &place))?;
        Ok(place.join("rootfs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tar::{Builder, EntryType, Header};

    fn archive(fill: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        fill(&mut builder);
        builder.into_inner().unwrap()
    }

    fn put(builder: &mut Builder<Vec<u8>>, name: &str, kind: EntryType, mode: u32, content: &[u8]) {
        let mut header = Header::new_gnu();
        // Written past the checks of the builder, which would refuse hostile names.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }

    #[test]
    fn an_image_is_unpacked_once_without_setuid_bits_and_devices() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path());
        let bytes = archive(|b| {
            put(b, "bin", EntryType::Directory, 0o555, b"");
            put(b, "bin/su", EntryType::Regular, 0o4755, b"x");
            put(b, "null", EntryType::Char, 0o666, b"");
        });
        let root = store.ensure("ab12", &["PATH=/bin".into()], || Ok(bytes.as_slice())).unwrap();
        assert_eq!(fs::metadata(root.join("bin/su")).unwrap().permissions().mode() & 0o7777, 0o755);
        assert!(!root.join("null").exists());
        let again = store.ensure("ab12", &[], || -> io::Result<&[u8]> { panic!("unpacked twice") }).unwrap();
        assert_eq!(again, root);
        assert_eq!(store.get("ab12").unwrap().unwrap().1, ["PATH=/bin"]);
    }

    #[test]
    fn a_name_that_leads_out_refuses_the_image_and_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path().join("store"));
        let bytes = archive(|b| put(b, "../../evil", EntryType::Regular, 0o644, b"x"));
        let error = store.ensure("ab", &[], || Ok(bytes.as_slice())).unwrap_err();
        assert!(matches!(error, StoreError::Unpack(UnpackError::Escape(_))), "{error}");
        assert!(!dir.path().join("evil").exists());
        assert!(store.get("ab").unwrap().is_none());
    }

    #[test]
    fn half_an_archive_leaves_no_image() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path());
        let mut bytes = archive(|b| put(b, "big", EntryType::Regular, 0o644, &[7; 4096]));
        bytes.truncate(2000);
        assert!(store.ensure("ab", &[], || Ok(bytes.as_slice())).is_err());
        assert!(store.get("ab").unwrap().is_none());
        assert!(matches!(store.get("../x"), Err(StoreError::Id(_))));
    }
}
