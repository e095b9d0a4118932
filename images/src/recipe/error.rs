//! Errors of recipes.

use std::io;
use std::path::{Path, PathBuf};

use crate::unpack::UnpackError;

/// The reason why no image was built from a recipe.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// There is no recipe of this name.
    #[error("no recipe '{name}': use {known}, or the path of a folder with a recipe.toml (./{name})")]
    Unknown {
        name: String,
        /// The built-in recipes.
        known: String,
    },
    /// A file of the recipe is invalid.
    #[error("'{file}': {why}")]
    Malformed { file: String, why: String },
    /// A file could not be read, written or removed.
    #[error("failed to {what} '{path}': {source}")]
    Io {
        /// The operation.
        what: &'static str,
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A package is damaged.
    #[error("failed to unpack '{package}': {source}")]
    Unpack { package: String, source: UnpackError },
    /// The build was cancelled.
    #[error("the build was cancelled")]
    Cancelled,
}

impl RecipeError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }
}
