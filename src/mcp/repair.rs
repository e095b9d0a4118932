//! Repairs almost valid JSON, as servers in the wild write it.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

/// Parses a part of a message, repaired if need be.
pub(crate) fn parse(raw: &RawValue) -> Result<Value, serde_json::Error> {
    serde_json::from_str(raw.get()).or_else(|_| serde_json::from_str(&repair(raw.get().as_bytes())))
}

/// Bytes that a repair may always add. It adds at most a quarter of the text beside them: a short escape such as `\u0001` in
/// place of each byte would make a long line six times as long.
const ROOM: usize = 1 << 20;

/// Replaces the few mistakes that are common in otherwise valid JSON; returns the text itself if there are none, and an empty
/// one if there are too many.
///
/// `NaN` becomes `null`, `Infinity` a number beyond every float, half of a surrogate pair and bytes that are not UTF-8
/// become U+FFFD, and raw control characters in strings are escaped.
pub(crate) fn repair(bytes: &[u8]) -> Cow<'_, str> {
    let longest = bytes.len() + bytes.len() / 4 + ROOM;
    let Some(text) = as_text(bytes, longest) else { return Cow::Borrowed("") };
    let mut walk = Walk { bytes: text.as_bytes(), at: 0, copied: 0, repaired: Vec::new(), longest };
    while let Some(&byte) = walk.bytes.get(walk.at) {
        match byte {
            b'"' => walk.string(),
            b'N' if walk.rest().starts_with(b"NaN") => walk.replace(3, "null"),
            b'I' if walk.rest().starts_with(b"Infinity") => walk.replace(8, "1e999"),
            _ => walk.at += 1,
        }
    }
    if walk.copied == 0 {
        return text;
    }
    let (mut repaired, copied) = (walk.repaired, walk.copied);
    repaired.extend_from_slice(&text.as_bytes()[copied.min(text.len())..]);
    // Only whole characters were replaced.
    Cow::Owned(if repaired.len() > longest {
        String::new()
    } else {
        String::from_utf8(repaired).unwrap_or_default()
    })
}

/// Returns bytes as text, U+FFFD in place of what is not UTF-8; None if it becomes too long.
fn as_text(bytes: &[u8], longest: usize) -> Option<Cow<'_, str>> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Some(Cow::Borrowed(text));
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        if text.len() > longest {
            return None;
        }
    }
    Some(Cow::Owned(text))
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The end of what is in `repaired`.
    copied: usize,
    repaired: Vec<u8>,
    longest: usize,
}

impl<'a> Walk<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    fn replace(&mut self, length: usize, by: &str) {
        self.repaired.extend_from_slice(&self.bytes[self.copied..self.at]);
        self.repaired.extend_from_slice(by.as_bytes());
        self.at += length;
        self.copied = self.at;
        if self.repaired.len() > self.longest {
            // The rest is not looked at.
            self.at = self.bytes.len();
        }
    }

    /// Steps over a string, or to the end of the text.
    fn string(&mut self) {
        self.at += 1;
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'"' => {
                    self.at += 1;
                    return;
                }
                b'\\' => match surrogate(self.rest()) {
                    None => self.at += 2,
                    Some(Half::High) if surrogate(&self.rest()[6..]) == Some(Half::Low) => self.at += 12,
                    Some(_) => self.replace(6, "\\ufffd"),
                },
                0..0x20 => self.replace(1, &format!("\\u{byte:04x}")),
                _ => self.at += 1,
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum Half {
    High,
    Low,
}

/// Returns which half of a surrogate pair an escape such as `\ud83d` is.
fn surrogate(bytes: &[u8]) -> Option<Half> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    match u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()? {
        0xd800..=0xdbff => Some(Half::High),
        0xdc00..=0xdfff => Some(Half::Low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_json_is_unchanged() {
        for text in [
            r#"{"a":[1,-2.5e3,"NaN \" Infinity \ud83d\ude00 \\ud83d \n",null]}"#,
            "",
            "\"",
            "\"\\",
            "[\n\t1]",
        ] {
            assert!(matches!(repair(text.as_bytes()), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn common_mistakes_are_replaced() {
        let cases: [(&[u8], &str); 8] = [
            (br#"{"a":NaN,"b":[NaN]}"#, r#"{"a":null,"b":[null]}"#),
            (br#"[Infinity,-Infinity]"#, r#"[1e999,-1e999]"#),
            (br#"["x\ud83dy"]"#, r#"["x\ufffdy"]"#),
            (br#"["\ude00\ud83d"]"#, r#"["\ufffd\ufffd"]"#),
            (br#"["\ud83d\ud83d\ude00"]"#, r#"["\ufffd\ud83d\ude00"]"#),
            (b"[\"a\tb\x1bc\"]", r#"["a\u0009b\u001bc"]"#),
            (b"[\"\xff\"]", "[\"\u{fffd}\"]"),
            (br#"["\ud83"#, r#"["\ud83"#),
        ];
        for (text, repaired) in cases {
            assert_eq!(repair(text), repaired);
        }
    }

    #[test]
    fn a_repair_makes_no_text_much_longer() {
        for mistake in [&b"\x01"[..], b"\xff"] {
            let text = [b"[\"", mistake.repeat(8 << 20).as_slice(), b"\"]"].concat();
            assert_eq!(repair(&text), "", "{mistake:?}");
        }
        let numbers = format!("[NaN{}]", ",NaN".repeat(2 << 20));
        let repaired = repair(numbers.as_bytes());
        assert!(repaired.starts_with("[null,null,") && repaired.ends_with(",null]"));
    }

    #[test]
    fn repaired_text_can_be_parsed() {
        for text in [r#"{"NaN":NaN,"s":"\udfff"}"#, "[\"\u{1}\u{1f}\"]", r#"[-Infinity]"#] {
            let repaired = repair(text.as_bytes());
            assert!(serde_json::from_str::<Value>(&repaired).is_ok(), "{repaired}");
        }
    }
}
