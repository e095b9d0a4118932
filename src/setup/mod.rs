//! Registers codebridge in MCP clients: where each keeps its servers, what an entry looks like there, and the change of
//! the file, in which everything else stays as it is.
//!
//! Nothing here asks or prints; `cli` does.

mod clients;
mod entry;
mod installation;
mod json;
mod toml;

#[cfg(test)]
mod tests;

pub use crate::config_file::FileError;
pub use clients::{CLIENTS, Client, Folders};
pub use entry::Change;
pub use installation::{Installation, SetupError, State, is_in_a_cache, snippet};
