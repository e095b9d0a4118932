//! Search by meaning: a sentence encoder that the user provides turns texts into vectors, and those of similar meaning are
//! near each other.
//!
//! It finds tools that share no word with a query. Words find names and rare terms better, so both rankings are fused. The
//! model runs in this process; nothing of it is loaded unless `MCP_BRIDGE_SEARCH_MODEL` names one and a search needs it.

#[cfg(feature = "search-model")]
mod encoder;
mod error;
mod fusion;
#[cfg(feature = "search-model")]
mod operators;
mod vector;
#[cfg(not(feature = "search-model"))]
mod without;

#[cfg(feature = "search-model")]
pub use encoder::{Encoder, Model, Priority};
pub use error::ModelError;
pub use fusion::{MOST_BY_MEANING, MOST_BY_WORDS, fuse};
pub use vector::Vector;
#[cfg(not(feature = "search-model"))]
pub use without::{Encoder, Model, Priority};

/// Fails where this program has no encoder, before anything is done for one.
///
/// # Errors
/// It was built without.
pub fn check_built() -> Result<(), ModelError> {
    if cfg!(feature = "search-model") { Ok(()) } else { Err(ModelError::NotBuilt) }
}

/// The files of a model, in its folder.
pub const MODEL: &str = "model.onnx";
pub const TOKENIZER: &str = "tokenizer.json";
