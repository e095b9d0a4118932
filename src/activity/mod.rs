//! What happens in a workspace, in memory and bounded: the runs of now and the last ones, and the questions that wait for an answer.
//!
//! Sessions report to it; nobody has to read it. It knows nothing of sandboxes.
//!
//! ```text
//! reporter (what a run says) ─▶ record (all runs) ─▶ run (what is known of one) ─▶ recent (a stream with bounds)
//!    └─▶ answers (the client of a run, or somebody else) ─▶ questions (those that wait) ─▶ run
//!                                                 rows (all of it as plain data)
//! ```

mod answers;
mod changes;
mod questions;
mod recent;
mod record;
mod reporter;
mod rows;
mod run;

pub use record::{Activity, Attendance};
pub use reporter::{CallReporter, RunGuard, RunReporter};
pub use rows::{
    AnswerError, ArtifactRow, CallOutcome, CallRow, FileRow, GivenAnswer, OutputPart, Piece, QuestionForm,
    QuestionRow, RunDetail, RunRow, RunState, StreamName,
};
pub use run::{NewRun, RunEnd};
