//! Unpacked images: one root for each, shared by all who use it, whole or not there.

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

/// How long a changed root is waited for to be given up by those who use it.
const DAMAGED_LIMIT: Duration = Duration::from_secs(2);

/// How long somebody may look at a lock.
const PROBING_LIMIT: Duration = Duration::from_millis(100);

/// What the store knows of an unpacked image: `image.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The digest of its manifest, where it has one.
    pub(super) manifest: Option<Digest>,
    pub(super) run: RunConfig,
    pub(super) bytes: u64,
    pub(super) entries: u64,
    /// Seconds since 1970.
    pub(super) unpacked: u64,
    /// How the upper folders of the root looked.
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

/// What one gets who wants an image unpacked.
pub(crate) enum Claim {
    /// It is.
    Ready(Root),
    /// It is for the caller to unpack; others wait.
    Ours(Box<NewRoot>),
}

/// A root being filled. Dropped before it is finished, it is gone.
pub(crate) struct NewRoot {
    store: Store,
    id: ImageId,
    place: PathBuf,
    lock: Option<Lock>,
}

impl Store {
    /// The unpacked image, when it is here and nobody changed it.
    pub fn root(&self, id: &ImageId) -> Result<Option<Root>, StoreError> {
        let began = Instant::now();
        while self.folders.root(id).exists() {
            if let Some(lock) = self.lock_root(id, Kind::Shared)? {
                return Ok(self.verified(id)?.map(|record| self.in_use(id, record, lock)));
            }
            // Somebody looks whether it is in use, which takes no time; or it is being removed or made anew.
            if began.elapsed() > PROBING_LIMIT {
                break;
            }
            std::thread::sleep(PROBING_LIMIT / 20);
        }
        Ok(None)
    }

    /// The unpacked image that has this root; for those who only know the folder.
    pub fn root_at(&self, directory: &Path) -> Result<Option<Root>, StoreError> {
        let id = directory.parent().filter(|place| place.parent() == Some(&self.folders.roots()));
        let id = id.and_then(|place| place.file_name()?.to_str()?.parse().ok());
        id.map_or(Ok(None), |id| self.root(&id))
    }

    /// The unpacked image, or the right to unpack it. Waits while another unpacks it.
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
                // Two who look at the same moment do this to each other, briefly; users do it for long.
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

    /// What is known of an unpacked image, when there is one.
    pub(super) fn record(&self, id: &ImageId) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.folders.root(id).join("image.json")).ok()?).ok()
    }

    fn verified(&self, id: &ImageId) -> Result<Option<Record>, StoreError> {
        let Some(record) = self.record(id) else { return Ok(None) };
        let rootfs = self.folders.root(id).join("rootfs");
        let looks = fingerprint(&rootfs).map_err(StoreError::io("look at", &rootfs))?;
        if looks == record.fingerprint {
            return Ok(Some(record));
        }
        tracing::warn!(image = %id, "an unpacked image was changed; it is unpacked anew");
        Ok(None)
    }
}

impl NewRoot {
    fn begin(store: Store, id: ImageId, lock: Lock) -> Result<Self, StoreError> {
        let place = store.folders.new_root(&id);
        // What one left that was killed: the lock is ours, so nobody is at it.
        remove(&place)?;
        let root = Self { store, id, place, lock: Some(lock) };
        for folder in [&root.place, &root.rootfs()] {
            fs::create_dir(folder).map_err(StoreError::io("make the folder", folder))?;
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(folder, mode).map_err(StoreError::io("set the permissions of", folder))?;
        }
        Ok(root)
    }

    /// The folder to fill.
    pub(crate) fn rootfs(&self) -> PathBuf {
        self.place.join("rootfs")
    }

    /// Puts the root in its place, once all of it is on disk.
    pub(crate) fn finish(
        mut self,
        run: RunConfig,
        manifest: Option<Digest>,
        unpacked: Unpacked,
    ) -> Result<Root, StoreError> {
        let rootfs = self.rootfs();
        let fingerprint = fingerprint(&rootfs).map_err(StoreError::io("look at", &rootfs))?;
        let Unpacked { bytes, entries } = unpacked;
        let record = Record { manifest, run, bytes, entries, unpacked: super::now(), fingerprint };
        let text = serde_json::to_vec_pretty(&record).unwrap_or_default();
        write_whole(&self.place.join("image.json"), &text)?;
        // One call for thousands of files: else a crash of the machine could leave them empty behind a good record.
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
            tracing::warn!(%error, "half an unpacked image stays; the next one to unpack it removes it");
        }
    }
}

fn sync_around(path: &Path) -> io::Result<()> {
    let folder = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(folder)?;
    // The whole file system can be asked for on Linux only.
    #[cfg(not(target_os = "linux"))]
    rustix::fs::fsync(folder)?;
    Ok(())
}

/// A digest over the two upper levels of a root: what a careless removal or a package manager would change there.
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
        // Removed by hand: no root looks like this.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Digest::of(b"")),
        upper => upper?,
    };
    for folder in upper {
        look(&root.join(&folder[1..]), &folder)?;
    }
    lines.sort();
    Ok(Digest::of(lines.concat().as_bytes()))
}
