//! The list of runs, with search.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::{StatusCode, Uri};

use super::form::{Fields, query};
use super::frame::Frame;
use super::history::{LoggedRun, Wanted};
use super::page::{page, problem};
use super::text::{When, in_a_line, milliseconds};
use super::visitor::{Console, Visitor};
use crate::audit::is_live;

/// Runs on one page.
const ON_A_PAGE: usize = 100;
/// Outcomes that can be chosen.
const OUTCOMES: [&str; 9] = [
    "running", "ok", "error", "timeout", "cancelled", "refused", "not-started", "not-prepared",
    "sandbox-failed",
];

#[derive(Debug, Template)]
#[template(path = "runs.html")]
struct Runs {
    frame: Frame,
    wanted: Wanted,
    outcomes: Vec<(&'static str, bool)>,
    rows: Vec<Row>,
    all: usize,
    earlier: Option<String>,
    later: Option<String>,
    /// Whether there is a log.
    is_recorded: bool,
}

/// A run in the list.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) session: String,
    pub(super) client: String,
    pub(super) outcome: String,
    pub(super) began: Option<When>,
    pub(super) lasted: String,
    pub(super) calls: u64,
    /// The code, or why it failed.
    pub(super) about: String,
    pub(super) error: String,
}

impl Row {
    pub(super) fn of(run: LoggedRun, is_running: bool) -> Self {
        let (outcome, lasted, calls, error) = match run.end {
            Some(end) => (end.outcome, milliseconds(end.milliseconds), end.calls, end.error),
            None => ((if is_running { "running" } else { "lost" }).into(), String::new(), 0, None),
        };
        Self {
            name: run.name,
            session: run.session,
            client: run.client.unwrap_or_default(),
            outcome,
            began: run.began.map(When),
            lasted,
            calls,
            about: run.first_line.unwrap_or_default(),
            error: error.as_deref().map(in_a_line).unwrap_or_default(),
        }
    }
}

pub(super) async fn page_of_runs(
    State(console): State<Arc<Console>>,
    visitor: Visitor,
    uri: Uri,
) -> Response {
    let fields = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let wanted = Wanted {
        text: fields.get("q").trim().chars().take(200).collect(),
        outcome: fields.get("outcome").to_owned(),
        session: fields.get("session").to_owned(),
    };
    let number = fields.get("page").parse::<usize>().unwrap_or(1).clamp(1, 10_000);
    let folder = visitor.workspace().audit.folder().map(ToOwned::to_owned);
    let runs = match &folder {
        Some(folder) => console.histories.runs(folder, wanted.clone()).await,
        None => Ok(Vec::new()),
    };
    let runs = match runs {
        Ok(runs) => runs,
        Err(error) => {
            tracing::warn!(%error, "could not read the audit log for the console");
            return problem(
                StatusCode::INTERNAL_SERVER_ERROR,
                "The audit log cannot be read",
                &error.to_string(),
            );
        }
    };
    let all = runs.len();
    let is_running = |run: &LoggedRun| {
        let bridge = run.name.split('-').next().unwrap_or_default();
        run.end.is_none() && folder.as_ref().is_some_and(|folder| is_live(folder, bridge))
    };
    let shown = runs.into_iter().skip((number - 1) * ON_A_PAGE).take(ON_A_PAGE);
    // What the log does not have of the last runs, the bridge knows.
    let known: HashMap<String, String> =
        console.feed(&visitor).runs().await.into_iter().map(|run| (run.name, run.first_line)).collect();
    let rows: Vec<Row> = shown
        .map(|run| {
            let is_running = is_running(&run);
            let code = known.get(&run.name).map(|line| in_a_line(line));
            let run = LoggedRun { first_line: run.first_line.or(code), ..run };
            Row::of(run, is_running)
        })
        .collect();
    let link = |number: usize| {
        let Wanted { text, outcome, session } = &wanted;
        let page = number.to_string();
        format!(
            "/console/runs?{}",
            query(&[("q", text), ("outcome", outcome), ("session", session), ("page", &page)])
        )
    };
    page(&Runs {
        frame: Frame::new(&console, &visitor, "runs", "Runs").await,
        outcomes: OUTCOMES.iter().map(|outcome| (*outcome, *outcome == wanted.outcome)).collect(),
        earlier: (number * ON_A_PAGE < all).then(|| link(number + 1)),
        later: (number > 1).then(|| link(number - 1)),
        rows,
        all,
        is_recorded: folder.is_some(),
        wanted,
    })
}
