//! The MCP server: one tool, two kinds of resources, on a stream of lines.

mod arguments;
mod line;
mod message;
mod payload;
mod render;
mod scan;

pub use payload::Payload;
pub use render::{Rendered, render, render_plain};
