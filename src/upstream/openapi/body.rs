//! The body of a request: which arguments are in it, and how it is written.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::document::Document;
use super::media::is_json;
use super::schema::{Limits, Sender, fields_of, shortened};
use super::style::{Place, Style, text_of};

/// The argument that is a whole body.
const WHOLE: &str = "body";
const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data";
/// What a field with a file takes.
const FILE: &str = "Bytes, or {\"data\": bytes, \"filename\": \"a.txt\", \"mimeType\": \"text/plain\"}. In JSON, bytes are base64 text.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Form,
    Multipart,
    Text,
    Bytes,
}

#[derive(Debug)]
pub(super) struct Body {
    format: Format,
    content_type: String,
    arguments: Arguments,
    /// How the fields of a form are written, where the document says so.
    styles: HashMap<String, Style>,
    /// The types of the parts, likewise.
    types: HashMap<String, String>,
}

#[derive(Debug)]
enum Arguments {
    /// One, of this name.
    Whole(String),
    /// One for each field; other arguments too if it is open.
    Fields { fields: HashMap<String, Field>, open: bool },
}

#[derive(Debug, Clone, Copy)]
struct Field {
    /// Whether null is a value of it, and not the same as nothing.
    nullable: bool,
    is_file: bool,
}

/// A body as it is sent.
#[derive(Debug, PartialEq)]
pub(super) struct Encoded {
    pub(super) content_type: String,
    pub(super) bytes: Vec<u8>,
}

impl Body {
    /// Reads what an operation takes, and adds its arguments to those of the tool. The outer None: a reference leads nowhere.
    pub(super) fn read(
        document: &Document,
        written: &Value,
        properties: &mut Map<String, Value>,
        required: &mut Vec<String>,
        limits: Limits,
    ) -> Option<Option<Self>> {
        let written = document.follow(written)?;
        let Some((content_type, media)) = written.get("content").and_then(Value::as_object).and_then(best)
        else {
            return Some(None);
        };
        let format = format_of(content_type);
        let is_required = written.get("required") == Some(&Value::Bool(true));
        let schema = media.get("schema");
        let mut schema =
            schema.map_or_else(|| json!({}), |schema| document.plain(schema, Sender::Client, limits));
        let takes_fields = !matches!(format, Format::Text | Format::Bytes);
        let fields = fields_of(&schema).filter(|fields| {
            // An argument of a name that a parameter has would be for both.
            takes_fields && !fields.properties.keys().any(|name| properties.contains_key(name))
        });
        let arguments = match fields {
            Some(fields) => {
                let mut known = HashMap::new();
                for (name, mut schema) in fields.properties {
                    known.insert(name.clone(), Field::of(&schema));
                    if format == Format::Multipart && is_file(&schema) {
                        schema = file_schema(&schema);
                    }
                    properties.insert(name, schema);
                }
                if is_required {
                    required.extend(fields.required.into_iter().filter(|name| known.contains_key(name)));
                }
                Arguments::Fields { fields: known, open: fields.open }
            }
            None => {
                let mut name = WHOLE.to_owned();
                while properties.contains_key(&name) {
                    name.push('_');
                }
                if format == Format::Bytes {
                    schema = json!({ "type": "string", "contentEncoding": "base64" });
                }
                if let (Some(text), Value::Object(members)) =
                    (written.get("description").and_then(Value::as_str), &mut schema)
                {
                    members.insert("description".into(), shortened(text, limits.description).into());
                }
                properties.insert(name.clone(), schema);
                if is_required {
                    required.push(name.clone());
                }
                Arguments::Whole(name)
            }
        };
        let encoding = media.get("encoding").and_then(Value::as_object);
        let content_type = content_type.clone();
        Some(Some(Self { format, content_type, arguments, styles: styles(encoding), types: types(encoding) }))
    }

    /// Whether arguments that nothing describes belong to it.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.arguments, Arguments::Fields { open: true, .. })
    }

    /// Takes the arguments that are left after the parameters; None if there is nothing to send.
    pub(super) fn encode(&self, mut arguments: Map<String, Value>) -> Result<Option<Encoded>, String> {
        let value = match &self.arguments {
            Arguments::Whole(name) => match arguments.shift_remove(name) {
                None => return Ok(None),
                Some(value) => value,
            },
            Arguments::Fields { fields, .. } => {
                arguments.retain(|name, value| {
                    !value.is_null() || fields.get(name).is_none_or(|field| field.nullable)
                });
                if arguments.is_empty() {
                    return Ok(None);
                }
                Value::Object(arguments)
            }
        };
        let (content_type, bytes) = match self.format {
            Format::Json => (self.content_type.clone(), value.to_string().into_bytes()),
            Format::Form => (self.content_type.clone(), self.form(&value)?.into_bytes()),
            Format::Multipart => self.multipart(&value)?,
            Format::Text => (self.content_type.clone(), text_of(&value).into_bytes()),
            Format::Bytes => (self.concrete_type(), bytes_of(&value)),
        };
        Ok(Some(Encoded { content_type, bytes }))
    }

    /// Returns a type without a star.
    fn concrete_type(&self) -> String {
        if self.content_type.contains('*') {
            "application/octet-stream".into()
        } else {
            self.content_type.clone()
        }
    }

    fn form(&self, value: &Value) -> Result<String, String> {
        let Value::Object(members) = value else {
            return match value {
                Value::String(text) => Ok(text.clone()),
                _ => Err("the body is a form: it must be an object".into()),
            };
        };
        let mut pairs = Vec::new();
        for (name, value) in members {
            let style = self.styles.get(name).copied();
            // Without a style, an object is written as JSON.
            let style = style.unwrap_or_else(|| Style::of(&Value::Null, Place::Query, value.is_object()));
            pairs.extend(style.pairs(name, value).into_iter().map(|(name, value)| format!("{name}={value}")));
        }
        Ok(pairs.join("&"))
    }

    fn multipart(&self, value: &Value) -> Result<(String, Vec<u8>), String> {
        let Value::Object(members) = value else {
            return Err("the body is a form: it must be an object".into());
        };
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| error.to_string())?;
        let boundary = format!("codebridge-{}", hex::encode(random));
        let mut bytes = Vec::new();
        for (name, value) in members {
            let values = match value {
                Value::Array(items) => items.iter().collect(),
                value => vec![value],
            };
            for value in values {
                let part = self.part(name, value);
                bytes.extend_from_slice(format!("--{boundary}\r\n").as_bytes());
                bytes.extend_from_slice(part.head(name).as_bytes());
                bytes.extend_from_slice(&part.bytes);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        bytes.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        Ok((format!("{MULTIPART}; boundary={boundary}"), bytes))
    }

    fn part(&self, name: &str, value: &Value) -> Part {
        let is_file = match &self.arguments {
            Arguments::Fields { fields, .. } => fields.get(name).is_some_and(|field| field.is_file),
            Arguments::Whole(_) => false,
        };
        let kind = self.types.get(name).filter(|kind| !kind.contains(['*', ','])).cloned();
        if !is_file {
            let is_text = !matches!(value, Value::Object(_) | Value::Array(_));
            let kind = kind.or_else(|| (!is_text).then(|| "application/json".into()));
            return Part { filename: None, kind, bytes: text_of(value).into_bytes() };
        }
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        Part {
            filename: Some(text("filename").unwrap_or_else(|| name.to_owned())),
            kind: text("mimeType").or(kind).or_else(|| Some("application/octet-stream".into())),
            bytes: bytes_of(value.get("data").unwrap_or(value)),
        }
    }
}

/// A part of a multipart body.
struct Part {
    filename: Option<String>,
    kind: Option<String>,
    bytes: Vec<u8>,
}

impl Part {
    fn head(&self, name: &str) -> String {
        let mut head = format!("Content-Disposition: form-data; name=\"{}\"", quoted(name));
        if let Some(filename) = &self.filename {
            head.push_str(&format!("; filename=\"{}\"", quoted(filename)));
        }
        if let Some(kind) = &self.kind {
            let kind: String = kind.chars().filter(|c| !c.is_control()).collect();
            head.push_str(&format!("\r\nContent-Type: {kind}"));
        }
        head + "\r\n\r\n"
    }
}

/// Writes a name as browsers do.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

impl Field {
    fn of(schema: &Value) -> Self {
        let kind = schema.get("type");
        let nullable = match kind {
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "null"),
            Some(kind) => kind == "null",
            None => true,
        };
        Self { nullable, is_file: is_file(schema) }
    }
}

/// Whether a field, or each item of it, is a file.
fn is_file(schema: &Value) -> bool {
    let is_binary = |schema: &Value| {
        schema.get("format").is_some_and(|format| format == "binary")
            || schema.get("contentMediaType").is_some_and(|kind| kind == "application/octet-stream")
    };
    is_binary(schema) || schema.get("items").is_some_and(is_binary)
}

fn file_schema(schema: &Value) -> Value {
    let said = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let description = format!("{said} {FILE}");
    let file = json!({ "type": ["string", "object"], "contentEncoding": "base64" });
    let mut schema = match schema.get("items") {
        Some(_) => json!({ "type": "array", "items": file }),
        None => file,
    };
    schema["description"] = description.trim().into();
    schema
}

/// Returns the bytes of base64 text, and a text that is none as it is.
fn bytes_of(value: &Value) -> Vec<u8> {
    let text = text_of(value);
    STANDARD.decode(text.trim()).unwrap_or_else(|_| text.into_bytes())
}

/// Returns the type of body that is used.
fn best(content: &Map<String, Value>) -> Option<(&String, &Value)> {
    let rank = |kind: &str| match format_of(kind) {
        Format::Json => 0,
        Format::Form => 1,
        Format::Multipart => 2,
        Format::Text => 3,
        Format::Bytes => 4,
    };
    content.iter().filter(|(kind, _)| kind.is_ascii()).min_by_key(|(kind, _)| rank(kind))
}

fn format_of(kind: &str) -> Format {
    let plain = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match plain.as_str() {
        _ if is_json(kind) => Format::Json,
        FORM => Format::Form,
        MULTIPART => Format::Multipart,
        plain if plain.starts_with("text/") || plain.ends_with("xml") || plain.ends_with("yaml") => {
            Format::Text
        }
        _ => Format::Bytes,
    }
}

fn styles(encoding: Option<&Map<String, Value>>) -> HashMap<String, Style> {
    let has_style = |one: &Value| one.get("style").is_some() || one.get("explode").is_some();
    let all = encoding.into_iter().flatten().filter(|(_, one)| has_style(one));
    all.map(|(name, one)| (name.clone(), Style::of(one, Place::Query, false))).collect()
}

fn types(encoding: Option<&Map<String, Value>>) -> HashMap<String, String> {
    let kind =
        |(name, one): (&String, &Value)| Some((name.clone(), one.get("contentType")?.as_str()?.to_owned()));
    encoding.into_iter().flatten().filter_map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(content: Value) -> (Body, Value) {
        let document = Document { root: json!({}) };
        let (mut properties, mut required) = (Map::new(), Vec::new());
        let limits = Limits { values: 200, description: 200 };
        let written = json!({ "required": true, "content": content });
        let body = Body::read(&document, &written, &mut properties, &mut required, limits).unwrap().unwrap();
        (body, json!({ "properties": properties, "required": required }))
    }

    fn sent(body: &Body, arguments: Value) -> (String, String) {
        let Value::Object(arguments) = arguments else { panic!("no object") };
        let encoded = body.encode(arguments).unwrap().unwrap();
        (encoded.content_type, String::from_utf8(encoded.bytes).unwrap())
    }

    #[test]
    fn fields_of_json_are_arguments() {
        let schema = json!({ "type": "object", "required": ["name"], "properties": {
            "name": { "type": "string" }, "age": { "type": "integer" }, "tag": { "type": ["string", "null"] },
        }});
        let (body, tool) = body(json!({ "text/plain": {}, "application/json": { "schema": schema } }));
        assert_eq!((&tool["required"], tool["properties"].as_object().unwrap().len()), (&json!(["name"]), 3));
        assert_eq!(
            sent(&body, json!({ "name": "Ada", "age": null, "tag": null })),
            ("application/json".into(), r#"{"name":"Ada","tag":null}"#.into())
        );
        assert_eq!(body.encode(Map::new()), Ok(None));
    }

    #[test]
    fn what_has_no_fields_is_one_argument() {
        let (list, tool) =
            body(json!({ "application/json": { "schema": { "type": "array", "items": {} } } }));
        assert_eq!(
            (&tool["required"], &tool["properties"]["body"]["type"]),
            (&json!(["body"]), &json!("array"))
        );
        assert_eq!(sent(&list, json!({ "body": [1, { "a": 1.50 }] })).1, r#"[1,{"a":1.5}]"#);
        let (text, _) = body(json!({ "text/csv": { "schema": { "type": "string" } } }));
        assert_eq!(sent(&text, json!({ "body": "a;b" })), ("text/csv".into(), "a;b".into()));
        let (bytes, _) = body(json!({ "application/octet-stream": {} }));
        assert_eq!(sent(&bytes, json!({ "body": "aGVsbG8=" })).1, "hello");
    }

    #[test]
    fn forms_are_written_by_their_encoding() {
        let schema = json!({ "type": "object", "properties": {
            "a": { "type": "string" }, "list": { "type": "array" }, "deep": { "type": "object" }, "plain": { "type": "object" },
        }});
        let encoding = json!({ "deep": { "style": "deepObject", "explode": true } });
        let (form, _) = body(json!({ FORM: { "schema": schema, "encoding": encoding } }));
        let arguments =
            json!({ "a": "x y", "list": [1, 2], "deep": { "b": { "c": [3] } }, "plain": { "d": 1 } });
        assert_eq!(sent(&form, arguments).1, "a=x%20y&list=1&list=2&deep[b][c][0]=3&plain=%7B%22d%22%3A1%7D");
    }

    #[test]
    fn files_are_parts() {
        let schema = json!({ "type": "object", "properties": {
            "note": { "type": "string" }, "meta": { "type": "object" },
            "file": { "type": "string", "format": "binary", "contentEncoding": "base64" },
        }});
        let (body, tool) = body(json!({ MULTIPART: { "schema": schema } }));
        assert!(tool["properties"]["file"]["description"].as_str().unwrap().starts_with("Bytes, or"));
        let file = json!({ "data": "aGVsbG8=", "filename": "a\"\r\n.txt", "mimeType": "text/plain\r\nX: y" });
        let (kind, text) = sent(&body, json!({ "note": "n", "meta": { "a": 1 }, "file": file }));
        let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
        assert_eq!(
            text,
            format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nn\r\n\
                 --{boundary}\r\nContent-Disposition: form-data; name=\"meta\"\r\nContent-Type: application/json\r\n\r\n{{\"a\":1}}\r\n\
                 --{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a%22%0D%0A.txt\"\r\n\
                 Content-Type: text/plainX: y\r\n\r\nhello\r\n--{boundary}--\r\n"
            )
        );
    }
}
