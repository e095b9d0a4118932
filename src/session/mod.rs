//! Interpreters: start, queue, frames, interrupt, limits of one run.
//!
//! This module owns every running sandbox of a workspace and returns plain data. Of MCP it knows only the URIs with which
//! clients read output that was cut.
//!
//! ```text
//! sessions (queue, names, idle) ─▶ background (runs that nobody waits for)
//!    └─▶ launch (runtime, sandbox) ─▶ interpreter (frames, interrupt, runs) ─▶ output
//!                                                                    └─▶ answers (access of the code) ─▶ questions
//! ```

mod answers;
mod background;
mod bytecode;
mod call;
mod capacity;
mod frames;
#[cfg(test)]
mod fuzz;
mod interpreter;
mod launch;
mod listed;
mod output;
mod processor_time;
mod questions;
mod recording;
mod reporting;
mod sessions;
mod slots;

pub use background::{RecordedRun, RecordedState, Records};
pub use bytecode::old_bytecode;
pub use call::{
    Authority, Caller, ChangedFile, ChangedFiles, Clamped, Display, ExampleEnd, Failure, FileError, FileIn,
    FilePart, Form, Input, ListedRun, Look, OutputStream, Picture, Progress, RunOutcome, RunPython,
    RunRequest, RunningNow, SESSION_URIS, Script, Status, Stream, is_shown, parse_file_uri, remark,
    split_hint,
};
pub use launch::{Launcher, cache_dir};
pub use listed::ListedSession;
pub use output::{Rewritten, whole_characters};
pub use recording::outcome_name;
pub use sessions::Sessions;
