//! What a console reads and does, whatever bridge it is about.
//!
//! ```text
//! view ─▶ local (one user of a bridge in this process)
//!    ├─▶ bridges (those of this user in other processes) ─▶ wire, sockets
//!    └─▶ offering (the other end of that) ─▶ local, wire, sockets
//! ```

#[cfg(test)]
mod tests;

mod bridges;
mod local;
mod offering;
mod rows;
mod sockets;
mod view;
mod wire;

pub use rows::{ServerRow, SessionRow};
pub use view::{Attendance, Changes, Feed};

pub use crate::session::{FileError, FilePart};

pub use crate::activity::{
    AnswerError, ArtifactRow, CallOutcome, CallRow, FileRow, GivenAnswer, OutputPart, Piece, QuestionForm,
    QuestionRow, RunDetail, RunRow, RunState, StreamName,
};
