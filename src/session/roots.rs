//! Unpacked images for runtimes that cannot fetch any: from this user's store, from a local engine's, from a registry.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use codebridge_images::{Compiling, EngineKind, ImageName, ImageResolver, Root};
use codebridge_runtimes::{
    EngineImage, Instance, ProvidedRoot, Refusal, RootFs, RootLease, RootProvider, RuntimeKind, WantedImage,
};
use tokio::sync::mpsc;

use super::Progress;
use crate::image_sources::{SourceError, Watch, find_root};

/// An image as its user named it, for detection to pass on.
#[derive(Debug, Clone)]
pub(super) struct Image(ImageName);

impl Image {
    pub(super) fn named(name: &ImageName) -> Self {
        Self(name.clone())
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ImageName::Registry(name) => f.write_str(name.as_typed()),
            name => name.fmt(f),
        }
    }
}

impl WantedImage for Image {
    fn in_engine(&self, engine: RuntimeKind) -> Option<EngineImage<'_>> {
        match (&self.0, engine) {
            (ImageName::Registry(name), _) => Some(EngineImage::Pullable(name.as_typed())),
            (ImageName::Engine(EngineKind::Podman, reference), RuntimeKind::Podman)
            | (ImageName::Engine(EngineKind::Docker, reference), RuntimeKind::Docker) => {
                Some(EngineImage::Stored(reference))
            }
            _ => None,
        }
    }
}

/// A root of the store in use.
#[derive(Debug)]
struct StoreLease(Root);

impl RootLease for StoreLease {
    fn path(&self) -> &Path {
        self.0.directory()
    }

    fn id(&self) -> String {
        self.0.id().to_string()
    }
}

/// Returns the right to add compiled modules to a root of the store that lacks them.
pub(super) fn to_compile(root: &RootFs) -> Option<Compiling> {
    let lease: &dyn Any = &**root.lease()?;
    let StoreLease(root) = lease.downcast_ref()?;
    root.try_compile().unwrap_or_else(|error| {
        tracing::debug!(%error, "the modules of the image are not compiled");
        None
    })
}

/// The images, for one instance whose name an exporting container carries, and one call that hears of progress.
#[derive(Debug, Clone)]
pub(super) struct Provider {
    images: Arc<ImageResolver>,
    instance: Arc<Instance>,
    telling: Arc<Telling>,
    /// What could not be had a moment ago, for another runtime.
    missed: Arc<Mutex<HashMap<ImageName, Refusal>>>,
}

/// Tells a call what its start is at.
#[derive(Debug)]
pub(super) struct Telling {
    progress: mpsc::Sender<Progress>,
    told: AtomicBool,
}

impl Telling {
    pub(super) fn new(progress: mpsc::Sender<Progress>) -> Arc<Self> {
        Arc::new(Self { progress, told: AtomicBool::new(false) })
    }

    pub(super) fn say(&self, line: String) {
        self.told.store(true, Ordering::Relaxed);
        // Who does not read fast enough misses a line.
        let _ = self.progress.try_send(Progress::Preparing(line));
    }

    /// Says something when nothing was said before.
    pub(super) fn say_first(&self, line: String) {
        if !self.told.load(Ordering::Relaxed) {
            self.say(line);
        }
    }
}

impl RootProvider for Provider {
    type Image = Image;

    async fn root(&self, Image(name): &Image) -> Result<ProvidedRoot, Refusal> {
        if let Some(refusal) = self.missed.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Err(refusal.clone());
        }
        let found = find_root(&self.images, name, &self.instance, &self.watch(name)).await;
        found.map(provided).map_err(|error| {
            let image = Image::named(name).to_string();
            let refusal = Refusal::ImageMissing { image, message: explain(&error) };
            let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
            missed.insert(name.clone(), refusal.clone());
            refusal
        })
    }

    fn announce(&self, line: &str) {
        self.telling.say(line.into());
    }

    async fn known_root(&self, image: &Image, remembered: &str) -> Option<ProvidedRoot> {
        let root = match &image.0 {
            ImageName::Registry(name) => self.images.stored(name, &self.watch(&image.0)).await,
            // An engine would have to be asked.
            ImageName::Engine(..) => Ok(None),
            local => self.images.open_local(local, &self.watch(local)).await.map(Some),
        };
        match root {
            Ok(Some(root)) => Some(provided(root)),
            Ok(None) => self.exported(remembered).map(provided),
            Err(error) => {
                tracing::debug!(%image, %error, "the remembered image is not used");
                None
            }
        }
    }
}

impl Provider {
    pub(super) fn new(images: &Arc<ImageResolver>, instance: &Arc<Instance>, telling: &Arc<Telling>) -> Self {
        let (images, instance) = (Arc::clone(images), Arc::clone(instance));
        Self { images, instance, telling: Arc::clone(telling), missed: Arc::default() }
    }

    /// Returns the root of this id when it was exported from an engine: such an image has no name of its own in the store.
    fn exported(&self, id: &str) -> Option<Root> {
        let root = self.images.store().root(&id.parse().ok()?);
        let root = root.inspect_err(|error| tracing::debug!(%error, "the remembered image is not used"));
        root.ok().flatten().filter(Root::is_exported)
    }

    fn watch(&self, name: &ImageName) -> Arc<dyn codebridge_images::Progress> {
        let telling = Arc::clone(&self.telling);
        Arc::new(Watch::new(Image::named(name).to_string(), move |line| {
            tracing::debug!("{line}");
            telling.say(line);
        }))
    }
}

fn provided(root: Root) -> ProvidedRoot {
    let env = root.run().env_pairs().map(|(key, value)| (key.into(), value.into())).collect();
    ProvidedRoot { lease: Arc::new(StoreLease(root)), env }
}

fn explain(error: &SourceError) -> String {
    match error.hint() {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    }
}
