//! Interpreters: start, queue, frames, interrupt, limits of one run.
//!
//! The room owns every running sandbox of this bridge. It knows nothing of MCP; what it returns is plain data.

mod outcome;

pub use outcome::{Failure, Progress, RunOutcome, RunRequest, Status, Stream};
