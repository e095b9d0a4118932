//! The user's MCP servers: where they are defined, how they are called, what their tools do.

pub mod catalog;
pub mod search;
