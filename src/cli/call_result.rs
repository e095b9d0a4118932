//! The result of a call for people, and what of it goes into a file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Why a result is not one file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SaveError {
    #[error("the result has {0} binary parts, and -o saves one")]
    Several(usize),
    #[error("the {0} in the result is not valid base64")]
    Base64(String),
    #[error("standard output is a terminal: name a file in place of `-`")]
    Terminal,
    #[error("the result has no content")]
    Nothing,
}

/// A part of a result.
#[derive(Debug, PartialEq)]
enum Part {
    Text(String),
    /// MIME type and base64.
    Blob(String, String),
    /// A link to a resource, or what a later version of MCP has.
    Other(Value),
}

/// The content of a result.
#[derive(Debug, PartialEq)]
pub(super) struct CallResult {
    parts: Vec<Part>,
    structured: Option<Value>,
}

impl CallResult {
    /// Reads an MCP result, or what a server sent as one.
    pub(super) fn read(json: &str) -> Self {
        let mut result: Value = serde_json::from_str(json).unwrap_or_else(|_| Value::from(json));
        let structured = result.get_mut("structuredContent").map(Value::take).filter(|it| !it.is_null());
        let Some(Value::Array(blocks)) = result.get_mut("content").map(Value::take) else {
            let parts = if structured.is_some() { Vec::new() } else { vec![Part::Other(result)] };
            return Self { parts, structured };
        };
        Self { parts: blocks.into_iter().map(part).collect(), structured }
    }

    /// Returns the result for people: texts as they are, and what is binary by its type and size.
    pub(super) fn shown(&self) -> String {
        let shown = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Blob(mime, base64) => {
                let bytes = STANDARD.decode(base64).map_or(base64.len() / 4 * 3, |bytes| bytes.len());
                format!("<{mime}, {bytes} bytes; save it with -o FILE>")
            }
            Part::Other(value) => pretty(value),
        });
        let mut lines: Vec<String> = shown.collect();
        // Servers repeat it as text for older clients.
        if let Some(structured) = self.structured.as_ref().filter(|_| self.parts.is_empty()) {
            lines.push(pretty(structured));
        }
        lines.iter().map(|text| format!("{}\n", text.strip_suffix('\n').unwrap_or(text))).collect()
    }
}

/// Returns the bytes of a result that belong into a file, and what they are: the one part that is binary, else the texts, else the
/// structured content.
pub(super) fn saved(json: &str) -> Result<(Vec<u8>, String), SaveError> {
    let CallResult { parts, structured } = CallResult::read(json);
    let blobs: Vec<(&String, &String)> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Blob(mime, base64) => Some((mime, base64)),
            _ => None,
        })
        .collect();
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let (bytes, kind) = match (blobs.as_slice(), texts.as_slice(), structured) {
        ([(mime, base64)], ..) => {
            let bytes = STANDARD.decode(base64).map_err(|_| SaveError::Base64((*mime).clone()))?;
            (bytes, (*mime).as_str())
        }
        ([_, _, ..], ..) => return Err(SaveError::Several(blobs.len())),
        ([], [_, ..], _) => (texts.join("\n").into_bytes(), "text"),
        ([], [], Some(value)) => (pretty(&value).into_bytes(), "JSON"),
        ([], [], None) => match parts.first() {
            Some(Part::Other(value)) => (pretty(value).into_bytes(), "JSON"),
            _ => return Err(SaveError::Nothing),
        },
    };
    let what = format!("{} bytes ({kind})", bytes.len());
    Ok((bytes, what))
}

/// Reads a block of content.
fn part(block: Value) -> Part {
    let text = |pointer| block.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let blob = |data, mime| {
        let mime = text(mime).unwrap_or_else(|| "binary data".into());
        text(data).map(|base64| Part::Blob(mime, base64))
    };
    let read = match block.get("type").and_then(Value::as_str) {
        Some("text") => text("/text").map(Part::Text),
        Some("image" | "audio") => blob("/data", "/mimeType"),
        Some("resource") => {
            text("/resource/text").map(Part::Text).or_else(|| blob("/resource/blob", "/resource/mimeType"))
        }
        _ => None,
    };
    read.unwrap_or(Part::Other(block))
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(result: &Value) -> String {
        CallResult::read(&result.to_string()).shown()
    }

    #[test]
    fn people_see_texts_and_never_base64() {
        let image = json!({ "type": "image", "data": "AAEC", "mimeType": "image/png" });
        let text = json!({ "type": "text", "text": "a\nb\n" });
        assert_eq!(
            shown(&json!({ "content": [text, image] })),
            "a\nb\n<image/png, 3 bytes; save it with -o FILE>\n"
        );
        let blob = json!({ "type": "resource", "resource": { "uri": "x:y", "blob": "AAEC" } });
        assert_eq!(shown(&json!({ "content": [blob] })), "<binary data, 3 bytes; save it with -o FILE>\n");
        let written = json!({ "type": "resource", "resource": { "uri": "x:y", "text": "t" } });
        assert_eq!(shown(&json!({ "content": [written] })), "t\n");
        let link = json!({ "type": "resource_link", "uri": "x:y" });
        assert_eq!(shown(&json!({ "content": [link] })), format!("{link:#}\n"));
        assert_eq!(shown(&json!({ "content": [], "structuredContent": { "a": 1 } })), "{\n  \"a\": 1\n}\n");
        assert_eq!(
            shown(&json!({ "content": [{ "type": "text", "text": "one" }], "structuredContent": 1 })),
            "one\n"
        );
        assert_eq!(shown(&json!({ "content": [] })), "");
        for odd in [json!(7), json!({}), json!({ "content": 7 }), json!({ "content": [{ "type": "text" }] })]
        {
            assert!(shown(&odd).ends_with('\n'), "{odd}");
        }
    }

    #[test]
    fn a_file_gets_the_bytes_of_a_result() {
        let saved = |result: Value| saved(&result.to_string());
        let image = json!({ "type": "image", "data": "AAEC", "mimeType": "image/png" });
        let text = json!({ "type": "text", "text": "a\n" });
        assert_eq!(
            saved(json!({ "content": [text, image, text] })),
            Ok((vec![0, 1, 2], "3 bytes (image/png)".into()))
        );
        assert_eq!(saved(json!({ "content": [text] })), Ok((b"a\n".to_vec(), "2 bytes (text)".into())));
        assert_eq!(
            saved(json!({ "content": [], "structuredContent": [1] })),
            Ok((b"[\n  1\n]".to_vec(), "7 bytes (JSON)".into()))
        );
        assert_eq!(saved(json!({ "content": [image, image] })), Err(SaveError::Several(2)));
        assert_eq!(saved(json!({ "content": [] })), Err(SaveError::Nothing));
        let broken = json!({ "type": "audio", "data": "?", "mimeType": "audio/wav" });
        assert_eq!(saved(json!({ "content": [broken] })), Err(SaveError::Base64("audio/wav".into())));
    }
}
