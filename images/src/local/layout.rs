//! The OCI image layout (<https://github.com/opencontainers/image-spec/blob/main/image-layout.md>).

use std::io::Read;
use std::sync::Arc;

use super::files::Files;
use crate::digest::Digest;
use crate::error::ImageError;
use crate::image::{Image, Layers};
use crate::manifest::{CONFIG_LIMIT, Descriptor, Document, MANIFEST_LIMIT, choose, parse_document};
use crate::platform::Platform;

/// The annotation with the name of an image in the index of a layout.
const NAME: &str = "org.opencontainers.image.ref.name";
/// Indexes within indexes.
const DEPTH_LIMIT: usize = 4;

struct Layout {
    files: Files,
    form: &'static str,
}

struct LayoutLayers {
    layout: Layout,
    layers: Vec<Digest>,
}

pub(super) fn open(
    files: Files,
    form: &'static str,
    tag: Option<&str>,
) -> Result<(Image, Arc<dyn Layers>), ImageError> {
    let layout = Layout { files, form };
    let index = layout.files.read("index.json", MANIFEST_LIMIT)?;
    let index = index.ok_or_else(|| layout.wrong("its index.json is missing or too large"))?;
    let entry = match parse_document(&index).map_err(|source| layout.manifest_error(source))? {
        Document::Index(entries) => layout.select(entries, tag)?,
        Document::Image(_) => return Err(layout.wrong("its index.json is not an index")),
    };
    let mut digest = entry.digest;
    for _ in 0..DEPTH_LIMIT {
        let text = layout.blob(&digest, MANIFEST_LIMIT)?;
        match parse_document(&text).map_err(|source| layout.manifest_error(source))? {
            Document::Index(entries) => {
                let chosen = choose(&entries, &Platform::here());
                digest = chosen.map_err(|source| layout.manifest_error(source))?.digest;
            }
            Document::Image(manifest) => {
                let config = layout.blob(&manifest.config.digest, CONFIG_LIMIT)?;
                let image = Image::new(Some(digest), &manifest, &config);
                let image = image.map_err(|source| layout.manifest_error(source))?;
                let layers = manifest.layers.into_iter().map(|layer| layer.digest).collect();
                return Ok((image, Arc::new(LayoutLayers { layout, layers })));
            }
        }
    }
    Err(layout.wrong("its indexes only lead to other indexes"))
}

impl Layout {
    fn wrong(&self, why: impl Into<String>) -> ImageError {
        ImageError::Form { path: self.files.path.clone(), form: self.form, why: why.into() }
    }

    fn manifest_error(&self, source: crate::ManifestError) -> ImageError {
        ImageError::Manifest { at: format!("{}:{}", self.form, self.files.path.display()), source }
    }

    fn name_of(digest: &Digest) -> String {
        format!("blobs/{}/{}", digest.algorithm(), digest.hex())
    }

    /// Returns a verified document.
    fn blob(&self, digest: &Digest, limit: u64) -> Result<Vec<u8>, ImageError> {
        match self.files.read(&Self::name_of(digest), limit)? {
            Some(content) if digest.verifies(&content) => Ok(content),
            Some(_) => Err(self.wrong(format!("content {digest} does not match its digest"))),
            None => Err(self.wrong(format!("{digest} is missing or too large"))),
        }
    }

    /// Returns the named image; the only one when none is named.
    fn select(&self, entries: Vec<Descriptor>, tag: Option<&str>) -> Result<Descriptor, ImageError> {
        let name = |entry: &Descriptor| entry.annotations.get(NAME).cloned();
        let which = |entries: &[Descriptor]| {
            let mut offered: Vec<_> = entries.iter().filter_map(name).collect();
            offered.dedup();
            ImageError::Which {
                path: self.files.path.clone(),
                wanted: tag.map(String::from),
                offered: if offered.is_empty() { "unnamed ones".into() } else { offered.join(", ") },
            }
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
            [] if tag.is_none() => Err(self.wrong("its index is empty")),
            [] => Err(which(&entries)),
            [only] => Ok(only.clone()),
            // One image, built for several platforms, without an index of its own.
            several
                if several
                    .iter()
                    .all(|entry| entry.platform.is_some() && name(entry) == name(&several[0])) =>
            {
                choose(several, &Platform::here()).map_err(|source| self.manifest_error(source))
            }
            _ => Err(which(&entries)),
        }
    }
}

impl Layers for LayoutLayers {
    fn open(&self, layer: usize) -> Result<Box<dyn Read + Send + '_>, ImageError> {
        let digest = &self.layers[layer];
        match self.layout.files.open(&Layout::name_of(digest))? {
            Some((file, _)) => Ok(file),
            None => Err(self.layout.wrong(format!("{digest} is missing"))),
        }
    }
}
