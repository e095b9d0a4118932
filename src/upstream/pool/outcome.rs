//! The result of a call, and the tools of a server.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::secrets::Secrets;
use crate::mcp::repair::parse;
use crate::upstream::alias::aliases;
use crate::upstream::tool_doc::ToolDoc;

/// The result of a call, as the server wrote it.
#[derive(Debug, Clone)]
pub struct CallOutcome {
    /// The MCP result: JSON text with the server's order of keys, digits of numbers and depth.
    pub json: Box<RawValue>,
    /// Whether the tool says that it failed.
    pub is_error: bool,
}

#[derive(Deserialize)]
struct Flag<'a> {
    #[serde(rename = "isError", borrow, default)]
    is_error: Option<&'a RawValue>,
}

impl CallOutcome {
    pub(super) fn new(json: Box<RawValue>) -> Self {
        let flag = serde_json::from_str::<Flag<'_>>(json.get()).ok().and_then(|flag| flag.is_error);
        let is_error = flag.is_some_and(|flag| matches!(flag.get(), "true" | r#""true""#));
        Self { is_error, json }
    }

    /// Removes credentials. Only failures need this: a result that code asked for may contain anything.
    pub(super) fn without(mut self, secrets: &Secrets) -> Self {
        let shown = secrets.redact(self.json.get());
        // A replacement may break the JSON text: then it is made in the parsed value.
        let shown = match RawValue::from_string(shown) {
            Ok(shown) => Some(shown),
            Err(_) => parse(&self.json)
                .ok()
                .and_then(|value| serde_json::value::to_raw_value(&secrets.redact_value(value)).ok()),
        };
        self.json = shown.unwrap_or(self.json);
        self
    }

    /// Parses the result. Half of a surrogate pair becomes U+FFFD.
    #[cfg(test)]
    pub(in crate::upstream) fn value(&self) -> Result<Value, serde_json::Error> {
        parse(&self.json)
    }
}

/// A tool of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    pub name: String,
    /// The name in Python.
    pub alias: String,
    /// Empty if the server gives none.
    pub description: String,
    /// JSON Schema of the arguments, keys in the server's order.
    pub input_schema: Value,
    /// JSON Schema of the structured result.
    pub output_schema: Option<Value>,
    /// Everything that the server lists of the tool.
    pub raw: Map<String, Value>,
}

impl Tool {
    /// Returns the documentation of the tool, without the rest of what the server says.
    pub fn doc(&self) -> ToolDoc {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        // Older versions of the protocol have the title among the annotations.
        let annotated = self.raw.get("annotations").and_then(|annotations| annotations.get("title"));
        ToolDoc {
            name: self.name.clone(),
            title: text(self.raw.get("title")).or_else(|| text(annotated)),
            description: self.description.clone(),
            input_schema: self.input_schema.clone(),
            output_schema: self.output_schema.clone(),
        }
    }
}

/// The tools of a server at one moment, in the server's order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::upstream) struct ToolList {
    pub(in crate::upstream) tools: Vec<Tool>,
    /// What is wrong with tools that were left out.
    pub(in crate::upstream) warnings: Vec<String>,
}

impl ToolList {
    /// Returns the tool of a name, or of an alias if no tool has the name.
    pub(in crate::upstream) fn get(&self, name: &str) -> Option<&Tool> {
        let by = |matches: fn(&Tool, &str) -> bool| self.tools.iter().find(|tool| matches(tool, name));
        by(|tool, name| tool.name == name).or_else(|| by(|tool, name| tool.alias == name))
    }

    /// Joins the pages of `tools/list`.
    pub(super) fn of(pages: &[Page]) -> Arc<Self> {
        let mut list = Self::default();
        let mut known = std::collections::HashSet::new();
        for raw in pages.iter().flat_map(|page| &page.tools) {
            match read_tool(raw) {
                Ok(tool) if !known.insert(tool.name.clone()) => {
                    list.warnings.push(format!("tool '{}' is listed twice", tool.name));
                }
                Ok(tool) => list.tools.push(tool),
                Err(why) => list.warnings.push(why),
            }
        }
        let aliases = aliases(list.tools.iter().map(|tool| tool.name.as_str()));
        list.tools.iter_mut().zip(aliases).for_each(|(tool, alias)| tool.alias = alias);
        Arc::new(list)
    }
}

/// One page of `tools/list`.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    #[serde(default)]
    pub(super) tools: Vec<Box<RawValue>>,
    #[serde(rename = "nextCursor", default)]
    pub(super) next_cursor: Option<String>,
}

fn read_tool(raw: &RawValue) -> Result<Tool, String> {
    let value = parse(raw).map_err(|error| format!("could not read a tool: {error}"))?;
    let Value::Object(raw) = value else { return Err("a tool is not an object".into()) };
    let text = |key: &str| raw.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = text("name");
    if name.is_empty() {
        return Err("a tool has no name".into());
    }
    let schema = |key: &str| raw.get(key).filter(|schema| schema.is_object()).cloned();
    Ok(Tool {
        alias: String::new(),
        description: text("description"),
        input_schema: schema("inputSchema").unwrap_or_else(|| Value::Object(Map::new())),
        output_schema: schema("outputSchema"),
        name,
        raw,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::discovery::{Definition, Launch};

    fn outcome_of(json: &str) -> CallOutcome {
        CallOutcome::new(RawValue::from_string(json.into()).unwrap())
    }

    #[test]
    fn credentials_are_removed_from_failures_which_stay_json() {
        let definition = Definition {
            launch: Launch::Stdio {
                command: "x".into(),
                args: Vec::new(),
                env: vec![("A_TOKEN".into(), "sk-\"1234".into()), ("\"odd\"_KEY".into(), "abcdef".into())],
                cwd: None,
            },
            startup_timeout: None,
            call_timeout: None,
            filled_in: Vec::new(),
        };
        let json = r#"{"isError":true,"content":[{"type":"text","text":"not sk-\"1234, not abcdef"}]}"#;
        let outcome = outcome_of(json).without(&Secrets::of(&definition));
        let text = outcome.value().unwrap()["content"][0]["text"].clone();
        assert_eq!(text, "not [A_TOKEN], not [\"odd\"_KEY]");
    }

    #[test]
    fn a_result_stays_as_it_was_written() {
        let json =
            r#"{"z":123456789012345678901234567890,"a":0.10,"content":[],"x":"\ud83d","isError":"true"}"#;
        let outcome = outcome_of(json);
        assert_eq!((outcome.json.get(), outcome.is_error), (json, true));
        let value = outcome.value().unwrap();
        assert_eq!(value["x"], "\u{fffd}");
        assert_eq!(value["a"].to_string(), "0.10");
        let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        let outcome = outcome_of(&deep);
        assert_eq!((outcome.json.get(), outcome.is_error), (deep.as_str(), false));
        assert!(outcome.value().is_err());
    }

    #[test]
    fn invalid_tools_are_left_out() {
        let page = r#"{"tools": [
            {"name": "b-a", "description": "d", "inputSchema": {"properties": {"z": {}, "a": {}}}, "execution": {"x": 1}},
            {"name": "b a"}, 7, {"description": "no name"}, {"name": "b-a"}, {"name": "odd", "inputSchema": []}
        ]}"#;
        let page: Page = serde_json::from_str(page).unwrap();
        let list = ToolList::of(&[page]);
        let names: Vec<_> = list.tools.iter().map(|tool| (tool.name.as_str(), tool.alias.as_str())).collect();
        assert_eq!(names, [("b-a", "b_a"), ("b a", "b_a_2"), ("odd", "odd")]);
        assert_eq!(list.tools[0].input_schema.to_string(), r#"{"properties":{"z":{},"a":{}}}"#);
        assert_eq!(list.tools[0].raw["execution"]["x"], 1);
        assert_eq!(list.warnings.len(), 3);
        assert_eq!(list.get("b_a").unwrap().name, "b-a");
        assert!(list.get("c").is_none());
    }
}
