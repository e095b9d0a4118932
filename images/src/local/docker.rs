//! What `docker save` and `podman save` write
//! (<https://github.com/moby/docker-image-spec/blob/main/v1.2.md#combined-image-json--filesystem-changeset-format>).

use std::sync::Arc;

use serde::Deserialize;

use super::files::{FileLayers, Files};
use crate::digest::Digest;
use crate::error::ImageError;
use crate::image::{Image, Layers};
use crate::manifest::{CONFIG_LIMIT, Descriptor, MANIFEST_LIMIT, Manifest};
use crate::name::ImageName;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Item {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

pub(super) fn open(files: Files, reference: Option<&str>) -> Result<(Image, Arc<dyn Layers>), ImageError> {
    let text = files.read("manifest.json", MANIFEST_LIMIT)?;
    let text = text.ok_or_else(|| files.wrong("its manifest.json is missing or too large"))?;
    let items: Vec<Item> = serde_json::from_slice(&text)
        .map_err(|error| files.wrong(format!("its manifest.json is malformed: {error}")))?;
    let item = select(items, reference, &files)?;
    let config = files.read(&item.config, CONFIG_LIMIT)?;
    let config = config.ok_or_else(|| files.wrong(format!("{} is missing or too large", item.config)))?;
    let mut layers = Vec::new();
    for name in &item.layers {
        let (_, size) = files.open(name)?.ok_or_else(|| files.wrong(format!("{name} is missing")))?;
        // Layers have no digests of their own: the configuration has those of the uncompressed layers.
        layers.push(descriptor(Digest::of(name.as_bytes()), size));
    }
    let manifest = Manifest { config: descriptor(Digest::of(&config), config.len() as u64), layers };
    let image = Image::new(None, &manifest, &config).map_err(|source| files.manifest_error(source))?;
    Ok((image, Arc::new(FileLayers { files, names: item.layers })))
}

fn descriptor(digest: Digest, size: u64) -> Descriptor {
    Descriptor { media_type: String::new(), digest, size, platform: None, annotations: Default::default() }
}

/// Returns the image of a full or short name; the only one when none is named.
fn select(mut items: Vec<Item>, reference: Option<&str>, files: &Files) -> Result<Item, ImageError> {
    let full =
        |name: &str| name.parse::<ImageName>().map_or_else(|_| name.to_string(), |name| name.to_string());
    let names = |item: &Item| item.repo_tags.iter().flatten().cloned().collect::<Vec<_>>();
    let place = match reference {
        None if items.len() == 1 => Some(0),
        None => None,
        Some(wanted) => {
            items.iter().position(|item| names(item).iter().any(|name| full(name) == full(wanted)))
        }
    };
    match place {
        Some(place) => Ok(items.swap_remove(place)),
        None => {
            let offered: Vec<_> = items.iter().flat_map(names).collect();
            Err(files.which(reference, &offered))
        }
    }
}
