//! The end of what a server wrote to its standard error.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

use super::secrets::Secrets;

/// Bytes that are remembered.
const KEPT: usize = 8 << 10;
/// Characters that an error shows.
const SHOWN: usize = 2_000;

/// A ring of bytes that one task fills and error messages read.
#[derive(Debug, Clone, Default)]
pub(super) struct StderrTail(Arc<Mutex<VecDeque<u8>>>);

impl StderrTail {
    /// Reads a stream to its end.
    pub(super) async fn fill(self, mut stream: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; 8 << 10];
        while let Ok(count @ 1..) = stream.read(&mut chunk).await {
            let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            ring.extend(&chunk[..count]);
            let surplus = ring.len().saturating_sub(KEPT);
            ring.drain(..surplus);
        }
    }

    /// Returns the last lines without credentials; empty if nothing was written.
    pub(super) fn text(&self, secrets: &Secrets) -> String {
        let bytes: Vec<u8> = self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let text = secrets.redact(String::from_utf8_lossy(&bytes).trim());
        match text.char_indices().rev().nth(SHOWN - 1) {
            // Starts with a whole line if there is one.
            Some((start, _)) if start > 0 => {
                let rest = &text[start..];
                let line = rest.find('\n').filter(|at| at * 2 < rest.len()).map_or(0, |at| at + 1);
                format!("…{}", &rest[line..])
            }
            _ => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_is_kept_and_starts_with_a_whole_line() {
        let tail = StderrTail::default();
        let mut text = String::new();
        for number in 0..5_000 {
            text.push_str(&format!("line {number}\n"));
        }
        tail.clone().fill(text.as_bytes()).await;
        let shown = tail.text(&Secrets::default());
        assert!(shown.starts_with("…line 4") && shown.ends_with("line 4999"), "{shown}");
        assert!(shown.len() <= SHOWN + 3 && shown.len() > SHOWN / 2);
    }

    #[tokio::test]
    async fn little_is_shown_whole() {
        let tail = StderrTail::default();
        assert_eq!(tail.text(&Secrets::default()), "");
        tail.clone().fill(&b"\nboom \xff\n\n"[..]).await;
        assert_eq!(tail.text(&Secrets::default()), "boom \u{fffd}");
    }
}
