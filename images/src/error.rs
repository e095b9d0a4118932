//! Why an image is unavailable.

use std::path::PathBuf;

use crate::manifest::ManifestError;
use crate::registry::PullError;
use crate::store::StoreError;
use crate::unpack::UnpackError;

/// The reason why an image is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{at}: {source}")]
    Manifest { at: String, source: ManifestError },
    #[error("'{path}' is not an image of the form `{form}:`: {why}")]
    Form { path: PathBuf, form: &'static str, why: String },
    #[error("'{path}' has {}", match wanted {
        Some(wanted) => format!("no image '{wanted}', only {offered}"),
        None => format!("more than one image: {offered}"),
    })]
    Which { path: PathBuf, wanted: Option<String>, offered: String },
    #[error("image '{0}' is not in the store")]
    NotStored(String),
    /// A folder or this machine itself, which are used as they are.
    #[error("`{0}` is not an image that the store can keep")]
    NotStorable(String),
}

impl ImageError {
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
