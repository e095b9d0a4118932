//! The user's MCP servers: where they are defined, how they are kept running, what they offer.
//!
//! The room owns the children that it starts and the connections to servers elsewhere. It knows nothing of sandboxes.
//!
//! ```text
//! discovery (files ─▶ definitions) ─▶ pool (connections, calls) ─▶ facade
//! ```

mod alias;
pub mod discovery;

pub use alias::{alias, aliases};
