//! Why an image is unavailable, from whatever source.

use codebridge_images::{EngineKind, ImageError, StoreError};
use codebridge_runtimes::StateError;
use codebridge_runtimes::exec::ExecError;

/// The reason why no source provides an image.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The state folder, which records the container of an export, is unusable.
    #[error(transparent)]
    State(#[from] StateError),
    #[error("the export of image '{0}' is incomplete")]
    Truncated(String),
    #[error("{} has no image '{reference}', or is not installed", engine.program())]
    NotInEngine { engine: EngineKind, reference: String },
}

impl SourceError {
    /// Returns what to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Image(error) => error.hint(),
            Self::NotInEngine { engine, .. } => {
                Some(format!("run `{} image ls` to list its images", engine.program()))
            }
            _ => None,
        }
    }
}

impl From<StoreError> for SourceError {
    fn from(error: StoreError) -> Self {
        Self::Image(error.into())
    }
}
