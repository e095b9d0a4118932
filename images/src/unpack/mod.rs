//! Unpacks the layers of an image, one over the other, into an empty folder.
//!
//! The layers are untrusted. `decode` decompresses and verifies them, `tar` reads them within bounds, `tree` creates their
//! entries and lets no name lead out of the folder, `layer` applies whiteouts, links and permissions.
//!
//! All files belong to the user who unpacks them: a sandbox shows that user as its root, and its own user must own none.
//! Only the owner may write. Set-id bits and devices are left out, and so are attributes outside `user.`, which could
//! carry capabilities.

mod compiled;
mod decode;
mod error;
mod layer;
mod tar;
mod tree;

pub(crate) use compiled::add_compiled;
pub use compiled::add_compiled_packages;
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
