//! JSON Schema as short type expressions, the way Python would write them.

use serde_json::{Map, Value};

/// How deep types are followed, references included.
const MOST_DEPTH: usize = 6;
/// Schemas looked at for one expression.
const MOST_NODES: usize = 200;
/// Parameters of a tool; nobody calls one with more.
const MOST_PARAMETERS: usize = 256;
/// Bytes of a list of allowed values; longer ones are shown by their type.
const LONGEST_VALUES: usize = 48;
/// Bytes of the fields of an object; longer ones are cut.
const LONGEST_FIELDS: usize = 48;
/// Alternatives of a union; more are `any`.
const MOST_ALTERNATIVES: usize = 4;
/// Bytes of a name.
const LONGEST_NAME: usize = 64;

/// An unknown type.
pub(super) const ANY: &str = "any";
/// The type that signatures leave out.
pub(super) const TEXT: &str = "str";

/// A parameter, or a field of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Not always a valid name in Python.
    pub name: String,
    pub required: bool,
    /// As Python would write it.
    pub type_name: String,
}

/// Returns the parameters of a tool from the schema of its arguments, required ones first.
pub fn parameters(schema: &Value) -> Vec<Parameter> {
    Types::of(schema).parameters()
}

impl Parameter {
    /// Returns `name`, `name?` or `name?: type`.
    pub(super) fn render(&self) -> String {
        let mut text = if is_identifier(&self.name) { self.name.clone() } else { literal(&self.name) };
        if !self.required {
            text.push('?');
        }
        if self.type_name != TEXT {
            text.push_str(": ");
            text.push_str(&self.type_name);
        }
        text
    }
}

/// Reads the types of one schema document.
pub(super) struct Types<'a> {
    root: &'a Value,
    nodes: usize,
}

impl<'a> Types<'a> {
    pub(super) fn of(root: &'a Value) -> Self {
        Self { root, nodes: MOST_NODES }
    }

    /// Returns the parameters of the document, required ones first.
    pub(super) fn parameters(&mut self) -> Vec<Parameter> {
        let mut parameters = Vec::new();
        self.collect(self.root, true, MOST_DEPTH, &mut parameters);
        parameters.sort_by_key(|parameter: &Parameter| !parameter.required);
        parameters
    }

    /// Returns the type of the document.
    pub(super) fn whole(&mut self) -> String {
        self.type_name(self.root, MOST_DEPTH)
    }

    fn collect(&mut self, schema: &'a Value, all: bool, depth: usize, found: &mut Vec<Parameter>) {
        let Some(object) = self.enter(schema, depth) else { return };
        if let Some(target) = self.referred(object) {
            self.collect(target, all, depth - 1, found);
        }
        if let Some(properties) = object.get("properties").and_then(Value::as_object) {
            let required = object.get("required").and_then(Value::as_array);
            for (name, property) in properties {
                if found.len() == MOST_PARAMETERS {
                    break;
                }
                let required = all && required.is_some_and(|list| list.iter().any(|item| item == name));
                match found.iter_mut().find(|known| known.name == *name) {
                    Some(known) => known.required |= required,
                    None => {
                        let type_name = self.type_name(property, depth - 1);
                        let name = name.chars().take(LONGEST_NAME).collect();
                        found.push(Parameter { name, required, type_name });
                    }
                }
            }
        }
        for (key, all) in [("allOf", all), ("anyOf", false), ("oneOf", false)] {
            for schema in object.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.collect(schema, all, depth - 1, found);
            }
        }
    }

    fn type_name(&mut self, schema: &'a Value, depth: usize) -> String {
        let Some(object) = self.enter(schema, depth) else { return ANY.into() };
        if let Some(target) = self.referred(object) {
            return self.type_name(target, depth - 1);
        }
        if let Some(value) = object.get("const") {
            return values(std::slice::from_ref(value)).unwrap_or_else(|| kind_of(value).into());
        }
        if let Some(allowed) = object.get("enum").and_then(Value::as_array) {
            return values(allowed).unwrap_or_else(|| union(allowed.iter().map(|v| kind_of(v).into())));
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(schemas) = object.get(key).and_then(Value::as_array) {
                let names: Vec<_> = schemas
                    .iter()
                    .take(MOST_ALTERNATIVES + 2)
                    .map(|schema| self.type_name(schema, depth - 1))
                    .collect();
                return union(names);
            }
        }
        if let Some(schemas) = object.get("allOf").and_then(Value::as_array) {
            let mut names =
                schemas.iter().take(MOST_ALTERNATIVES).map(|schema| self.type_name(schema, depth - 1));
            if let Some(name) = names.find(|name| name != ANY) {
                return name;
            }
        }
        match object.get("type") {
            Some(Value::String(kind)) => self.of_kind(kind, object, depth),
            Some(Value::Array(kinds)) => {
                let kinds = kinds.iter().filter_map(Value::as_str).take(MOST_ALTERNATIVES + 2);
                union(kinds.map(|kind| self.of_kind(kind, object, depth)))
            }
            _ if object.contains_key("properties") => self.of_kind("object", object, depth),
            _ if object.contains_key("items") => self.of_kind("array", object, depth),
            _ => ANY.into(),
        }
    }

    fn of_kind(&mut self, kind: &str, object: &'a Map<String, Value>, depth: usize) -> String {
        match kind {
            "string" => TEXT.into(),
            "integer" => "int".into(),
            "number" => "float".into(),
            "boolean" => "bool".into(),
            "null" => "None".into(),
            "array" => match object.get("items").map(|items| self.type_name(items, depth - 1)) {
                Some(items) if items != ANY => format!("list[{items}]"),
                _ => "list".into(),
            },
            "object" => self.object(object, depth),
            _ => ANY.into(),
        }
    }

    fn object(&mut self, object: &'a Map<String, Value>, depth: usize) -> String {
        if let Some(properties) = object.get("properties").and_then(Value::as_object)
            && !properties.is_empty()
        {
            let required = object.get("required").and_then(Value::as_array);
            let mut text = String::from("{");
            for (at, (name, property)) in properties.iter().enumerate() {
                let field = Parameter {
                    name: name.chars().take(LONGEST_NAME).collect(),
                    required: required.is_some_and(|list| list.iter().any(|item| item == name)),
                    type_name: self.type_name(property, depth - 1),
                };
                let field = field.render();
                if at > 0 {
                    text.push_str(", ");
                }
                if text.len() + field.len() > LONGEST_FIELDS {
                    text.push('…');
                    break;
                }
                text.push_str(&field);
            }
            text.push('}');
            return if text == "{…}" { "dict".into() } else { text };
        }
        match object.get("additionalProperties") {
            Some(values @ Value::Object(_)) => match self.type_name(values, depth - 1) {
                name if name != ANY => format!("dict[str, {name}]"),
                _ => "dict".into(),
            },
            _ => "dict".into(),
        }
    }

    /// Returns the schema as an object, unless it is too deep or there were too many.
    fn enter(&mut self, schema: &'a Value, depth: usize) -> Option<&'a Map<String, Value>> {
        self.nodes = self.nodes.checked_sub(1)?;
        schema.as_object().filter(|_| depth > 0)
    }

    /// Returns the target of a `$ref` within the document.
    fn referred(&self, object: &Map<String, Value>) -> Option<&'a Value> {
        self.root.pointer(object.get("$ref")?.as_str()?.strip_prefix('#')?)
    }
}

/// Returns `"a"|"b"`; None if that is too long.
fn values(values: &[Value]) -> Option<String> {
    let mut text = String::new();
    for value in values {
        let value = match value {
            Value::String(text) => literal(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::Array(_) | Value::Object(_) => return None,
        };
        if text.len() + value.len() >= LONGEST_VALUES {
            return None;
        }
        if !text.is_empty() {
            text.push('|');
        }
        text.push_str(&value);
    }
    Some(text).filter(|text| !text.is_empty())
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "None",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => TEXT,
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

/// Joins types without duplicates and without `None`, which the question mark covers.
fn union(names: impl IntoIterator<Item = String>) -> String {
    let mut once: Vec<String> = Vec::new();
    for name in names {
        if name != "None" && !once.contains(&name) {
            once.push(name);
        }
    }
    if once.is_empty() {
        return "None".into();
    }
    if once.len() > MOST_ALTERNATIVES || once.iter().any(|name| name == ANY) {
        return ANY.into();
    }
    once.join("|")
}

/// Returns a text in quotes, on one line.
fn literal(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars().take(LONGEST_NAME) {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn type_of(schema: Value) -> String {
        Types::of(&schema).whole()
    }

    #[test]
    fn plain_types_have_the_names_of_python() {
        for (schema, expected) in [
            (json!({ "type": "string" }), "str"),
            (json!({ "type": "integer" }), "int"),
            (json!({ "type": "number" }), "float"),
            (json!({ "type": "boolean" }), "bool"),
            (json!({ "type": "array" }), "list"),
            (json!({ "type": "array", "items": { "type": "string" } }), "list[str]"),
            (json!({ "items": { "type": "integer" } }), "list[int]"),
            (json!({ "type": "object" }), "dict"),
            (json!({ "type": "object", "additionalProperties": { "type": "number" } }), "dict[str, float]"),
            (json!({ "type": "object", "additionalProperties": true }), "dict"),
            (json!({ "type": "wombat" }), "any"),
            (json!({}), "any"),
            (json!(true), "any"),
            (json!(null), "any"),
            (json!([1]), "any"),
        ] {
            assert_eq!(type_of(schema.clone()), expected, "{schema}");
        }
    }

    #[test]
    fn alternatives_are_joined_and_null_goes_without_saying() {
        for (schema, expected) in [
            (json!({ "type": ["string", "null"] }), "str"),
            (
                json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }, { "type": "null" }] }),
                "int|str",
            ),
            (json!({ "oneOf": [{ "type": "integer" }, { "type": "integer" }] }), "int"),
            (json!({ "anyOf": [{ "type": "integer" }, {}] }), "any"),
            (json!({ "anyOf": [{ "type": "null" }] }), "None"),
            (json!({ "anyOf": [] }), "None"),
            (json!({ "allOf": [{ "description": "x" }, { "type": "integer" }] }), "int"),
            (json!({ "enum": ["open", "closed"] }), "\"open\"|\"closed\""),
            (json!({ "enum": [1, 2, null] }), "1|2|null"),
            (json!({ "enum": ["a".repeat(30), "b".repeat(30)] }), "str"),
            (json!({ "enum": [[1], "x"] }), "list|str"),
            (json!({ "const": "fixed" }), "\"fixed\""),
            (json!({ "const": { "a": 1 } }), "dict"),
        ] {
            assert_eq!(type_of(schema.clone()), expected, "{schema}");
        }
    }

    #[test]
    fn objects_show_their_fields_as_far_as_there_is_room() {
        let point = json!({
            "type": "object",
            "properties": { "x": { "type": "number" }, "y": { "type": "number" }, "label": { "type": "string" } },
            "required": ["x", "y"],
        });
        assert_eq!(type_of(point.clone()), "{x: float, y: float, label?}");
        assert_eq!(type_of(json!({ "type": "array", "items": point })), "list[{x: float, y: float, label?}]");
        let wide: Map<_, _> =
            (0..50).map(|i| (format!("field{i:02}"), json!({ "type": "string" }))).collect();
        assert_eq!(type_of(json!({ "properties": wide })), "{field00?, field01?, field02?, field03?, …}");
    }

    #[test]
    fn references_are_followed_and_circles_end() {
        let schema = json!({
            "$defs": {
                "Kind": { "enum": ["a", "b"] },
                "Node": { "type": "object", "properties": { "next": { "$ref": "#/$defs/Node" } } },
                "Loop": { "$ref": "#/$defs/Loop" },
            },
            "properties": {
                "kind": { "$ref": "#/$defs/Kind" },
                "node": { "$ref": "#/$defs/Node" },
                "loop": { "$ref": "#/$defs/Loop" },
                "lost": { "$ref": "#/$defs/None" },
                "far": { "$ref": "https://example.org/schema" },
            },
            "required": ["far", "kind"],
        });
        let parameters = Types::of(&schema).parameters();
        let rendered: Vec<_> = parameters.iter().map(Parameter::render).collect();
        assert_eq!(rendered[..2], ["kind: \"a\"|\"b\"", "far: any"]);
        assert!(rendered[2].starts_with("node?: {next?: {next?:"), "{}", rendered[2]);
        assert_eq!(rendered[3..], ["loop?: any", "lost?: any"]);
    }

    #[test]
    fn parameters_of_alternatives_are_optional() {
        let schema = json!({
            "type": "object",
            "properties": { "id": { "type": "integer" } },
            "required": ["id"],
            "allOf": [{ "properties": { "all": { "type": "string" } }, "required": ["all"] }],
            "oneOf": [
                { "properties": { "a": { "type": "string" } }, "required": ["a"] },
                { "properties": { "b-c": { "type": "string" } }, "required": ["b-c"] },
            ],
        });
        let parameters = Types::of(&schema).parameters();
        let rendered: Vec<_> = parameters.iter().map(Parameter::render).collect();
        assert_eq!(rendered, ["id: int", "all", "a?", "\"b-c\"?"]);
    }

    #[test]
    fn hostile_schemas_end_soon_and_stay_short() {
        let mut deep = json!({ "type": "string" });
        for _ in 0..100 {
            deep = json!({ "anyOf": [deep, { "type": "array", "items": { "type": "integer" } }] });
        }
        let fan: Map<_, _> = (0..40)
            .map(|i| {
                let next = json!({ "$ref": format!("#/$defs/d{}", (i + 1) % 40) });
                (format!("d{i}"), json!({ "anyOf": [next, next, next, next, next] }))
            })
            .collect();
        let fan = json!({ "$ref": "#/$defs/d0", "$defs": fan });
        let named = json!({ "properties": { "a\nb\u{1b}[0m\"".repeat(1000): { "type": "integer" } } });
        let names: Vec<_> = (0..50_000).map(|i| format!("p{i}")).collect();
        let many: Map<_, _> = names.iter().map(|name| (name.clone(), json!({}))).collect();
        let many = json!({ "properties": many, "required": names });
        assert_eq!(Types::of(&many).parameters().len(), MOST_PARAMETERS);
        for schema in [deep, fan, named] {
            let text = type_of(schema);
            assert!(text.len() < 500 && !text.contains(char::is_control), "{text}");
        }
    }
}
