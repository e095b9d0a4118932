//! Why an image is not to be had.

use std::io;
use std::path::{Path, PathBuf};

use crate::manifest::ManifestError;
use crate::pull::PullError;
use crate::store::StoreError;
use crate::unpack::UnpackError;

/// Why an image is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No registry gave it.
    #[error(transparent)]
    Pull(#[from] PullError),
    /// The store could not keep it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A document of the image is of no use.
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
    /// The file or folder is not of the form that was named.
    #[error("'{path}' is no image of the form `{form}:`: {why}")]
    Form {
        /// Which file or folder.
        path: PathBuf,
        /// The transport.
        form: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The layout or archive has other images.
    #[error("'{path}' has {}", match wanted {
        Some(wanted) => format!("no image '{wanted}'; it has {offered}"),
        None => format!("more than one image; name one of them: {offered}"),
    })]
    Which {
        /// Which file or folder.
        path: PathBuf,
        /// The tag that was asked for.
        wanted: Option<String>,
        /// What there is.
        offered: String,
    },
    /// The store does not have it, and nothing else was to be tried.
    #[error("image '{0}' is not in the store")]
    NotStored(String),
    /// A name of something that the store has no use for.
    #[error("`{0}` is nothing that is fetched: it is used as it is")]
    NotFetched(String),
}

impl ImageError {
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Read { path, source }
    }

    /// What to do about it: a command or one sentence.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) if error.is_out_of_space() => {
                Some("make room, for example with `codebridge image prune --all`".into())
            }
            Self::Store(StoreError::InUse(_) | StoreError::Damaged(_)) => {
                Some("end the bridges that use it (`codebridge ps` lists their sandboxes)".into())
            }
            Self::Store(StoreError::Unknown(_)) => Some("`codebridge image ls` lists them".into()),
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
