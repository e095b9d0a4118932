//! Errors of recipes.

use std::io;
use std::path::{Path, PathBuf};

use crate::unpack::UnpackError;

/// The reason why no image was built from a recipe.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    #[error("no recipe '{name}': use {known}, or the path of a folder with a recipe.toml (./{name})")]
    Unknown { name: String, known: String },
    #[error("'{0}' is not the name of a Python package")]
    PackageName(String),
    #[error("'{file}': {why}")]
    Malformed { file: String, why: String },
    #[error("failed to {what} '{path}': {source}")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("failed to unpack '{package}': {source}")]
    Unpack { package: String, source: UnpackError },
    #[error("the build was cancelled")]
    Cancelled,
}

impl RecipeError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }
}
