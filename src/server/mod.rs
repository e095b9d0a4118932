//! The MCP server: one tool, its resources and the viewer of displayed objects, on a stream of lines.
//!
//! While it serves, this module owns standard input and output, which carry protocol messages only. It knows the sessions
//! by their trait, names no runtime and spawns no process.

mod arguments;
mod content;
mod guard;
mod handler;
mod held;
mod http;
mod http_sessions;
mod logs;
mod offers;
mod outputs;
mod payload;
mod peer_answers;
mod progress;
mod render;
mod resources;
mod rounds;
mod serve;
mod tasks;
mod tool;
mod viewer;

#[cfg(test)]
mod tests;

pub use held::{Budget, Held};
pub use http::{McpService, McpUser};
pub use outputs::{files_line, saved_line};
pub use payload::Payload;
pub use render::render_plain;
pub use serve::{Connection, ServeError, serve};
