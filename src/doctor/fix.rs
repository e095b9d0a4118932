//! What can be fixed without root and without a question: sandboxes of dead bridges are removed, cached choices of
//! runtimes and engines are deleted, the image is pulled.

use std::fs;
use std::sync::Arc;

use codebridge_images::ImageName;

use crate::housekeeping;
use crate::image_sources::{Watch, image_resolver};
use crate::session::cache_dir;
use crate::settings::Settings;

/// The files in the cache folder that remember how engines answered.
const CACHES: [&str; 2] = ["runtime.json", "shares.json"];

/// Fixes what it can, and returns a line for each thing that it did or could not do.
pub async fn fix(settings: &Settings) -> Vec<String> {
    let mut done = Vec::new();
    let swept = housekeeping::reap(settings).await;
    if !swept.removed.is_empty() {
        let names: Vec<String> = swept.removed.iter().map(ToString::to_string).collect();
        done.push(format!("removed sandboxes of dead bridges: {}", names.join(", ")));
    }
    done.extend(
        swept
            .failed
            .iter()
            .chain(&swept.absent)
            .map(|error| format!("could not remove a sandbox of a dead bridge: {error}")),
    );
    for name in CACHES {
        let Some(path) = cache_dir().map(|dir| dir.join(name)).filter(|path| path.exists()) else { continue };
        done.push(match fs::remove_file(&path) {
            Ok(()) => format!("deleted the cache {}", path.display()),
            Err(error) => format!("could not delete the cache {}: {error}", path.display()),
        });
    }
    done.extend(fetch(settings).await);
    done
}

/// Pulls the image for runtimes that have no store of their own.
async fn fetch(settings: &Settings) -> Option<String> {
    let ImageName::Registry(name) = &settings.image.value else { return None };
    let reference = name.as_typed();
    let images = image_resolver(false);
    let watch: Arc<dyn codebridge_images::Progress> =
        Arc::new(Watch::new(reference, |line| tracing::info!("{line}")));
    if matches!(images.stored(name, &watch).await, Ok(Some(_))) {
        return None;
    }
    Some(match images.pull(name, &watch).await {
        Ok(_) => format!("pulled {reference} for crun and runc"),
        Err(error) => format!("could not pull {reference} for crun and runc: {error}"),
    })
}
