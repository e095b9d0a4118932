//! YAML as values of JSON, with bounds: aliases can stand for more than any memory holds.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput, Tag};
use serde_json::{Map, Number, Value};

/// Values and bytes of text of a document, with those that its aliases stand for.
const MOST_VALUES: usize = 8_000_000;
const MOST_BYTES: usize = 256 << 20;
/// Lists and mappings within each other.
const DEEPEST: usize = 128;

/// Parses the first document of a YAML text.
///
/// # Errors
/// It is no YAML, or beyond the bounds. The text says where.
pub(super) fn parse_yaml(text: &str) -> Result<Value, String> {
    let mut reader =
        Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), values: 0, bytes: 0 };
    loop {
        match reader.next()? {
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
            Event::StreamEnd | Event::DocumentEnd => return Ok(Value::Null),
            event => return reader.value(event, DEEPEST),
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// What anchors stand for, and the values and bytes in it.
    anchors: HashMap<usize, (Value, usize, usize)>,
    values: usize,
    bytes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Event<'a>, String> {
        match self.parser.next_event() {
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => Err(format!("line {}: {}", error.marker().line(), error.info())),
            None => Ok(Event::StreamEnd),
        }
    }

    fn count(&mut self, values: usize, bytes: usize) -> Result<(), String> {
        self.values += values;
        self.bytes += bytes;
        if self.values > MOST_VALUES || self.bytes > MOST_BYTES {
            return Err("it has too many values; those that its aliases stand for count".into());
        }
        Ok(())
    }

    fn value(&mut self, event: Event<'a>, depth: usize) -> Result<Value, String> {
        let (values, bytes) = (self.values, self.bytes);
        self.count(1, 0)?;
        let depth = depth.checked_sub(1).ok_or("it is nested too deeply")?;
        let (value, anchor) = match event {
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor).ok_or("an alias is within what it stands for")?;
                let (value, values, bytes) = known.clone();
                self.count(values, bytes)?;
                return Ok(value);
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.count(0, text.len())?;
                let is_plain = style == ScalarStyle::Plain && !tag.is_some_and(|tag| is_string(&tag));
                (if is_plain { plain(&text) } else { Value::String(text.into_owned()) }, anchor)
            }
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        Event::SequenceEnd => break,
                        event => items.push(self.value(event, depth)?),
                    }
                }
                (Value::Array(items), anchor)
            }
            Event::MappingStart(anchor, _) => (Value::Object(self.members(depth)?), anchor),
            _ => return Err("it ends too early".into()),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, (value.clone(), self.values - values, self.bytes - bytes));
        }
        Ok(value)
    }

    /// Reads a mapping. Keys are texts as they were written: `200` is one.
    fn members(&mut self, depth: usize) -> Result<Map<String, Value>, String> {
        let mut members = Map::new();
        let mut merged = Vec::new();
        loop {
            let key = match self.next()? {
                Event::MappingEnd => break,
                Event::Scalar(text, ..) => text.into_owned(),
                event => match self.value(event, depth)? {
                    Value::String(text) => text,
                    value @ (Value::Null | Value::Bool(_) | Value::Number(_)) => value.to_string(),
                    _ => return Err("a key in it is no text".into()),
                },
            };
            self.count(1, key.len())?;
            let event = self.next()?;
            let value = self.value(event, depth)?;
            match (key.as_str(), value) {
                ("<<", value @ (Value::Object(_) | Value::Array(_))) => merged.push(value),
                (_, value) => {
                    members.insert(key, value);
                }
            }
        }
        for value in merged {
            let parts = if let Value::Array(parts) = value { parts } else { vec![value] };
            for (key, value) in parts.into_iter().filter_map(object).flatten() {
                members.entry(key).or_insert(value);
            }
        }
        Ok(members)
    }
}

fn object(value: Value) -> Option<Map<String, Value>> {
    if let Value::Object(members) = value { Some(members) } else { None }
}

fn is_string(tag: &Tag) -> bool {
    tag.is_yaml_core_schema() && tag.suffix == "str"
}

/// Returns the value of a scalar without quotes, by the core schema of YAML 1.2.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    }
}

fn number(text: &str) -> Option<Number> {
    if let Some(digits) = text.strip_prefix("0x") {
        return i64::from_str_radix(digits, 16)
            .ok()
            .filter(|_| !digits.starts_with(['+', '-']))
            .map(Number::from);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return i64::from_str_radix(digits, 8)
            .ok()
            .filter(|_| !digits.starts_with(['+', '-']))
            .map(Number::from);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') || unsigned.contains(['_', 'n', 'i']) {
        return None;
    }
    // As it was written, if that is a number of JSON.
    serde_json::from_str(text).ok().or_else(|| {
        let is_whole = unsigned.bytes().all(|byte| byte.is_ascii_digit());
        if is_whole {
            text.parse::<i64>().ok().map(Number::from)
        } else {
            Number::from_f64(text.parse().ok()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_read_as_json_would_be() {
        let text = "openapi: 3.0.3\ninfo: {title: 'A: b', version: \"1\"}\nx:\n  - on\n  - yes\n  - 2020-01-01\n  \
                    - -1.50\n  - 007\n  - 0x10\n  - ~\n  - !!str 12\n  - 1e3\n  - .5\n  - 1.2.3\n  - |\n    a\n    b\n\
                    responses:\n  200: {}\n  '404': {}\n  true: 1\n";
        let value = parse_yaml(text).unwrap();
        assert_eq!(value["openapi"], "3.0.3");
        assert_eq!(value["info"], json!({ "title": "A: b", "version": "1" }));
        let written = value["x"].to_string();
        assert_eq!(written, r#"["on","yes","2020-01-01",-1.50,7,16,null,"12",1e+3,0.5,"1.2.3","a\nb\n"]"#);
        let keys: Vec<_> = value["responses"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["200", "404", "true"]);
    }

    #[test]
    fn aliases_and_merged_keys_are_copies() {
        let text = "a: &a {x: 1, y: 2}\nb: *a\nc:\n  <<: *a\n  x: 3\n";
        let value = parse_yaml(text).unwrap();
        assert_eq!(value["b"], json!({ "x": 1, "y": 2 }));
        assert_eq!(value["c"], json!({ "x": 3, "y": 2 }));
    }

    #[test]
    fn hostile_documents_end_soon() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let names = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{names}]\n"));
        }
        assert!(parse_yaml(&bomb).unwrap_err().contains("too many values"));
        assert!(parse_yaml(&"[".repeat(100_000)).is_err());
        assert!(parse_yaml(&"- ".repeat(50_000)).is_err());
        let error = parse_yaml("a: 1\nb: [1\nc: 2\n").unwrap_err();
        assert!(error.starts_with("line "), "{error}");
        assert!(parse_yaml("a: &x [*x]\n").is_err());
        assert_eq!(parse_yaml(""), Ok(Value::Null));
    }
}
