//! The MCP server: one tool, two kinds of resources, on a stream of lines.
//!
//! The room owns standard input and output while it serves: frames of the protocol and nothing else. It knows the
//! sessions by their trait only, and neither names a runtime nor spawns a process.

mod arguments;
mod guard;
mod handler;
mod logs;
mod offers;
mod payload;
mod peer_answers;
mod progress;
mod render;
mod resources;
mod rounds;
mod serve;
mod tool;

#[cfg(test)]
mod tests;

pub use payload::Payload;
pub use render::render_plain;
pub use serve::{Connection, ServeError, serve};
