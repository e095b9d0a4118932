//! What bounds the work of reading what others write: its memory, and the time that it takes from other tasks.
//!
//! Text is cheap: it is kept once. A parsed value costs some hundred bytes for each comma, so values are counted before they
//! are parsed.

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::repair::parse;

/// Bytes beyond which reading is left to a thread that may block.
const QUICK: usize = 256 << 10;
/// Bytes of an id: it is written again in the answer.
pub(crate) const LONGEST_ID: usize = 1 << 10;

/// How much of a JSON text is parsed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) bytes: usize,
    pub(crate) values: usize,
}

impl Bounds {
    /// What a handshake or an error says of itself.
    pub(crate) const SMALL: Self = Self { bytes: 1 << 20, values: 20_000 };

    /// Whether a text is within the bounds.
    pub(crate) fn admit(self, json: &str) -> bool {
        json.len() <= self.bytes && count_values(json.as_bytes()) <= self.values
    }

    /// Parses a part of a message, repaired if need be; None if it is too large.
    pub(crate) fn parse(self, raw: &RawValue) -> Option<Result<Value, serde_json::Error>> {
        self.admit(raw.get()).then(|| parse(raw))
    }
}

/// Returns at least the number of values in a JSON text: one more than its commas and opening brackets outside of strings.
pub(crate) fn count_values(json: &[u8]) -> usize {
    let (mut count, mut at) = (1, 0);
    while let Some(&byte) = json.get(at) {
        at += 1;
        match byte {
            b',' | b'[' | b'{' => count += 1,
            b'"' => at = end_of_string(json, at),
            _ => {}
        }
    }
    count
}

/// Returns the place after the quote that ends a string whose text begins at `at`.
fn end_of_string(json: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

/// Does some work on so many bytes. Much work does not keep other tasks waiting.
pub(crate) fn work_on<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let can_block =
        || Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes > QUICK && can_block() { tokio::task::block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_without_their_text() {
        for (json, count) in [
            ("1", 1),
            ("", 1),
            ("[]", 2),
            ("[1,2,[3]]", 5),
            (r#"{"a,[{":"\",[{\\","b":{}}"#, 4),
            (r#"["a\"#, 2),
        ] {
            assert_eq!(count_values(json.as_bytes()), count, "{json}");
        }
    }

    #[test]
    fn what_is_too_large_is_not_parsed() {
        let bounds = Bounds { bytes: 100, values: 3 };
        let parse = |json: &str| bounds.parse(&RawValue::from_string(json.into()).unwrap()).is_some();
        assert!(parse("[1,2]"));
        assert!(!parse("[1,2,3]"));
        assert!(!parse(&format!("\"{}\"", "x".repeat(100))));
    }
}
