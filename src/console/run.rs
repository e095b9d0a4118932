//! One run: its code, what it printed and displayed, its files, and its calls. Of the last runs the bridge itself knows all of it;
//! of older ones it is what the audit log has.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use askama::Template;
use axum::extract::{self, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};

use super::artifacts::content_link;
use super::calls::{Call, calls_of, denied, logged_calls};
use super::files::{self, IMAGES};
use super::frame::Frame;
use super::history::LoggedRun;
use super::now::row_of;
use super::page::{page, problem};
use super::runs::Row;
use super::text::{Shown, in_a_line, milliseconds, text_of};
use super::visitor::{Console, Visitor};
use crate::audit::{Found, is_live, read_lines_of};
use crate::feed::{Feed, RunDetail, StreamName};
use crate::sizes::bytes_text;

/// Displayed objects and files on the page.
const MOST_DISPLAYS: usize = 100;
const MOST_FILES: usize = 200;
/// The texts that can be read whole.
const TEXTS: [&str; 3] = ["code", "stdout", "stderr"];
const BY_LOG: &str = "MCP_BRIDGE_AUDIT=full records it";

#[derive(Debug, Template)]
#[template(path = "run.html")]
struct Run {
    frame: Frame,
    live: Live,
    calls: Calls,
    code: Text,
    stdout: Text,
    stderr: Text,
    /// Where more output begins.
    next: [u64; 2],
}

/// What changes while the run is under way.
#[derive(Debug, Template)]
#[template(path = "run_live.html")]
struct Live {
    form_token: String,
    row: Row,
    is_under_way: bool,
    /// For the clock of the page.
    elapsed_ms: Option<u64>,
    doing: String,
    questions: usize,
    runtime: String,
    image: String,
    servers: String,
    timeout: String,
    exit_code: Option<i32>,
    notices: Vec<String>,
    denied: Vec<String>,
    displays: Vec<Display>,
    files: Vec<FileLink>,
}

/// The calls of the run, which change too.
#[derive(Debug, Template)]
#[template(path = "calls_live.html")]
struct Calls {
    run: String,
    calls: Vec<Call>,
    left_out: usize,
}

/// A displayed object.
#[derive(Debug)]
struct Display {
    number: usize,
    /// The form that the page shows.
    picture: Option<usize>,
    /// The other forms, with their types.
    forms: Vec<(usize, String)>,
}

/// A file of the session, or an artifact.
#[derive(Debug)]
struct FileLink {
    name: String,
    size: String,
    /// Where its content is, if it can be read.
    link: Option<String>,
}

/// A text of the run, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Text {
    pub(super) shown: Shown,
    /// Why it is not shown.
    pub(super) missing: Option<String>,
}

/// What the log has of a run.
#[derive(Default)]
struct Logged {
    folder: PathBuf,
    lines: Vec<Found>,
    run: LoggedRun,
    is_running: bool,
}

impl Run {
    /// Returns the path of a whole text.
    fn link(&self, text: &str) -> String {
        format!("/console/runs/{}/{text}", self.live.row.name)
    }
}

impl Logged {
    async fn read(visitor: &Visitor, name: &str) -> io::Result<Self> {
        let Some(folder) = visitor.workspace().audit.folder().map(Path::to_path_buf) else {
            return Ok(Self::default());
        };
        let name = name.to_owned();
        let read = move || {
            let lines = read_lines_of(&folder, &name)?;
            let is_running = lines.first().is_some_and(|line| is_live(&folder, line.bridge()));
            let mut run = LoggedRun { name, ..LoggedRun::default() };
            lines.iter().for_each(|line| run.note(&folder, line));
            Ok(Self { folder, lines, run, is_running })
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Returns a text of the line about an event.
    fn text(&self, event: &str, field: &str) -> Text {
        let missing = |why: String| Text { missing: Some(why), ..Text::default() };
        let Some(line) = self.lines.iter().find(|line| line.record.event == event) else {
            return missing("the run did not end".into());
        };
        match line.text_of(&self.folder, field) {
            Ok(Some(text)) if field == "code" => Text { shown: Shown::of_code(&text), missing: None },
            Ok(Some(text)) => Text { shown: Shown::of(&text), missing: None },
            Ok(None) if line.record.left_out.iter().any(|left_out| left_out == field) => {
                missing("there was no space for it in the log".into())
            }
            Ok(None) => missing(BY_LOG.into()),
            Err(why) => missing(format!("it cannot be read: {why}")),
        }
    }

    fn whole_text(&self, field: &str) -> Option<String> {
        self.lines.iter().find_map(|line| line.text_of(&self.folder, field).ok().flatten())
    }
}

impl Live {
    /// Returns what the log has, and what the bridge knows beside.
    fn of(logged: &Logged, known: Option<RunDetail>, form_token: &str) -> Self {
        let run = &logged.run;
        let mut live = Self {
            form_token: form_token.to_owned(),
            row: Row::of(run.clone(), logged.is_running),
            is_under_way: false,
            elapsed_ms: None,
            doing: String::new(),
            questions: 0,
            runtime: run.runtime.clone().unwrap_or_default(),
            image: run.image.clone().unwrap_or_default(),
            servers: run.servers.join(", "),
            timeout: milliseconds(run.timeout_seconds * 1000.0),
            exit_code: run.end.as_ref().and_then(|end| end.exit_code).filter(|code| *code != 0),
            notices: Vec::new(),
            denied: denied(&logged.lines),
            displays: Vec::new(),
            files: Vec::new(),
        };
        if let Some(known) = known {
            live.add(known);
        }
        live
    }

    fn add(&mut self, known: RunDetail) {
        self.is_under_way = !known.row.state.has_ended();
        self.elapsed_ms = self.is_under_way.then_some(known.row.elapsed_ms);
        self.row = row_of(&known.row);
        self.doing =
            known.row.doing.as_deref().filter(|_| self.is_under_way).map(in_a_line).unwrap_or_default();
        self.questions = known.row.questions;
        self.timeout = milliseconds(known.timeout_ms as f64);
        self.servers = known.servers.join(", ");
        self.notices = known.notices.iter().map(|notice| in_a_line(notice)).collect();
        self.displays = known.displays.iter().enumerate().take(MOST_DISPLAYS).map(display_of).collect();
        let run = &known.row.name;
        let files = known.files.iter().enumerate().map(|(at, file)| FileLink {
            name: in_a_line(&file.path),
            size: bytes_text(file.bytes),
            link: file.uri.as_ref().map(|_| format!("/console/runs/{run}/files/{}", at + 1)),
        });
        let artifacts = known.artifacts.iter().map(|artifact| FileLink {
            name: format!("artifact {}, version {}", in_a_line(&artifact.name), artifact.version),
            size: bytes_text(artifact.bytes),
            link: Some(content_link(&artifact.name, artifact.version)),
        });
        self.files = files.chain(artifacts).take(MOST_FILES).collect();
    }
}

impl Calls {
    /// Returns what the log has, with arguments and results, or else what the bridge knows: calls that are under way as well.
    fn of(logged: &Logged, known: Option<&RunDetail>) -> Self {
        let (calls, left_out) = logged_calls(&logged.folder, &logged.lines, &logged.run);
        let run = known.map_or_else(|| logged.run.name.clone(), |known| known.row.name.clone());
        match known.filter(|known| known.calls.len() > calls.len()) {
            Some(known) => {
                let left_out = usize::try_from(known.calls_left_out).unwrap_or(usize::MAX);
                Self { run, calls: calls_of(known), left_out }
            }
            None => Self { run, calls, left_out },
        }
    }
}

fn display_of((at, mimes): (usize, &Vec<String>)) -> Display {
    let picture = mimes.iter().position(|mime| IMAGES.contains(&mime.as_str()));
    let others = mimes.iter().enumerate().filter(|(form, _)| Some(*form) != picture);
    Display { number: at + 1, picture, forms: others.map(|(form, mime)| (form, in_a_line(mime))).collect() }
}

fn no_such_run() -> Response {
    let why = "Its lines may have been removed from the log, which has a limit of 256 MiB.";
    problem(StatusCode::NOT_FOUND, "There is no such run", why)
}

/// Returns what is kept of the output of a run, and where more begins.
async fn output(feed: &Feed, run: &str, stream: StreamName) -> Option<(String, u64)> {
    // All that is kept is one part: a run that prints faster than it is asked has no end.
    let part = feed.output(run, stream, 0).await?;
    Some((text_of(&part.pieces), part.next))
}

/// Returns a stream of a run, and where more of it begins.
async fn stream_of(
    feed: &Feed,
    logged: &Logged,
    name: &str,
    stream: StreamName,
    known: Option<&RunDetail>,
) -> (Text, u64) {
    let field = if matches!(stream, StreamName::Stdout) { "stdout" } else { "stderr" };
    let of_log = logged.text("run", field);
    // The log has all of it, and the record the last of many runs.
    let has_ended = known.is_none_or(|known| known.row.state.has_ended());
    if has_ended && of_log.missing.is_none() {
        return (of_log, 0);
    }
    match output(feed, name, stream).await.filter(|_| known.is_some()) {
        Some((text, next)) => (Text { shown: Shown::of(&text), missing: None }, next),
        None => (of_log, 0),
    }
}

pub(super) async fn page_of_run(
    State(console): State<Arc<Console>>,
    extract::Path(name): extract::Path<String>,
    visitor: Visitor,
) -> Response {
    let feed = console.feed(&visitor);
    let known = feed.run(&name).await;
    let name = known.as_ref().map_or(name, |known| known.row.name.clone());
    let logged = match Logged::read(&visitor, &name).await {
        Ok(logged) if known.is_some() || !logged.lines.is_empty() => logged,
        Ok(_) => return no_such_run(),
        Err(error) => {
            return problem(
                StatusCode::INTERNAL_SERVER_ERROR,
                "The audit log cannot be read",
                &error.to_string(),
            );
        }
    };
    let code = match &known {
        Some(known) if known.code_left_out == 0 => Text { shown: Shown::of_code(&known.code), missing: None },
        Some(known) => match logged.text("run-start", "code") {
            Text { missing: Some(_), .. } => {
                let note = format!("\n[{} are left out]", bytes_text(known.code_left_out));
                Text { shown: Shown::of_code(&(known.code.clone() + &note)), missing: None }
            }
            whole => whole,
        },
        None => logged.text("run-start", "code"),
    };
    let of_known = known.as_ref();
    let (stdout, next_stdout) = stream_of(&feed, &logged, &name, StreamName::Stdout, of_known).await;
    let (stderr, next_stderr) = stream_of(&feed, &logged, &name, StreamName::Stderr, of_known).await;
    page(&Run {
        frame: Frame::new(&console, &visitor, "runs", format!("Run {name}")).await,
        calls: Calls::of(&logged, known.as_ref()),
        live: Live::of(&logged, known, &visitor.form_token),
        code,
        stdout,
        stderr,
        next: [next_stdout, next_stderr],
    })
}

/// The parts of the page of a run that change.
#[derive(Debug)]
pub(super) struct LiveParts {
    pub(super) run: String,
    pub(super) calls: String,
    pub(super) has_ended: bool,
}

/// Returns the parts of the page of a run that change, as they are now.
pub(super) async fn live_parts(console: &Console, visitor: &Visitor, name: &str) -> Option<LiveParts> {
    let known = console.feed(visitor).run(name).await?;
    let has_ended = known.row.state.has_ended();
    // The end is in the log, with the arguments and results of calls.
    let logged = match has_ended {
        true => Logged::read(visitor, &known.row.name).await.ok()?,
        false => Logged::default(),
    };
    let calls = Calls::of(&logged, Some(&known)).render().ok()?;
    let run = Live::of(&logged, Some(known), &visitor.form_token).render().ok()?;
    Some(LiveParts { run, calls, has_ended })
}

/// Returns a text with all that is known of it.
pub(super) async fn whole_text(
    State(console): State<Arc<Console>>,
    extract::Path((name, field)): extract::Path<(String, String)>,
    visitor: Visitor,
) -> Response {
    let Some(field) = TEXTS.into_iter().find(|known| *known == field) else { return no_such_run() };
    let Ok(logged) = Logged::read(&visitor, &name).await else { return no_such_run() };
    if let Some(text) = logged.whole_text(field) {
        return plain_text(text);
    }
    let feed = console.feed(&visitor);
    let text = match field {
        "code" => feed.run(&name).await.map(|known| known.code),
        "stdout" => output(&feed, &name, StreamName::Stdout).await.map(|(text, _)| text),
        _ => output(&feed, &name, StreamName::Stderr).await.map(|(text, _)| text),
    };
    text.map_or_else(no_such_run, plain_text)
}

/// Returns a form of a displayed object.
pub(super) async fn display(
    State(console): State<Arc<Console>>,
    extract::Path((name, number, form)): extract::Path<(String, usize, usize)>,
    visitor: Visitor,
) -> Response {
    let forms = console.feed(&visitor).display(&name, number).await;
    match forms.and_then(|forms| forms.into_iter().nth(form)) {
        Some((mime, bytes)) => files::bytes(&format!("{name}-{number}"), &mime, bytes),
        None => {
            problem(StatusCode::NOT_FOUND, "The object is gone", "Only objects of the last runs are kept.")
        }
    }
}

/// Returns a text of somebody else: it is never a document of this origin.
fn plain_text(text: String) -> Response {
    let policy = "sandbox; default-src 'none'";
    ([(CONTENT_TYPE, "text/plain; charset=utf-8"), (CONTENT_SECURITY_POLICY, policy)], text).into_response()
}
