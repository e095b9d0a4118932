//! Interpreters: start, queue, frames, interrupt, limits of one run.
//!
//! This module owns every running sandbox of a workspace and returns plain data. Of MCP it knows only the URIs with which
//! clients read output that was cut.
//!
//! ```text
//! sessions (queue, names, idle) ─▶ launch (runtime, sandbox) ─▶ interpreter (frames, interrupt) ─▶ run (output, outcome)
//! ```

mod access;
mod answers;
mod bytecode;
mod changed_files;
mod compiling;
mod displays;
mod files;
mod frames;
mod grant;
mod guest_questions;
mod interpreter;
mod kept;
mod launch;
mod library;
mod loss;
mod outcome;
mod output;
mod package_bytecode;
mod packages;
mod paused_time;
mod pipes;
mod reserved;
mod roots;
mod run;
mod run_python;
mod script;
mod sessions;
mod shares;
mod start_progress;
mod template;
mod tools;
mod transfers;
mod wording;

pub use changed_files::{ChangedFile, ChangedFiles, FileError, FilePart, SESSION_URIS};
pub use launch::{Launcher, cache_dir};
pub use outcome::{
    Clamped, Display, Failure, Form, OutputStream, Picture, Progress, RunOutcome, RunRequest, Status, Stream,
    is_shown, remark, split_hint,
};
pub use output::whole_characters;
pub use run_python::{Caller, RunPython};
pub use script::{FileIn, Input, Script};
pub use sessions::Sessions;
