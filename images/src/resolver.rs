//! From a name to an unpacked image.

use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::ImageError;
use crate::image::{Image, Layers, ensure_root, fill_root};
use crate::local;
use crate::manifest::{CONFIG_LIMIT, Document, MANIFEST_LIMIT, RunConfig, parse_document};
use crate::name::{ImageName, RegistryName};
use crate::progress::{Event, Progress};
use crate::pull::{CredentialHelper, Puller};
use crate::store::{Claim, ImageId, NewRoot, Root, Store, StoreError};

/// Images by name: from the store, from files, from registries.
pub struct ImageResolver {
    store: Store,
    puller: Puller,
}

impl std::fmt::Debug for ImageResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageResolver").field("store", &self.store).finish_non_exhaustive()
    }
}

/// An image of another's store, whose files come as one archive.
pub enum Adoption {
    /// It is unpacked here already.
    Ready(Root),
    /// It is for the caller to bring; others who want it wait.
    Wanted(Wanted),
}

/// The right to unpack an image that somebody else brings.
pub struct Wanted {
    root: Box<NewRoot>,
    id: ImageId,
}

/// The one layer of an archive that can be read once.
struct Once(Mutex<Option<Box<dyn Read + Send>>>);

impl Layers for Once {
    fn open(&self, _: usize) -> Result<Box<dyn Read + Send + '_>, ImageError> {
        let archive = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        archive
            .map(|archive| archive as Box<dyn Read + Send>)
            .ok_or_else(|| ImageError::NotStored("archive".into()))
    }
}

impl ImageResolver {
    /// Images of this store. `plain_http`: registries may be asked without TLS.
    pub fn new(store: Store, helper: Arc<dyn CredentialHelper>, plain_http: bool) -> Self {
        Self { store, puller: Puller::new(helper, plain_http) }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// An image of a registry as it was when it was fetched last; None when it never was.
    ///
    /// # Errors
    /// The store cannot be read, or the image has to be unpacked again and cannot.
    pub async fn stored(
        &self,
        name: &RegistryName,
        progress: &Arc<dyn Progress>,
    ) -> Result<Option<Root>, ImageError> {
        let Some((id, named)) = self.store.named(&name.to_string()) else { return Ok(None) };
        if let Some(root) = self.store.root(&id)? {
            return Ok(Some(root));
        }
        // Removed or damaged: what it was unpacked from may be here.
        let Some(digest) = named.manifest else { return Ok(None) };
        let Some(text) = self.store.read_blob(&digest, MANIFEST_LIMIT)? else { return Ok(None) };
        let Ok(Document::Image(manifest)) = parse_document(&text) else { return Ok(None) };
        let Some(config) = self.store.read_blob(&manifest.config.digest, CONFIG_LIMIT)? else {
            return Ok(None);
        };
        if !manifest.layers.iter().all(|layer| self.store.has_blob(layer)) {
            return Ok(None);
        }
        let at = |source| ImageError::Manifest { at: name.to_string(), source };
        let image = Image::new(Some(digest), &manifest, &config).map_err(at)?;
        let layers = manifest.layers.into_iter().map(|layer| layer.digest).collect();
        let _adding = self.store.adding().await?;
        let layers = Arc::new(Stored { store: self.store.clone(), layers });
        ensure_root(&self.store, &image, layers, progress).await.map(Some)
    }

    /// An image of a registry as it is there now.
    ///
    /// Waits for another who pulls the same name, and takes what that one got.
    ///
    /// # Errors
    /// No registry gives it, or the store cannot keep it.
    pub async fn pull(&self, name: &RegistryName, progress: &Arc<dyn Progress>) -> Result<Root, ImageError> {
        let full = name.to_string();
        let mut waited = false;
        let _alone = self
            .store
            .lock_name(&full, || {
                waited = true;
                progress.event(Event::Waiting);
            })
            .await?;
        if waited && let Some(root) = self.stored(name, progress).await? {
            return Ok(root);
        }
        let _adding = self.store.adding().await?;
        self.puller.pull(&self.store, name, progress).await
    }

    /// An image of a file or folder.
    ///
    /// # Errors
    /// It cannot be read, or the store cannot keep it.
    pub async fn open_local(
        &self,
        name: &ImageName,
        progress: &Arc<dyn Progress>,
    ) -> Result<Root, ImageError> {
        let wanted = name.clone();
        let opening = tokio::task::spawn_blocking(move || local::open(&wanted));
        let (image, layers) =
            opening.await.unwrap_or_else(|_| Err(ImageError::NotFetched(name.to_string())))?;
        let _adding = self.store.adding().await?;
        let root = ensure_root(&self.store, &image, layers, progress).await?;
        self.store.set_name(&name.to_string(), &image.id, image.manifest)?;
        Ok(root)
    }

    /// An image that another's store has under this id: here already, or wanted.
    ///
    /// # Errors
    /// The store cannot be used.
    pub async fn adopt(&self, id: &ImageId, progress: &dyn Progress) -> Result<Adoption, ImageError> {
        Ok(match self.store.claim(id, progress).await? {
            Claim::Ready(root) => Adoption::Ready(root),
            Claim::Ours(root) => Adoption::Wanted(Wanted { root, id: id.clone() }),
        })
    }

    /// From now on a name stands for an image that came by [`ImageResolver::adopt`].
    ///
    /// # Errors
    /// The store cannot be written to.
    pub fn remember(&self, name: &ImageName, root: &Root) -> Result<(), ImageError> {
        Ok(self.store.set_name(&name.to_string(), root.id(), None)?)
    }

    /// Where credentials for registries are looked for, for messages.
    pub fn credential_files(&self) -> Vec<std::path::PathBuf> {
        self.puller.credential_files()
    }
}

impl Wanted {
    /// Unpacks the image's files, which come as one archive.
    ///
    /// # Errors
    /// The archive is not whole or not decent, or the store cannot keep it.
    pub async fn unpack(
        self,
        run: RunConfig,
        archive: impl Read + Send + 'static,
        progress: &Arc<dyn Progress>,
    ) -> Result<Root, ImageError> {
        let layers = Arc::new(Once(Mutex::new(Some(Box::new(archive)))));
        fill_root(*self.root, Image::flat(self.id, run), layers, Arc::clone(progress)).await
    }
}

/// Layers that are all in the store.
struct Stored {
    store: Store,
    layers: Vec<crate::Digest>,
}

impl Layers for Stored {
    fn open(&self, layer: usize) -> Result<Box<dyn Read + Send + '_>, ImageError> {
        let digest = &self.layers[layer];
        match self.store.open_blob(digest)? {
            Some(file) => Ok(Box::new(file)),
            None => Err(StoreError::Unknown(digest.to_string()).into()),
        }
    }
}
