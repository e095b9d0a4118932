//! Streams of events in the format `text/event-stream`.

use std::io;
use std::sync::{Arc, PoisonError};

use futures_util::stream::{BoxStream, StreamExt, unfold};
use reqwest::Response;
use rmcp::model::ServerJsonRpcMessage;
use tokio::sync::Mutex;
use tokio_util::io::StreamReader;

use super::client::HttpError;
use super::turns::{Reading, Turns};
use crate::mcp::client::{Inbox, Unaccepted};
use crate::mcp::line::{Line, LineReader, Skipped};
use crate::upstream::pool::stdio::LONGEST_LINE;

/// Bytes of a name or an id that are kept.
const LONGEST_NAME: usize = 4 << 10;

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// Empty for a message.
    pub(super) name: String,
    pub(super) data: Data,
    pub(super) id: Option<String>,
    pub(super) retry: Option<u64>,
}

/// The data of an event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Data {
    #[default]
    None,
    Whole(Vec<u8>),
    /// It was too long to keep.
    TooLong(Skipped),
}

/// Reads the events of a response.
pub(super) struct EventReader {
    lines: LineReader<Body>,
    /// The event that is being read.
    reading: Arc<Mutex<Reading>>,
}

impl EventReader {
    pub(super) fn new(response: Response, turns: &Turns) -> Self {
        let reading = Arc::new(Mutex::new(turns.reading()));
        let body = body_of(response, Arc::clone(&reading));
        Self { lines: LineReader::new(body, LONGEST_LINE), reading }
    }

    /// Returns the next event; None at the end. An incomplete last event is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, HttpError> {
        let mut event = Event::default();
        loop {
            let line = self.lines.next_line().await;
            match line.map_err(|error| HttpError::Connection(error.to_string()))? {
                None => return Ok(None),
                Some(Line::TooLong(skipped)) => event.data = Data::TooLong(without_field_name(skipped)),
                Some(Line::Complete(line)) => {
                    let line = line.strip_suffix(b"\r").unwrap_or(line);
                    if line.is_empty() {
                        self.reading.lock().await.end();
                        if event != Event::default() {
                            return Ok(Some(event));
                        }
                    } else {
                        event.add(line);
                    }
                }
            }
        }
    }
}

impl Event {
    /// Reads a line `field: value`. Unknown fields are ignored.
    fn add(&mut self, line: &[u8]) {
        let at = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(at);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(&value[..value.len().min(LONGEST_NAME)]).into_owned();
        match field {
            b"data" => match &mut self.data {
                Data::None => self.data = Data::Whole(value.to_vec()),
                Data::Whole(data) if data.len() + value.len() < LONGEST_LINE => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                Data::Whole(data) => {
                    let head = data.iter().copied().take(1 << 10).collect();
                    let length = (data.len() + value.len()) as u64;
                    self.data = Data::TooLong(Skipped { head, tail: Vec::new(), length });
                }
                Data::TooLong(skipped) => skipped.length += value.len() as u64,
            },
            b"event" => self.name = text(),
            b"id" => self.id = Some(text()),
            b"retry" => self.retry = text().parse().ok(),
            _ => {}
        }
    }

    /// Reads the messages in its data, and returns what `rmcp` has to know of them.
    pub(super) fn read(&self, inbox: &std::sync::Mutex<Inbox>) -> Vec<ServerJsonRpcMessage> {
        let read = match &self.data {
            _ if !matches!(self.name.as_str(), "" | "message") => return Vec::new(),
            Data::None => return Vec::new(),
            Data::Whole(data) => Unaccepted::read(data),
            Data::TooLong(skipped) => Unaccepted::read_skipped(skipped, LONGEST_LINE),
        };
        inbox.lock().unwrap_or_else(PoisonError::into_inner).accept_all(read)
    }
}

fn without_field_name(mut skipped: Skipped) -> Skipped {
    if let Some(at) = skipped.head.iter().position(|byte| *byte == b':') {
        skipped.head.drain(..=at);
    }
    skipped
}

/// The body of a response as a reader.
type Body = StreamReader<BoxStream<'static, io::Result<Chunk>>, Chunk>;
type Chunk = io::Cursor<Vec<u8>>;

fn body_of(response: Response, reading: Arc<Mutex<Reading>>) -> Body {
    let chunks = unfold((response, reading), |(mut response, reading)| async move {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => {
                reading.lock().await.add(chunk.len()).await;
                Ok(io::Cursor::new(chunk.to_vec()))
            }
            Ok(None) => return None,
            Err(error) => Err(io::Error::other(HttpError::from(error))),
        };
        Some((chunk, (response, reading)))
    });
    StreamReader::new(chunks.boxed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(text: &'static str) -> EventReader {
        let chunks = text.as_bytes().chunks(3).map(|chunk| Ok(io::Cursor::new(chunk.to_vec())));
        let body = StreamReader::new(futures_util::stream::iter(chunks).boxed());
        EventReader {
            lines: LineReader::new(body, LONGEST_LINE),
            reading: Arc::new(Mutex::new(Turns::default().reading())),
        }
    }

    #[tokio::test]
    async fn events_are_read_as_they_are_written() {
        let mut events = reader(
            ": hello\n\nevent: endpoint\r\ndata: /x?y=1\r\n\r\ndata:{\"a\":\ndata: 1}\nid: 7\nretry: 20\n\nid\n\nunknown: x\n\ndata: lost",
        );
        let whole = |text: &str| Data::Whole(text.as_bytes().to_vec());
        let expected = [
            Event { name: "endpoint".into(), data: whole("/x?y=1"), ..Event::default() },
            Event { data: whole("{\"a\":\n1}"), id: Some("7".into()), retry: Some(20), ..Event::default() },
            Event { id: Some(String::new()), ..Event::default() },
        ];
        for event in expected {
            assert_eq!(events.next().await.unwrap(), Some(event));
        }
        assert_eq!(events.next().await.unwrap(), None);
    }
}
