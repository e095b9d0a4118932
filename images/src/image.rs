//! An image whose documents were read, and how its layers become a root.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::digest::Digest;
use crate::error::ImageError;
use crate::manifest::{ImageConfig, Manifest, ManifestError, RunConfig, parse_config};
use crate::platform::Platform;
use crate::progress::{Event, Progress};
use crate::store::{Claim, ImageId, NewRoot, Root, Store};
use crate::unpack::{Limits, UnpackError, Unpacker};

/// An image, ready to be unpacked.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) id: ImageId,
    pub(crate) manifest: Option<Digest>,
    pub(crate) run: RunConfig,
    /// The digest of each unpacked layer; without one, only its end mark says that an archive is whole.
    layers: Vec<Option<Digest>>,
    limits: Limits,
}

impl Image {
    /// Returns the image of a configuration, whose content was checked against its digest.
    pub(crate) fn new(
        manifest_digest: Option<Digest>,
        manifest: &Manifest,
        config: &[u8],
    ) -> Result<Self, ManifestError> {
        let ImageConfig { run, diff_ids } = parse_config(config, &Platform::here())?;
        if diff_ids.len() != manifest.layers.len() {
            return Err(ManifestError::LayerCount {
                layers: manifest.layers.len(),
                diff_ids: diff_ids.len(),
            });
        }
        let compressed = manifest.layers.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.size));
        Ok(Self {
            id: ImageId::from(&manifest.config.digest),
            manifest: manifest_digest,
            run,
            layers: diff_ids.into_iter().map(Some).collect(),
            limits: Limits::of_compressed(compressed),
        })
    }

    /// Returns an image of one archive of unknown content.
    pub(crate) fn flat(id: ImageId, run: RunConfig) -> Self {
        Self { id, manifest: None, run, layers: vec![None], limits: Limits::of_unknown() }
    }
}

/// Where the layers of an image come from.
pub(crate) trait Layers: Send + Sync {
    /// Opens a layer, counted from 0; may block until it arrives.
    fn open(&self, layer: usize) -> Result<Box<dyn Read + Send + '_>, ImageError>;
}

/// Sets a flag when it is dropped, so that a thread stops when nobody waits for its work.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the unpacked image, after unpacking it or waiting for another process that does.
pub(crate) async fn ensure_root(
    store: &Store,
    image: &Image,
    layers: Arc<dyn Layers>,
    progress: &Arc<dyn Progress>,
) -> Result<Root, ImageError> {
    match store.claim(&image.id, progress.as_ref()).await? {
        Claim::Ready(root) => Ok(root),
        Claim::Ours(root) => fill_root(*root, image.clone(), layers, Arc::clone(progress)).await,
    }
}

/// Unpacks an image into a root of our own.
pub(crate) async fn fill_root(
    root: NewRoot,
    image: Image,
    layers: Arc<dyn Layers>,
    progress: Arc<dyn Progress>,
) -> Result<Root, ImageError> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let cancel = CancelOnDrop(Arc::clone(&cancelled));
    let work = tokio::task::spawn_blocking(move || {
        let done = unpack(&root, &image, layers.as_ref(), progress.as_ref(), &cancelled)?;
        Ok(root.finish(image.run, image.manifest, done)?)
    });
    let done = work.await;
    drop(cancel);
    done.unwrap_or(Err(ImageError::Store(UnpackError::Cancelled.into())))
}

fn unpack(
    root: &NewRoot,
    image: &Image,
    layers: &dyn Layers,
    progress: &dyn Progress,
    cancelled: &AtomicBool,
) -> Result<crate::unpack::Unpacked, ImageError> {
    let mut unpacker = Unpacker::new(&root.rootfs(), image.limits)?;
    for (index, diff_id) in image.layers.iter().enumerate() {
        let layer = layers.open(index)?;
        progress.event(Event::Unpacking { layer: index + 1, of: image.layers.len() });
        unpacker.apply(layer, diff_id.as_ref(), cancelled)?;
    }
    Ok(unpacker.finish()?)
}
