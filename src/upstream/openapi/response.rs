//! Responses as results of tools.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use codebridge_runtimes::exec::visible_line;
use http::{HeaderMap, Method, StatusCode, header};
use reqwest::Url;
use serde_json::{Map, Value, json};

use super::media::is_json;

/// Characters of an error body that are in the message, and bytes of it in the result.
const SHOWN: usize = 1_000;
const LONGEST_ERROR: usize = 64 << 10;
/// Bytes of all headers of a result.
const LONGEST_HEADERS: usize = 8 << 10;
/// Headers that hold credentials, or say nothing to code.
const HIDDEN: [&str; 6] =
    ["set-cookie", "www-authenticate", "proxy-authenticate", "connection", "transfer-encoding", "keep-alive"];

/// A response that was read whole.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Received {
    fn content_type(&self) -> &str {
        let kind = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        kind.unwrap_or_default().trim()
    }

    /// Returns the body as JSON, if it is that.
    pub(super) fn json(&self) -> Option<Value> {
        (is_json(self.content_type()) || self.content_type().is_empty())
            .then(|| serde_json::from_slice(&self.body).ok())
            .flatten()
    }

    /// Returns the MCP result.
    pub(super) fn into_result(self, next: Option<Map<String, Value>>) -> Value {
        let mut meta =
            json!({ "codebridge/http": { "status": self.status.as_u16(), "headers": self.shown_headers() } });
        if let Some(next) = next {
            meta["codebridge/next"] = next.into();
        }
        let mut result = if self.status.is_success() { self.value() } else { self.failure() };
        result["_meta"] = meta;
        result
    }

    fn value(self) -> Value {
        if self.method == Method::HEAD {
            let said = json!({ "status": self.status.as_u16(), "headers": self.shown_headers() });
            return json!({ "content": [text(&said.to_string())], "structuredContent": said });
        }
        if self.body.is_empty() {
            return json!({ "content": [], "structuredContent": { "result": null } });
        }
        let kind = self.content_type().to_owned();
        let plain = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if is_json(&kind) {
            return json!({ "content": [text(&String::from_utf8_lossy(&self.body))] });
        }
        let is_text = plain.starts_with("text/")
            || ["xml", "yaml", "javascript", "x-www-form-urlencoded", "graphql", "x-ndjson", "jsonl"]
                .iter()
                .any(|end| plain.ends_with(end));
        if is_text {
            return of_text(&String::from_utf8_lossy(&self.body));
        }
        if plain.is_empty()
            && let Ok(written) = std::str::from_utf8(&self.body)
        {
            return of_text(written);
        }
        let plain = if plain.is_empty() { "application/octet-stream".to_owned() } else { plain };
        let data = STANDARD.encode(&self.body);
        let block = match plain.split('/').next() {
            Some(kind @ ("image" | "audio")) if plain != "image/svg+xml" => {
                json!({ "type": kind, "data": data, "mimeType": plain })
            }
            _ => {
                let mut at = self.url;
                at.set_query(None);
                let _ = at.set_password(None);
                let _ = at.set_username("");
                json!({ "type": "resource", "resource": { "uri": at.as_str(), "mimeType": plain, "blob": data } })
            }
        };
        json!({ "content": [block] })
    }

    fn failure(self) -> Value {
        let status = self.status;
        let mut message = format!("HTTP {status}");
        if status.is_redirection()
            && let Some(to) = self.headers.get(header::LOCATION).and_then(|value| value.to_str().ok())
        {
            message.push_str(&format!(
                ": it redirects to '{}', and redirects are not followed",
                visible_line(to)
            ));
        }
        let is_page = self.content_type().starts_with("text/html");
        let whole = String::from_utf8_lossy(&self.body);
        let whole = whole.trim();
        if !whole.is_empty() && !is_page {
            let end = whole.char_indices().nth(SHOWN).map_or(whole.len(), |(at, _)| at);
            message.push_str(&format!(": {}", visible_line(&whole[..end])));
            if end < whole.len() {
                message.push('…');
            }
        }
        let parsed = (self.body.len() <= LONGEST_ERROR).then(|| self.json()).flatten();
        let body = parsed.unwrap_or_else(|| {
            let end = whole.char_indices().take_while(|(at, _)| *at < LONGEST_ERROR).last();
            json!(end.map_or("", |(at, c)| &whole[..at + c.len_utf8()]))
        });
        let mut said = json!({ "status": status.as_u16(), "body": body });
        let retry_after = self.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        if let Some(retry_after) = retry_after {
            said["retryAfter"] =
                retry_after.parse::<u64>().map_or_else(|_| json!(retry_after), |seconds| json!(seconds));
        }
        json!({ "content": [text(&message)], "structuredContent": said, "isError": true })
    }

    fn shown_headers(&self) -> Map<String, Value> {
        let mut left = LONGEST_HEADERS;
        let mut shown: Map<String, Value> = Map::new();
        for (name, value) in &self.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            let size = name.as_str().len() + value.len();
            if HIDDEN.contains(&name.as_str()) || size > left {
                continue;
            }
            left -= size;
            match shown.get_mut(name.as_str()) {
                Some(Value::String(before)) => before.push_str(&format!(", {value}")),
                _ => {
                    shown.insert(name.as_str().to_owned(), json!(value));
                }
            }
        }
        shown
    }
}

/// Returns the result of a call that got no response.
pub(super) fn failed(why: &str) -> Value {
    json!({ "content": [text(why)], "isError": true })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// A text that stays one: it is not read as JSON.
fn of_text(written: &str) -> Value {
    json!({ "content": [text(written)], "structuredContent": { "result": written } })
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn received(status: u16, kind: &'static str, body: &[u8]) -> Received {
        let mut headers = HeaderMap::new();
        if !kind.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        Received {
            method: Method::GET,
            url: Url::parse("https://u:p@h.example/a?key=secret").unwrap(),
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: body.to_vec(),
        }
    }

    fn result(status: u16, kind: &'static str, body: &[u8]) -> Value {
        let mut result = received(status, kind, body).into_result(None);
        result.as_object_mut().unwrap().shift_remove("_meta");
        result
    }

    #[test]
    fn good_responses_are_values() {
        let json = result(200, "application/problem+json; charset=utf-8", b"{\"n\": 1.50}");
        assert_eq!(json, json!({ "content": [{ "type": "text", "text": "{\"n\": 1.50}" }] }));
        let nothing = result(204, "", b"");
        assert_eq!(nothing["structuredContent"], json!({ "result": null }));
        let number = result(200, "text/plain", b"42");
        assert_eq!(number["structuredContent"], json!({ "result": "42" }));
        let image = result(200, "image/png", b"\x89P");
        assert_eq!(image["content"][0], json!({ "type": "image", "data": "iVA=", "mimeType": "image/png" }));
        let file = result(200, "application/zip", b"PK");
        assert_eq!(
            file["content"][0]["resource"],
            json!({ "uri": "https://h.example/a", "mimeType": "application/zip", "blob": "UEs=" })
        );
    }

    #[test]
    fn failures_say_the_status_and_the_beginning() {
        let failed = result(404, "application/json", b"{\"detail\": \"no such pet\"}");
        assert_eq!(failed["isError"], true);
        assert_eq!(failed["content"][0]["text"], "HTTP 404 Not Found: {\"detail\": \"no such pet\"}");
        assert_eq!(
            failed["structuredContent"],
            json!({ "status": 404, "body": { "detail": "no such pet" } })
        );
        let long = result(500, "text/plain", "ü".repeat(200_000).as_bytes());
        let message = long["content"][0]["text"].as_str().unwrap();
        assert!(message.ends_with("ü…") && message.chars().count() < SHOWN + 60);
        assert!(long["structuredContent"]["body"].as_str().unwrap().len() <= LONGEST_ERROR + 4);
        assert_eq!(result(502, "text/html", b"<html>")["content"][0]["text"], "HTTP 502 Bad Gateway");
        let mut moved = received(302, "", b"");
        moved.headers.insert(header::LOCATION, HeaderValue::from_static("http://127.0.0.1/"));
        moved.headers.insert(header::RETRY_AFTER, HeaderValue::from_static("7"));
        let moved = moved.into_result(None);
        assert_eq!(
            moved["content"][0]["text"],
            "HTTP 302 Found: it redirects to 'http://127.0.0.1/', and redirects are not followed"
        );
        assert_eq!(moved["structuredContent"]["retryAfter"], 7);
    }

    #[test]
    fn headers_are_shown_without_cookies() {
        let mut with = received(200, "application/json", b"1");
        for (name, value) in [("etag", "\"x\""), ("set-cookie", "sid=1"), ("link", "<a>"), ("link", "<b>")] {
            with.headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let next = Map::from_iter([("page".to_owned(), json!(2))]);
        let result = with.into_result(Some(next));
        assert_eq!(
            result["_meta"],
            json!({
                "codebridge/http": { "status": 200, "headers": { "content-type": "application/json", "etag": "\"x\"", "link": "<a>, <b>" } },
                "codebridge/next": { "page": 2 },
            })
        );
    }
}
