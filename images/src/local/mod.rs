//! Images in files and folders of this machine: OCI layouts, also within a tar file, and what `docker save` writes.
//!
//! Nothing is copied: layers are unpacked from where they are, once; at the next start the id of the image is known.

mod docker;
mod files;
mod layout;

use std::path::Path;
use std::sync::Arc;

use crate::error::ImageError;
use crate::image::{Image, Layers};
use crate::name::ImageName;
use crate::store::StoreError;

/// Reads the documents of an image and finds its layers. Blocks.
pub(crate) fn open(name: &ImageName) -> Result<(Image, Arc<dyn Layers>), ImageError> {
    match name {
        ImageName::OciFolder { path, tag } => {
            check_is_folder(path)?;
            layout::open(files::Files::folder(path, "oci"), tag.as_deref())
        }
        ImageName::OciArchive { path, tag } => {
            layout::open(files::Files::archive(path, "oci-archive")?, tag.as_deref())
        }
        ImageName::DockerArchive { path, reference } => {
            docker::open(files::Files::archive(path, "docker-archive")?, reference.as_deref())
        }
        ImageName::Registry(_) | ImageName::Engine(..) | ImageName::Folder(_) | ImageName::Host => {
            Err(ImageError::NotStorable(name.to_string()))
        }
    }
}

fn check_is_folder(path: &Path) -> Result<(), ImageError> {
    let meta = std::fs::metadata(path).map_err(StoreError::io("read", path))?;
    if meta.is_dir() {
        return Ok(());
    }
    let why = "it is a file; use `oci-archive:` for a layout in a tar file".into();
    Err(ImageError::Form { path: path.into(), form: "oci", why })
}

#[cfg(test)]
mod tests;
