//! Images for runtimes that cannot pull any: named, pulled, unpacked and stored in this process, without a daemon.
//!
//! ```text
//! resolver ─▶ { pull | local (files) } ─▶ image ─▶ { registry | store | unpack } ─▶ manifest, name, digest …
//! ```
//! [`ImageResolver`] goes from a name to an unpacked [`Root`]; [`Store`] keeps, lists and removes images. This crate
//! starts no process: what only another program knows comes through [`CredentialHelper`] and
//! [`ImageResolver::import`].

mod digest;
mod error;
#[cfg(test)]
mod fuzz;
mod image;
mod local;
mod manifest;
mod name;
mod platform;
mod progress;
mod pull;
mod recipe;
mod registry;
mod resolver;
mod store;
mod unpack;

pub use digest::{Digest, DigestError};
pub use error::ImageError;
pub use manifest::{Descriptor, ManifestError, RunConfig};
pub use name::{EngineKind, ImageName, NameError, RegistryName};
pub use platform::Platform;
pub use progress::{Event, Progress};
pub use recipe::{
    Layer, Lock, Package, Recipe, RecipeError, Requirement, Staging, apply_recipe, pack_layer, package_name,
    parse_requirements, write_archive,
};
pub use registry::{
    ConnectionFailure, CredentialError, CredentialHelper, HelperAnswer, HelperError, PullError, Reason, Tried,
};
pub use resolver::{ImageResolver, Import, PendingImport};
pub use store::{Compiling, ImageId, Listed, Prunable, Prune, Pruned, Root, Store, StoreError, Usage};
pub use unpack::{UnpackError, add_compiled_packages};
