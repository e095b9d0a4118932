//! Any bytes on standard input, and any answer of a server.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use codebridge_fuzz::fuzz;
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::AsyncWrite;
use tokio_util::sync::CancellationToken;

use super::message::{Incoming, read_line, read_skipped};
use super::transport::LineTransport;
use crate::mcp::line::{BYTE_ORDER_MARK, Line, LineReader, Skipped};
use crate::mcp::repair::repair;

const WORDS: [&str; 16] = [
    "\"jsonrpc\":\"2.0\"", "\"id\":1", "\"method\":\"", "\"params\":{}", "tools/call", "initialize",
    "\"result\":{}", "\"error\":{}", "_meta", "protocolVersion", "2025-11-25", "2026-07-28", "Infinity",
    "\\udfff", "{\"id\":7}", "\u{feff}",
];

/// What was written.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl AsyncWrite for Written {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Checks the answer to a line. Answers of the client are never answered.
fn check(line: &[u8], incoming: &Incoming) {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii();
    let value = serde_json::from_slice::<Value>(line).ok();
    let has = |name: &str| value.as_ref().is_some_and(|value| value.get(name).is_some());
    match incoming {
        Incoming::Answer(answer) => {
            let answer = serde_json::to_value(answer).unwrap();
            assert!(answer["jsonrpc"] == "2.0" && answer["error"]["message"].is_string(), "{answer}");
            assert!(has("method") || !(has("result") || has("error")), "an answer is answered: {answer}");
            if let (Some(sent), Some(id)) =
                (value.as_ref().and_then(|value| value.get("id")), answer.get("id"))
            {
                // 8 and 8.0 are the same number of JSON.
                let is_same = id == sent || id.is_number() && id.as_f64() == sent.as_f64();
                assert!(id.is_null() || is_same, "the answer to {sent} is for {id}");
            }
        }
        Incoming::Message(message) => {
            assert!(value.is_some(), "{message:?}");
            serde_json::to_string(message).unwrap();
        }
        Incoming::Nothing(reason) => {
            assert!(!reason.is_empty());
            let id = value.as_ref().and_then(|value| value.get("id"));
            let is_request = has("method") && id.is_some_and(|id| id.is_string() || id.is_i64());
            assert!(!is_request || has("result") || has("error"), "a request is not answered: {reason}");
        }
    }
}

#[test]
fn standard_input_is_answered_by_its_ids() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    fuzz("standard_input", &WORDS, |bytes| {
        for line in bytes.split(|byte| *byte == b'\n') {
            check(line, &read_line(line));
            let (head, tail) =
                (line[..line.len().min(40)].to_vec(), line[line.len().saturating_sub(40)..].to_vec());
            read_skipped(&Skipped { head, tail, length: line.len() as u64 }, 1);
        }
        let written = Written::default();
        runtime.block_on(async {
            let mut transport = LineTransport::new(bytes, written.clone(), CancellationToken::new());
            while transport.receive().await.is_some() {}
            transport.close().await.unwrap();
        });
        let written = written.0.lock().unwrap();
        assert!(written.is_empty() || written.ends_with(b"\n"));
        for line in written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let answer: Value = serde_json::from_slice(line).unwrap();
            assert!(answer["jsonrpc"] == "2.0", "{answer}");
        }
    });
}

#[test]
fn lines_are_read_whole_or_skipped() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    fuzz("lines", &["\n", "\r\n"], |bytes| {
        let limit = 20;
        let mut reader = LineReader::new(bytes, limit);
        let mut expected: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        // The last line needs no newline, and there is none behind one.
        expected.pop_if(|last| last.is_empty());
        for line in expected {
            match runtime.block_on(reader.next_line()).unwrap() {
                Some(Line::Complete(read)) => assert!(read == line && line.len() <= limit),
                Some(Line::TooLong(Skipped { head, tail, length })) => {
                    assert!(line.len() > limit && length == line.len() as u64);
                    assert!(line.starts_with(&head) && line.ends_with(&tail));
                }
                None => panic!("{line:?} is lost"),
            }
        }
        assert_eq!(runtime.block_on(reader.next_line()).unwrap(), None);
    });
}

#[test]
fn repairs_change_no_valid_json() {
    fuzz("repairs", &["NaN", "-Infinity", "\\ud83d", "\\ude00", "\"", "\u{1}"], |bytes| {
        let repaired = repair(bytes);
        assert_eq!(repair(repaired.as_bytes()), repaired, "a repaired text is repaired");
        if serde_json::from_slice::<Value>(bytes).is_ok() {
            assert_eq!(repaired.as_bytes(), bytes, "valid JSON is changed");
        }
    });
}
