//! What all servers say of their tools: kept on disk, listed, searched.
//!
//! The room owns the folder `catalog` under the state folder. A file in it holds the documentation of one definition,
//! named by the definition's key; every bridge of the user reads and writes there. A file that is damaged, gone or of
//! another version is as good as none: the server is asked again. What a server sends is hostile until it is cut to
//! the limits.
//!
//! ```text
//! ToolDoc ─▶ limits ─▶ server_docs (signature, summary, terms) ─▶ file ─▶ store
//!                                          └───▶ lookup (search) ─▶ item
//! ```

mod file;
mod item;
mod limits;
mod lookup;
mod packed;
mod server_docs;
mod signature;
mod store;
mod summary;
#[cfg(test)]
mod tests;
mod types;

pub use item::{Detail, ToolItem};
pub use limits::Cut;
pub use lookup::{Catalog, Found, FoundTool, ListedServer};
pub use server_docs::{ServerDocs, ToolSummary};
pub(super) use signature::signature;
pub(super) use store::create_folder;
pub use types::{Parameter, parameters};

/// What the folder of the catalogue is called under the state folder.
pub const FOLDER: &str = "catalog";
