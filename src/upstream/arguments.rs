//! Checks the arguments of a call against the schema of the tool, as far as that is possible before the call.
//!
//! Only names are checked: servers check values better, and some schemas are incomplete.

use std::collections::HashSet;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::catalog::signature;
use super::pool::Tool;
use super::raw_arguments::RawArguments;
use crate::nearest::nearest;

/// Keywords that allow other arguments than the listed properties.
const OPEN_ENDED: &[&str] = &[
    "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas",
    "patternProperties",
];

/// Unknown names that are reported.
const MOST_UNKNOWN: usize = 3;
/// Characters of an unknown name that are shown.
const SHOWN: usize = 64;

/// Checks the names of arguments. The values are passed over.
///
/// # Errors
/// A name is missing or unknown. The text suggests similar names and shows the signature.
pub fn check_arguments(tool: &Tool, arguments: &RawArguments) -> Result<(), String> {
    let Some(schema) = tool.input_schema.as_object() else { return Ok(()) };
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let names = Names {
        required: required(schema).collect(),
        properties,
        names_all: names_all(schema, properties),
        given: HashSet::new(),
        unknown: Vec::new(),
    };
    if names.required.is_empty() && !names.names_all {
        return Ok(());
    }
    let mut reader = serde_json::Deserializer::from_slice(arguments.as_bytes());
    let Names { given, unknown, .. } = reader.deserialize_map(names).map_err(|error| error.to_string())?;
    let mut problems = Vec::new();
    let missing: Vec<&str> = required(schema)
        .filter(|name| !given.contains(*name))
        // Some servers list arguments with a default as required.
        .filter(|name| properties.get(*name).is_none_or(|property| property.get("default").is_none()))
        .collect();
    for name in unknown {
        let open = properties.keys().map(String::as_str).filter(|known| !given.contains(known));
        problems.push(match nearest(&name, open) {
            Some(meant) => format!("unknown argument '{name}'; did you mean '{meant}'?"),
            None => format!("unknown argument '{name}'"),
        });
    }
    if !missing.is_empty() {
        let s = if missing.len() > 1 { "s" } else { "" };
        problems.push(format!("missing argument{s} '{}'", missing.join("', '")));
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("{}; signature: {}", problems.join("; "), signature(&tool.alias, &tool.doc())))
}

/// Reads the names of arguments. It keeps those that the schema has, and a few others: there may be millions.
struct Names<'a> {
    required: HashSet<&'a str>,
    properties: &'a Map<String, Value>,
    names_all: bool,
    given: HashSet<&'a str>,
    unknown: Vec<String>,
}

impl<'a> Names<'a> {
    fn take(&mut self, name: &str) {
        match self.properties.get_key_value(name) {
            Some((known, _)) => {
                self.given.insert(known);
            }
            None => {
                if let Some(known) = self.required.get(name) {
                    self.given.insert(known);
                }
                if self.names_all && self.unknown.len() < MOST_UNKNOWN {
                    let shown = match name.char_indices().nth(SHOWN) {
                        Some((end, _)) => format!("{}…", &name[..end]),
                        None => name.to_owned(),
                    };
                    if !self.unknown.contains(&shown) {
                        self.unknown.push(shown);
                    }
                }
            }
        }
    }
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("arguments by name")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while map.next_key_seed(Name(&mut self))?.is_some() {
            map.next_value::<IgnoredAny>()?;
        }
        Ok(self)
    }
}

/// Reads one name where it is: it may have megabytes.
struct Name<'n, 'a>(&'n mut Names<'a>);

impl<'de> DeserializeSeed<'de> for Name<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<(), E> {
        self.0.take(name);
        Ok(())
    }
}

fn required(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Whether the properties are all possible arguments.
fn names_all(schema: &Map<String, Value>, properties: &Map<String, Value>) -> bool {
    match schema.get("additionalProperties") {
        Some(Value::Bool(false)) => {}
        None if !properties.is_empty() => {}
        _ => return false,
    }
    !OPEN_ENDED.iter().any(|key| schema.contains_key(*key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool() -> Tool {
        Tool {
            name: "create-issue".into(),
            alias: "create_issue".into(),
            description: String::new(),
            input_schema: Value::Null,
            output_schema: None,
            raw: Map::new(),
            digest: Default::default(),
        }
    }

    fn check(schema: &Value, arguments: Value) -> Result<(), String> {
        let tool = Tool { input_schema: schema.clone(), ..tool() };
        check_arguments(&tool, &RawArguments::new(arguments.to_string()).unwrap())
    }

    fn issue() -> Value {
        json!({
            "type": "object",
            "properties": { "title": { "type": "string" }, "body": { "type": "string" }, "retry-max": {} },
            "required": ["title"],
        })
    }

    #[test]
    fn valid_arguments_pass() {
        for arguments in [json!({ "title": "t" }), json!({ "title": null, "body": 7, "retry-max": 1 })] {
            assert_eq!(check(&issue(), arguments), Ok(()));
        }
    }

    #[test]
    fn an_unknown_argument_is_reported_with_a_similar_name() {
        let error = check(&issue(), json!({ "titel": "t" })).unwrap_err();
        assert_eq!(
            error,
            "unknown argument 'titel'; did you mean 'title'?; missing argument 'title'; \
             signature: create_issue(title, body?, \"retry-max\"?: any)"
        );
        let error = check(&issue(), json!({ "title": "t", "retry_max": 1, "wombat": 1 })).unwrap_err();
        assert!(error.contains("unknown argument 'retry_max'; did you mean 'retry-max'?"), "{error}");
        assert!(error.contains("unknown argument 'wombat'; signature:"), "{error}");
        // An argument that is already given is not suggested.
        let error = check(&issue(), json!({ "title": "t", "titel": "t" })).unwrap_err();
        assert!(error.starts_with("unknown argument 'titel'; signature:"), "{error}");
    }

    #[test]
    fn millions_of_arguments_are_counted_and_not_kept() {
        let many: String = (0..300_000).map(|n| format!("\"n{n}\":[],")).collect();
        let arguments = RawArguments::new(format!("{{{many}\"{}\":1}}", "x".repeat(1 << 20))).unwrap();
        let tool = |schema| Tool { input_schema: schema, ..tool() };
        let error = check_arguments(&tool(issue()), &arguments).unwrap_err();
        assert!(
            error.starts_with("unknown argument 'n0'; unknown argument 'n1'; unknown argument 'n2'; missing"),
            "{error}"
        );
        assert_eq!(check_arguments(&tool(json!({})), &arguments), Ok(()));
        let long = RawArguments::new(json!({ "x".repeat(1 << 20): 1 }).to_string()).unwrap();
        let error = check_arguments(&tool(issue()), &long).unwrap_err();
        assert!(error.len() < 300, "{error:.400}");
    }

    #[test]
    fn a_name_is_read_whichever_way_it_is_written() {
        let written = RawArguments::new(r#"{"\u0074itle": 1, "title": 2}"#.into()).unwrap();
        assert_eq!(check_arguments(&Tool { input_schema: issue(), ..tool() }, &written), Ok(()));
    }

    #[test]
    fn every_missing_argument_is_reported() {
        let schema = json!({ "properties": { "a": {}, "b": {} }, "required": ["a", "b", "c"] });
        let error = check(&schema, json!({ "b": 1 })).unwrap_err();
        assert!(
            error.starts_with("missing arguments 'a', 'c'; signature: create_issue(a: any, b: any"),
            "{error}"
        );
    }

    #[test]
    fn an_argument_with_a_default_is_not_missing() {
        let schema = json!({ "properties": { "a": { "default": null }, "b": {} }, "required": ["a", "b"] });
        assert_eq!(check(&schema, json!({ "b": 1 })), Ok(()));
    }

    #[test]
    fn unknown_names_pass_where_the_schema_may_be_incomplete() {
        let properties = json!({ "a": {} });
        for schema in [
            json!({ "type": "object" }),
            json!({ "properties": {} }),
            json!({ "properties": properties, "additionalProperties": true }),
            json!({ "properties": properties, "additionalProperties": { "type": "string" } }),
            json!({ "properties": properties, "patternProperties": { "^x": {} } }),
            json!({ "properties": properties, "oneOf": [{}] }),
            json!({ "properties": properties, "$ref": "#/$defs/x" }),
            json!({ "properties": 7 }),
            json!([]),
            json!(true),
        ] {
            assert_eq!(check(&schema, json!({ "x": 1 })), Ok(()), "{schema}");
        }
        for schema in [
            json!({ "additionalProperties": false }),
            json!({ "properties": properties, "additionalProperties": false }),
            json!({ "properties": properties }),
        ] {
            assert!(check(&schema, json!({ "x": 1 })).is_err(), "{schema}");
        }
    }

    #[test]
    fn required_arguments_are_required_in_any_schema() {
        let schema = json!({ "oneOf": [{}], "required": ["a"], "additionalProperties": true });
        assert!(check(&schema, json!({ "b": 1 })).unwrap_err().contains("missing argument 'a'"));
        assert_eq!(check(&json!({ "required": "a" }), json!({})), Ok(()));
    }
}
