//! Unpacked images for runtimes that cannot fetch any: from this user's store, from a local engine's, from a registry.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use codebridge_images::{Compiling, ImageName, ImageResolver, Root};
use codebridge_runtimes::{Instance, KnownRoot, ProvidedRoot, Refusal, RootFs, RootProvider};
use tokio::sync::mpsc;

use super::Progress;
use crate::image_sources::{SourceError, Watch, find_root, image_resolver};

/// The images, and those in use.
#[derive(Debug)]
pub(super) struct Roots {
    images: ImageResolver,
    /// Held as long as this bridge lives: nobody removes an image under a sandbox.
    held: Mutex<HashMap<PathBuf, Root>>,
}

/// The images, for one instance whose name an exporting container carries, and one call that hears of progress.
#[derive(Debug, Clone)]
pub(super) struct Provider {
    roots: Arc<Roots>,
    instance: Arc<Instance>,
    telling: Arc<Telling>,
    /// What could not be had a moment ago, for another runtime.
    missed: Arc<Mutex<HashMap<String, Refusal>>>,
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

impl Roots {
    pub(super) fn usual() -> Self {
        Self { images: image_resolver(false), held: Mutex::default() }
    }

    pub(super) fn provider(self: &Arc<Self>, instance: &Arc<Instance>, telling: &Arc<Telling>) -> Provider {
        let (roots, instance) = (Arc::clone(self), Arc::clone(instance));
        Provider { roots, instance, telling: Arc::clone(telling), missed: Arc::default() }
    }

    /// Makes sure that a root which is one of the store's is whole and stays until this bridge ends.
    pub(super) fn hold(&self, root: &RootFs) -> Result<(), Refusal> {
        let RootFs::Directory(directory) = root else { return Ok(()) };
        if !directory.starts_with(self.images.store().dir()) || self.is_held(directory) {
            return Ok(());
        }
        let missing =
            |message: String| Refusal::ImageMissing { image: directory.display().to_string(), message };
        match self.images.store().root_at(directory) {
            Ok(Some(root)) => {
                self.keep(root);
                Ok(())
            }
            Ok(None) => Err(missing("it was removed from the store, or changed in it".into())),
            Err(error) => Err(missing(error.to_string())),
        }
    }

    /// The right to add compiled modules to a root of the store that lacks them.
    pub(super) fn to_compile(&self, root: &RootFs) -> Option<Compiling> {
        let RootFs::Directory(directory) = root else { return None };
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).get(directory).cloned();
        held?.try_compile().unwrap_or_else(|error| {
            tracing::debug!(%error, "modules are not compiled");
            None
        })
    }

    fn is_held(&self, directory: &Path) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).contains_key(directory)
    }

    fn keep(&self, root: Root) -> ProvidedRoot {
        let env = root.run().env_pairs().map(|(key, value)| (key.into(), value.into())).collect();
        let directory = root.directory().to_path_buf();
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(directory.clone(), root);
        ProvidedRoot { directory, env }
    }
}

impl RootProvider for Provider {
    async fn root(&self, reference: &str) -> Result<ProvidedRoot, Refusal> {
        if let Some(refusal) = self.missed.lock().unwrap_or_else(PoisonError::into_inner).get(reference) {
            return Err(refusal.clone());
        }
        match self.find(reference).await {
            Ok(root) => Ok(self.roots.keep(root)),
            Err(message) => {
                let refusal = Refusal::ImageMissing { image: reference.to_string(), message };
                let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
                missed.insert(reference.to_string(), refusal.clone());
                Err(refusal)
            }
        }
    }

    fn announce(&self, line: &str) {
        self.telling.say(line.into());
    }

    async fn known_root(&self, reference: &str, remembered: &Path) -> KnownRoot {
        let root = match reference.parse() {
            Err(_) => Ok(None),
            Ok(ImageName::Registry(name)) => self.roots.images.stored(&name, &self.watch(reference)).await,
            // An engine would have to be asked.
            Ok(ImageName::Engine(..)) if remembered.starts_with(self.roots.images.store().dir()) => {
                return KnownRoot::Unsure;
            }
            Ok(ImageName::Engine(..)) => Ok(None),
            Ok(local) => self.roots.images.open_local(&local, &self.watch(reference)).await.map(Some),
        };
        match root {
            Ok(Some(root)) => KnownRoot::Here(self.roots.keep(root)),
            // What came out of an engine has no name in the store.
            Ok(None) if self.came_from_engine(remembered) => KnownRoot::Unsure,
            Ok(None) => KnownRoot::Gone,
            Err(error) => {
                tracing::debug!(image = reference, %error, "what was remembered of an image is not used");
                KnownRoot::Gone
            }
        }
    }
}

impl Provider {
    fn came_from_engine(&self, directory: &Path) -> bool {
        let root = self.roots.images.store().root_at(directory);
        root.is_ok_and(|root| root.is_some_and(|root| root.is_exported()))
    }

    fn watch(&self, reference: &str) -> Arc<dyn codebridge_images::Progress> {
        let telling = Arc::clone(&self.telling);
        Arc::new(Watch::new(reference, move |line| {
            tracing::debug!("{line}");
            telling.say(line);
        }))
    }

    async fn find(&self, reference: &str) -> Result<Root, String> {
        let name: ImageName =
            reference.parse().map_err(|error: codebridge_images::NameError| error.to_string())?;
        let root = find_root(&self.roots.images, &name, &self.instance, &self.watch(reference)).await;
        root.map_err(|error| explain(&error))
    }
}

fn explain(error: &SourceError) -> String {
    match error.hint() {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    }
}
