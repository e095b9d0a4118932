//! Unpacked images for runtimes that cannot pull any: from the store of this user, from a local engine, from a registry.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use codebridge_images::{Compiling, EngineKind, ImageName, ImageResolver, Root};
use codebridge_runtimes::{
    AnyDriver, Choice, EngineImage, Instance, ProvidedRoot, Refusal, RootFs, RootLease, RootProvider,
    RuntimeKind, WantedImage, WantedRoot,
};

use tokio::task::JoinHandle;

use super::start_progress::StartProgress;
use crate::image_sources::{Watch, find_root};
use crate::session::recording::MadeOf;
use crate::settings::Setting;

/// An image as the user named it, for detection to pass on.
#[derive(Debug, Clone)]
pub(in crate::session) struct Image(ImageName);

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
            (ImageName::Engine(..), RuntimeKind::Kubernetes) => None,
            (ImageName::Engine(EngineKind::Podman, reference), RuntimeKind::Podman)
            | (ImageName::Engine(EngineKind::Docker, reference), RuntimeKind::Docker) => {
                Some(EngineImage::Stored(reference))
            }
            _ => None,
        }
    }
}

/// Returns the root filesystems to try, best first. The default image falls back to the Python of this machine.
pub(super) fn wanted_roots(image: &Setting<ImageName>) -> Vec<WantedRoot<Image>> {
    let wanted = match &image.value {
        ImageName::Host => WantedRoot::Host,
        ImageName::Folder(path) => WantedRoot::Directory(path.clone()),
        name => WantedRoot::Image(Image(name.clone())),
    };
    let fallback = (!image.is_explicit()).then_some(WantedRoot::Host);
    [wanted].into_iter().chain(fallback).collect()
}

/// A root of the store that is in use.
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
        tracing::debug!(%error, "could not compile the modules of the image");
        None
    })
}

/// Provides images to one start of a sandbox. Containers that export an image carry the name of the instance.
#[derive(Debug, Clone)]
pub(super) struct Provider {
    images: Arc<ImageResolver>,
    instance: Arc<Instance>,
    progress: Arc<StartProgress>,
    /// Images that were unavailable to another runtime a moment ago.
    missed: Arc<Mutex<HashMap<ImageName, Refusal>>>,
}

impl RootProvider for Provider {
    type Image = Image;

    async fn root(&self, Image(name): &Image) -> Result<ProvidedRoot, Refusal> {
        if let Some(refusal) = self.missed.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Err(refusal.clone());
        }
        let found = find_root(&self.images, name, &self.instance, &self.watch(name)).await;
        found.map(provided).map_err(|error| {
            let image = Image(name.clone()).to_string();
            let (message, hint) = (error.to_string(), error.hint());
            let refusal = Refusal::ImageMissing { image, message, hint };
            let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
            missed.insert(name.clone(), refusal.clone());
            refusal
        })
    }

    fn announce(&self, line: &str) {
        self.progress.report(line.into());
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
                tracing::debug!(%image, %error, "could not use the remembered image");
                None
            }
        }
    }
}

impl Provider {
    pub(super) fn new(
        images: &Arc<ImageResolver>,
        instance: &Arc<Instance>,
        progress: &Arc<StartProgress>,
    ) -> Self {
        let (images, instance) = (Arc::clone(images), Arc::clone(instance));
        Self { images, instance, progress: Arc::clone(progress), missed: Arc::default() }
    }

    /// Returns the root of this id when it was exported from an engine: such an image has no name of its own in the store.
    fn exported(&self, id: &str) -> Option<Root> {
        let root = self.images.store().root(&id.parse().ok()?);
        let root = root.inspect_err(|error| tracing::debug!(%error, "could not use the remembered image"));
        root.ok().flatten().filter(Root::is_exported)
    }

    fn watch(&self, name: &ImageName) -> Arc<dyn codebridge_images::Progress> {
        let progress = Arc::clone(&self.progress);
        Arc::new(Watch::new(Image(name.clone()).to_string(), move |line| {
            tracing::debug!("{line}");
            progress.report(line);
        }))
    }
}

fn provided(root: Root) -> ProvidedRoot {
    let env = root.run().env_pairs().map(|(key, value)| (key.into(), value.into())).collect();
    ProvidedRoot { lease: Arc::new(StoreLease(root)), env }
}

/// The digest of an image, once its engine has said it.
#[derive(Debug)]
pub(super) struct Digest {
    known: Arc<OnceLock<String>>,
    asking: Option<JoinHandle<()>>,
}

impl Digest {
    /// Returns that of what a sandbox starts from. An engine takes longer to say it than code needs to start, and is asked only
    /// if it is recorded.
    pub(super) fn of(root: &RootFs, driver: &Arc<AnyDriver>, is_recorded: bool) -> Self {
        let known = Arc::<OnceLock<String>>::default();
        if let Some(lease) = root.lease() {
            let _ = known.set(lease.id());
        }
        let image = if let RootFs::Image(reference) = root { Some(reference.clone()) } else { None };
        let Some(reference) = image.filter(|_| is_recorded) else { return Self { known, asking: None } };
        let (driver, answer) = (Arc::clone(driver), Arc::clone(&known));
        let asking = tokio::spawn(async move {
            if let Some(found) = driver.image_digest(&reference).await {
                let _ = answer.set(found);
            }
        });
        Self { known, asking: Some(asking) }
    }

    /// Waits until the engine has said it, or failed to.
    pub(super) async fn asked(&mut self) {
        if let Some(asking) = self.asking.take() {
            let _ = asking.await;
        }
    }

    /// Returns what the audit log says of its sandbox.
    pub(super) fn made_of(&self, choice: &Choice) -> MadeOf {
        let runtime = choice.runtime.to_string().into();
        MadeOf { runtime, image: choice.asked.as_str().into(), digest: Arc::clone(&self.known) }
    }
}
