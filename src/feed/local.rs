//! One bridge, as a console sees it.

use tokio::sync::watch;

use crate::activity::{
    Activity, AnswerError, Attendance, GivenAnswer, OutputPart, QuestionRow, RunDetail, RunRow, StreamName,
};
use crate::session::{RunPython, Sessions};
use crate::workspace::Workspace;

/// What a console reads and does. Its clones are the same.
#[derive(Debug, Clone)]
pub struct Feed {
    activity: Activity,
    sessions: Sessions,
}

/// Says when something has changed.
#[derive(Debug)]
pub struct Changes(watch::Receiver<u64>);

impl Changes {
    /// Waits until something has changed since the last call of this; many changes are one. The first call returns at once.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Feed {
    /// Returns that of one user of a bridge in this process.
    pub fn of_workspace(workspace: &Workspace) -> Self {
        let sessions = workspace.sessions.clone();
        Self { activity: sessions.activity().clone(), sessions }
    }

    /// Returns the runs, newest first.
    pub async fn runs(&self) -> Vec<RunRow> {
        self.activity.runs()
    }

    pub async fn run(&self, name: &str) -> Option<RunDetail> {
        self.activity.run(name)
    }

    /// Returns what is kept of the output of a run, from an offset on.
    pub async fn output(&self, run: &str, stream: StreamName, from: u64) -> Option<OutputPart> {
        self.activity.output(run, stream, from)
    }

    /// Returns the forms of an object that a run displayed, with their MIME types; None if it is not kept. Numbers start at 1.
    pub async fn display(&self, run: &str, number: usize) -> Option<Vec<(String, Vec<u8>)>> {
        let run = self.activity.number_of(run)?;
        let sessions = self.sessions.clone();
        tokio::task::spawn_blocking(move || sessions.display(run, number)).await.ok()?
    }

    /// Interrupts a run; false if there is none of that name under way.
    pub async fn stop(&self, run: &str) -> bool {
        self.activity.stop(run)
    }

    /// Returns the questions that wait, oldest first.
    pub async fn questions(&self) -> Vec<QuestionRow> {
        self.activity.questions()
    }

    /// Answers a question in the name of a person, whom the audit log names.
    ///
    /// # Errors
    /// It does not wait any more.
    pub async fn answer(&self, question: &str, answer: GivenAnswer, by: &str) -> Result<(), AnswerError> {
        self.activity.answer(question, answer, by)
    }

    pub fn changes(&self) -> Changes {
        Changes(self.activity.changes())
    }

    /// Says that somebody is there who answers questions, as long as the guard lives.
    pub fn attend(&self) -> Attendance {
        self.activity.attend()
    }
}
