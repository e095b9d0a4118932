//! Where root filesystems come from for runtimes that cannot fetch images.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// Gives root filesystems to runtimes that cannot fetch images.
pub trait RootProvider: Send + Sync {
    /// The unpacked image; the refusal is [`Refusal::ImageMissing`] when it is not to be had.
    fn root(&self, reference: &str) -> impl Future<Output = Result<ProvidedRoot, Refusal>> + Send;

    /// What the reference stands for now, as far as it is known without asking anybody who takes time. `remembered` is the
    /// folder that it stood for earlier.
    fn known_root(&self, reference: &str, remembered: &Path) -> impl Future<Output = KnownRoot> + Send;

    /// Something slow has begun, in a line for whoever waits.
    fn announce(&self, line: &str);
}

/// What is known of an image without asking anybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownRoot {
    /// It is here.
    Here(ProvidedRoot),
    /// Only [`RootProvider::root`] can tell; what it was earlier is as good as anything.
    Unsure,
    /// What it was earlier is not what it is now.
    Gone,
}

/// An unpacked image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvidedRoot {
    /// The folder that holds it.
    pub directory: PathBuf,
    /// The environment that the image sets.
    pub env: Vec<(String, String)>,
}
