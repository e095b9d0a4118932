//! Why a recipe gives no image.

use std::io;
use std::path::{Path, PathBuf};

use crate::unpack::UnpackError;

/// Why a recipe gives no image.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// There is none of this name.
    #[error("there is no recipe '{name}'; there are {known}, and folders with a recipe.toml (./{name})")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A file of it makes no sense.
    #[error("'{file}': {why}")]
    Malformed {
        /// Which file.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// A file could not be read, written or removed.
    #[error("failed to {what} '{path}': {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A package is damaged.
    #[error("failed to unpack '{package}': {source}")]
    Unpack {
        /// Which package.
        package: String,
        /// Why.
        source: UnpackError,
    },
    /// Nobody waits for it any more.
    #[error("building was given up")]
    Cancelled,
}

impl RecipeError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }
}
