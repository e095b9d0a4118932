//! Values of parameters as texts in a URL, a header or a form.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// Everything but the unreserved characters of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same without the reserved characters that a query may have, for `allowReserved`.
const WITH_RESERVED: &AsciiSet = &ENCODED
    .remove(b':')
    .remove(b'/')
    .remove(b'?')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b';');
/// Values within each other in the style `deepObject`.
const DEEPEST: usize = 16;

/// Where a parameter is in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Path,
    Query,
    Header,
    Cookie,
}

impl Place {
    pub(super) const ALL: [Self; 4] = [Self::Path, Self::Query, Self::Header, Self::Cookie];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
            Self::Cookie => "cookie",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Simple,
    Label,
    Matrix,
    Form,
    SpaceDelimited,
    PipeDelimited,
    DeepObject,
    /// The whole value as JSON.
    Json,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style {
    kind: Kind,
    explode: bool,
    reserved: bool,
}

impl Style {
    /// Reads the style of a parameter or of a field of a form.
    pub(super) fn of(written: &Value, place: Place, is_json: bool) -> Self {
        let kind = match written.get("style").and_then(Value::as_str) {
            _ if is_json => Kind::Json,
            Some("label") => Kind::Label,
            Some("matrix") => Kind::Matrix,
            Some("form") => Kind::Form,
            Some("spaceDelimited") => Kind::SpaceDelimited,
            Some("pipeDelimited") => Kind::PipeDelimited,
            Some("deepObject") => Kind::DeepObject,
            Some("simple") => Kind::Simple,
            _ => match place {
                Place::Path | Place::Header => Kind::Simple,
                Place::Query | Place::Cookie => Kind::Form,
            },
        };
        let explode = written.get("explode").and_then(Value::as_bool);
        Self {
            kind,
            explode: explode.unwrap_or(matches!(kind, Kind::Form | Kind::DeepObject)),
            reserved: written.get("allowReserved") == Some(&Value::Bool(true)),
        }
    }

    fn encoded(self, text: &str) -> String {
        let set = if self.reserved { WITH_RESERVED } else { ENCODED };
        utf8_percent_encode(text, set).to_string()
    }

    /// Returns the part of a path that a value is.
    pub(super) fn in_path(self, name: &str, value: &Value) -> String {
        let encode = |text: &str| self.encoded(text);
        match self.kind {
            Kind::Label => {
                let separator = if self.explode { "." } else { "," };
                format!(".{}", self.joined(value, separator, encode))
            }
            Kind::Matrix => {
                let name = encode(name);
                match value {
                    Value::Array(items) if self.explode => {
                        items.iter().map(|item| format!(";{name}={}", encode(&text_of(item)))).collect()
                    }
                    Value::Object(_) if self.explode => format!(";{}", self.joined(value, ";", encode)),
                    value => format!(";{name}={}", self.joined(value, ",", encode)),
                }
            }
            Kind::Json => encode(&value.to_string()),
            _ => self.joined(value, ",", encode),
        }
    }

    /// Returns the value of a header.
    pub(super) fn in_header(self, value: &Value) -> String {
        if self.kind == Kind::Json { value.to_string() } else { self.joined(value, ",", str::to_owned) }
    }

    /// Returns the pairs of a query or of a form, encoded.
    pub(super) fn pairs(self, name: &str, value: &Value) -> Vec<(String, String)> {
        let encode = |text: &str| self.encoded(text);
        let one = |text: String| vec![(encode(name), text)];
        match (self.kind, value) {
            (Kind::Json, value) => one(encode(&value.to_string())),
            (Kind::DeepObject, Value::Object(_) | Value::Array(_)) => {
                let mut pairs = Vec::new();
                self.deep(encode(name), value, DEEPEST, &mut pairs);
                pairs
            }
            (Kind::SpaceDelimited, Value::Array(_)) if !self.explode => {
                one(self.joined(value, "%20", encode))
            }
            (Kind::PipeDelimited, Value::Array(_)) if !self.explode => one(self.joined(value, "%7C", encode)),
            (_, Value::Array(items)) if self.explode => {
                items.iter().map(|item| (encode(name), encode(&text_of(item)))).collect()
            }
            (_, Value::Object(members)) if self.explode => {
                members.iter().map(|(key, value)| (encode(key), encode(&text_of(value)))).collect()
            }
            (_, value) => one(self.joined(value, ",", encode)),
        }
    }

    fn deep(self, name: String, value: &Value, depth: usize, pairs: &mut Vec<(String, String)>) {
        match value {
            Value::Object(members) if depth > 0 => {
                for (key, value) in members {
                    self.deep(format!("{name}[{}]", self.encoded(key)), value, depth - 1, pairs);
                }
            }
            Value::Array(items) if depth > 0 => {
                for (at, value) in items.iter().enumerate() {
                    self.deep(format!("{name}[{at}]"), value, depth - 1, pairs);
                }
            }
            value => pairs.push((name, self.encoded(&text_of(value)))),
        }
    }

    /// Joins the items of a list, or the names and values of an object.
    fn joined(self, value: &Value, separator: &str, encode: impl Fn(&str) -> String) -> String {
        let parts: Vec<String> = match value {
            Value::Array(items) => items.iter().map(|item| encode(&text_of(item))).collect(),
            Value::Object(members) => {
                let between = if self.explode { "=" } else { "," };
                let pair = |(key, value): (&String, &Value)| {
                    format!("{}{between}{}", encode(key), encode(&text_of(value)))
                };
                members.iter().map(pair).collect()
            }
            value => return encode(&text_of(value)),
        };
        parts.join(separator)
    }
}

/// Returns a value as text: a string as it is, and what is no scalar as JSON.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn query(written: Value, value: Value) -> String {
        let pairs = Style::of(&written, Place::Query, false).pairs("a b", &value);
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("&")
    }

    #[test]
    fn values_of_queries_follow_their_style() {
        for (written, value, expected) in [
            (json!({}), json!("ä&=/?#"), "a%20b=%C3%A4%26%3D%2F%3F%23"),
            (json!({}), json!(1.50), "a%20b=1.5"),
            (json!({}), json!(true), "a%20b=true"),
            (json!({}), json!(["x", 2]), "a%20b=x&a%20b=2"),
            (json!({ "explode": false }), json!(["x,y", 2]), "a%20b=x%2Cy,2"),
            (json!({ "style": "spaceDelimited", "explode": false }), json!([1, 2]), "a%20b=1%202"),
            (json!({ "style": "pipeDelimited", "explode": false }), json!([1, 2]), "a%20b=1%7C2"),
            (json!({}), json!({ "r": 1, "g": 2 }), "r=1&g=2"),
            (json!({ "explode": false }), json!({ "r": 1, "g": 2 }), "a%20b=r,1,g,2"),
            (
                json!({ "style": "deepObject" }),
                json!({ "r": 1, "g": { "x": [2, 3] } }),
                "a%20b[r]=1&a%20b[g][x][0]=2&a%20b[g][x][1]=3",
            ),
            (json!({ "allowReserved": true }), json!("/a?b:c&d#e"), "a%20b=/a?b:c%26d%23e"),
        ] {
            assert_eq!(query(written.clone(), value.clone()), expected, "{written} {value}");
        }
        let json = Style::of(&json!({}), Place::Query, true);
        assert_eq!(json.pairs("q", &json!({ "a": 1 })), [("q".into(), "%7B%22a%22%3A1%7D".into())]);
    }

    #[test]
    fn values_of_paths_and_headers_follow_their_style() {
        let path =
            |written: Value, value: Value| Style::of(&written, Place::Path, false).in_path("id", &value);
        for (written, value, expected) in [
            (json!({}), json!("../x y"), "..%2Fx%20y"),
            (json!({}), json!([1, "a/b"]), "1,a%2Fb"),
            (json!({ "style": "label" }), json!([1, 2]), ".1,2"),
            (json!({ "style": "label", "explode": true }), json!([1, 2]), ".1.2"),
            (json!({ "style": "matrix" }), json!([1, 2]), ";id=1,2"),
            (json!({ "style": "matrix", "explode": true }), json!([1, 2]), ";id=1;id=2"),
            (json!({ "explode": true }), json!({ "r": 1 }), "r=1"),
        ] {
            assert_eq!(path(written.clone(), value.clone()), expected, "{written} {value}");
        }
        let header = Style::of(&json!({}), Place::Header, false);
        assert_eq!(header.in_header(&json!(["a", 1])), "a,1");
    }
}
