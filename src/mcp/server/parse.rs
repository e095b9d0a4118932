//! Parses the messages of clients within bounds.
//!
//! Code can be long, so the memory for it is bounded by its text: `serde_json` would keep a long string twice while it reads it.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde_json::value::RawValue;
use serde_json::{Error, Value};

use crate::mcp::bounds::count_values;

/// Values of one message.
const MOST_VALUES: usize = 200_000;
/// Texts beyond this are read piece by piece.
const LARGE: usize = 1 << 20;
/// Levels of such pieces: the message, its parameters, the arguments of a call, and a text among them.
const LEVELS: usize = 4;

/// Parses a line.
pub(super) fn parse(line: &[u8]) -> Result<Value, Error> {
    if line.len() <= 2 * MOST_VALUES {
        return serde_json::from_slice(line);
    }
    if count_values(line) > MOST_VALUES {
        return Err(Error::custom(format_args!("it has more than {MOST_VALUES} values")));
    }
    parse_large(serde_json::from_slice(line)?, LEVELS)
}

fn parse_large(raw: &RawValue, levels: usize) -> Result<Value, Error> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'"') if text.len() > LARGE => {
            let text = unescape(&text[1..text.len() - 1]);
            text.map(Value::String).ok_or_else(|| Error::custom("invalid escape in a string"))
        }
        Some(b'{') if text.len() > LARGE && levels > 0 => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
            let parse = |(key, raw)| Ok((key, parse_large(raw, levels - 1)?));
            members.into_iter().map(parse).collect()
        }
        _ => serde_json::from_str(text),
    }
}

/// Returns the text of a string of JSON; None if an escape has no meaning.
fn unescape(mut rest: &str) -> Option<String> {
    let mut text = String::with_capacity(rest.len());
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let (kind, after) = rest[at + 1..].split_at_checked(1)?;
        rest = after;
        text.push(match kind {
            "n" => '\n',
            "t" => '\t',
            "r" => '\r',
            "b" => '\u{8}',
            "f" => '\u{c}',
            "u" => unescape_unicode(&mut rest)?,
            "\"" | "\\" | "/" => kind.chars().next()?,
            _ => return None,
        });
    }
    text.push_str(rest);
    Some(text)
}

/// Takes the digits after `\u`, and the second half of a pair of surrogates.
fn unescape_unicode(rest: &mut &str) -> Option<char> {
    let first = hex(rest)?;
    if !matches!(first, 0xd800..0xdc00) {
        return char::from_u32(first.into());
    }
    *rest = rest.strip_prefix("\\u")?;
    let second = hex(rest)?;
    char::decode_utf16([first, second]).next()?.ok()
}

fn hex(rest: &mut &str) -> Option<u16> {
    let (digits, after) = rest.split_at_checked(4)?;
    *rest = after;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_messages_are_read_as_small_ones() {
        let piece = r#"a\n\t\r\b\f\"\\\/ü\u00e9\ud83d\ude00"#;
        let code = piece.repeat(LARGE / piece.len() + 1);
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"params":{{"arguments":{{"code":"{code}","n":1.50,"more":[1,{{"a":null}}]}}}}}}"#
        );
        let parsed = parse(line.as_bytes()).unwrap();
        assert_eq!(parsed, serde_json::from_str::<Value>(&line).unwrap());
        assert_eq!(parsed["params"]["arguments"]["n"].to_string(), "1.50");
    }

    #[test]
    fn invalid_large_messages_are_refused() {
        let long = "x".repeat(LARGE);
        for end in
            [r#"\ud83d""#, r#"\ud83dx""#, r#"\ud83d\ud83d""#, r#"\udc00""#, "", "\"x", "\u{1}\"", r#"\x""#]
        {
            assert!(parse(format!("{{\"a\":\"{long}{end}}}").as_bytes()).is_err(), "{end}");
        }
        let bytes = [b"{\"a\":\"", long.as_bytes(), b"\xff\"}"].concat();
        assert!(parse(&bytes).is_err());
    }

    #[test]
    fn millions_of_values_are_refused_and_long_texts_are_not() {
        let values = format!(r#"{{"id":1,"x":[{}0]}}"#, "0,".repeat(MOST_VALUES));
        assert!(parse(values.as_bytes()).unwrap_err().to_string().contains("values"));
        let text = format!(r#"{{"id":1,"x":"{}"}}"#, ",[{".repeat(MOST_VALUES));
        assert!(parse(text.as_bytes()).is_ok());
    }
}
