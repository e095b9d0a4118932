//! Images out of the stores of podman and docker.

use std::sync::Arc;

use codebridge_images::{
    Adoption, EngineKind, ImageError, ImageResolver, Progress, Root, RunConfig, StoreError,
};
use codebridge_runtimes::exec::ExecError;
use codebridge_runtimes::{
    Instance, LocalImage, Owner, RuntimeKind, StateDir, StateError, find_local_image, reclaim_instance,
};
use tokio_util::io::SyncIoBridge;

/// Why an engine's image is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum EngineImageError {
    /// The engine did not write it.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The store could not keep it.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// There is no place for the container that it goes through.
    #[error(transparent)]
    State(#[from] StateError),
    /// The engine ended in the middle, for reasons of its own.
    #[error("the export of the image is not whole")]
    Cut,
}

impl From<StoreError> for EngineImageError {
    fn from(error: StoreError) -> Self {
        Self::Image(error.into())
    }
}

/// The image of an engine of this machine, unpacked once; None when none of them has it.
///
/// The instance is the one whose name the exporting container carries.
///
/// # Errors
/// It is there, and cannot be taken out or kept.
pub async fn from_engine(
    images: &ImageResolver,
    engine: Option<EngineKind>,
    reference: &str,
    instance: &Arc<Instance>,
    progress: &Arc<dyn Progress>,
) -> Result<Option<Root>, EngineImageError> {
    let engine = engine.map(|engine| match engine {
        EngineKind::Podman => RuntimeKind::Podman,
        EngineKind::Docker => RuntimeKind::Docker,
    });
    let Some(image) = find_local_image(reference, engine).await else { return Ok(None) };
    let root = match images.adopt(&image.id.parse()?, progress.as_ref()).await? {
        Adoption::Ready(root) => root,
        Adoption::Wanted(wanted) => {
            tracing::info!(image = image.id, "unpacking, once");
            unpack(wanted, &image, instance, progress).await?
        }
    };
    // Listed under it, and not taken for something that nobody uses.
    if let Ok(name) = image.name().parse()
        && let Err(error) = images.remember(&name, &root)
    {
        tracing::debug!(%error, "an image out of an engine has no name");
    }
    Ok(Some(root))
}

/// The same for a program that has no sandboxes, and so no instance yet.
///
/// # Errors
/// As [`from_engine`], or the state folder cannot be used.
pub async fn from_engine_now(
    images: &ImageResolver,
    engine: EngineKind,
    reference: &str,
    progress: &Arc<dyn Progress>,
) -> Result<Option<Root>, EngineImageError> {
    let owner = Owner::this_process(format!("image{}", std::process::id()));
    let instance = Arc::new(StateDir::usual().create_instance(&owner)?);
    let root = from_engine(images, Some(engine), reference, &instance, progress).await;
    for error in reclaim_instance(&instance).await.failed {
        tracing::warn!(%error, "the container of an export was left behind");
    }
    root
}

async fn unpack(
    wanted: codebridge_images::Wanted,
    image: &LocalImage,
    instance: &Arc<Instance>,
    progress: &Arc<dyn Progress>,
) -> Result<Root, EngineImageError> {
    let mut export = image.export(instance).await?;
    let Some(archive) = export.archive.take() else { return Err(EngineImageError::Cut) };
    let run = RunConfig { env: image.env.clone(), ..RunConfig::default() };
    let unpacked = wanted.unpack(run, SyncIoBridge::new(archive), progress).await;
    // Whether the archive came whole is for the unpacker to see: it ends with a mark.
    export.finish().await;
    Ok(unpacked?)
}
