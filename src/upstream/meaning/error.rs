//! Why a model cannot be used.

use std::path::PathBuf;

/// Why a model cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("this codebridge was built without support for search models")]
    NotBuilt,
    #[error("could not read {}: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("{} is not a sentence encoder: {why}", path.display())]
    Invalid { path: PathBuf, why: String },
    #[error("the model failed: {0}")]
    Failed(String),
    #[error("the thread of the model has ended")]
    Ended,
}

impl ModelError {
    /// Returns what the user can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotBuilt => {
                "build it from source with its default features: `cargo install --path .` in a checkout"
            }
            Self::Unreadable { .. } | Self::Invalid { .. } | Self::Failed(_) | Self::Ended => {
                "set MCP_BRIDGE_SEARCH_MODEL to a folder with model.onnx and tokenizer.json; `codebridge search-model fetch` downloads one"
            }
        }
    }
}
