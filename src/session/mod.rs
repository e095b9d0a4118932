//! Interpreters: start, queue, frames, interrupt, limits of one run.
//!
//! The room owns every running sandbox of this bridge. It knows nothing of MCP; what it returns is plain data.

mod outcome;
mod run_python;

pub use outcome::{Failure, OutputStream, Progress, RunOutcome, RunRequest, Status, Stream};
pub use run_python::RunPython;
