//! Sessions that live: what they take, and a button that ends one.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};

use super::frame::Frame;
use super::page::page;
use super::text::{in_a_line, milliseconds};
use super::visitor::{Console, Sent, Visitor};
use crate::feed::{Feed, SessionRow};
use crate::sizes::bytes_text;

#[derive(Debug, Template)]
#[template(path = "sessions.html")]
struct Sessions {
    frame: Frame,
    live: Live,
}

/// What changes while the page is open.
#[derive(Debug, Template)]
#[template(path = "sessions_live.html")]
pub(super) struct Live {
    form_token: String,
    rows: Vec<Row>,
}

/// A session in the list.
#[derive(Debug)]
struct Row {
    bridge: String,
    name: String,
    run: Option<String>,
    idle: String,
    memory: String,
    processor: String,
    age: String,
    sandbox: String,
}

impl Row {
    fn of(session: SessionRow) -> Self {
        Self {
            idle: session.idle_ms.map(|idle| milliseconds((idle / 1000 * 1000) as f64)).unwrap_or_default(),
            memory: session.memory_bytes.map(bytes_text).unwrap_or_default(),
            processor: session.processor_ms.map(|time| milliseconds(time as f64)).unwrap_or_default(),
            age: milliseconds((session.age_ms / 1000 * 1000) as f64),
            sandbox: in_a_line(&format!("{} {}", session.runtime, session.image)),
            bridge: session.bridge,
            name: session.name,
            run: session.run,
        }
    }

    /// Tells it from those of the same name in other bridges.
    fn key(&self) -> String {
        format!("{}-{}", self.bridge, self.name)
    }
}

impl Live {
    pub(super) async fn of(feed: &Feed, form_token: &str) -> Self {
        let rows = feed.sessions().await.into_iter().map(Row::of).collect();
        Self { form_token: form_token.to_owned(), rows }
    }
}

pub(super) async fn page_of_sessions(State(console): State<Arc<Console>>, visitor: Visitor) -> Response {
    let live = Live::of(&console.feed(&visitor), &visitor.form_token).await;
    page(&Sessions { frame: Frame::new(&console, &visitor, "sessions", "Sessions").await, live })
}

/// Ends a session: its variables are gone.
pub(super) async fn end(State(console): State<Arc<Console>>, Sent { visitor, fields }: Sent) -> Response {
    let (bridge, session) = (fields.get("bridge"), fields.get("session"));
    let is_ended = console.feed(&visitor).end_session(bridge, session).await;
    tracing::info!(principal = %visitor.admitted.principal(), ?session, is_ended, "a session is ended in the console");
    Redirect::to("/console/sessions").into_response()
}
