//! The user's MCP servers: where they are defined, how they are kept running, what they offer.
//!
//! The room owns the children that it starts and the connections to servers elsewhere. It knows nothing of sandboxes.
//!
//! ```text
//! facade ─▶ discovery (files ─▶ definitions)
//!        ─▶ pool (connections, calls, lists of tools)
//! catalog (their tools' documentation, on disk) ─▶ search (which of them fit a question)
//! ```

mod alias;
pub mod catalog;
pub mod discovery;
mod error;
mod events;
mod facade;
mod pool;
mod questions;
pub mod search;
mod tool_doc;

pub use alias::{alias, aliases};
pub use error::UpstreamError;
pub use events::{Event, ServerProgress};
pub use facade::{Listed, Upstream};
pub use pool::{CallOutcome, GUARDIAN, Limits, ServerState, Tool, ToolList, guard};
pub use questions::{Answering, Answers, NoAnswers, Offers, Question, Refusal};
pub use tool_doc::ToolDoc;
