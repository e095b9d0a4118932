//! Errors of the store.

use std::io;
use std::path::{Path, PathBuf};

use crate::digest::Digest;
use crate::unpack::{UnpackError, is_out_of_space};

/// The reason why the store could not provide, keep or remove an image.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("failed to {action} '{path}': {source}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// An id that is not a hexadecimal number; it could name another path.
    #[error("'{0}' is not an image id")]
    Id(String),
    #[error("content has digest {actual} instead of {expected}")]
    WrongDigest { expected: Digest, actual: Digest },
    #[error("content {digest} has {actual} bytes instead of {expected}")]
    WrongSize { digest: Digest, expected: u64, actual: u64 },
    #[error("image {0} is in use")]
    InUse(String),
    #[error("no image '{0}' in the store")]
    Unknown(String),
    #[error("more than one image id starts with '{0}'")]
    NotUnique(String),
    /// The unpacked image was changed, and cannot be replaced while bridges use it.
    #[error("image {0} was changed since it was unpacked, and cannot be unpacked again while bridges use it")]
    Damaged(String),
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// Returns whether the file system has no space left.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_out_of_space(source),
            Self::Unpack(error) => error.is_out_of_space(),
            _ => false,
        }
    }
}
