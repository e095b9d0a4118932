//! Images that are put together from packages instead of being fetched: what a recipe says, the folder in which its
//! packages are unpacked, and the archive that comes of it.
//!
//! Whoever downloads the packages is elsewhere. The same packages give the same archive, byte for byte: names are
//! sorted, times are the recipe's, everything belongs to root, and no package's own script runs.

mod definition;
mod error;
mod lock;
mod pack;
mod staging;

pub use definition::{Recipe, Requirement};
pub use error::RecipeError;
pub use lock::{Lock, Package};
pub use pack::{Layer, pack_layer, write_archive};
pub use staging::{Staging, apply_recipe};

#[cfg(test)]
mod tests;
