//! The root filesystem that the user asked for, and who provides it to runtimes that cannot fetch images.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::refusal::Refusal;
use crate::runtime::RuntimeKind;
use crate::spec::RootLease;

/// An image as its user named it. Detection only passes the name on: the [`RootProvider`] understands it.
pub trait WantedImage: Clone + fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// Returns how an engine of this kind gets the image by itself; None when the image has to be unpacked first.
    fn in_engine(&self, engine: RuntimeKind) -> Option<EngineImage<'_>>;
}

/// An image that an engine can start by itself, by its reference there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineImage<'a> {
    /// The engine pulls the image when it does not have it.
    Pullable(&'a str),
    /// The image is in the engine's own store, or nowhere.
    Stored(&'a str),
}

/// The root filesystem that the user asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedRoot<I> {
    Image(I),
    /// A folder that holds a root filesystem.
    Directory(PathBuf),
    /// This machine's own `/usr`.
    Host,
}

impl<I: fmt::Display> fmt::Display for WantedRoot<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(image) => image.fmt(f),
            Self::Directory(path) => write!(f, "dir:{}", path.display()),
            Self::Host => f.write_str("host:"),
        }
    }
}

/// Provides root filesystems to runtimes that cannot fetch images.
pub trait RootProvider: Send + Sync {
    type Image: WantedImage;

    /// Returns the unpacked image; [`Refusal::ImageMissing`] when no source has it.
    fn root(&self, image: &Self::Image) -> impl Future<Output = Result<ProvidedRoot, Refusal>> + Send;

    /// Returns the image that the name stands for now, when that is known without asking an engine or a registry. `remembered` is
    /// the id of the lease that the name stood for earlier. None when only [`RootProvider::root`] can tell.
    fn known_root(
        &self,
        image: &Self::Image,
        remembered: &str,
    ) -> impl Future<Output = Option<ProvidedRoot>> + Send;

    /// Tells whoever waits, in one line, that something slow has begun.
    fn announce(&self, line: &str);
}

#[derive(Debug, Clone)]
pub struct ProvidedRoot {
    /// The folder that holds it.
    pub lease: Arc<dyn RootLease>,
    /// The environment that the image sets.
    pub env: Vec<(String, String)>,
}
