//! Schemas of a document as JSON Schema that stands alone: without references, and of a limited size.
//!
//! A schema refers to others, which refer back; written out, a few of them are larger than any memory. So each one is
//! written as deep as there is room: at the end of it stands the type alone.

use serde_json::{Map, Value, json};

use super::document::Document;

/// How deep schemas are written: the first that has room.
const DEPTHS: [usize; 7] = [12, 8, 6, 4, 3, 2, 1];
/// References within each other.
const MOST_OPEN: usize = 64;
/// Values of an enumeration.
const MOST_ALLOWED: usize = 200;
/// Bytes of a pattern or of a default value.
const LONGEST_VALUE: usize = 300;
/// Keywords whose values are taken as they are, if they are short.
const PLAIN: [&str; 18] = [
    "type", "format", "default", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "deprecated",
    "contentEncoding", "contentMediaType",
];

/// Who sends what a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// We do. Fields that are read only are left out.
    Client,
    /// The API does. Fields that are written only are left out.
    Api,
}

/// What a schema may have when it is written out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) values: usize,
    /// Bytes of each description.
    pub(super) description: usize,
}

impl Document {
    /// Writes a schema out.
    pub(super) fn plain(&self, schema: &Value, sender: Sender, limits: Limits) -> Value {
        for depth in DEPTHS {
            let mut writer = Writer { document: self, sender, limits, left: limits.values, open: Vec::new() };
            if let Some(plain) = writer.write(schema, depth) {
                return plain;
            }
        }
        outline(self.follow(schema).unwrap_or(schema))
    }
}

struct Writer<'a> {
    document: &'a Document,
    sender: Sender,
    limits: Limits,
    left: usize,
    /// The references that are being followed.
    open: Vec<&'a str>,
}

impl<'a> Writer<'a> {
    /// Returns None when there is no room.
    fn write(&mut self, schema: &'a Value, depth: usize) -> Option<Value> {
        self.take(1)?;
        let Some(members) = schema.as_object() else { return Some(json!({})) };
        let Some(Value::String(reference)) = members.get("$ref") else { return self.members(members, depth) };
        let target = self.document.target(reference);
        let Some(target) = target.filter(|_| self.open.len() < MOST_OPEN) else { return Some(json!({})) };
        if self.open.contains(&reference.as_str()) {
            return Some(outline(target));
        }
        self.open.push(reference);
        let mut written = self.write(target, depth)?;
        self.open.pop();
        // What is said beside a reference is about this use of it.
        if let (Some(Value::String(text)), Value::Object(written)) =
            (members.get("description"), &mut written)
        {
            written.insert("description".into(), shortened(text, self.limits.description).into());
        }
        Some(written)
    }

    fn members(&mut self, members: &'a Map<String, Value>, depth: usize) -> Option<Value> {
        let mut written = Map::new();
        for (name, value) in members {
            let kept = match name.as_str() {
                "title" | "description" => {
                    value.as_str().map(|text| shortened(text, self.limits.description).into())
                }
                "enum" => value.as_array().filter(|all| all.len() <= MOST_ALLOWED).map(|_| value.clone()),
                name if PLAIN.contains(&name) => is_short(value).then(|| value.clone()),
                _ if depth == 0 => None,
                "properties" => Some(self.properties(value, depth - 1)?),
                "items" | "additionalProperties" if value.is_object() => Some(self.write(value, depth - 1)?),
                "additionalProperties" => value.as_bool().map(Value::Bool),
                "allOf" | "anyOf" | "oneOf" | "prefixItems" => Some(self.list(value, depth - 1)?),
                _ => None,
            };
            if let Some(kept) = kept {
                self.take(count(&kept, 2))?;
                written.insert(name.clone(), kept);
            }
        }
        self.require(members, &mut written);
        as_json_schema(members, &mut written);
        Some(Value::Object(written))
    }

    fn properties(&mut self, properties: &'a Value, depth: usize) -> Option<Value> {
        let mut written = Map::new();
        for (name, schema) in properties.as_object()? {
            if !self.is_hidden(schema) {
                written.insert(name.clone(), self.write(schema, depth)?);
            }
        }
        Some(Value::Object(written))
    }

    fn list(&mut self, schemas: &'a Value, depth: usize) -> Option<Value> {
        let schemas = schemas.as_array().map(Vec::as_slice).unwrap_or_default();
        schemas.iter().map(|schema| self.write(schema, depth)).collect()
    }

    /// Adds the names of required properties, as far as those are written.
    fn require(&mut self, members: &Map<String, Value>, written: &mut Map<String, Value>) {
        let Some(Value::Array(names)) = members.get("required") else { return };
        let properties = members.get("properties").and_then(Value::as_object);
        let is_sent = |name: &&Value| {
            let schema = name.as_str().and_then(|name| properties?.get(name));
            name.is_string() && !schema.is_some_and(|schema| self.is_hidden(schema))
        };
        let names: Vec<Value> = names.iter().filter(is_sent).cloned().collect();
        if !names.is_empty() && written.contains_key("properties") {
            written.insert("required".into(), names.into());
        }
    }

    fn is_hidden(&self, schema: &Value) -> bool {
        let key = match self.sender {
            Sender::Client => "readOnly",
            Sender::Api => "writeOnly",
        };
        schema.get(key) == Some(&Value::Bool(true))
    }

    fn take(&mut self, values: usize) -> Option<()> {
        self.left = self.left.checked_sub(values)?;
        Some(())
    }
}

/// Changes what OpenAPI 3.0 says in words of its own.
fn as_json_schema(members: &Map<String, Value>, written: &mut Map<String, Value>) {
    if members.get("nullable") == Some(&Value::Bool(true))
        && let Some(Value::String(kind)) = written.get("type")
    {
        let kinds = json!([kind, "null"]);
        written.insert("type".into(), kinds);
        if let Some(Value::Array(allowed)) = written.get_mut("enum")
            && !allowed.contains(&Value::Null)
        {
            allowed.push(Value::Null);
        }
    }
    for (limit, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if let Some(Value::Bool(is_exclusive)) = written.get(exclusive) {
            let is_exclusive = *is_exclusive;
            written.shift_remove(exclusive);
            if is_exclusive && let Some(value) = written.shift_remove(limit) {
                written.insert(exclusive.into(), value);
            }
        }
    }
    if matches!(members.get("format").and_then(Value::as_str), Some("binary" | "byte")) {
        written.insert("contentEncoding".into(), "base64".into());
    }
}

/// Returns the type of a schema, and nothing of what is in it.
fn outline(schema: &Value) -> Value {
    let kind = schema.get("type").filter(|kind| is_short(kind)).cloned();
    let is_object = schema.get("properties").is_some();
    match kind.or_else(|| is_object.then(|| "object".into())) {
        Some(kind) => json!({ "type": kind }),
        None => json!({}),
    }
}

fn is_short(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= LONGEST_VALUE,
        Value::Array(items) => {
            items.len() <= 16 && items.iter().all(|item| !item.is_array() && is_short(item))
        }
        Value::Object(members) => members.is_empty(),
        _ => true,
    }
}

/// Returns the number of values in the upper levels of a value.
fn count(value: &Value, depth: usize) -> usize {
    match value {
        Value::Array(items) if depth > 0 => items.len(),
        _ => 1,
    }
}

/// Returns a text of at most so many bytes.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let text = text.trim();
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= most.saturating_sub(3)).last();
    format!("{}…", text[..end.unwrap_or(0)].trim_end())
}

/// The properties of an object, as they can be given one by one.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) properties: Map<String, Value>,
    pub(super) required: Vec<String>,
    /// Whether there may be others.
    pub(super) open: bool,
}

/// Returns the properties of a schema that was written out; None if it may be anything but one kind of object.
pub(super) fn fields_of(schema: &Value) -> Option<Fields> {
    let mut fields = Fields::default();
    collect(schema, &mut fields, 8)?;
    (!fields.properties.is_empty()).then_some(fields)
}

fn collect(schema: &Value, fields: &mut Fields, depth: usize) -> Option<()> {
    let members = schema.as_object()?;
    let is_object = match members.get("type") {
        None => true,
        Some(Value::String(kind)) => kind == "object",
        Some(_) => false,
    };
    if !is_object || ["anyOf", "oneOf", "enum", "const"].iter().any(|key| members.contains_key(*key)) {
        return None;
    }
    for part in members.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        collect(part, fields, depth.checked_sub(1)?)?;
    }
    for (name, property) in members.get("properties").and_then(Value::as_object).into_iter().flatten() {
        fields.properties.insert(name.clone(), property.clone());
    }
    let required = members.get("required").and_then(Value::as_array).into_iter().flatten();
    fields.required.extend(required.filter_map(Value::as_str).map(str::to_owned));
    fields.open |= matches!(members.get("additionalProperties"), Some(Value::Bool(true) | Value::Object(_)));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { values: 200, description: 60 };

    fn document(schemas: Value) -> Document {
        let root = json!({ "components": { "schemas": schemas } });
        Document { root }
    }

    fn plain(schemas: Value, sender: Sender) -> Value {
        document(schemas).plain(&json!({ "$ref": "#/components/schemas/A" }), sender, LIMITS)
    }

    #[test]
    fn words_of_openapi_become_json_schema() {
        let schema = json!({ "A": {
            "type": "object",
            "required": ["id", "name", "secret"],
            "xml": { "name": "a" },
            "example": { "id": 1 },
            "properties": {
                "id": { "type": "integer", "readOnly": true },
                "name": { "type": "string", "nullable": true, "enum": ["a", "b"] },
                "age": { "type": "integer", "minimum": 0, "exclusiveMinimum": true },
                "photo": { "type": "string", "format": "binary" },
                "secret": { "type": "string", "writeOnly": true },
            },
        }});
        assert_eq!(
            plain(schema.clone(), Sender::Client),
            json!({
                "type": "object",
                "required": ["name", "secret"],
                "properties": {
                    "name": { "type": ["string", "null"], "enum": ["a", "b", null] },
                    "age": { "type": "integer", "exclusiveMinimum": 0 },
                    "photo": { "type": "string", "format": "binary", "contentEncoding": "base64" },
                    "secret": { "type": "string" },
                },
            })
        );
        let received = plain(schema, Sender::Api);
        assert!(received["properties"]["secret"].is_null() && received["properties"]["id"].is_object());
        assert_eq!(received["required"], json!(["id", "name"]));
    }

    #[test]
    fn circles_end() {
        let node = json!({ "type": "object", "properties": {
            "next": { "$ref": "#/components/schemas/A" },
            "all": { "type": "array", "items": { "$ref": "#/components/schemas/A" } },
            "b": { "$ref": "#/components/schemas/B" },
            "lost": { "$ref": "#/components/schemas/None" },
        }});
        let b =
            json!({ "allOf": [{ "$ref": "#/components/schemas/A" }, { "$ref": "#/components/schemas/B" }] });
        let written = plain(json!({ "A": node, "B": b }), Sender::Api);
        assert_eq!(written["properties"]["next"], json!({ "type": "object" }));
        assert_eq!(written["properties"]["all"]["items"], json!({ "type": "object" }));
        assert_eq!(written["properties"]["lost"], json!({}));
        assert_eq!(plain(json!({ "A": { "$ref": "#/components/schemas/A" } }), Sender::Api), json!({}));
    }

    #[test]
    fn a_fan_of_references_has_a_limited_size() {
        let fan = |next: &str| {
            let one = json!({ "$ref": format!("#/components/schemas/{next}") });
            let properties: Map<_, _> = (0..10).map(|at| (format!("p{at}"), one.clone())).collect();
            json!({ "type": "object", "properties": properties })
        };
        let names = ["A", "B", "C", "D", "E", "F", "G", "H"];
        let schemas: Map<_, _> = names.windows(2).map(|pair| (pair[0].to_owned(), fan(pair[1]))).collect();
        let written = plain(schemas.into(), Sender::Api);
        let size = written.to_string().len();
        assert!((200..8_000).contains(&size), "{size}");
        assert_eq!(written["properties"]["p0"]["type"], "object");
        let wide: Map<_, _> = (0..1_000).map(|at| (format!("p{at}"), json!({}))).collect();
        let written = plain(json!({ "A": { "type": "object", "properties": wide } }), Sender::Api);
        assert_eq!(written, json!({ "type": "object" }));
    }

    #[test]
    fn objects_are_taken_apart_and_alternatives_are_not() {
        let schema = json!({ "allOf": [
            { "type": "object", "properties": { "a": {} }, "required": ["a"] },
            { "properties": { "b": {} }, "additionalProperties": true },
        ]});
        let fields = fields_of(&schema).unwrap();
        assert_eq!(fields.properties.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((fields.required, fields.open), (vec!["a".to_owned()], true));
        for schema in [
            json!({ "type": "array" }),
            json!({ "oneOf": [{ "properties": { "a": {} } }] }),
            json!({ "type": "object" }),
            json!({ "type": ["object", "null"], "properties": { "a": {} } }),
        ] {
            assert!(fields_of(&schema).is_none(), "{schema}");
        }
    }
}
