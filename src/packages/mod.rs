//! Python packages for sandboxes that have no network: the host resolves and downloads wheels, keeps them in a store, and
//! links them into the folder that a session sees as `/packages`.
//!
//! Nothing here runs code of a package: only wheels are used, and they are unpacked, not built. What code in a sandbox asks
//! for is untrusted; the index and the installer are the operator's.

mod disk;
mod error;
mod files;
#[cfg(test)]
mod fuzz;
mod hints;
mod image_python;
mod installer;
mod pins;
mod pip;
mod resolutions;
mod resolve;
mod script;
mod service;
mod session_folder;
mod store;
mod unpack;
mod uv;

pub use error::InstallError;
pub use hints::{distribution_of, recipe_with};
pub use image_python::{ImagePython, RawPython};
pub use pins::{Pin, requirements_text};
pub use script::Script;
pub use service::{InstallPlan, InstallRequest, Installed, PackageService, count_of};
pub use session_folder::SessionFolder;
pub use store::{PackageSet, Store, StoredSet};
pub use unpack::unpack;
