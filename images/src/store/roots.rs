//! Unpacked images: one root each, shared by all users, whole or absent.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::folders::{ImageId, remove, write_whole};
use super::lock::{Kind, Lock, pause};
use super::{Store, StoreError};
use crate::digest::Digest;
use crate::manifest::RunConfig;
use crate::progress::{Event, Progress};
use crate::unpack::Unpacked;

/// How long to wait until a changed root is unused.
const DAMAGED_LIMIT: Duration = Duration::from_secs(2);

/// How long another process may hold a lock only to probe it.
const PROBING_LIMIT: Duration = Duration::from_millis(100);

/// The content of `image.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The digest of the manifest, if the image has one.
    pub(super) manifest: Option<Digest>,
    pub(super) run: RunConfig,
    pub(super) bytes: u64,
    pub(super) entries: u64,
    /// Seconds since 1970.
    pub(super) unpacked: u64,
    /// Changes when the upper folders of the root do.
    fingerprint: Digest,
}

/// A lease on an unpacked image: nobody removes or replaces the image while the lease or a clone of it lives.
#[derive(Debug, Clone)]
pub struct Root(Arc<Lease>);

#[derive(Debug)]
struct Lease {
    id: ImageId,
    directory: PathBuf,
    manifest: Option<Digest>,
    run: RunConfig,
    _lock: Lock,
}

impl Root {
    /// Returns the image's id, by which [`Store::root`] leases the same image again.
    pub fn id(&self) -> &ImageId {
        &self.0.id
    }

    /// Returns the folder of the root filesystem.
    pub fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// Returns the configuration that the image has for its containers.
    pub fn run(&self) -> &RunConfig {
        &self.0.run
    }

    /// Returns whether the image was exported from an engine: such an image has no manifest.
    pub fn is_exported(&self) -> bool {
        self.0.manifest.is_none()
    }
}

/// The answer to a claim on an unpacked image.
pub(crate) enum Claim {
    Ready(Root),
    /// The caller has to unpack it; others wait.
    Ours(Box<NewRoot>),
}

/// A root that is being filled; removed if it is dropped before it is finished.
pub(crate) struct NewRoot {
    store: Store,
    id: ImageId,
    place: PathBuf,
    lock: Option<Lock>,
}

impl Store {
    /// Returns the unpacked image; None when the store does not have it or it was changed.
    pub fn root(&self, id: &ImageId) -> Result<Option<Root>, StoreError> {
        let began = Instant::now();
        while self.folders.root(id).exists() {
            if let Some(lock) = self.lock_root(id, Kind::Shared)? {
                return Ok(self.verified(id)?.map(|record| self.in_use(id, record, lock)));
            }
            // Another process probes the lock, which is short, or removes or replaces the image.
            if began.elapsed() > PROBING_LIMIT {
                break;
            }
            std::thread::sleep(PROBING_LIMIT / 20);
        }
        Ok(None)
    }

    /// Returns the unpacked image, or the right to unpack it. Waits while another process unpacks it.
    pub(crate) async fn claim(&self, id: &ImageId, progress: &dyn Progress) -> Result<Claim, StoreError> {
        self.folders.make()?;
        let mut waiting = Some(Event::Waiting);
        let mut damaged: Option<Instant> = None;
        loop {
            if let Some(lock) = self.lock_root(id, Kind::Exclusive)? {
                if let Some(record) = self.verified(id)? {
                    lock.share().map_err(StoreError::io("lock", &self.folders.root_lock(id)))?;
                    return Ok(Claim::Ready(self.in_use(id, record, lock)));
                }
                return NewRoot::begin(self.clone(), id.clone(), lock)
                    .map(|root| Claim::Ours(Box::new(root)));
            }
            if let Some(lock) = self.lock_root(id, Kind::Shared)? {
                if let Some(record) = self.verified(id)? {
                    return Ok(Claim::Ready(self.in_use(id, record, lock)));
                }
                // Two processes that probe at the same moment block each other briefly; users do so for long.
                let since = *damaged.get_or_insert_with(Instant::now);
                if since.elapsed() > DAMAGED_LIMIT {
                    return Err(StoreError::Damaged(id.short().into()));
                }
            } else {
                damaged = None;
                waiting.take().into_iter().for_each(|event| progress.event(event));
            }
            pause().await;
        }
    }

    pub(super) fn lock_root(&self, id: &ImageId, kind: Kind) -> Result<Option<Lock>, StoreError> {
        let path = self.folders.root_lock(id);
        Lock::try_take(&path, kind).map_err(StoreError::io("lock", &path))
    }

    fn in_use(&self, id: &ImageId, record: Record, lock: Lock) -> Root {
        let directory = self.folders.root(id).join("rootfs");
        let Record { manifest, run, .. } = record;
        Root(Arc::new(Lease { id: id.clone(), directory, manifest, run, _lock: lock }))
    }

    /// Returns the record of an unpacked image; None when there is none.
    pub(super) fn record(&self, id: &ImageId) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.folders.root(id).join("image.json")).ok()?).ok()
    }

    fn verified(&self, id: &ImageId) -> Result<Option<Record>, StoreError> {
        let Some(record) = self.record(id) else { return Ok(None) };
        let rootfs = self.folders.root(id).join("rootfs");
        let looks = fingerprint(&rootfs).map_err(StoreError::io("read", &rootfs))?;
        if looks == record.fingerprint {
            return Ok(Some(record));
        }
        tracing::warn!(image = %id, "an unpacked image was changed: it is unpacked again");
        Ok(None)
    }
}

impl NewRoot {
    fn begin(store: Store, id: ImageId, lock: Lock) -> Result<Self, StoreError> {
        let place = store.folders.new_root(&id);
        // Left by a killed process: the lock is ours, so nobody uses it.
        remove(&place)?;
        let root = Self { store, id, place, lock: Some(lock) };
        for folder in [&root.place, &root.rootfs()] {
            fs::create_dir(folder).map_err(StoreError::io("create the folder", folder))?;
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(folder, mode).map_err(StoreError::io("set the permissions of", folder))?;
        }
        Ok(root)
    }

    /// Returns the folder to fill.
    pub(crate) fn rootfs(&self) -> PathBuf {
        self.place.join("rootfs")
    }

    /// Moves the root to its place, once all of it is on disk.
    pub(crate) fn finish(
        mut self,
        run: RunConfig,
        manifest: Option<Digest>,
        unpacked: Unpacked,
    ) -> Result<Root, StoreError> {
        let rootfs = self.rootfs();
        let fingerprint = fingerprint(&rootfs).map_err(StoreError::io("read", &rootfs))?;
        let Unpacked { bytes, entries } = unpacked;
        let record = Record { manifest, run, bytes, entries, unpacked: super::now(), fingerprint };
        let text = serde_json::to_vec_pretty(&record).unwrap_or_default();
        write_whole(&self.place.join("image.json"), &text)?;
        // Without it, files could be empty after a crash of the machine. One call for thousands of files.
        sync_around(&rootfs).map_err(StoreError::io("write", &rootfs))?;
        let target = self.store.folders.root(&self.id);
        remove(&target)?;
        fs::rename(&self.place, &target).map_err(StoreError::io("rename a folder to", &target))?;
        let lock = self.lock.take().ok_or_else(|| StoreError::Unknown(self.id.to_string()))?;
        lock.share().map_err(StoreError::io("lock", &self.store.folders.root_lock(&self.id)))?;
        Ok(self.store.in_use(&self.id, record, lock))
    }
}

impl Drop for NewRoot {
    fn drop(&mut self) {
        if self.lock.is_some()
            && let Err(error) = remove(&self.place)
        {
            tracing::warn!(%error, "could not remove an incomplete image; the next attempt to unpack it does");
        }
    }
}

fn sync_around(path: &Path) -> io::Result<()> {
    let folder = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(folder)?;
    // Only Linux can sync a whole file system.
    #[cfg(not(target_os = "linux"))]
    rustix::fs::fsync(folder)?;
    Ok(())
}

/// Returns a digest over the two upper levels of a root, where a careless removal or a package manager changes things.
fn fingerprint(root: &Path) -> io::Result<Digest> {
    let mut lines = Vec::new();
    let mut look = |folder: &Path, prefix: &str| -> io::Result<Vec<String>> {
        let mut folders = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            let name = format!("{prefix}/{}", entry.file_name().to_string_lossy());
            let size = if meta.is_dir() { 0 } else { meta.len() };
            lines.push(format!("{name} {:o} {size} {}\n", meta.mode(), meta.mtime()));
            if meta.is_dir() {
                folders.push(name);
            }
        }
        Ok(folders)
    };
    let upper = match look(root, "") {
        // Removed by hand: no root has this fingerprint.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Digest::of(b"")),
        upper => upper?,
    };
    for folder in upper {
        look(&root.join(&folder[1..]), &folder)?;
    }
    lines.sort();
    Ok(Digest::of(lines.concat().as_bytes()))
}
