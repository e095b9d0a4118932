//! Files that code has saved, as a gallery.

use std::fs::File;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use codebridge_runtimes::exec::visible_line;
use http::{StatusCode, Uri};

use super::files::{self, IMAGES};
use super::form::{Fields, query};
use super::frame::Frame;
use super::page::{page, problem};
use super::text::{When, in_a_line, plain};
use super::visitor::{Console, Visitor};
use crate::artifacts::{Artifact, Artifacts, is_text};
use crate::session::RunPython;
use crate::sizes::bytes_text;

/// Artifacts on one page.
const ON_A_PAGE: usize = 48;
/// Bytes of a picture that is shown in the gallery.
const LARGEST_PICTURE: u64 = 8 << 20;
/// Bytes of a text that the gallery shows.
const PREVIEW: u64 = 600;

#[derive(Debug, Template)]
#[template(path = "artifacts.html")]
struct Gallery {
    frame: Frame,
    cards: Vec<Card>,
    all: usize,
    used: String,
    limit: String,
    earlier: Option<String>,
    later: Option<String>,
}

/// An artifact in the gallery.
#[derive(Debug)]
struct Card {
    name: String,
    version: u32,
    size: String,
    kind: String,
    about: String,
    run: u32,
    session: String,
    created: When,
    /// Where its content is.
    link: String,
    is_picture: bool,
    preview: String,
}

impl Card {
    fn of(artifacts: &Artifacts, artifact: &Artifact) -> Self {
        Self {
            name: visible_line(&artifact.name),
            version: artifact.version,
            size: bytes_text(artifact.bytes),
            kind: visible_line(&artifact.mime_type),
            about: in_a_line(artifact.description.as_deref().unwrap_or_default()),
            run: artifact.run,
            session: visible_line(artifact.session.as_deref().unwrap_or_default()),
            created: When(artifact.created),
            link: content_link(&artifact.name, artifact.version),
            is_picture: IMAGES.contains(&artifact.mime_type.as_str()) && artifact.bytes <= LARGEST_PICTURE,
            preview: preview(artifacts, artifact).unwrap_or_default(),
        }
    }
}

/// Returns where the content of an artifact is.
pub(super) fn content_link(name: &str, version: u32) -> String {
    format!("/console/artifacts/content?{}", query(&[("name", name), ("version", &version.to_string())]))
}

/// Returns the beginning of a text.
fn preview(artifacts: &Artifacts, artifact: &Artifact) -> Option<String> {
    use std::io::Read;
    if !is_text(&artifact.mime_type) {
        return None;
    }
    let mut beginning = Vec::new();
    artifacts.open(artifact).ok()?.take(PREVIEW).read_to_end(&mut beginning).ok()?;
    Some(plain(&String::from_utf8_lossy(&beginning)))
}

pub(super) async fn gallery(State(console): State<Arc<Console>>, visitor: Visitor, uri: Uri) -> Response {
    let fields = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let number = fields.get("page").parse::<usize>().unwrap_or(1).clamp(1, 10_000);
    let artifacts = visitor.workspace().sessions.artifacts().clone();
    let read = move || {
        let mut latest = artifacts.latest();
        latest.sort_by_key(|artifact| std::cmp::Reverse(artifact.created));
        let on_page = latest.iter().skip((number - 1) * ON_A_PAGE).take(ON_A_PAGE);
        let cards: Vec<Card> = on_page.map(|artifact| Card::of(&artifacts, artifact)).collect();
        (cards, latest.len(), bytes_text(artifacts.used()), bytes_text(artifacts.limit()))
    };
    let Ok((cards, all, used, limit)) = tokio::task::spawn_blocking(read).await else {
        return problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The artifacts cannot be read",
            "The log of the bridge says why.",
        );
    };
    let link = |number: usize| format!("/console/artifacts?page={number}");
    page(&Gallery {
        frame: Frame::new(&console, &visitor, "artifacts", "Artifacts").await,
        earlier: (number * ON_A_PAGE < all).then(|| link(number + 1)),
        later: (number > 1).then(|| link(number - 1)),
        cards,
        all,
        used,
        limit,
    })
}

/// Returns the bytes of an artifact.
pub(super) async fn content(visitor: Visitor, uri: Uri) -> Response {
    let fields = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let (name, version) = (fields.get("name").to_owned(), fields.get("version").parse().ok());
    let artifacts = visitor.workspace().sessions.artifacts().clone();
    let open = move || -> Option<(Artifact, File)> {
        let artifact = artifacts.find(&name, version).ok()?;
        let file = artifacts.open(&artifact).ok()?;
        Some((artifact, file))
    };
    match tokio::task::spawn_blocking(open).await {
        Ok(Some((artifact, file))) => {
            files::stream(&artifact.name, &artifact.mime_type, artifact.bytes, file)
        }
        _ => problem(StatusCode::NOT_FOUND, "There is no such artifact", "It may have been removed."),
    }
}
