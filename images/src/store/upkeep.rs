//! Lists and removes images; an image in use stays.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::folders::{ImageId, entries, remove};
use super::lock::{Kind, Lock};
use super::{Store, StoreError};
use crate::digest::Digest;
use crate::manifest::{CONFIG_LIMIT, Document, MANIFEST_LIMIT, RunConfig, parse_document};

/// One image of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    pub id: ImageId,
    /// Full names.
    pub names: Vec<String>,
    /// The digest of the manifest, if the image has one.
    pub manifest: Option<Digest>,
    /// When it was pulled or unpacked last, in seconds since 1970.
    pub created: u64,
    /// Whether it is ready to run.
    pub unpacked: bool,
    /// Bytes of the unpacked files.
    pub unpacked_bytes: u64,
    /// Files, folders and links.
    pub entries: u64,
    /// Bytes of the compressed layers in the store; shared layers count for each image.
    pub compressed_bytes: u64,
    /// Whether a bridge uses it now.
    pub in_use: bool,
    /// The configuration for its containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunConfig>,
}

/// The bytes of the store on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Unpacked images.
    pub roots: u64,
    /// Manifests, configurations and compressed layers.
    pub blobs: u64,
    /// Incomplete downloads and images.
    pub partial: u64,
}

impl Usage {
    pub fn total(&self) -> u64 {
        self.roots + self.blobs + self.partial
    }
}

/// The outcome of a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Removed images.
    pub images: Vec<ImageId>,
    /// Removed names.
    pub names: Vec<String>,
    /// Images that were kept because they are in use.
    pub in_use: Vec<ImageId>,
    /// Freed bytes on disk.
    pub bytes: u64,
    /// Whether unused layers were kept because a download is running.
    pub busy: bool,
}

/// What a prune would remove now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prunable {
    /// Images, incomplete ones, downloads and content that nothing refers to.
    pub count: usize,
    /// Bytes on disk.
    pub bytes: u64,
}

/// What else a prune removes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prune {
    /// Also images that have a name.
    pub all: bool,
    /// Also the compressed layers of images that are unpacked.
    pub layers: bool,
}

impl Store {
    /// Returns all images, sorted by name.
    pub fn list(&self) -> Result<Vec<Listed>, StoreError> {
        let mut images: BTreeMap<ImageId, Listed> = BTreeMap::new();
        for named in self.all_names()? {
            let Ok(id) = named.id.parse::<ImageId>() else { continue };
            let image = images.entry(id.clone()).or_insert_with(|| self.listed(&id));
            image.names.push(named.name);
            image.manifest = image.manifest.take().or(named.manifest);
            image.created = image.created.max(named.fetched);
        }
        for id in self.root_ids()? {
            images.entry(id.clone()).or_insert_with(|| self.listed(&id));
        }
        let mut images: Vec<_> = images.into_values().collect();
        for image in &mut images {
            let blobs = image.manifest.as_ref().map(|manifest| self.blobs_of(manifest)).unwrap_or_default();
            image.compressed_bytes = blobs.iter().map(|blob| size_of(&self.folders.blob(blob))).sum();
        }
        images.sort_by(|a, b| {
            (a.names.is_empty(), &a.names, &a.id).cmp(&(b.names.is_empty(), &b.names, &b.id))
        });
        Ok(images)
    }

    fn listed(&self, id: &ImageId) -> Listed {
        let record = self.record(id);
        let in_use =
            self.folders.root(id).exists() && matches!(self.lock_root(id, Kind::Exclusive), Ok(None));
        Listed {
            id: id.clone(),
            names: Vec::new(),
            created: record.as_ref().map_or(0, |record| record.unpacked),
            unpacked: record.is_some(),
            unpacked_bytes: record.as_ref().map_or(0, |record| record.bytes),
            entries: record.as_ref().map_or(0, |record| record.entries),
            compressed_bytes: 0,
            in_use,
            manifest: record.as_ref().and_then(|record| record.manifest.clone()),
            run: record.map(|record| record.run),
        }
    }

    /// Returns the image of a full name or of the beginning of an id.
    pub fn find(&self, name: &str) -> Result<Listed, StoreError> {
        let images = self.list()?;
        if let Some(image) = images.iter().find(|image| image.names.iter().any(|known| known == name)) {
            return Ok(image.clone());
        }
        let digits = name.strip_prefix("sha256:").unwrap_or(name);
        let unknown = || StoreError::Unknown(name.into());
        if digits.len() < 4 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(unknown());
        }
        let mut found = images.into_iter().filter(|image| {
            image.id.as_str().starts_with(digits)
                || image.manifest.as_ref().is_some_and(|manifest| manifest.hex().starts_with(digits))
        });
        let image = found.next().ok_or_else(unknown)?;
        if found.next().is_some() { Err(StoreError::NotUnique(name.into())) } else { Ok(image) }
    }

    /// Removes a name, and with the last one its image; an id removes the image with all names.
    pub fn remove(&self, name: &str) -> Result<Pruned, StoreError> {
        let image = self.find(name)?;
        let mut pruned = Pruned::default();
        let by_name = image.names.iter().any(|known| known == name);
        if by_name && image.names.len() > 1 {
            pruned.names.push(name.into());
            remove(&self.folders.name(name, "json"))?;
            return Ok(pruned);
        }
        let before = self.usage()?;
        if !self.remove_root(&image.id)? {
            return Err(StoreError::InUse(image.id.short().into()));
        }
        for name in image.names {
            remove(&self.folders.name(&name, "json"))?;
            pruned.names.push(name);
        }
        pruned.images.push(image.id);
        self.sweep(Prune::default(), &mut pruned)?;
        pruned.bytes = before.total().saturating_sub(self.usage()?.total());
        Ok(pruned)
    }

    /// Removes images without a name, and content that nothing refers to.
    pub fn prune(&self, how: Prune) -> Result<Pruned, StoreError> {
        let before = self.usage()?;
        let mut pruned = Pruned::default();
        for image in self.list()? {
            if !image.names.is_empty() && !how.all {
                continue;
            }
            if !self.remove_root(&image.id)? {
                pruned.in_use.push(image.id);
                continue;
            }
            for name in image.names {
                remove(&self.folders.name(&name, "json"))?;
                pruned.names.push(name);
            }
            pruned.images.push(image.id);
        }
        self.sweep(how, &mut pruned)?;
        pruned.bytes = before.total().saturating_sub(self.usage()?.total());
        Ok(pruned)
    }

    /// Returns what [`Store::prune`] would remove without its options, and removes nothing.
    pub fn prunable(&self) -> Result<Prunable, StoreError> {
        let (kept, unnamed): (Vec<_>, Vec<_>) =
            self.list()?.into_iter().partition(|image| !image.names.is_empty() || image.in_use);
        let mut paths: Vec<_> = unnamed.iter().map(|image| self.folders.root(&image.id)).collect();
        for (id, _) in self.unfinished_roots()? {
            let place = self.folders.new_root(&id);
            if place.exists() && self.lock_root(&id, Kind::Exclusive)?.is_some() {
                paths.push(place);
            }
        }
        if self.dir().exists() {
            let path = self.folders.lock();
            let exclusive = Lock::try_take(&path, Kind::Exclusive).map_err(StoreError::io("lock", &path))?;
            if exclusive.is_some() {
                paths.extend(self.unreferenced(&self.wanted_blobs(Prune::default(), &kept))?);
            }
        }
        // Locks are files without content.
        let sizes = paths.iter().map(|path| disk_usage(path)).filter(|bytes| *bytes > 0);
        Ok(sizes.fold(Prunable::default(), |sum, bytes| Prunable {
            count: sum.count + 1,
            bytes: sum.bytes + bytes,
        }))
    }

    /// Returns the bytes of the store on disk.
    pub fn usage(&self) -> Result<Usage, StoreError> {
        let mut usage = Usage { blobs: disk_usage(&self.folders.blobs()), ..Usage::default() };
        usage.partial = disk_usage(&self.folders.partial());
        for entry in entries(&self.folders.roots())? {
            let bytes = disk_usage(&entry.path());
            match entry.file_name().to_string_lossy().starts_with('.') {
                true => usage.partial += bytes,
                false => usage.roots += bytes,
            }
        }
        Ok(usage)
    }

    fn root_ids(&self) -> Result<Vec<ImageId>, StoreError> {
        let folders = entries(&self.folders.roots())?;
        let names = folders.iter().filter(|entry| entry.path().is_dir());
        Ok(names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// Removes an unpacked image unless it is in use; returns whether it is gone.
    fn remove_root(&self, id: &ImageId) -> Result<bool, StoreError> {
        if !self.folders.roots().exists() {
            return Ok(true);
        }
        let Some(lock) = self.lock_root(id, Kind::Exclusive)? else { return Ok(false) };
        let (place, away) = (self.folders.root(id), self.folders.new_root(id));
        remove(&away)?;
        // Half removed, it must not be found in its place.
        if place.exists() {
            fs::rename(&place, &away).map_err(StoreError::io("rename a folder to", &away))?;
            remove(&away)?;
        }
        lock.remove().map_err(StoreError::io("remove", &self.folders.root_lock(id)))?;
        Ok(true)
    }

    /// Removes content that nothing refers to, and incomplete downloads and images.
    fn sweep(&self, how: Prune, pruned: &mut Pruned) -> Result<(), StoreError> {
        for (id, path) in self.unfinished_roots()? {
            let Some(lock) = self.lock_root(&id, Kind::Exclusive)? else { continue };
            remove(&self.folders.new_root(&id))?;
            if !self.folders.root(&id).exists() {
                lock.remove().map_err(StoreError::io("remove", &path))?;
            }
        }
        if !self.dir().exists() {
            return Ok(());
        }
        let path = self.folders.lock();
        let exclusive = Lock::try_take(&path, Kind::Exclusive).map_err(StoreError::io("lock", &path))?;
        let Some(_exclusive) = exclusive else {
            pruned.busy = true;
            return Ok(());
        };
        let wanted = self.wanted_blobs(how, &self.list()?);
        self.unreferenced(&wanted)?.iter().try_for_each(|path| remove(path))
    }

    /// Returns the ids of incomplete images and of locks, with their paths.
    fn unfinished_roots(&self) -> Result<Vec<(ImageId, PathBuf)>, StoreError> {
        let id_of = |name: &str| {
            let id = name.strip_prefix(".new-").or_else(|| name.strip_suffix(".lock"));
            id.and_then(|id| id.parse::<ImageId>().ok())
        };
        let folders = entries(&self.folders.roots())?;
        let found = |entry: &fs::DirEntry| Some((id_of(&entry.file_name().to_string_lossy())?, entry.path()));
        Ok(folders.iter().filter_map(found).collect())
    }

    /// Returns interrupted downloads and content that is not wanted, while the whole store is locked.
    fn unreferenced(&self, wanted: &BTreeSet<Digest>) -> Result<Vec<PathBuf>, StoreError> {
        let mut found = Vec::new();
        for folder in [self.folders.partial(), self.folders.names()] {
            let paths = entries(&folder)?.into_iter().map(|entry| entry.path());
            // Nobody holds these while the whole store is locked.
            found.extend(paths.filter(|path| path.extension().is_none_or(|ending| ending != "json")));
        }
        for algorithm in entries(&self.folders.blobs())? {
            for entry in entries(&algorithm.path())? {
                let name = format!("{}:{}", algorithm.file_name().display(), entry.file_name().display());
                if !name.parse::<Digest>().is_ok_and(|digest| wanted.contains(&digest)) {
                    found.push(entry.path());
                }
            }
        }
        Ok(found)
    }

    /// Returns the content of images.
    fn wanted_blobs(&self, how: Prune, images: &[Listed]) -> BTreeSet<Digest> {
        let mut wanted = BTreeSet::new();
        for image in images {
            let Some(manifest) = &image.manifest else { continue };
            let blobs = self.blobs_of(manifest);
            let layers = if how.layers && image.unpacked { 2 } else { usize::MAX };
            wanted.extend(blobs.into_iter().take(layers));
        }
        wanted
    }

    /// Returns a manifest and the content that it refers to: itself, the configuration, the layers.
    fn blobs_of(&self, manifest: &Digest) -> Vec<Digest> {
        let mut blobs = vec![manifest.clone()];
        if let Ok(Some(text)) = self.read_blob(manifest, MANIFEST_LIMIT.max(CONFIG_LIMIT))
            && let Ok(Document::Image(image)) = parse_document(&text)
        {
            blobs.push(image.config.digest);
            blobs.extend(image.layers.into_iter().map(|layer| layer.digest));
            let mut seen = BTreeSet::new();
            blobs.retain(|blob| seen.insert(blob.clone()));
        }
        blobs
    }
}

fn size_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

/// Returns the bytes on disk. A file with several names counts by its share for each.
fn disk_usage(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    let own = meta.blocks() * 512 / meta.nlink().max(1);
    if !meta.is_dir() {
        return own;
    }
    let inner = fs::read_dir(path)
        .map_or(0, |entries| entries.flatten().map(|entry| disk_usage(&entry.path())).sum());
    meta.blocks() * 512 + inner
}
