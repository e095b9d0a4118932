//! What a console reads and does: the same for a bridge in this process and for all bridges of a user elsewhere.

use std::path::Path;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::bridges::Bridges;
use super::local::Local;
use super::offering;
use super::rows::{ServerRow, SessionRow};
use super::wire::{Request, WireForm, WirePart};
use crate::activity::{
    self, AnswerError, GivenAnswer, OutputPart, QuestionRow, RunDetail, RunRow, StreamName,
};
use crate::session::{FileError, FilePart};
use crate::workspace::Workspace;

/// What a console reads and does. Its clones are the same.
#[derive(Debug, Clone)]
pub struct Feed(Source);

#[derive(Debug, Clone)]
enum Source {
    Local(Local),
    Bridges(Bridges),
}

/// Says when something has changed.
#[derive(Debug)]
pub struct Changes {
    changes: watch::Receiver<u64>,
    _following: Option<AbortOnDropHandle<()>>,
}

impl Changes {
    /// Waits until something has changed since the last call of this; many changes are one. The first call returns at once.
    pub async fn next(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Somebody who answers questions, as long as it lives.
#[derive(Debug)]
pub struct Attendance {
    _local: Option<activity::Attendance>,
    _elsewhere: Option<AbortOnDropHandle<()>>,
}

impl Feed {
    /// Returns that of one user of a bridge in this process.
    pub fn of_workspace(workspace: &Workspace) -> Self {
        Self(Source::Local(Local::of(workspace)))
    }

    /// Returns that of all bridges with a state folder that speak over standard input and output.
    pub fn of_bridges(state_dir: &Path) -> Self {
        Self(Source::Bridges(Bridges::of(state_dir)))
    }

    /// Lets consoles in other processes of this user see the bridge, from its first run on and as long as this is polled.
    pub async fn offer(&self, state_dir: &Path) {
        if let Source::Local(local) = &self.0 {
            offering::offer(local.clone(), state_dir).await;
        }
    }

    /// Returns the runs, newest first.
    pub async fn runs(&self) -> Vec<RunRow> {
        match &self.0 {
            Source::Local(local) => local.runs(),
            Source::Bridges(bridges) => {
                let mut runs: Vec<RunRow> = bridges.ask_all(&Request::Runs).await;
                runs.sort_by_key(|run| std::cmp::Reverse(run.began));
                runs
            }
        }
    }

    pub async fn run(&self, name: &str) -> Option<RunDetail> {
        match &self.0 {
            Source::Local(local) => local.run(name),
            Source::Bridges(bridges) => {
                let request = Request::Run { name: name.to_owned() };
                bridges.ask_bridge_of::<Option<_>>(name, &request).await?
            }
        }
    }

    /// Returns what is kept of the output of a run, from an offset on.
    pub async fn output(&self, run: &str, stream: StreamName, from: u64) -> Option<OutputPart> {
        match &self.0 {
            Source::Local(local) => local.output(run, stream, from),
            Source::Bridges(bridges) => {
                let request = Request::Output { run: run.to_owned(), stream, from };
                bridges.ask_bridge_of::<Option<_>>(run, &request).await?
            }
        }
    }

    /// Returns the forms of an object that a run displayed, with their MIME types; None if it is not kept. Numbers start at 1.
    pub async fn display(&self, run: &str, number: usize) -> Option<Vec<(String, Vec<u8>)>> {
        match &self.0 {
            Source::Local(local) => local.display(run, number).await,
            Source::Bridges(bridges) => {
                let request = Request::Display { run: run.to_owned(), number };
                let forms = bridges.ask_bridge_of::<Option<Vec<WireForm>>>(run, &request).await??;
                forms.into_iter().map(WireForm::decode).collect()
            }
        }
    }

    /// Returns a part of a file that a run made or changed, as the file is now. Numbers start at 1.
    ///
    /// # Errors
    /// Its session has ended, or it is a file no longer.
    pub async fn file(&self, run: &str, number: usize, start: u64) -> Result<FilePart, FileError> {
        match &self.0 {
            Source::Local(local) => local.file(run, number, start).await,
            Source::Bridges(bridges) => {
                let request = Request::File { run: run.to_owned(), number, start };
                let part = bridges.ask_bridge_of::<Result<WirePart, String>>(run, &request).await;
                let part = part.ok_or(FileError::Ended)?.map_err(FileError::Refused)?;
                part.decode().ok_or(FileError::Ended)
            }
        }
    }

    /// Interrupts a run; false if there is none of that name under way.
    pub async fn stop(&self, run: &str) -> bool {
        match &self.0 {
            Source::Local(local) => local.stop(run),
            Source::Bridges(bridges) => {
                let request = Request::Stop { run: run.to_owned() };
                bridges.ask_bridge_of(run, &request).await.unwrap_or(false)
            }
        }
    }

    /// Returns the questions that wait, oldest first.
    pub async fn questions(&self) -> Vec<QuestionRow> {
        match &self.0 {
            Source::Local(local) => local.questions(),
            Source::Bridges(bridges) => {
                let mut questions: Vec<QuestionRow> = bridges.ask_all(&Request::Questions).await;
                questions.sort_by_key(|question| question.asked);
                questions
            }
        }
    }

    /// Answers a question in the name of a person, whom the audit log names.
    ///
    /// # Errors
    /// It does not wait any more.
    pub async fn answer(&self, question: &str, answer: GivenAnswer, by: &str) -> Result<(), AnswerError> {
        match &self.0 {
            Source::Local(local) => local.answer(question, answer, by),
            Source::Bridges(bridges) => {
                let request = Request::Answer { question: question.to_owned(), answer, by: by.to_owned() };
                bridges.ask_bridge_of(question, &request).await.unwrap_or(Err(AnswerError::Gone))
            }
        }
    }

    /// Returns the live sessions, by name.
    pub async fn sessions(&self) -> Vec<SessionRow> {
        match &self.0 {
            Source::Local(local) => local.sessions(),
            Source::Bridges(bridges) => bridges.ask_all(&Request::Sessions).await,
        }
    }

    /// Ends a session, and what runs in it; false if there is none of that name.
    pub async fn end_session(&self, bridge: &str, session: &str) -> bool {
        match &self.0 {
            Source::Local(local) => local.end_session(session).await,
            Source::Bridges(bridges) => {
                let request = Request::EndSession { session: session.to_owned() };
                bridges.ask(bridge, &request).await.unwrap_or(false)
            }
        }
    }

    /// Returns the servers that code may use.
    pub async fn servers(&self) -> Vec<ServerRow> {
        match &self.0 {
            Source::Local(local) => local.servers().await,
            Source::Bridges(bridges) => bridges.ask_all(&Request::Servers).await,
        }
    }

    pub fn changes(&self) -> Changes {
        match &self.0 {
            Source::Local(local) => Changes { changes: local.activity().changes(), _following: None },
            Source::Bridges(bridges) => {
                let (sender, mut changes) = watch::channel(0);
                changes.mark_changed();
                Changes { changes, _following: Some(bridges.follow(sender)) }
            }
        }
    }

    /// Says that somebody is there who answers questions, as long as the guard lives.
    pub fn attend(&self) -> Attendance {
        match &self.0 {
            Source::Local(local) => Attendance { _local: Some(local.activity().attend()), _elsewhere: None },
            Source::Bridges(bridges) => Attendance { _local: None, _elsewhere: Some(bridges.attend()) },
        }
    }
}
