//! Arguments as they are written on a command line: `name=value`, where the schema of the tool says what a value is.

use std::cell::Cell;
use std::fmt;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// How deep alternatives and references are followed.
const MOST_DEPTH: usize = 6;
/// Schemas and values of an `enum` that are read for one argument. Alternatives that refer to each other multiply with the depth.
const MOST_SCHEMAS: usize = 10_000;
/// Characters of a wrong value that are shown.
const SHOWN: usize = 40;

/// Why a written argument cannot be sent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrittenError {
    #[error("'{0}' is not an argument: expected NAME=VALUE, or one JSON object")]
    NoPair(String),
    #[error("argument '{0}' is given twice")]
    Twice(String),
    #[error("argument '{name}' must be {expected}, not '{given}'")]
    Type {
        name: String,
        /// With an article or an example.
        expected: String,
        given: String,
    },
}

/// Returns the JSON object of arguments written as `name=value`. A value is JSON where the schema does not want a string, and
/// the numbers keep their digits.
///
/// # Errors
/// It is no pair, a name is there twice, or a value is not what the schema wants.
pub fn written_arguments(schema: &Value, pairs: &[String]) -> Result<String, WrittenError> {
    let mut members: Vec<(&str, String)> = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let Some((name, text)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(WrittenError::NoPair(cut(pair)));
        };
        if members.iter().any(|(known, _)| *known == name) {
            return Err(WrittenError::Twice(cut(name)));
        }
        let kinds = Kinds::of_parameter(schema, name);
        let value = kinds.value(text).ok_or_else(|| WrittenError::Type {
            name: cut(name),
            expected: kinds.to_string(),
            given: cut(text),
        })?;
        members.push((name, value));
    }
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    Ok(format!("{{{}}}", members.join(",")))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The types that a value may have, all of them where the schema does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kinds(u8);

const TEXT: u8 = 1;
const WHOLE: u8 = 2;
const NUMBER: u8 = 4 | WHOLE;
const TRUTH: u8 = 8;
const NOTHING: u8 = 16;
const LIST: u8 = 32;
const RECORD: u8 = 64;
const ANY: u8 = 127;

impl Kinds {
    /// Returns the types of a parameter, which may be in an alternative of the schema.
    fn of_parameter(schema: &Value, name: &str) -> Self {
        let reader = SchemaReader { root: schema, left: Cell::new(MOST_SCHEMAS) };
        let kinds =
            reader.find(schema, name, MOST_DEPTH).map_or(ANY, |found| reader.kinds(found, MOST_DEPTH));
        // What was not read may allow more.
        Self(if reader.left.get() == 0 { ANY } else { kinds })
    }

    /// Returns the JSON text of a value; None if it has another type.
    fn value(self, text: &str) -> Option<String> {
        let is_text = self.0 & TEXT != 0;
        // A string that may be absent is a string.
        if self.0 & !NOTHING == TEXT {
            return Some(json!(text).to_string());
        }
        let parsed = serde_json::from_str::<&RawValue>(text).ok();
        let value = parsed.filter(|raw| self.0 & kind_of(raw.get()) != 0).map(|raw| raw.get().to_owned());
        value.or_else(|| is_text.then(|| json!(text).to_string()))
    }
}

impl fmt::Display for Kinds {
    /// Writes what is expected.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (NUMBER, "a number"),
            (WHOLE, "an integer"),
            (TRUTH, "true or false"),
            (LIST, r#"a list such as ["a", "b"]"#),
            (RECORD, r#"an object such as {"a": 1}"#),
        ];
        let mut left = self.0;
        let mut names = Vec::new();
        for (kind, name) in all {
            if left & kind == kind {
                names.push(name);
                left &= !kind;
            }
        }
        f.write_str(if names.is_empty() { "null" } else { "" })?;
        f.write_str(&names.join(" or "))
    }
}

/// Returns the type of a JSON text. A number without a fraction is whole, whichever way it is written.
fn kind_of(json: &str) -> u8 {
    match json.as_bytes().first() {
        Some(b'"') => TEXT,
        Some(b't' | b'f') => TRUTH,
        Some(b'n') => NOTHING,
        Some(b'[') => LIST,
        Some(b'{') => RECORD,
        _ if json.parse::<f64>().is_ok_and(|number| number.fract() == 0.0) => WHOLE,
        _ => NUMBER & !WHOLE,
    }
}

fn kind_of_value(value: &Value) -> u8 {
    match value {
        Value::String(_) => TEXT,
        Value::Bool(_) => TRUTH,
        Value::Null => NOTHING,
        Value::Array(_) => LIST,
        Value::Object(_) => RECORD,
        Value::Number(number) => kind_of(&number.to_string()),
    }
}

/// Reads the schema of one parameter, with bounded work: a server chooses the schema.
struct SchemaReader<'a> {
    root: &'a Value,
    /// What may still be read; see [`MOST_SCHEMAS`].
    left: Cell<usize>,
}

impl<'a> SchemaReader<'a> {
    /// Counts a schema that is read; returns its members.
    fn visit(&self, schema: &'a Value, depth: usize) -> Option<&'a Map<String, Value>> {
        self.spend(1);
        schema.as_object().filter(|_| depth > 0 && self.left.get() > 0)
    }

    fn spend(&self, count: usize) {
        self.left.set(self.left.get().saturating_sub(count));
    }

    /// Returns the schema of a parameter.
    fn find(&self, schema: &'a Value, name: &str, depth: usize) -> Option<&'a Value> {
        let object = self.visit(schema, depth)?;
        let own = object.get("properties").and_then(|properties| properties.get(name));
        own.or_else(|| self.find(self.referred(object)?, name, depth - 1))
            .or_else(|| alternatives(object).find_map(|schema| self.find(schema, name, depth - 1)))
    }

    /// Returns the types that a schema allows.
    fn kinds(&self, schema: &'a Value, depth: usize) -> u8 {
        let Some(object) = self.visit(schema, depth) else { return ANY };
        if let Some(target) = self.referred(object) {
            return self.kinds(target, depth - 1);
        }
        if let Some(value) = object.get("const") {
            return kind_of_value(value);
        }
        if let Some(values) = object.get("enum").and_then(Value::as_array) {
            self.spend(values.len());
            return values.iter().fold(0, |all, value| all | kind_of_value(value));
        }
        let named = match object.get("type") {
            Some(Value::String(name)) => kind_named(name),
            Some(Value::Array(names)) => {
                self.spend(names.len());
                names.iter().filter_map(Value::as_str).fold(0, |all, name| all | kind_named(name))
            }
            _ => ANY,
        };
        let either = |key: &str| {
            let schemas = object.get(key).and_then(Value::as_array)?;
            Some(schemas.iter().fold(0, |all, schema| all | self.kinds(schema, depth - 1)))
        };
        let every = object.get("allOf").and_then(Value::as_array).into_iter().flatten();
        let every = every.fold(ANY, |all, schema| all & self.kinds(schema, depth - 1));
        named & every & either("anyOf").unwrap_or(ANY) & either("oneOf").unwrap_or(ANY)
    }

    /// Returns the target of a `$ref` within the document.
    fn referred(&self, object: &Map<String, Value>) -> Option<&'a Value> {
        self.root.pointer(object.get("$ref")?.as_str()?.strip_prefix('#')?)
    }
}

fn kind_named(name: &str) -> u8 {
    match name {
        "string" => TEXT,
        "integer" => WHOLE,
        "number" => NUMBER,
        "boolean" => TRUTH,
        "null" => NOTHING,
        "array" => LIST,
        "object" => RECORD,
        _ => ANY,
    }
}

fn alternatives(object: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    ["allOf", "anyOf", "oneOf"]
        .into_iter()
        .filter_map(|key| object.get(key).and_then(Value::as_array))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({
            "properties": {
                "title": { "type": "string" },
                "note": { "type": ["string", "null"] },
                "count": { "type": "integer" },
                "ratio": { "type": "number" },
                "draft": { "type": "boolean" },
                "labels": { "type": "array", "items": { "type": "string" } },
                "filter": { "anyOf": [{ "type": "object" }, { "type": "null" }] },
                "id": { "oneOf": [{ "type": "integer" }, { "type": "string" }] },
                "state": { "enum": ["open", "closed"] },
                "level": { "$ref": "#/$defs/level" },
                "free": {},
            },
            "$defs": { "level": { "enum": [1, 2] } },
            "anyOf": [{ "properties": { "page": { "type": "integer" } } }],
        })
    }

    fn written(pairs: &[&str]) -> Result<String, String> {
        let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        written_arguments(&schema(), &pairs).map_err(|error| error.to_string())
    }

    #[test]
    fn the_schema_says_what_a_value_is() {
        for (pair, json) in [
            ("title=7", r#"{"title":"7"}"#),
            ("title=", r#"{"title":""}"#),
            ("title=a=\"b\"", r#"{"title":"a=\"b\""}"#),
            ("note=null", r#"{"note":"null"}"#),
            ("count=12345678901234567890123", r#"{"count":12345678901234567890123}"#),
            ("count=3.0", r#"{"count":3.0}"#),
            ("ratio=1.10", r#"{"ratio":1.10}"#),
            ("ratio=1", r#"{"ratio":1}"#),
            ("draft=true", r#"{"draft":true}"#),
            (r#"labels=["a", "b"]"#, r#"{"labels":["a", "b"]}"#),
            (r#"filter={"a": 1}"#, r#"{"filter":{"a": 1}}"#),
            ("filter=null", r#"{"filter":null}"#),
            ("id=7", r#"{"id":7}"#),
            ("id=x7", r#"{"id":"x7"}"#),
            ("state=open", r#"{"state":"open"}"#),
            ("level=2", r#"{"level":2}"#),
            ("page=2", r#"{"page":2}"#),
            ("free=[1]", r#"{"free":[1]}"#),
            ("free=a b", r#"{"free":"a b"}"#),
            ("unknown=1", r#"{"unknown":1}"#),
        ] {
            assert_eq!(written(&[pair]).as_deref(), Ok(json), "{pair}");
        }
        assert_eq!(written(&[]).as_deref(), Ok("{}"));
        assert_eq!(written(&["title=a", "count=1"]).as_deref(), Ok(r#"{"title":"a","count":1}"#));
    }

    #[test]
    fn a_wrong_value_is_named_with_what_is_expected() {
        for (pairs, error) in [
            (&["count=many"][..], "argument 'count' must be an integer, not 'many'"),
            (&["count=1.5"], "argument 'count' must be an integer, not '1.5'"),
            (&["ratio="], "argument 'ratio' must be a number, not ''"),
            (&["draft=yes"], "argument 'draft' must be true or false, not 'yes'"),
            (&["labels=a"], r#"argument 'labels' must be a list such as ["a", "b"], not 'a'"#),
            (&["filter=7"], r#"argument 'filter' must be an object such as {"a": 1}, not '7'"#),
            (&["level=high"], "argument 'level' must be an integer, not 'high'"),
            (&["title"], "'title' is not an argument: expected NAME=VALUE, or one JSON object"),
            (&["=1"], "'=1' is not an argument: expected NAME=VALUE, or one JSON object"),
            (&["title=a", "title=b"], "argument 'title' is given twice"),
        ] {
            assert_eq!(written(pairs).unwrap_err(), error);
        }
        assert!(written(&[&format!("count={}", "x".repeat(1 << 20))]).unwrap_err().len() < 200);
    }

    #[test]
    fn a_schema_of_any_shape_is_read() {
        let circular = json!({ "properties": { "a": { "$ref": "#/properties/a" } }, "$ref": "#" });
        for schema in [json!(null), json!(true), json!([]), json!({ "properties": 7 }), circular] {
            let pairs = ["a=x".to_owned()];
            assert_eq!(written_arguments(&schema, &pairs).as_deref(), Ok(r#"{"a":"x"}"#), "{schema}");
        }
    }

    #[test]
    fn a_schema_whose_alternatives_multiply_is_not_read_to_its_end() {
        let branch = json!({ "$ref": "#/$defs/all" });
        let schema = json!({
            "properties": { "a": { "$ref": "#/$defs/all" } },
            "anyOf": vec![branch.clone(); 2000],
            "$defs": { "all": { "type": "integer", "anyOf": vec![branch; 2000] } },
        });
        for name in ["a", "b"] {
            let pairs = [format!("{name}=x")];
            assert_eq!(written_arguments(&schema, &pairs), Ok(format!(r#"{{"{name}":"x"}}"#)));
        }
    }
}
