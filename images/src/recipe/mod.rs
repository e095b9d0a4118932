//! Images that are built from packages: the recipe, the folder that its packages are unpacked into, and the archive.
//!
//! The packages are downloaded elsewhere. The same packages give the same archive, byte for byte: names are sorted, times
//! are the recipe's, all files belong to root, and no script of a package runs.

mod definition;
mod error;
mod lock;
mod pack;
mod staging;

pub use definition::{Recipe, Requirement, package_name, parse_requirements};
pub use error::RecipeError;
pub use lock::{Lock, Package};
pub use pack::{Layer, pack_layer, write_archive};
pub use staging::{Staging, apply_recipe};

#[cfg(test)]
mod tests;
