//! Where the user's MCP servers are defined: read on demand, first definition of a name wins.
//!
//! Nothing here starts a server, and nothing reads the process environment: home, folder and variables are handed in.
//! A file that cannot be read, or an entry that makes no sense, is a [`Warning`]; the rest loads. Files are read again
//! when they have changed, which a look at their metadata tells.
//!
//! ```text
//! sources (places) ─▶ document (JSON, TOML) ─▶ forms (entries) ─▶ expand, itself ─▶ snapshot
//! ```

mod definition;
mod document;
mod expand;
mod files;
mod forms;
mod itself;
mod snapshot;
mod sources;
mod surroundings;
#[cfg(test)]
mod tests;

pub(super) use itself::OWN_NAMES;

pub use definition::{Definition, Launch, Server, Skip, Source};
pub use snapshot::{Discovery, Snapshot, Warning};
pub use surroundings::Surroundings;
