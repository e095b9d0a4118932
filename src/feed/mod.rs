//! What a console reads and does, whatever bridge it is about.

mod local;

pub use local::{Changes, Feed};

pub use crate::activity::{
    AnswerError, ArtifactRow, Attendance, CallOutcome, CallRow, FileRow, GivenAnswer, OutputPart, Piece,
    QuestionForm, QuestionRow, RunDetail, RunRow, RunState, StreamName,
};
