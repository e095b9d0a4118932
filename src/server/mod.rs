//! The MCP server: one tool, two kinds of resources, on a stream of lines.

mod arguments;
mod message;
mod payload;
mod render;

pub use payload::Payload;
pub use render::{Rendered, render, render_plain};

use crate::wire::{line, scan};
