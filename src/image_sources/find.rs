//! Which source an image comes from: the store first, then an engine of this machine, then a registry.

use std::sync::Arc;

use codebridge_images::{ImageName, ImageResolver, Progress, RegistryName, Root};
use codebridge_runtimes::Instance;

use super::engines::{from_any_engine, from_engine};
use super::error::SourceError;

/// Returns the unpacked image of this name, from the first source that has it.
///
/// The container of an export carries the instance's name.
///
/// # Errors
/// No source has the image, or the store cannot keep it.
pub async fn find_root(
    resolver: &ImageResolver,
    name: &ImageName,
    instance: &Instance,
    progress: &Arc<dyn Progress>,
) -> Result<Root, SourceError> {
    match name {
        ImageName::Registry(name) => find_registry_image(resolver, name, instance, progress).await,
        ImageName::Engine(engine, reference) => {
            from_engine(resolver, *engine, reference, instance, progress).await
        }
        local => Ok(resolver.open_local(local, progress).await?),
    }
}

async fn find_registry_image(
    resolver: &ImageResolver,
    name: &RegistryName,
    instance: &Instance,
    progress: &Arc<dyn Progress>,
) -> Result<Root, SourceError> {
    match resolver.stored(name, progress).await {
        Ok(Some(root)) => return Ok(root),
        Ok(None) => {}
        // A pull replaces what is damaged.
        Err(error) => tracing::warn!(image = %name, %error, "the image in the store is unusable"),
    }
    match from_any_engine(resolver, None, name.as_typed(), instance, progress).await {
        Ok(Some(root)) => return Ok(root),
        Ok(None) => {}
        Err(error) => tracing::warn!(image = %name, %error, "an engine has the image but cannot export it"),
    }
    Ok(resolver.pull(name, progress).await?)
}
