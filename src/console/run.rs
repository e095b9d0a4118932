//! One run: its code, what it printed, and its calls.

use std::path::Path;
use std::sync::Arc;

use askama::Template;
use axum::extract::{self, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};

use super::calls::{Call, denied, logged_calls};
use super::history::LoggedRun;
use super::page::{Frame, page, problem};
use super::runs::Row;
use super::text::Shown;
use super::visitor::{Console, Visitor};
use crate::audit::{Found, is_live, read_lines_of};

/// Calls on the page.
const MOST_CALLS: usize = 500;
/// The texts that can be read whole.
const TEXTS: [&str; 3] = ["code", "stdout", "stderr"];

#[derive(Debug, Template)]
#[template(path = "run.html")]
struct Run {
    frame: Frame,
    row: Row,
    runtime: String,
    image: String,
    servers: String,
    timeout: String,
    exit_code: Option<i32>,
    code: Text,
    stdout: Text,
    stderr: Text,
    calls: Vec<Call>,
    calls_left_out: usize,
    denied: Vec<String>,
}

impl Run {
    /// Returns the path of a whole text.
    fn link(&self, text: &str) -> String {
        format!("/console/runs/{}/{text}", self.row.name)
    }
}

/// A text of the run, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Text {
    pub(super) shown: Shown,
    /// Why it is not shown.
    pub(super) missing: Option<String>,
}

/// The lines of a run.
struct Lines {
    lines: Vec<Found>,
    is_running: bool,
}

async fn lines_of(folder: &Path, run: &str) -> std::io::Result<Lines> {
    let (folder, run) = (folder.to_path_buf(), run.to_owned());
    let read = move || {
        let lines = read_lines_of(&folder, &run)?;
        let is_running = lines.first().is_some_and(|line| is_live(&folder, line.bridge()));
        Ok(Lines { lines, is_running })
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

fn no_such_run() -> Response {
    problem(
        StatusCode::NOT_FOUND,
        "There is no such run",
        "Its lines may have been removed from the log, which has a limit of 256 MiB.",
    )
}

pub(super) async fn page_of_run(
    State(_): State<Arc<Console>>,
    extract::Path(name): extract::Path<String>,
    visitor: Visitor,
) -> Response {
    let Some(folder) = visitor.workspace().audit.folder().map(ToOwned::to_owned) else {
        return no_such_run();
    };
    let Lines { lines, is_running } = match lines_of(&folder, &name).await {
        Ok(lines) if !lines.lines.is_empty() => lines,
        Ok(_) => return no_such_run(),
        Err(error) => {
            return problem(
                StatusCode::INTERNAL_SERVER_ERROR,
                "The audit log cannot be read",
                &error.to_string(),
            );
        }
    };
    let mut run = LoggedRun { name: name.clone(), ..LoggedRun::default() };
    lines.iter().for_each(|line| run.note(&folder, line));
    let (calls, calls_left_out) = logged_calls(&folder, &lines, &run, MOST_CALLS);
    page(&Run {
        frame: Frame::new(&visitor, "runs", format!("Run {name}")),
        runtime: run.runtime.clone().unwrap_or_default(),
        image: run.image.clone().unwrap_or_default(),
        servers: run.servers.join(", "),
        timeout: super::text::milliseconds(run.timeout_seconds * 1000.0),
        exit_code: run.end.as_ref().and_then(|end| end.exit_code),
        code: text(&folder, &lines, "run-start", "code"),
        stdout: text(&folder, &lines, "run", "stdout"),
        stderr: text(&folder, &lines, "run", "stderr"),
        calls,
        calls_left_out,
        denied: denied(&lines),
        row: Row::of(run, is_running),
    })
}

/// Returns a text of the line about an event.
fn text(folder: &Path, lines: &[Found], event: &str, field: &str) -> Text {
    let Some(line) = lines.iter().find(|line| line.record.event == event) else { return Text::default() };
    match line.text_of(folder, field) {
        Ok(Some(text)) => Text { shown: Shown::of(&text), missing: None },
        Ok(None) if line.record.left_out.iter().any(|left_out| left_out == field) => {
            Text { missing: Some("there was no space for it in the log".into()), ..Text::default() }
        }
        Ok(None) => Text { missing: Some("MCP_BRIDGE_AUDIT=full records it".into()), ..Text::default() },
        Err(why) => Text { missing: Some(format!("it cannot be read: {why}")), ..Text::default() },
    }
}

/// Returns a text with all that was recorded of it.
pub(super) async fn whole_text(
    extract::Path((name, field)): extract::Path<(String, String)>,
    visitor: Visitor,
) -> Response {
    let Some(folder) = visitor.workspace().audit.folder().map(ToOwned::to_owned) else {
        return no_such_run();
    };
    let Some(field) = TEXTS.into_iter().find(|known| *known == field) else { return no_such_run() };
    let Ok(Lines { lines, .. }) = lines_of(&folder, &name).await else { return no_such_run() };
    let text = lines.iter().find_map(|line| line.text_of(&folder, field).ok().flatten());
    match text {
        Some(text) => plain_text(text),
        None => no_such_run(),
    }
}

/// Returns a text of somebody else: it is never a document of this origin.
pub(super) fn plain_text(text: String) -> Response {
    (
        [
            (CONTENT_TYPE, "text/plain; charset=utf-8"),
            (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
        ],
        text,
    )
        .into_response()
}
