//! Files that code keeps for the user and for later sessions, in the folder `artifacts` of the state folder.
//!
//! ```text
//! artifacts/<name>/<version>/content      the bytes
//! artifacts/<name>/<version>/about.json   what is known of them
//! artifacts/<name>/.last                  the highest number of a removed version: none is used again
//! artifacts/.staging/<random>/            an artifact that is being saved or removed
//! ```
//! Whoever adds, removes or sweeps holds the lock `.staging/lock`. A version appears with one rename and never changes. Several bridges use the folder at once; a bridge that is killed
//! leaves at most a staging folder, which the next save of any bridge removes.

mod error;
#[cfg(test)]
mod fuzz;
mod mime;
mod name;
mod space;
mod staged;
mod store;
mod surplus;

pub use error::ArtifactError;
pub use mime::{is_text, mime_of};
pub use staged::{Origin, Staged};
pub use store::{Artifact, Artifacts, Prune};
