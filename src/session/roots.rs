//! Unpacked images for runtimes that cannot fetch any: from this user's store, filled from a local engine's.

use std::path::PathBuf;
use std::sync::Arc;

use codebridge_images::Store;
use codebridge_runtimes::{Instance, LocalImage, ProvidedRoot, Refusal, RootProvider, find_local_image};
use tokio_util::io::SyncIoBridge;

/// The store's place.
#[derive(Debug, Clone)]
pub(super) struct Roots {
    store: Store,
}

/// The store, for one instance whose name the exporting container carries.
pub(super) struct Provider<'a> {
    store: &'a Store,
    instance: &'a Arc<Instance>,
}

impl Roots {
    /// `/var/lib/codebridge` for root, whose sandboxes' ids must be able to pass through it; else
    /// `$XDG_DATA_HOME/codebridge` or its usual place.
    pub(super) fn usual() -> Self {
        use etcetera::BaseStrategy;
        let dir = if rustix::process::getuid().is_root() {
            PathBuf::from("/var/lib/codebridge")
        } else {
            match etcetera::choose_base_strategy() {
                Ok(base) => base.data_dir().join("codebridge"),
                Err(_) => std::env::temp_dir().join("codebridge-images"),
            }
        };
        Self { store: Store::at(dir) }
    }

    pub(super) fn provider<'a>(&'a self, instance: &'a Arc<Instance>) -> Provider<'a> {
        Provider { store: &self.store, instance }
    }
}

impl RootProvider for Provider<'_> {
    async fn root(&self, reference: &str) -> Result<ProvidedRoot, Refusal> {
        let missing = |message: String| Refusal::ImageMissing { image: reference.to_string(), message };
        let Some(image) = find_local_image(reference).await else {
            return Err(missing("neither podman nor docker has it here".into()));
        };
        let directory = match self.store.get(&image.id) {
            Ok(Some((directory, _))) => directory,
            _ => self.unpack(&image).await.map_err(missing)?,
        };
        let env = image.env.iter().filter_map(|pair| pair.split_once('='));
        Ok(ProvidedRoot { directory, env: env.map(|(key, value)| (key.into(), value.into())).collect() })
    }
}

impl Provider<'_> {
    async fn unpack(&self, image: &LocalImage) -> Result<PathBuf, String> {
        tracing::info!(image = image.id, "unpacking, once");
        let mut export = image.export(self.instance).await.map_err(|error| error.to_string())?;
        let Some(archive) = export.archive.take() else { return Err("the export has no output".into()) };
        let (store, id, env) = (self.store.clone(), image.id.clone(), image.env.clone());
        let unpacking =
            tokio::task::spawn_blocking(move || store.ensure(&id, &env, || Ok(SyncIoBridge::new(archive))));
        let unpacked = unpacking.await;
        // Whether the archive came whole is for the unpacker to see: it ends with a marker.
        export.finish().await;
        match unpacked {
            Ok(Ok(directory)) => Ok(directory),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}
