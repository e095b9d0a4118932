//! Images out of the stores of podman and docker.

use std::sync::Arc;

use codebridge_images::{EngineKind, ImageResolver, Import, PendingImport, Progress, Root, RunConfig};
use codebridge_runtimes::{
    Instance, LocalImage, Owner, RuntimeKind, StateDir, find_local_image, reclaim_instance,
};
use tokio_util::io::SyncIoBridge;

use super::error::SourceError;

/// Returns the image of an engine of this machine, unpacked once; None when no engine has it.
///
/// The container of an export carries the instance's name.
///
/// # Errors
/// An engine has the image, but the export fails or the store cannot keep it.
pub(super) async fn from_any_engine(
    resolver: &ImageResolver,
    engine: Option<EngineKind>,
    reference: &str,
    instance: &Instance,
    progress: &Arc<dyn Progress>,
) -> Result<Option<Root>, SourceError> {
    let engine = engine.map(|engine| match engine {
        EngineKind::Podman => RuntimeKind::Podman,
        EngineKind::Docker => RuntimeKind::Docker,
    });
    let Some(image) = find_local_image(reference, engine).await else { return Ok(None) };
    let root = match resolver.import(&image.id.parse()?, progress.as_ref()).await? {
        Import::Ready(root) => root,
        Import::Pending(import) => {
            tracing::info!(image = image.id, "unpacking an image of an engine, once");
            unpack(import, &image, instance, progress).await?
        }
    };
    // With a name it is listed, and not pruned as unused.
    if let Ok(name) = image.name().parse()
        && let Err(error) = resolver.set_name(&name, &root)
    {
        tracing::debug!(%error, "the store has no name for an image of an engine");
    }
    Ok(Some(root))
}

/// Returns the image of this engine, as [`from_any_engine`].
///
/// # Errors
/// The engine does not have the image, the export fails, or the store cannot keep it.
pub(super) async fn from_engine(
    resolver: &ImageResolver,
    engine: EngineKind,
    reference: &str,
    instance: &Instance,
    progress: &Arc<dyn Progress>,
) -> Result<Root, SourceError> {
    let root = from_any_engine(resolver, Some(engine), reference, instance, progress).await?;
    root.ok_or_else(|| SourceError::NotInEngine { engine, reference: reference.into() })
}

/// Returns the image of this engine, for a program that runs no sandboxes and so has no instance.
///
/// # Errors
/// As `from_engine`, or the state folder is unusable.
pub async fn import_from_engine(
    resolver: &ImageResolver,
    engine: EngineKind,
    reference: &str,
    progress: &Arc<dyn Progress>,
) -> Result<Root, SourceError> {
    let owner = Owner::this_process(format!("image{}", std::process::id()));
    let instance = StateDir::usual().create_instance(&owner)?;
    let root = from_engine(resolver, engine, reference, &instance, progress).await;
    for error in reclaim_instance(&instance).await.failed {
        tracing::warn!(%error, "could not remove the container of an export");
    }
    root
}

async fn unpack(
    import: PendingImport,
    image: &LocalImage,
    instance: &Instance,
    progress: &Arc<dyn Progress>,
) -> Result<Root, SourceError> {
    let mut export = image.export(instance).await?;
    let Some(archive) = export.archive.take() else {
        return Err(SourceError::Truncated(image.name()));
    };
    let run = RunConfig { env: image.env.clone(), ..RunConfig::default() };
    let unpacked = import.unpack(run, SyncIoBridge::new(archive), progress).await;
    // The unpacker finds a truncated archive by its missing end mark.
    export.finish().await;
    Ok(unpacked?)
}
