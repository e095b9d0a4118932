//! Why an image is unavailable.

use std::io;
use std::path::{Path, PathBuf};

use crate::manifest::ManifestError;
use crate::registry::PullError;
use crate::store::StoreError;
use crate::unpack::UnpackError;

/// The reason why an image is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No registry provided the image.
    #[error(transparent)]
    Pull(#[from] PullError),
    /// The store could not keep the image.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A document of the image is unusable.
    #[error("{at}: {source}")]
    Manifest {
        /// Where the image is.
        at: String,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// A file could not be read.
    #[error("failed to read '{path}': {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file or folder does not have the form that the name says.
    #[error("'{path}' is not an image of the form `{form}:`: {why}")]
    Form {
        /// The file or folder.
        path: PathBuf,
        /// The transport of the name.
        form: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The layout or archive does not have the image, or has several.
    #[error("'{path}' has {}", match wanted {
        Some(wanted) => format!("no image '{wanted}', only {offered}"),
        None => format!("more than one image: {offered}"),
    })]
    Which {
        /// The file or folder.
        path: PathBuf,
        /// The tag of the name.
        wanted: Option<String>,
        /// The images in it.
        offered: String,
    },
    /// The store does not have the image.
    #[error("image '{0}' is not in the store")]
    NotStored(String),
    /// A folder or this machine itself, which are used as they are.
    #[error("`{0}` is not an image that the store can keep")]
    NotStorable(String),
}

impl ImageError {
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Read { path, source }
    }

    /// Returns what to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) if error.is_out_of_space() => {
                Some("free disk space, for example with `codebridge image prune --all`".into())
            }
            Self::Store(StoreError::InUse(_) | StoreError::Damaged(_)) => {
                Some("close the clients that use it: `codebridge ps` lists their sandboxes".into())
            }
            Self::Store(StoreError::Unknown(_)) => {
                Some("run `codebridge image ls` to list the images".into())
            }
            Self::Which { wanted: None, .. } => {
                Some("append the name of one to the path: `PATH:NAME`".into())
            }
            Self::Pull(error) => error.hint(),
            _ => None,
        }
    }
}

impl From<UnpackError> for ImageError {
    fn from(error: UnpackError) -> Self {
        Self::Store(error.into())
    }
}
