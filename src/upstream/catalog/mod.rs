//! The catalogue: the documentation of all servers' tools on disk, and the search over it.
//!
//! This module owns the folder `catalog` in the state folder. Each file has the documentation of one definition and is
//! named after the definition's key; all bridges of the user read and write there. If a file is damaged, missing or of
//! another version, the server is asked again. What a server sends is hostile input and is cut to the limits. Where a server
//! does not say what a tool returns, that is learned from results.
//!
//! ```text
//! ToolDoc ─▶ limits ─▶ server_docs (signature, summary, terms) ─▶ file ─▶ store
//!                                          └───▶ lookup (search) ─▶ item
//! result of a call ─▶ shape ─▶ seen ───────────────────┘
//! ```

mod disk;
mod file;
mod item;
mod limits;
mod lookup;
mod meanings;
mod packed;
mod schemas;
mod seen;
mod server_docs;
mod shape;
mod signature;
mod store;
mod summary;
#[cfg(test)]
mod tests;
mod types;

pub(super) use disk::{create_folder, replace as replace_file};
pub use item::{Detail, SAVED, ToolItem};
pub use lookup::{Catalog, Found, FoundTool, ListedServer};
pub use meanings::Prepared;
pub use schemas::Schemas;
pub use server_docs::{ServerDocs, ToolSummary};
pub(super) use signature::signature;

pub use types::{Parameter, parameters};

/// The folder of the catalogue in the state folder.
pub const FOLDER: &str = "catalog";
