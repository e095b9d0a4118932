//! The user's MCP servers: where they are defined, how they are kept running, what they offer.
//!
//! The room owns the children that it starts and the connections to servers elsewhere. It knows nothing of sandboxes.
//!
//! ```text
//! facade ─▶ discovery (files ─▶ definitions)
//!        ─▶ pool (connections, calls, lists of tools) ─▶ arguments (checked before a call)
//!        ─▶ docs ─▶ catalog (their tools' documentation, on disk) ─▶ search (which of them fit a question)
//! ```

mod alias;
mod arguments;
pub mod catalog;
pub mod discovery;
mod docs;
mod error;
mod events;
mod facade;
mod nearest;
mod pool;
mod questions;
pub mod search;
mod tool_doc;

pub use alias::{alias, aliases};
pub use arguments::check_arguments;
pub use docs::{Refreshed, Searched, UnknownServer};
pub use error::UpstreamError;
pub use events::{Event, ServerProgress};
pub use facade::{Listed, Upstream};
pub use pool::{CallOutcome, GUARDIAN, Limits, ServerState, Tool, ToolList, guard};
pub use questions::{Answering, Answers, NoAnswers, Offers, Question, Refusal};
pub use tool_doc::ToolDoc;
