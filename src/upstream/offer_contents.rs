//! The contents of a resource, out of the answer of its server: decoded once, never parsed into values.

use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, Engine as _};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::pool::CallOutcome;
use crate::mcp::bounds::Bounds;
use crate::mcp::repair::parse;

/// Contents of one resource.
const MOST_CONTENTS: usize = 10_000;
/// What is kept of a content beside its bytes.
const REST: Bounds = Bounds { bytes: 64 << 10, values: 1_000 };

/// Why an answer has no contents.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    #[error("the answer of the server is not the contents of a resource: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the resource has {0} parts, and {MOST_CONTENTS} is the limit")]
    TooMany(usize),
    #[error("the bytes of '{0}' are not base64")]
    Base64(String),
    #[error("the content '{0}' has neither a text nor bytes")]
    Empty(String),
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    contents: Vec<Content<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content<'a> {
    #[serde(borrow, default)]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default)]
    mime_type: Option<&'a RawValue>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    blob: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

/// What is said of a content, before the bytes of all of them.
#[derive(Serialize)]
struct Described {
    bytes: usize,
    is_text: bool,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Returns the contents of a resource: a line of JSON, `{"contents": […]}`, and the bytes of all contents, one after the other.
///
/// # Errors
/// The server answered something else.
pub fn resource_contents(outcome: &CallOutcome) -> Result<Vec<u8>, ContentsError> {
    let Answer { contents } = serde_json::from_str(outcome.json.get())?;
    if contents.len() > MOST_CONTENTS {
        return Err(ContentsError::TooMany(contents.len()));
    }
    let mut described = Vec::with_capacity(contents.len());
    let mut bytes = Vec::with_capacity(outcome.json.get().len());
    for content in &contents {
        let start = bytes.len();
        let is_text = content.add_to(&mut bytes)?;
        described.push(Described { bytes: bytes.len() - start, is_text, rest: content.rest() });
    }
    let mut head = serde_json::to_vec(&serde_json::json!({ "contents": described }))?;
    head.push(b'\n');
    // In place: a resource may have megabytes.
    bytes.splice(0..0, head);
    Ok(bytes)
}

impl Content<'_> {
    /// Adds what the content is, and returns whether it is a text.
    fn add_to(&self, bytes: &mut Vec<u8>) -> Result<bool, ContentsError> {
        match (self.text, self.blob) {
            (Some(text), _) => match serde_json::from_str::<&str>(text.get()) {
                Ok(text) => bytes.extend_from_slice(text.as_bytes()),
                // It has escapes, maybe half of a surrogate pair.
                Err(_) => match parse(text)? {
                    Value::String(text) => bytes.extend_from_slice(text.as_bytes()),
                    _ => return Err(ContentsError::Empty(self.name())),
                },
            },
            (None, Some(blob)) => {
                let wrong = || ContentsError::Base64(self.name());
                match serde_json::from_str::<&str>(blob.get()) {
                    Ok(text) => decode(text, bytes).ok_or_else(wrong)?,
                    // Some write a slash as `\/`.
                    Err(_) => {
                        let text: String = serde_json::from_str(blob.get()).map_err(|_| wrong())?;
                        decode(&text, bytes).ok_or_else(wrong)?;
                    }
                }
                return Ok(false);
            }
            (None, None) => return Err(ContentsError::Empty(self.name())),
        }
        Ok(true)
    }

    fn name(&self) -> String {
        let uri = self.uri.and_then(|uri| REST.parse(uri)).and_then(Result::ok);
        let uri = uri.and_then(|uri| uri.as_str().map(|uri| uri.chars().take(200).collect()));
        uri.unwrap_or_else(|| "?".into())
    }

    /// Returns what else the server says of it, as far as that is small.
    fn rest(&self) -> Map<String, Value> {
        let fields = [("uri", self.uri), ("mimeType", self.mime_type), ("_meta", self.meta)];
        let read = |raw: &RawValue| REST.parse(raw).and_then(Result::ok);
        let fields = fields.into_iter().filter_map(|(name, raw)| Some((name.to_owned(), read(raw?)?)));
        fields.collect()
    }
}

/// Decodes base64 of either alphabet, with line ends in it or without.
fn decode(text: &str, bytes: &mut Vec<u8>) -> Option<()> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let start = bytes.len();
    if GeneralPurpose::new(&STANDARD, LENIENT).decode_vec(text, bytes).is_ok() {
        return Some(());
    }
    bytes.truncate(start);
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    GeneralPurpose::new(alphabet, LENIENT).decode_vec(&text, bytes).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn contents(json: &str) -> Result<(Value, Vec<u8>), ContentsError> {
        let outcome = CallOutcome::new(RawValue::from_string(json.into()).unwrap(), None);
        let bytes = resource_contents(&outcome)?;
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        Ok((serde_json::from_slice(&bytes[..end]).unwrap(), bytes[end + 1..].to_vec()))
    }

    #[test]
    fn texts_and_bytes_come_decoded_one_after_the_other() {
        let (head, bytes) = contents(
            r#"{"contents":[{"uri":"a:1","mimeType":"text/plain","text":"grü\u00dfe\n\ud83d"},
                {"uri":"a:2","blob":"AP\/+","_meta":{"x":1}},{"blob":"__8"},{"uri":"a:3","text":""},{"blob":"AAE\nC"}]}"#,
        )
        .unwrap();
        assert_eq!(
            head["contents"],
            json!([
                { "bytes": 11, "is_text": true, "uri": "a:1", "mimeType": "text/plain" },
                { "bytes": 3, "is_text": false, "uri": "a:2", "_meta": { "x": 1 } },
                { "bytes": 2, "is_text": false },
                { "bytes": 0, "is_text": true, "uri": "a:3" },
                { "bytes": 3, "is_text": false },
            ])
        );
        let expected = ["grüße\n\u{fffd}".as_bytes(), b"\x00\xff\xfe", b"\xff\xff", b"\x00\x01\x02"].concat();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn what_is_no_resource_is_an_error_that_says_so() {
        for (json, why) in [
            (r#"{"content":[]}"#, "missing field `contents`"),
            (r#"{"contents":{}}"#, "invalid type: map"),
            (r#"{"contents":[{"uri":"a:1"}]}"#, "'a:1' has neither"),
            (r#"{"contents":[{"uri":"a:1","text":7}]}"#, "'a:1' has neither"),
            (r#"{"contents":[{"uri":"a:1","blob":"?"}]}"#, "'a:1' are not base64"),
            (r#"{"contents":[{"blob":{}}]}"#, "'?' are not base64"),
        ] {
            let error = contents(json).unwrap_err().to_string();
            assert!(error.contains(why), "{json}: {error}");
        }
        let many = format!(r#"{{"contents":[{}{{}}]}}"#, "{},".repeat(MOST_CONTENTS));
        assert!(contents(&many).unwrap_err().to_string().contains("10001 parts"));
    }
}
