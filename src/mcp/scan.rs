//! Finds the id in a message that is invalid, or of which only the ends are known.

use rmcp::model::RequestId;
use serde_json::{Map, Value};

use super::bounds::LONGEST_ID;
use super::line::KEPT_BYTES;

/// What a scan found in the outermost object of a message.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// The id, if it is a complete string or integer.
    pub(crate) id: Option<RequestId>,
    /// Whether it has a result or an error: then it is an answer, and must not be answered.
    pub(crate) is_reply: bool,
}

/// Scans a message from its start, and looks for an id in its tail if there is none. Of a whole message, both are the same.
pub(crate) fn scan(head: &[u8], tail: &[u8]) -> Seen {
    let seen = scan_outermost(head);
    Seen { id: seen.id.or_else(|| id_at_the_end(tail)), ..seen }
}

/// Scans the outermost object until the bytes end or are invalid. Values are not checked, so that neither broken text nor
/// deep nesting hides what follows.
fn scan_outermost(bytes: &[u8]) -> Seen {
    let mut seen = Seen::default();
    let mut walk = Walk { bytes, at: 0 };
    if walk.next_token() != Some(b'{') {
        return seen;
    }
    walk.at += 1;
    loop {
        while walk.next_token() == Some(b',') {
            walk.at += 1;
        }
        let Some(key) = walk.string() else { return seen };
        if walk.next_token() != Some(b':') {
            return seen;
        }
        walk.at += 1;
        walk.next_token();
        let value = walk.value();
        match key {
            br#""id""# => seen.id = value.and_then(read_id),
            br#""result""# | br#""error""# => seen.is_reply = true,
            _ => {}
        }
        if value.is_none() {
            return seen;
        }
    }
}

fn read_id(value: &[u8]) -> Option<RequestId> {
    if value.len() > LONGEST_ID {
        return None;
    }
    serde_json::from_slice(value).ok()
}

/// Returns the id if it is near the end, after long members: `…, "id": 7}`.
fn id_at_the_end(bytes: &[u8]) -> Option<RequestId> {
    const KEY: &[u8] = br#""id""#;
    let bytes = &bytes[bytes.len().saturating_sub(KEPT_BYTES)..];
    let starts = (0..bytes.len().saturating_sub(KEY.len())).rev().filter(|&at| bytes[at..].starts_with(KEY));
    for at in starts {
        // If the rest closes exactly one object, the id belongs to the outermost one.
        let mut rest = b"{".to_vec();
        rest.extend_from_slice(&bytes[at..]);
        if let Ok(mut object) = serde_json::from_slice::<Map<String, Value>>(&rest)
            && object.keys().all(|key| matches!(key.as_str(), "id" | "jsonrpc" | "method"))
        {
            return object.remove("id").and_then(|id| serde_json::from_value(id).ok());
        }
    }
    None
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    /// Steps over white space and returns the next byte.
    fn next_token(&mut self) -> Option<u8> {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    /// Steps over a string and returns it with its quotes; None if there is none or it does not end.
    fn string(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        if self.bytes.get(start) != Some(&b'"') {
            return None;
        }
        self.at += 1;
        loop {
            match self.bytes.get(self.at)? {
                b'\\' => self.at += 2,
                b'"' => {
                    self.at += 1;
                    return Some(&self.bytes[start..self.at]);
                }
                _ => self.at += 1,
            }
        }
    }

    /// Steps over a value of any kind; None if it does not end.
    fn value(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.bytes.get(self.at)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b',' | b'}' | b']' if depth == 0 => {
                    return Some(self.bytes[start..self.at].trim_ascii());
                }
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(id: i64) -> Option<RequestId> {
        Some(RequestId::Number(id))
    }

    fn id(text: impl AsRef<[u8]>) -> Option<RequestId> {
        scan_outermost(text.as_ref()).id
    }

    #[test]
    fn the_id_is_found_before_and_after_invalid_parts() {
        assert_eq!(id(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"code":"…"#), number(7));
        assert_eq!(id(r#" { "id" : "a\"b" , "params": NaN }"#), Some(RequestId::String("a\"b".into())));
        assert_eq!(id(b"{\"params\":{\"code\":\"\xff\xfe \\ud83d\",\"id\":1},\"id\":8}"), number(8));
        let deep = format!(r#"{{"params":{}{},"id":9}}"#, "[".repeat(5000), "]".repeat(5000));
        assert_eq!(id(deep), number(9));
    }

    #[test]
    fn an_incomplete_or_nested_id_is_not_found() {
        for text in [
            "", "{", "[1]", r#"{"id"#, r#"{"id""#, r#"{"id":"#, r#"{"id":12"#, r#"{"id":"ab"#,
            r#"{"id":"ab\"#, r#"{"id":null,"#, r#"{"id":1.5,"#, r#"{"id":{"id":1},"#,
            r#"{"params":{"id":1}}"#, r#"{"params":"\"id\":1,"}"#, r#"{"id" 1}"#, "{}}}",
        ] {
            assert_eq!(id(text), None, "{text}");
        }
    }

    #[test]
    fn an_answer_is_recognised() {
        assert!(scan_outermost(br#"{"id":1,"result":{"#).is_reply);
        assert!(scan_outermost(br#"{"id":1,"error":{"code":-1},"x":"#).is_reply);
        assert!(!scan_outermost(br#"{"id":1,"method":"a","params":{"result":1}"#).is_reply);
    }

    #[test]
    fn the_id_is_found_at_the_end_when_it_is_the_outermost() {
        assert_eq!(id_at_the_end(br#"xxx"},"id":7}"#), number(7));
        assert_eq!(id_at_the_end(br#"xxx\"id\":3"}}, "id" : 7 , "jsonrpc":"2.0","method":"a"} "#), number(7));
        for text in [
            r#"xxx","id":7}}"#, r#"xxx","id":7,"params":{}}"#, r#"xxx\"id\":7}"#, r#""id":7"#,
            r#""id":null}"#, r#""id""#, "",
        ] {
            assert_eq!(id_at_the_end(text.as_bytes()), None, "{text}");
        }
    }
}
