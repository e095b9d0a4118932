//! Watches how much an installer writes: a wheel of some megabytes may unpack to more than the disk has.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::InstallError;
use super::files::MOST_BYTES;

/// The pause between two looks.
const PACE: Duration = Duration::from_millis(200);
/// Bytes that have to stay free on the disk.
const LEAST_FREE: u64 = 1 << 30;

/// Where an installer writes.
#[derive(Debug)]
pub(super) struct Disk {
    staging: PathBuf,
    /// The cache of uv, which unpacks there before it copies.
    cache: Option<PathBuf>,
    /// What other runs of uv unpack there.
    others: Vec<PathBuf>,
}

impl Disk {
    /// Returns what to watch for an installer that works in this folder, before it writes.
    pub(super) fn of(staging: &Path, environment: &[(String, OsString)]) -> Self {
        let value = |wanted: &str| environment.iter().find(|(name, _)| name == wanted).map(|(_, text)| text);
        let cache = value("UV_CACHE_DIR").map(PathBuf::from);
        let cache = cache.or_else(|| Some(Path::new(value("XDG_CACHE_HOME")?).join("uv")));
        let cache = cache.or_else(|| Some(Path::new(value("HOME")?).join(".cache/uv")));
        let others = cache.as_deref().map(unpacking).unwrap_or_default();
        Self { staging: staging.into(), cache, others }
    }

    /// Waits until too much is written, or too little is free. What was unpacked in the cache is removed then.
    pub(super) async fn watch(self) -> InstallError {
        let mut disk = self;
        loop {
            tokio::time::sleep(PACE).await;
            let looking = tokio::task::spawn_blocking(move || (disk.problem(), disk)).await;
            disk = match looking {
                Ok((None, disk)) => disk,
                Ok((Some(error), _)) => return error,
                Err(error) => return InstallError::Failed(error.to_string()),
            };
        }
    }

    fn problem(&self) -> Option<InstallError> {
        let own: Vec<_> = self.cache.as_deref().map(unpacking).unwrap_or_default();
        let own: Vec<_> = own.into_iter().filter(|path| !self.others.contains(path)).collect();
        // uv copies what it has unpacked: either may be the whole.
        let size = bytes_of(&self.staging).max(own.iter().map(|path| bytes_of(path)).sum());
        let error = if size > MOST_BYTES {
            InstallError::TooLarge { size: size >> 20, most: MOST_BYTES >> 20 }
        } else if [Some(&self.staging), self.cache.as_ref()].into_iter().flatten().any(|path| is_low(path)) {
            InstallError::LittleSpace { least: LEAST_FREE >> 20 }
        } else {
            return None;
        };
        // uv would leave them for good.
        for path in own.iter().filter(|path| bytes_of(path) > LEAST_FREE) {
            let _ = fs::remove_dir_all(path);
        }
        Some(error)
    }
}

/// Returns the folders in which runs of uv unpack now.
fn unpacking(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let is_temporary = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".tmp")) && path.is_dir()
    };
    entries.map(|entry| entry.path()).filter(is_temporary).collect()
}

/// Returns the bytes of the files below a folder, as far as it can be read: it changes meanwhile.
fn bytes_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_of(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

fn is_low(path: &Path) -> bool {
    let free = rustix::fs::statvfs(path).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    free.is_ok_and(|free| free < LEAST_FREE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_uv_unpacks_in_its_cache_counts_and_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let [staging, cache] = ["staging", "cache"].map(|name| folder.path().join(name));
        fs::create_dir(&staging).unwrap();
        let (old, new) = (cache.join(".tmpOld/x"), cache.join(".tmpNew/x"));
        let write = |path: &Path, bytes| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::File::create(path).unwrap().set_len(bytes).unwrap();
        };
        write(&old, MOST_BYTES + 1);
        let disk = Disk::of(&staging, &[("UV_CACHE_DIR".into(), cache.into())]);
        assert!(disk.problem().is_none());
        write(&new, MOST_BYTES + 1);
        assert!(matches!(disk.problem(), Some(InstallError::TooLarge { size: 4096, .. })));
        assert!(old.exists() && !new.exists());
    }
}
