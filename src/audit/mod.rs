//! The audit log: one line for each run and each call of a tool, in a chain of hashes.
//!
//! Each bridge process has a chain of its own, in files of its own: nobody else writes them. Writing is the work of one thread.
//!
//! ```text
//! log (what is recorded) ─▶ writer (the thread) ─▶ chain (files of this process) ─▶ folder (names, space)
//! verify, reader ─▶ record (a line that is read) ─▶ folder
//!                                                  event, line (the text of a line)
//! ```

mod blobs;
mod chain;
mod error;
mod event;
mod folder;
mod line;
mod log;
mod prune;
mod reader;
mod record;
mod verify;
mod writer;

pub use error::AuditError;
pub use event::{Approved, Call, Content, Contents, Denied, Given, Mask, RunEnd, RunFacts, RunStart};
pub use folder::folder_in;
pub use log::{Audit, CallEnd, CallRecord};
pub use prune::{is_live, remove_unused, unused};
pub use reader::{Follower, read_all, read_lines_of, read_run};
pub use record::{Found, Record};
pub use verify::{Head, Problem, Verified, verify};
