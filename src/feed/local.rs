//! A bridge of this process, for one user of it.

use std::sync::Arc;
use std::time::Duration;

use super::rows::{ServerRow, SessionRow};
use crate::activity::{
    Activity, AnswerError, GivenAnswer, OutputPart, QuestionRow, RunDetail, RunRow, StreamName,
};
use crate::session::{FileError, FilePart, ListedSession, RunPython, Sessions, parse_file_uri};
use crate::upstream::discovery::Server;
use crate::upstream::{Known, ServerState, Upstream};
use crate::workspace::Workspace;

#[derive(Debug, Clone)]
pub(super) struct Local {
    sessions: Sessions,
    upstream: Upstream,
}

impl Local {
    pub(super) fn of(workspace: &Workspace) -> Self {
        Self { sessions: workspace.sessions.clone(), upstream: workspace.upstream.clone() }
    }

    pub(super) fn activity(&self) -> &Activity {
        self.sessions.activity()
    }

    pub(super) fn runs(&self) -> Vec<RunRow> {
        self.activity().runs()
    }

    pub(super) fn run(&self, name: &str) -> Option<RunDetail> {
        self.activity().run(name)
    }

    pub(super) fn output(&self, run: &str, stream: StreamName, from: u64) -> Option<OutputPart> {
        self.activity().output(run, stream, from)
    }

    pub(super) async fn display(&self, run: &str, number: usize) -> Option<Vec<(String, Vec<u8>)>> {
        let run = self.activity().number_of(run)?;
        let sessions = self.sessions.clone();
        tokio::task::spawn_blocking(move || sessions.display(run, number)).await.ok()?
    }

    /// Returns a part of a file that a run made or changed, as the file is now.
    pub(super) async fn file(&self, run: &str, number: usize, start: u64) -> Result<FilePart, FileError> {
        let uri = self.activity().file_uri(run, number).ok_or(FileError::Path)?;
        let (session, path) = parse_file_uri(&uri).ok_or(FileError::Path)?;
        self.sessions.file(&session, &path, start).await
    }

    pub(super) fn stop(&self, run: &str) -> bool {
        self.activity().stop(run)
    }

    pub(super) fn questions(&self) -> Vec<QuestionRow> {
        self.activity().questions()
    }

    pub(super) fn answer(&self, question: &str, answer: GivenAnswer, by: &str) -> Result<(), AnswerError> {
        self.activity().answer(question, answer, by)
    }

    pub(super) fn sessions(&self) -> Vec<SessionRow> {
        let bridge = self.activity().bridge();
        let runs = self.activity().runs();
        let run_in = |session: &str| {
            let run = runs.iter().find(|run| run.session == session && !run.state.has_ended())?;
            Some(run.name.clone())
        };
        let row = |session: ListedSession| SessionRow {
            bridge: bridge.to_owned(),
            run: run_in(&session.name),
            name: session.name,
            runtime: session.runtime.to_string(),
            image: session.image.to_string(),
            age_ms: milliseconds(session.age),
            idle_ms: session.idle.map(milliseconds),
            memory_bytes: session.memory,
            processor_ms: session.processor.map(milliseconds),
        };
        self.sessions.list().into_iter().map(row).collect()
    }

    pub(super) async fn end_session(&self, session: &str) -> bool {
        for run in self.activity().runs() {
            if run.session == session {
                self.activity().stop(&run.name);
            }
        }
        self.sessions.end_session(session, "the previous one was ended in the console").await
    }

    pub(super) async fn servers(&self) -> Vec<ServerRow> {
        let known = self.upstream.all_known_docs().await.into_iter();
        let row = |(server, Known { docs, failure }): (Arc<Server>, Known)| ServerRow {
            bridge: self.activity().bridge().to_owned(),
            name: server.name.to_string(),
            state: match self.upstream.state_of(&server.name) {
                ServerState::Running => "running",
                ServerState::Starting => "starting",
                ServerState::Failed => "failed",
                ServerState::Stopped if failure.is_some() => "failed",
                ServerState::Stopped => "stopped",
            }
            .to_owned(),
            error: failure.map(|failure| failure.why.error),
            tools: docs.as_ref().map(|docs| docs.tools().len()),
            description: server.description.clone().or_else(|| docs.as_ref()?.purpose()),
            transport: server
                .definition
                .as_ref()
                .map_or("", |definition| definition.launch.transport())
                .to_owned(),
        };
        known.map(row).collect()
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
