//! The arguments of a call as text. They are never parsed into values, which take many times the bytes of their text.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

/// The arguments of a call: a JSON object on one line, otherwise as the caller wrote it.
#[derive(Clone)]
pub struct RawArguments(Arc<Text>);

struct Text {
    /// May hold more than the object, such as the message that it came in: it can have megabytes, and is not copied.
    bytes: Vec<u8>,
    object: Range<usize>,
    /// Their share of the bytes that may be held at once.
    _held: Option<OwnedSemaphorePermit>,
}

/// Why a text cannot be the arguments of a call.
#[derive(Debug, thiserror::Error)]
pub enum RawArgumentsError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("the arguments must be an object")]
    NoObject,
    #[error("the arguments are nested more than {DEEPEST} deep")]
    TooDeep,
}

impl RawArguments {
    /// Checks a text.
    ///
    /// # Errors
    /// It is no JSON object.
    pub fn new(text: String) -> Result<Self, RawArgumentsError> {
        let raw: &RawValue = serde_json::from_str(&text)?;
        let range = range_in(&text, raw.get());
        Self::within(text, range, None)
    }

    /// Takes the arguments out of a larger text, where `object` is the place of a whole JSON value.
    ///
    /// # Errors
    /// That value is no object.
    pub fn within(
        text: String,
        object: Range<usize>,
        held: Option<OwnedSemaphorePermit>,
    ) -> Result<Self, RawArgumentsError> {
        if !text.get(object.clone()).is_some_and(|object| object.starts_with('{')) {
            return Err(RawArgumentsError::NoObject);
        }
        let mut bytes = text.into_bytes();
        // Servers parse it, and few of their parsers survive any depth.
        if depth(&bytes[object.clone()]) > DEEPEST {
            return Err(RawArgumentsError::TooDeep);
        }
        // Servers read messages line by line: a second line would be a message of its own, past all checks. Between the
        // tokens of JSON line ends are only space, and within strings they cannot be.
        for byte in &mut bytes[object.clone()] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        Ok(Self(Arc::new(Text { bytes, object, _held: held })))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0.bytes[self.0.object.clone()]
    }

    /// Whether to keep work with all of them away from threads that serve others.
    pub fn are_large(&self) -> bool {
        self.0.object.len() > LARGE
    }
}

/// Bytes above which arguments are large.
const LARGE: usize = 64 << 10;

/// Objects and arrays within each other.
const DEEPEST: usize = 128;

/// Returns how deep a JSON value is nested.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut bytes) = (0_usize, 0, false, json.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Returns the place of a part of a text.
pub fn range_in(text: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    start..start + part.len()
}

/// They may hold credentials, and megabytes.
impl fmt::Debug for RawArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawArguments({} bytes)", self.0.object.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(arguments: &RawArguments) -> &str {
        str::from_utf8(arguments.as_bytes()).unwrap()
    }

    #[test]
    fn arguments_stay_as_they_are_written_on_one_line() {
        let written = " {\"z\": 1.10,\r\n \"a\":\"\\n\", \"z\":\n[]} ";
        let arguments = RawArguments::new(written.into()).unwrap();
        assert_eq!(text(&arguments), "{\"z\": 1.10,   \"a\":\"\\n\", \"z\": []}");
        assert_eq!(format!("{arguments:?}"), "RawArguments(32 bytes)");
    }

    #[test]
    fn a_line_end_within_a_string_is_no_json() {
        assert!(RawArguments::new("{\"a\":\"\n\"}".into()).is_err());
    }

    #[test]
    fn only_objects_are_arguments() {
        for other in ["", "[]", "\"x\"", "null", "{", "{} {}"] {
            assert!(RawArguments::new(other.into()).is_err(), "{other}");
        }
    }

    #[test]
    fn arguments_are_as_deep_as_parsers_go() {
        let nested = |depth: usize| format!("{{\"a\\\"[\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(RawArguments::new(nested(DEEPEST - 1)).is_ok());
        assert!(matches!(RawArguments::new(nested(DEEPEST)), Err(RawArgumentsError::TooDeep)));
        assert!(RawArguments::new(format!("{{\"a\":\"{}\"}}", "[{".repeat(1000))).is_ok());
    }

    #[test]
    fn a_part_of_a_message_is_not_copied() {
        let message = String::from(r#"{"a":{"b":1}}"#);
        let (start, range) = (message.as_ptr(), range_in(&message, &message[5..12]));
        let arguments = RawArguments::within(message, range, None).unwrap();
        assert_eq!((text(&arguments), arguments.as_bytes().as_ptr()), (r#"{"b":1}"#, start.wrapping_add(5)));
        assert!(RawArguments::within("x".into(), 0..9, None).is_err());
    }
}
