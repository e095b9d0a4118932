//! The user's MCP servers: whether they work, and their tools. Nothing is started for it, and no credential is in it.

use std::sync::Arc;

use askama::Template;
use axum::extract::{self, State};
use axum::response::Response;
use codebridge_runtimes::exec::visible_line;
use http::StatusCode;
use jiff::Timestamp;

use super::frame::Frame;
use super::login::LoginPart;
use super::page::{page, problem};
use super::text::{When, in_a_line, plain};
use super::visitor::{Console, Visitor};
use crate::feed::ServerRow;
use crate::upstream::discovery::{Server, Skip};
use crate::upstream::{Known, trust_command};

/// Tools on the page of a server.
const MOST_TOOLS: usize = 1_000;

#[derive(Debug, Template)]
#[template(path = "servers.html")]
struct Servers {
    frame: Frame,
    rows: Vec<Row>,
}

#[derive(Debug, Template)]
#[template(path = "server.html")]
struct OneServer {
    frame: Frame,
    row: Row,
    /// None for a server to which nobody can log in.
    login: Option<LoginPart>,
    tools: Vec<ToolRow>,
    left_out: usize,
}

/// A server in the list.
#[derive(Debug)]
struct Row {
    name: String,
    transport: &'static str,
    state: &'static str,
    tools: Option<usize>,
    about: String,
    /// Why it is not used, or failed the last time.
    error: String,
    /// All of it.
    whole_error: String,
    hint: String,
    failed: Option<When>,
}

#[derive(Debug)]
struct ToolRow {
    name: String,
    signature: String,
    description: String,
}

impl Row {
    /// `now` is what servers do now.
    fn of(server: &Server, known: &Known, now: &[ServerRow]) -> Self {
        let Known { docs, failure } = known;
        let mut row = Self {
            name: visible_line(&server.name),
            transport: "",
            state: "not asked yet",
            tools: docs.as_ref().map(|docs| docs.tools().len()),
            about: String::new(),
            error: String::new(),
            whole_error: String::new(),
            hint: String::new(),
            failed: None,
        };
        let purpose = || docs.as_ref().and_then(|docs| docs.purpose());
        row.about = in_a_line(&server.description.clone().or_else(purpose).unwrap_or_default());
        match &server.definition {
            Ok(definition) => row.transport = definition.launch.transport(),
            Err(Skip::Untrusted(_)) => {
                (row.state, row.hint) = ("untrusted", format!("run `{}`", trust_command(&server.name)));
            }
            Err(why) => (row.state, row.error) = ("not used", in_a_line(&why.to_string())),
        }
        if server.definition.is_ok() && docs.is_some() {
            row.state = "works";
        }
        if let Some(failure) = failure {
            row.state = "failed";
            row.failed = Timestamp::try_from(failure.at).ok().map(When);
            (row.error, row.whole_error) = (in_a_line(&failure.why.error), plain(&failure.why.error));
            row.hint = failure.why.hint.as_deref().map(in_a_line).unwrap_or_default();
        }
        match now.iter().find(|now| *now.name == *server.name).map(|now| now.state.as_str()) {
            Some("running") => row.state = "running",
            Some("starting") => row.state = "starting",
            _ => {}
        }
        row
    }
}

/// Returns all servers that a page may show. Where a definition is, is the operator's business.
async fn rows(console: &Console, visitor: &Visitor) -> Vec<Row> {
    let upstream = &visitor.workspace().upstream;
    let snapshot = upstream.snapshot();
    let known = upstream.all_known_docs().await;
    let now = console.feed(visitor).servers().await;
    let used = known.iter().map(|(server, known)| Row::of(server, known, &now));
    let skipped =
        snapshot.skipped.iter().filter(|server| !matches!(server.definition, Err(Skip::Duplicate(_))));
    used.chain(skipped.map(|server| Row::of(server, &Known::default(), &[]))).collect()
}

pub(super) async fn page_of_servers(State(console): State<Arc<Console>>, visitor: Visitor) -> Response {
    let rows = rows(&console, &visitor).await;
    page(&Servers { frame: Frame::new(&console, &visitor, "servers", "Servers").await, rows })
}

pub(super) async fn page_of_server(
    State(console): State<Arc<Console>>,
    extract::Path(name): extract::Path<String>,
    visitor: Visitor,
) -> Response {
    let known = visitor.workspace().upstream.all_known_docs().await;
    let Some((server, known)) = known.into_iter().find(|(server, _)| *server.name == *name) else {
        return problem(
            StatusCode::NOT_FOUND,
            "There is no such server",
            "Its definition may be gone, or is not used.",
        );
    };
    let summaries = known.docs.as_ref().map(|docs| docs.tools()).unwrap_or_default();
    let tools = summaries.iter().take(MOST_TOOLS).map(|tool| ToolRow {
        name: visible_line(&tool.name),
        signature: visible_line(&tool.signature),
        description: visible_line(&tool.description),
    });
    page(&OneServer {
        frame: Frame::new(&console, &visitor, "servers", format!("Server {}", visible_line(&server.name)))
            .await,
        tools: tools.collect(),
        left_out: summaries.len().saturating_sub(MOST_TOOLS),
        row: Row::of(&server, &known, &console.feed(&visitor).servers().await),
        login: LoginPart::of(&visitor.workspace().upstream, &server),
    })
}
