//! The interface of the sessions to the server and the command line: what a call is given, and how it ends.

mod authority;
mod changed_files;
mod example;
mod look;
mod outcome;
mod run_python;
mod script;
mod wording;

pub use authority::Authority;
pub use changed_files::{ChangedFile, ChangedFiles, FileError, FilePart, SESSION_URIS, parse_file_uri};
pub(super) use changed_files::{PART, is_below};
pub use example::ExampleEnd;
pub use look::{ListedRun, Look, RunningNow};
pub use outcome::{
    Clamped, Display, Failure, Form, OutputStream, Picture, Progress, RunOutcome, RunRequest, Status, Stream,
    is_shown, remark, split_hint,
};
pub use run_python::{Caller, RunPython};
pub use script::{FileIn, Input, Script};
pub(super) use wording::Wording;
