//! What can be mended without root and without a question: what dead bridges left is removed, what is remembered of
//! runtimes and engines is forgotten, the image is fetched.

use std::fs;
use std::sync::Arc;

use codebridge_images::ImageName;

use crate::housekeeping;
use crate::image_sources::{Watch, image_resolver};
use crate::session::cache_dir;
use crate::settings::{ImageChoice, Settings};

/// Files in the cache folder that hold answers of earlier days.
const REMEMBERED: [&str; 2] = ["runtime.json", "shares.json"];

/// Does it; a line for each thing that was done or could not be.
pub async fn fix(settings: &Settings) -> Vec<String> {
    let mut done = Vec::new();
    let swept = housekeeping::reap(settings).await;
    if !swept.removed.is_empty() {
        let names: Vec<String> = swept.removed.iter().map(ToString::to_string).collect();
        done.push(format!("removed what dead bridges had left: {}", names.join(", ")));
    }
    done.extend(
        swept
            .failed
            .iter()
            .chain(&swept.absent)
            .map(|error| format!("could not remove what a dead bridge left: {error}")),
    );
    for name in REMEMBERED {
        let Some(path) = cache_dir().map(|dir| dir.join(name)).filter(|path| path.exists()) else { continue };
        done.push(match fs::remove_file(&path) {
            Ok(()) => format!("forgot what was remembered in {}", path.display()),
            Err(error) => format!("could not remove {}: {error}", path.display()),
        });
    }
    done.extend(fetch(settings).await);
    done
}

/// The image for runtimes that have no store of their own.
async fn fetch(settings: &Settings) -> Option<String> {
    let (ImageChoice::Unset(reference) | ImageChoice::Reference(reference)) = &settings.image.value else {
        return None;
    };
    let Ok(ImageName::Registry(name)) = reference.parse() else { return None };
    let images = image_resolver(false);
    let watch: Arc<dyn codebridge_images::Progress> =
        Arc::new(Watch::new(reference.clone(), |line| tracing::info!("{line}")));
    if matches!(images.stored(&name, &watch).await, Ok(Some(_))) {
        return None;
    }
    Some(match images.pull(&name, &watch).await {
        Ok(_) => format!("fetched {reference} for crun and runc"),
        Err(error) => format!("could not fetch {reference} for crun and runc: {error}"),
    })
}
