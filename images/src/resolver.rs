//! From the name of an image to its root in the store.

use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::ImageError;
use crate::image::{Image, Layers, ensure_root, fill_root};
use crate::local;
use crate::manifest::{CONFIG_LIMIT, Document, MANIFEST_LIMIT, RunConfig, parse_document};
use crate::name::{ImageName, RegistryName};
use crate::progress::{Event, Progress};
use crate::pull::Puller;
use crate::registry::CredentialHelper;
use crate::store::{Claim, ImageId, NewRoot, Root, Store};

/// Finds images by name, in the store, in files and in registries.
pub struct ImageResolver {
    store: Store,
    puller: Puller,
}

impl std::fmt::Debug for ImageResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageResolver").field("store", &self.store).finish_non_exhaustive()
    }
}

/// An image out of another store, whose files come as one archive.
pub enum Import {
    /// The image is unpacked already.
    Ready(Root),
    /// The caller has to provide the archive; others who want the image wait.
    Pending(PendingImport),
}

/// The right to unpack an image whose archive the caller provides.
pub struct PendingImport {
    root: Box<NewRoot>,
    id: ImageId,
}

/// The one layer of an import, which can be read once.
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
    /// Returns a resolver over a store. With `plain_http`, registries may be asked without TLS.
    pub fn new(store: Store, helper: Arc<dyn CredentialHelper>, plain_http: bool) -> Self {
        Self { store, puller: Puller::new(helper, plain_http) }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns an image of a registry as it was when it was pulled last; None when it never was.
    ///
    /// # Errors
    /// The store cannot be read, or the image cannot be unpacked again.
    pub async fn stored(
        &self,
        name: &RegistryName,
        progress: &Arc<dyn Progress>,
    ) -> Result<Option<Root>, ImageError> {
        let Some((id, named)) = self.store.named(&name.to_string()) else { return Ok(None) };
        if let Some(root) = self.store.root(&id)? {
            return Ok(Some(root));
        }
        // Its root was removed or damaged: the layers may still be in the store.
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

    /// Pulls an image as its registry has it now.
    ///
    /// Waits while another process pulls the same name, and returns what that one pulled.
    ///
    /// # Errors
    /// No registry provides the image, or the store cannot keep it.
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

    /// Returns an image of a file or folder.
    ///
    /// # Errors
    /// The file or folder cannot be read, or the store cannot keep the image.
    pub async fn open_local(
        &self,
        name: &ImageName,
        progress: &Arc<dyn Progress>,
    ) -> Result<Root, ImageError> {
        let wanted = name.clone();
        let opening = tokio::task::spawn_blocking(move || local::open(&wanted));
        let (image, layers) =
            opening.await.unwrap_or_else(|_| Err(ImageError::NotStorable(name.to_string())))?;
        let _adding = self.store.adding().await?;
        let root = ensure_root(&self.store, &image, layers, progress).await?;
        self.store.set_name(&name.to_string(), &image.id, image.manifest)?;
        Ok(root)
    }

    /// Returns the image of this id, which another store has, or the right to import it from there.
    ///
    /// # Errors
    /// The store is unusable.
    pub async fn import(&self, id: &ImageId, progress: &dyn Progress) -> Result<Import, ImageError> {
        Ok(match self.store.claim(id, progress).await? {
            Claim::Ready(root) => Import::Ready(root),
            Claim::Ours(root) => Import::Pending(PendingImport { root, id: id.clone() }),
        })
    }

    /// Gives an imported image a name, in place of the image that had it.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn set_name(&self, name: &ImageName, root: &Root) -> Result<(), ImageError> {
        Ok(self.store.set_name(&name.to_string(), root.id(), None)?)
    }
}

impl PendingImport {
    /// Unpacks the archive with the files of the image.
    ///
    /// # Errors
    /// The archive is incomplete or malformed, or the store cannot keep the image.
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
        Ok(Box::new(self.store.open_layer(&self.layers[layer])?))
    }
}
