//! The user's MCP servers: where they are defined, how they are called, what their tools do.

mod alias;
pub mod catalog;
pub mod search;
mod tool_doc;

pub use alias::{alias, aliases};
pub use tool_doc::ToolDoc;
