//! The MCP server: one tool, two kinds of resources, on a stream of lines.

mod payload;
mod render;

pub use payload::Payload;
pub use render::{Rendered, render, render_plain};
