//! News for a page that is open, as server-sent events. Each is a part of the page as it is now, or more output of its run.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, Uri};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::{sleep, timeout};

use askama::Template;

use super::form::Fields;
use super::text::text_of;
use super::visitor::{Console, Visitor};
use super::{approvals, cookie, now, run, sessions};
use crate::feed::{Attendance, Changes, Feed, StreamName};

/// The time between two looks at what has changed.
const PACE: Duration = Duration::from_millis(250);
/// How often it is looked whether the browser is still signed in.
const LOOK: Duration = Duration::from_secs(1);
/// Looks after which something is sent, so that proxies keep the stream and a browser that is gone is noticed.
const SILENT_LOOKS: u32 = 15;

/// What a page shows that changes.
#[derive(Debug)]
enum Shown {
    Now,
    Approvals,
    Sessions,
    Run {
        name: String,
        offsets: [u64; 2],
    },
    /// Only how many questions wait.
    Other,
}

/// A page that is open.
struct Open {
    console: Arc<Console>,
    visitor: Visitor,
    secret: String,
    feed: Feed,
    changes: Changes,
    shown: Shown,
    /// The digest of each part as it was sent.
    sent: Vec<(&'static str, [u8; 32])>,
    /// Somebody can answer questions.
    _attendance: Option<Attendance>,
}

pub(super) async fn live(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    uri: Uri,
    visitor: Visitor,
) -> Response {
    let fields = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let offset = |name: &str| fields.get(name).parse().unwrap_or(0);
    let shown = match fields.get("page") {
        "now" => Shown::Now,
        "approvals" => Shown::Approvals,
        "sessions" => Shown::Sessions,
        "run" => {
            Shown::Run { name: fields.get("run").to_owned(), offsets: [offset("stdout"), offset("stderr")] }
        }
        _ => Shown::Other,
    };
    let secret = cookie::read(&headers, &console.cookie()).unwrap_or_default().to_owned();
    let feed = console.feed(&visitor);
    let attendance = visitor.admitted.may_approve().then(|| feed.attend());
    let changes = feed.changes();
    let open =
        Open { console, visitor, secret, feed, changes, shown, sent: Vec::new(), _attendance: attendance };
    let events = unfold(Some(open), async |open| {
        let mut open = open?;
        let (text, goes_on) = open.next().await;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(text)), goes_on.then_some(open)))
    });
    // A proxy that collects an answer would hold all of it back.
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    ([(CONTENT_TYPE, "text/event-stream"), (unbuffered, "no")], Body::from_stream(events)).into_response()
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

impl Open {
    /// Waits until there is something to send; false if it is the last.
    async fn next(&mut self) -> (String, bool) {
        let mut silent = 0;
        loop {
            let is_changed = timeout(LOOK, self.changes.next()).await.is_ok();
            if !self.console.visits.holds(&self.secret, |admitted| self.console.site.still(admitted)) {
                return (event(&json!({ "gone": true })), false);
            }
            // What sessions take changes all the time.
            if !self.visitor.goes_on(&self.console) {
                return (": \n\n".into(), false);
            }
            if is_changed || (matches!(self.shown, Shown::Sessions) && silent % 2 == 1) {
                let news = self.news().await;
                if !news.is_empty() {
                    return (news, true);
                }
                sleep(PACE).await;
            }
            silent += 1;
            if silent >= SILENT_LOOKS {
                return (": \n\n".into(), true);
            }
        }
    }

    async fn news(&mut self) -> String {
        let mut news = String::new();
        let questions = self.feed.questions().await.len();
        self.add(&mut news, "questions", if questions > 0 { questions.to_string() } else { String::new() });
        let token = self.visitor.form_token.clone();
        match &mut self.shown {
            Shown::Now => {
                let part = now::Live::of(&self.feed, &token).await.render();
                self.add(&mut news, "now", part.unwrap_or_default());
            }
            Shown::Approvals => {
                let may_approve = self.visitor.admitted.may_approve();
                let part = approvals::Live::of(&self.feed, &token, may_approve).await.render();
                self.add(&mut news, "approvals", part.unwrap_or_default());
            }
            Shown::Run { name, offsets } => {
                // Before the output: that of a run that has ended is whole then.
                let parts = run::live_parts(&self.console, &self.visitor, name).await;
                for ((stream, id), offset) in
                    [(StreamName::Stdout, "stdout"), (StreamName::Stderr, "stderr")].into_iter().zip(offsets)
                {
                    let text = more_output(&self.feed, name, stream, offset).await;
                    if !text.is_empty() {
                        news.push_str(&event(&json!({ "output": id, "text": text, "next": *offset })));
                    }
                }
                if let Some(parts) = parts {
                    self.add(&mut news, "run", parts.run);
                    self.add(&mut news, "calls", parts.calls);
                    if parts.has_ended {
                        self.shown = Shown::Other;
                    }
                }
            }
            Shown::Sessions => {
                let part = sessions::Live::of(&self.feed, &token).await.render();
                self.add(&mut news, "sessions", part.unwrap_or_default());
            }
            Shown::Other => {}
        }
        news
    }

    /// Adds a part of the page, if it is not as it was sent.
    fn add(&mut self, news: &mut String, id: &'static str, html: String) {
        let digest = Sha256::digest(&html).into();
        match self.sent.iter_mut().find(|(known, _)| *known == id) {
            Some((_, known)) if *known == digest => return,
            Some((_, known)) => *known = digest,
            None => self.sent.push((id, digest)),
        }
        news.push_str(&event(&json!({ "id": id, "html": html })));
    }
}

/// Returns the output from an offset on, and moves the offset.
async fn more_output(feed: &Feed, run: &str, stream: StreamName, offset: &mut u64) -> String {
    let Some(part) = feed.output(run, stream, *offset).await else { return String::new() };
    *offset = part.next;
    text_of(&part.pieces)
}
