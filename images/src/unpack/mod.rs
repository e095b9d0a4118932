//! Unpacks the layers of an image, one over the other, into an empty folder.
//!
//! The layers are untrusted. `tar` reads them within bounds, `decode` decompresses and verifies them, `tree` makes what
//! they name and lets no name lead out, `layer` knows what layers mean: whiteouts, links, permissions.
//!
//! Everything belongs to who unpacks it: the sandbox's user namespace shows that as its root where it can show it at
//! all, and the sandbox's user must own nothing of it anyway. Nobody but the owner may write, set-id bits and devices
//! are left out, and so are attributes outside `user.`, which could carry capabilities.

mod compiled;
mod decode;
mod error;
mod layer;
mod tar;
mod tree;

pub(crate) use compiled::add_compiled;
pub(crate) use decode::decoder;
pub use error::UnpackError;
pub(crate) use error::is_out_of_space;
pub(crate) use layer::{Limits, Unpacked, Unpacker};
pub(crate) use tar::{Kind as EntryKind, Source, TarStream};

#[cfg(test)]
pub(crate) mod archive;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod staging;
#[cfg(test)]
mod tests;
