//! The text of a line, and the hash by which the next one refers to it.

use codebridge_runtimes::exec::visible_json;
use jiff::Timestamp;
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::event::{Content, Event, Mask};

/// What the first line refers to.
pub(super) const NO_LINE: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// Bytes of a text that a line holds itself.
const LONGEST_INLINE: usize = 4 << 10;

/// Returns the SHA-256 of some bytes in hexadecimal digits.
pub(super) fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Returns a line without its end: `n` and `prev` are its place in the chain. A text that is not stored elsewhere is in the line.
pub(super) fn line(
    n: u64,
    time: Timestamp,
    event: &Event,
    contents: &[(Content, Option<Stored>)],
    prev: &str,
) -> String {
    let event = serde_json::to_string(event).unwrap_or_else(|_| "{}".into());
    let mut line = format!(r#"{{"n":{n},"time":"{time:.6}","#);
    line.push_str(event.strip_prefix('{').and_then(|event| event.strip_suffix('}')).unwrap_or_default());
    let mut blobs = serde_json::Map::new();
    let mut left_out = Vec::new();
    for (content, stored) in contents {
        let Content { field, text, is_json, .. } = content;
        match stored {
            None if *is_json => line.push_str(&format!(",\"{field}\":{text}")),
            None => line.push_str(&format!(",\"{field}\":{}", json!(text))),
            Some(Stored::Blob(sha256)) => {
                blobs.insert((*field).into(), json!({ "sha256": sha256, "bytes": text.len() }));
            }
            Some(Stored::LeftOut) => left_out.push(*field),
        }
    }
    if !blobs.is_empty() {
        line.push_str(&format!(",\"blobs\":{}", serde_json::Value::Object(blobs)));
    }
    if !left_out.is_empty() {
        line.push_str(&format!(",\"left_out\":{}", json!(left_out)));
    }
    line.push_str(&format!(",\"prev\":\"{prev}\"}}"));
    // Names and texts may steer a terminal or hide; in JSON such characters can be escaped.
    if line.is_ascii() && !line.bytes().any(|byte| byte.is_ascii_control()) { line } else { one_line(&line) }
}

fn one_line(line: &str) -> String {
    // Within strings of JSON there are no line ends, so a line end is space.
    visible_json(line).replace('\n', " ")
}

/// Where a long text is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stored {
    /// Its SHA-256.
    Blob(String),
    /// There was no space.
    LeftOut,
}

/// Masks a text, and says whether a line can hold it.
pub(super) fn prepare(content: Content, mask: Option<&Mask>) -> (Content, bool) {
    let Content { field, text, is_json, is_shared } = content;
    let text = mask.map_or_else(|| text.clone(), |mask| mask(&text));
    let is_short = text.len() <= LONGEST_INLINE && !is_shared;
    // In JSON they can only be between tokens.
    let text = if is_json { text.replace(|c: char| c < ' ', " ") } else { text };
    // A replacement may have broken the JSON; then it is a text.
    let is_json = is_json && is_short && serde_json::from_str::<&RawValue>(&text).is_ok();
    (Content { field, text, is_json, is_shared }, is_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_of_json_whatever_it_is_about() {
        let event = Event::Lost { lines: 1, why: "a\nb\r\u{1b}[31m\u{202e}\u{2028}\"},\"n\":9".into() };
        let content =
            |text: &str, is_json| Content { field: "x", text: text.into(), is_json, is_shared: false };
        let contents = [
            (content("{\"a\":1}", true), None),
            (content("\u{9b}", false), None),
            (content("long", false), Some(Stored::Blob("00".into()))),
            (content("longer", false), Some(Stored::LeftOut)),
        ];
        let line = line(7, Timestamp::UNIX_EPOCH, &event, &contents, NO_LINE);
        assert!(line.is_ascii() || !line.contains('\u{202e}'), "{line}");
        assert!(!line.chars().any(|c| c.is_control()), "{line}");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["n"], &value["lines"]), (&json!(7), &json!(1)));
        assert_eq!(value["why"], "a\nb\r\u{1b}[31m\u{202e}\u{2028}\"},\"n\":9");
        assert!(line.starts_with(r#"{"n":7,"time":"1970-01-01T00:00:00.000000Z","event":"lost","#), "{line}");
    }

    #[test]
    fn a_text_that_is_no_json_after_masking_is_a_text() {
        let mask: Mask = std::sync::Arc::new(|text: &str| text.replace("1", "\""));
        let (content, is_short) = prepare(Content::json("a", "{\"a\":1}".into()), Some(&mask));
        assert_eq!((content.text.as_str(), content.is_json, is_short), ("{\"a\":\"}", false, true));
        assert_eq!(prepare(Content::json("a", "{\t}".into()), None).0.text, "{ }");
        assert!(!prepare(Content::text("a", "x".repeat(LONGEST_INLINE + 1)), None).1);
    }
}
