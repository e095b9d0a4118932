//! What happens in a workspace, in memory and bounded: the runs of now and the last ones, and the questions that wait for an answer.
//!
//! Sessions report to it; nobody has to read it. It knows nothing of sandboxes.
//!
//! ```text
//! record (all runs) ─▶ run (one run, and what reports it) ─▶ recent (a stream with bounds)
//!    └─▶ answers (the client of a run, or somebody else) ─▶ questions (those that wait)
//!                                                 rows (all of it as plain data)
//! ```

mod answers;
mod questions;
mod recent;
mod record;
mod rows;
mod run;

pub use record::{Activity, Attendance, NewRun};
pub use rows::{
    AnswerError, ArtifactRow, CallOutcome, CallRow, FileRow, GivenAnswer, OutputPart, Piece, QuestionForm,
    QuestionRow, RunDetail, RunRow, RunState, StreamName,
};
pub use run::{CallReporter, RunEnd, RunGuard, RunReporter};
