//! Lines of JSON, as both ends of MCP over stdio exchange them: bounded, and read as far as they can be.
//!
//! The server reads those of its client here, the pool those of its servers. Nothing in this room knows a method.

pub(crate) mod line;
pub(crate) mod scan;
