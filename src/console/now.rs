//! What runs now.

use std::sync::Arc;

use askama::Template;
use axum::extract::{self, State};
use axum::response::{IntoResponse, Redirect, Response};
use jiff::Timestamp;

use super::frame::Frame;
use super::page::page;
use super::runs::Row;
use super::text::{When, in_a_line, milliseconds, plain};
use super::visitor::{Console, Sent, Visitor};
use crate::feed::{Feed, Piece, RunRow, StreamName};

/// Runs under way that are shown, and those that have ended.
const MOST_RUNNING: usize = 30;
const MOST_ENDED: usize = 15;
/// Bytes of the end of the output that is shown.
const TAIL: usize = 6 << 10;
const TAIL_LINES: usize = 30;

#[derive(Debug, Template)]
#[template(path = "now.html")]
struct Now {
    frame: Frame,
    live: Live,
}

/// What changes while the page is open.
#[derive(Debug, Template)]
#[template(path = "now_live.html")]
pub(super) struct Live {
    form_token: String,
    running: Vec<Running>,
    more: usize,
    ended: Vec<Row>,
}

/// A run under way.
#[derive(Debug)]
struct Running {
    row: Row,
    /// For the clock of the page.
    elapsed_ms: u64,
    doing: String,
    questions: usize,
    pictures: usize,
    stdout: String,
    stderr: String,
}

/// Returns a run of this moment as the lists show it.
pub(super) fn row_of(run: &RunRow) -> Row {
    let began = i64::try_from(run.began).ok().and_then(|began| Timestamp::from_millisecond(began).ok());
    Row {
        name: run.name.clone(),
        session: run.session.clone(),
        client: run.client.clone().unwrap_or_default(),
        outcome: run.state.word().to_owned(),
        began: began.map(When),
        lasted: milliseconds(run.elapsed_ms as f64),
        calls: run.calls,
        about: in_a_line(&run.first_line),
        error: run.error.as_deref().map(in_a_line).unwrap_or_default(),
    }
}

/// Returns the end of the output of a run.
async fn tail(feed: &Feed, run: &str, stream: StreamName, bytes: u64) -> String {
    let from = bytes.saturating_sub(TAIL as u64);
    let Some(part) = feed.output(run, stream, from).await else { return String::new() };
    let text: String = part
        .pieces
        .iter()
        .map(|piece| if let Piece::Text(text) = piece { text.as_str() } else { "" })
        .collect();
    let text = plain(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

impl Live {
    pub(super) async fn of(feed: &Feed, form_token: &str) -> Self {
        let (ended, under_way): (Vec<_>, Vec<_>) =
            feed.runs().await.into_iter().partition(|run| run.state.has_ended());
        let mut running = Vec::new();
        for run in under_way.iter().take(MOST_RUNNING) {
            running.push(Running {
                row: row_of(run),
                elapsed_ms: run.elapsed_ms,
                doing: run.doing.as_deref().map(in_a_line).unwrap_or_default(),
                questions: run.questions,
                pictures: run.displays,
                stdout: tail(feed, &run.name, StreamName::Stdout, run.stdout_bytes).await,
                stderr: tail(feed, &run.name, StreamName::Stderr, run.stderr_bytes).await,
            });
        }
        Self {
            form_token: form_token.to_owned(),
            more: under_way.len().saturating_sub(MOST_RUNNING),
            running,
            ended: ended.iter().take(MOST_ENDED).map(row_of).collect(),
        }
    }
}

pub(super) async fn page_of_now(State(console): State<Arc<Console>>, visitor: Visitor) -> Response {
    let feed = console.feed(&visitor);
    let live = Live::of(&feed, &visitor.form_token).await;
    page(&Now { frame: Frame::new(&console, &visitor, "now", "Now").await, live })
}

/// Interrupts a run.
pub(super) async fn stop(
    State(console): State<Arc<Console>>,
    extract::Path(name): extract::Path<String>,
    sent: Sent,
) -> Response {
    let is_stopped = console.feed(&sent.visitor).stop(&name).await;
    tracing::info!(principal = %sent.visitor.admitted.principal(), run = %name, is_stopped, "a run is stopped in the console");
    let back =
        if sent.fields.get("back") == "run" { format!("/console/runs/{name}") } else { "/console".into() };
    Redirect::to(super::visitor::next_path(&back)).into_response()
}
