//! Checks the arguments of a call against the schema of the tool, as far as that is possible before the call.
//!
//! Only names are checked: servers check values better, and some schemas are incomplete.

use serde_json::{Map, Value};

use super::catalog::signature;
use super::pool::Tool;
use crate::nearest::nearest;

/// Keywords that allow other arguments than the listed properties.
const OPEN_ENDED: &[&str] = &[
    "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas",
    "patternProperties",
];

/// Checks the names of arguments.
///
/// # Errors
/// A name is missing or unknown. The text suggests similar names and shows the signature.
pub fn check_arguments(tool: &Tool, arguments: &Map<String, Value>) -> Result<(), String> {
    let Some(schema) = tool.input_schema.as_object() else { return Ok(()) };
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let mut problems = Vec::new();
    let missing: Vec<&str> = required(schema)
        .filter(|name| !arguments.contains_key(*name))
        // Some servers list arguments with a default as required.
        .filter(|name| properties.get(*name).is_none_or(|property| property.get("default").is_none()))
        .collect();
    if names_all(schema, properties) {
        for name in arguments.keys().filter(|name| !properties.contains_key(*name)) {
            let open = properties.keys().map(String::as_str).filter(|known| !arguments.contains_key(*known));
            problems.push(match nearest(name, open) {
                Some(meant) => format!("unknown argument '{name}'; did you mean '{meant}'?"),
                None => format!("unknown argument '{name}'"),
            });
        }
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

    fn check(schema: &Value, arguments: Value) -> Result<(), String> {
        let tool = Tool {
            name: "create-issue".into(),
            alias: "create_issue".into(),
            description: String::new(),
            input_schema: schema.clone(),
            output_schema: None,
            raw: Map::new(),
        };
        check_arguments(&tool, arguments.as_object().unwrap())
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
