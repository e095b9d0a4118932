//! The end of what a server wrote to its standard error.

use codebridge_runtimes::exec::{StreamTail, visible};
use tokio::io::AsyncRead;

use super::secrets::Secrets;

/// Characters that an error shows.
const SHOWN: usize = 2_000;

/// The end of a server's standard error, which is shown without credentials.
#[derive(Debug, Clone, Default)]
pub(super) struct StderrTail(StreamTail);

impl StderrTail {
    /// Reads a stream to its end.
    pub(super) async fn fill(self, stream: impl AsyncRead + Unpin) {
        self.0.collect(stream).await;
    }

    /// Returns the last lines without credentials; empty if nothing was written.
    pub(super) fn text(&self, secrets: &Secrets) -> String {
        let text = visible(&secrets.redact(&self.0.text()));
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
        tail.clone().fill(&b"\nboom \xff\x1b[2J\n\n"[..]).await;
        assert_eq!(tail.text(&Secrets::default()), "boom \u{fffd}\u{fffd}[2J");
    }
}
