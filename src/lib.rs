//! codebridge: an MCP server with one tool, `run_python`, that runs Python in a locked-down OCI sandbox.
//!
//! The folders of this crate are its layers; each `mod.rs` says what the folder is for.

pub mod activity;
pub mod artifacts;
pub mod audit;
pub mod cli;
mod config_file;
pub mod console;
pub mod doctor;
pub mod error;
#[cfg(test)]
mod fake_sessions;
pub mod feed;
mod file_stamp;
pub mod gc;
mod glob;
pub mod guest;
pub mod help;
pub mod housekeeping;
pub mod http;
pub mod image_sources;
pub mod machine_supervisor;
mod mcp;
mod nearest;
pub mod packages;
pub mod policy;
pub mod reaper;
mod reason;
pub mod requirements;
pub mod saved;
pub mod server;
pub mod session;
pub mod settings;
pub mod setup;
pub mod shares;
pub mod sizes;
pub mod state_folder;
pub mod telemetry;
pub mod tokens;
pub mod upstream;
pub mod workflows;
pub mod workspace;
