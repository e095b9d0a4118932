//! Repairs almost valid JSON, as servers in the wild write it.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;
use serde_json::value::RawValue;

/// Parses a part of a message, repaired if need be.
pub(crate) fn parse(raw: &RawValue) -> Result<Value, serde_json::Error> {
    serde_json::from_str(raw.get()).or_else(|_| serde_json::from_str(&repair(raw.get().as_bytes())))
}

/// Replaces the few mistakes that are common in otherwise valid JSON; returns the text itself if there are none.
///
/// `NaN` becomes `null`, `Infinity` a number beyond every float, half of a surrogate pair and bytes that are not UTF-8
/// become U+FFFD, and raw control characters in strings are escaped.
pub(crate) fn repair(bytes: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    let mut walk = Walk { bytes: text.as_bytes(), at: 0, patches: Vec::new() };
    while let Some(&byte) = walk.bytes.get(walk.at) {
        match byte {
            b'"' => walk.string(),
            b'N' if walk.rest().starts_with(b"NaN") => walk.replace(3, "null"),
            b'I' if walk.rest().starts_with(b"Infinity") => walk.replace(8, "1e999"),
            _ => walk.at += 1,
        }
    }
    let patches = walk.patches;
    if patches.is_empty() {
        return text;
    }
    let mut repaired = String::with_capacity(text.len() + 8 * patches.len());
    let mut from = 0;
    for (range, replacement) in patches {
        repaired.push_str(&text[from..range.start]);
        repaired.push_str(&replacement);
        from = range.end;
    }
    repaired.push_str(&text[from..]);
    Cow::Owned(repaired)
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Replacements of byte ranges, in order.
    patches: Vec<(Range<usize>, Cow<'static, str>)>,
}

impl<'a> Walk<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    fn replace(&mut self, length: usize, by: impl Into<Cow<'static, str>>) {
        self.patches.push((self.at..self.at + length, by.into()));
        self.at += length;
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
                0..0x20 => self.replace(1, format!("\\u{byte:04x}")),
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
    fn repaired_text_can_be_parsed() {
        for text in [r#"{"NaN":NaN,"s":"\udfff"}"#, "[\"\u{1}\u{1f}\"]", r#"[-Infinity]"#] {
            let repaired = repair(text.as_bytes());
            assert!(serde_json::from_str::<Value>(&repaired).is_ok(), "{repaired}");
        }
    }
}
