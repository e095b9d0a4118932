//! The OCI image layout (<https://github.com/opencontainers/image-spec/blob/main/image-layout.md>).

use std::sync::Arc;

use super::files::{FileLayers, Files};
use crate::digest::Digest;
use crate::error::ImageError;
use crate::image::{Image, Layers};
use crate::manifest::{CONFIG_LIMIT, Descriptor, Document, MANIFEST_LIMIT, choose, parse_document};
use crate::platform::Platform;

/// The annotation with the name of an image in the index of a layout.
const NAME: &str = "org.opencontainers.image.ref.name";
/// Indexes within indexes.
const DEPTH_LIMIT: usize = 4;

pub(super) fn open(files: Files, tag: Option<&str>) -> Result<(Image, Arc<dyn Layers>), ImageError> {
    let index = files.read("index.json", MANIFEST_LIMIT)?;
    let index = index.ok_or_else(|| files.wrong("its index.json is missing or too large"))?;
    let entry = match parse_document(&index).map_err(|source| files.manifest_error(source))? {
        Document::Index(entries) => select(&files, entries, tag)?,
        Document::Image(_) => return Err(files.wrong("its index.json is not an index")),
    };
    let mut digest = entry.digest;
    for _ in 0..DEPTH_LIMIT {
        let text = blob(&files, &digest, MANIFEST_LIMIT)?;
        match parse_document(&text).map_err(|source| files.manifest_error(source))? {
            Document::Index(entries) => {
                let chosen = choose(&entries, &Platform::here());
                digest = chosen.map_err(|source| files.manifest_error(source))?.digest;
            }
            Document::Image(manifest) => {
                let config = blob(&files, &manifest.config.digest, CONFIG_LIMIT)?;
                let image = Image::new(Some(digest), &manifest, &config);
                let image = image.map_err(|source| files.manifest_error(source))?;
                let names = manifest.layers.iter().map(|layer| name_of(&layer.digest)).collect();
                return Ok((image, Arc::new(FileLayers { files, names })));
            }
        }
    }
    Err(files.wrong("its indexes only lead to other indexes"))
}

fn name_of(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm(), digest.hex())
}

/// Returns a verified document.
fn blob(files: &Files, digest: &Digest, limit: u64) -> Result<Vec<u8>, ImageError> {
    match files.read(&name_of(digest), limit)? {
        Some(content) if digest.verifies(&content) => Ok(content),
        Some(_) => Err(files.wrong(format!("content {digest} does not match its digest"))),
        None => Err(files.wrong(format!("{digest} is missing or too large"))),
    }
}

/// Returns the named image; the only one when none is named.
fn select(files: &Files, entries: Vec<Descriptor>, tag: Option<&str>) -> Result<Descriptor, ImageError> {
    let name = |entry: &Descriptor| entry.annotations.get(NAME).cloned();
    let which = |entries: &[Descriptor]| {
        let mut offered: Vec<_> = entries.iter().filter_map(name).collect();
        offered.dedup();
        files.which(tag, &offered)
    };
    let wanted: Vec<_> = match tag {
        Some(tag) => {
            // Some write the whole reference where others write the tag.
            let end = format!(":{tag}");
            let fits =
                |entry: &&Descriptor| name(entry).is_some_and(|name| name == tag || name.ends_with(&end));
            entries.iter().filter(fits).cloned().collect()
        }
        None => entries.clone(),
    };
    match wanted.as_slice() {
        [] if tag.is_none() => Err(files.wrong("its index is empty")),
        [] => Err(which(&entries)),
        [only] => Ok(only.clone()),
        // One image, built for several platforms, without an index of its own.
        several
            if several.iter().all(|entry| entry.platform.is_some() && name(entry) == name(&several[0])) =>
        {
            choose(several, &Platform::here()).map_err(|source| files.manifest_error(source))
        }
        _ => Err(which(&entries)),
    }
}
