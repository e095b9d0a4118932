//! Files of sessions, to be saved. They come from the sandbox in parts, as they are read.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{self, State};
use axum::response::Response;
use futures_util::stream::try_unfold;
use http::StatusCode;

use super::files::download;
use super::page::problem;
use super::text::in_a_line;
use super::visitor::{Console, Visitor};
use crate::feed::{Feed, FileError, FilePart};
use crate::sizes::bytes_text;

/// Bytes of a file. The folder of a session has less, but what a sandbox says of it is its own word.
const LARGEST: u64 = 1 << 30;

/// A file that is being read.
struct Reading {
    console: Arc<Console>,
    /// The workspace stays meanwhile.
    visitor: Visitor,
    feed: Feed,
    run: String,
    number: usize,
    size: u64,
    at: u64,
    first: Option<FilePart>,
}

impl Reading {
    /// Returns the next bytes; None after the last. What is not as the first part says ends the answer before its length.
    async fn next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        if self.at == self.size {
            return Ok(None);
        }
        let FilePart { size, mut bytes } = match self.first.take() {
            Some(first) => first,
            None if !self.visitor.still_sees(&self.console) => {
                return Err(ErrorKind::PermissionDenied.into());
            }
            None => self.feed.file(&self.run, self.number, self.at).await.map_err(io::Error::other)?,
        };
        bytes.truncate(usize::try_from(self.size - self.at).unwrap_or(usize::MAX));
        if size != self.size || bytes.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.at += bytes.len() as u64;
        Ok(Some((bytes.into(), self)))
    }
}

/// Returns a file that a run made or changed, as it is now.
pub(super) async fn content(
    State(console): State<Arc<Console>>,
    extract::Path((run, number)): extract::Path<(String, usize)>,
    visitor: Visitor,
) -> Response {
    let feed = console.feed(&visitor);
    let known = feed.run(&run).await;
    let file = known.as_ref().and_then(|known| known.files.get(number.checked_sub(1)?));
    let Some(path) = file.map(|file| file.path.clone()) else {
        return gone("Only files of the last runs are listed.");
    };
    let first = match feed.file(&run, number, 0).await {
        Ok(first) if first.size <= LARGEST => first,
        Ok(first) => {
            let why =
                format!("It has {}, and a download at most {}.", bytes_text(first.size), bytes_text(LARGEST));
            return problem(StatusCode::PAYLOAD_TOO_LARGE, "The file is too large", &why);
        }
        Err(error) => return gone(&why(&error)),
    };
    let name = path.rsplit('/').next().unwrap_or(&path);
    let (size, at) = (first.size, 0);
    let reading = Reading { console, visitor, feed, run, number, size, at, first: Some(first) };
    download(name, size, Body::from_stream(try_unfold(reading, Reading::next)))
}

fn why(error: &FileError) -> String {
    match error {
        FileError::NoSession(_) | FileError::Ended => {
            "Its session has ended, and its files with it. Artifacts stay: runtime.save_artifact(path)."
                .into()
        }
        other => format!("It cannot be read: {}.", in_a_line(&other.to_string())),
    }
}

fn gone(why: &str) -> Response {
    problem(StatusCode::NOT_FOUND, "The file is gone", why)
}
