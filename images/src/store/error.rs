//! Why the store could not do something.

use std::io;
use std::path::{Path, PathBuf};

use crate::digest::Digest;
use crate::unpack::{UnpackError, is_out_of_space};

/// Why the store could not give, keep or remove an image.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An operation on a file failed.
    #[error("failed to {action} '{path}': {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A layer cannot be unpacked.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// An id that is no plain hexadecimal number would name a path.
    #[error("'{0}' is no image id")]
    Id(String),
    /// Content is not what its digest promises.
    #[error("content has digest {actual} instead of {expected}")]
    WrongDigest {
        /// As promised.
        expected: Digest,
        /// As it came.
        actual: Digest,
    },
    /// Content has another size than it should.
    #[error("content {digest} has {actual} bytes instead of {expected}")]
    WrongSize {
        /// Which content.
        digest: Digest,
        /// As promised.
        expected: u64,
        /// As it came; where it came without end, as far as it was read.
        actual: u64,
    },
    /// Running bridges use it.
    #[error("image {0} is in use")]
    InUse(String),
    /// Nothing in the store has this name.
    #[error("there is no image '{0}' in the store")]
    Unknown(String),
    /// Several images have this beginning of an id.
    #[error("'{0}' is the beginning of more than one image's id")]
    NotUnique(String),
    /// The unpacked image was changed, and cannot be unpacked anew under those who use it.
    #[error("image {0} was changed since it was unpacked, and running bridges use it")]
    Damaged(String),
}

impl StoreError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// Whether the file system has no room left.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_out_of_space(source),
            Self::Unpack(error) => error.is_out_of_space(),
            _ => false,
        }
    }
}
