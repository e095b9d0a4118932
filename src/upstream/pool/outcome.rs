//! The result of a call, and the tools of a server.

use std::collections::HashSet;
use std::fmt;
use std::sync::OnceLock;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::secrets::Secrets;
use crate::mcp::bounds::{Bounds, count_values, work_on};
use crate::mcp::client::UnreadShare;
use crate::mcp::repair::parse;
use crate::policy::{Annotations, ShapeDigest, ToolShape};
use crate::upstream::alias::aliases;
use crate::upstream::tool_doc::ToolDoc;

/// How large a failure may be to be parsed.
const REDACTED: Bounds = Bounds { bytes: 8 << 20, values: 100_000 };
/// What is shown of a failure whose credentials cannot be removed.
const HIDDEN: &str = r#"{"content":[{"type":"text","text":"(a failure with credentials in it, which is not shown)"}],"isError":true}"#;

/// Bytes of all pages of a list of tools, and the number of its tools and of all values in them.
pub(super) const LARGEST_LIST: usize = 64 << 20;
pub(super) const MOST_TOOLS: usize = 10_000;
const MOST_VALUES: usize = 1_000_000;
/// Bytes of the name of a tool, and of a cursor.
const LONGEST_NAME: usize = 512;
pub(super) const LONGEST_CURSOR: usize = 64 << 10;
/// Tools of which a warning says what is wrong.
const MOST_WARNINGS: usize = 20;

/// The result of a call, as the server wrote it.
#[derive(Debug)]
pub struct CallOutcome {
    /// The MCP result: JSON text with the server's order of keys, digits of numbers and depth.
    pub json: Box<RawValue>,
    /// Whether the tool says that it failed.
    pub is_error: bool,
    /// Counts it as unread.
    _share: Option<UnreadShare>,
}

#[derive(serde::Deserialize)]
struct Flag<'a> {
    #[serde(rename = "isError", borrow, default)]
    is_error: Option<&'a RawValue>,
}

impl CallOutcome {
    pub(crate) fn new(json: Box<RawValue>, share: Option<UnreadShare>) -> Self {
        let read = || serde_json::from_str::<Flag<'_>>(json.get()).ok().and_then(|flag| flag.is_error);
        let flag = work_on(json.get().len(), read);
        let is_error = flag.is_some_and(|flag| matches!(flag.get(), "true" | r#""true""#));
        Self { is_error, json, _share: share }
    }

    /// Removes credentials. Only failures need this: a result that code asked for may contain anything.
    pub(super) fn without(self, secrets: &Secrets) -> Self {
        work_on(self.json.get().len(), || {
            let shown = secrets.redact(self.json.get());
            // A replacement may break the JSON text: then it is made in the parsed value.
            let json = RawValue::from_string(shown).ok().or_else(|| {
                let value = REDACTED.parse(&self.json)?.ok()?;
                serde_json::value::to_raw_value(&secrets.redact_value(value)).ok()
            });
            let hidden = || RawValue::from_string(HIDDEN.into()).ok();
            Self { json: json.or_else(hidden).unwrap_or_default(), ..self }
        })
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
    /// Made at the first call under a policy.
    pub(in crate::upstream) digest: OnceLock<ShapeDigest>,
}

impl Tool {
    /// Returns what the server says of its effects.
    pub fn annotations(&self) -> Annotations {
        Annotations::of(self.raw.get("annotations"))
    }

    /// Returns what rules and models rely on.
    pub fn shape(&self) -> ToolShape {
        ToolShape {
            title: self.raw.get("title").and_then(Value::as_str).map(str::to_owned),
            description: self.description.clone(),
            input_schema: self.input_schema.clone(),
            output_schema: self.output_schema.clone(),
            annotations: self.raw.get("annotations").cloned(),
        }
    }

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
}

/// Reads the pages of `tools/list`, one after the other. A server may list anything, so what is beyond the limits is left out.
#[derive(Debug, Default)]
pub(super) struct Pages {
    list: ToolList,
    known: HashSet<String>,
    bytes: usize,
    values: usize,
    /// The number of tools that were left out one by one.
    left_out: usize,
}

/// One page of `tools/list`.
#[derive(Debug, serde::Deserialize)]
struct Page<'a> {
    #[serde(borrow, default)]
    tools: Entries<'a>,
    #[serde(rename = "nextCursor", borrow, default)]
    next_cursor: Option<&'a RawValue>,
}

impl Pages {
    /// Reads a page, and returns the cursor of the next one; None after the last page that is wanted.
    pub(super) fn read(&mut self, page: &RawValue) -> Result<Option<String>, serde_json::Error> {
        self.bytes += page.get().len();
        if self.bytes > LARGEST_LIST {
            self.list
                .warnings
                .push(format!("tools beyond the first {} MiB of the list are left out", LARGEST_LIST >> 20));
            return Ok(None);
        }
        work_on(page.get().len(), || {
            let page: Page<'_> = serde_json::from_str(page.get())?;
            for raw in page.tools.read {
                self.add(raw);
            }
            if page.tools.left_out > 0 || self.list.tools.len() >= MOST_TOOLS {
                self.list.warnings.push(format!("tools beyond the first {MOST_TOOLS} are left out"));
                return Ok(None);
            }
            let cursor = page.next_cursor.filter(|cursor| cursor.get().len() <= LONGEST_CURSOR);
            Ok(cursor.map(|cursor| serde_json::from_str(cursor.get())).transpose()?.flatten())
        })
    }

    fn add(&mut self, raw: &RawValue) {
        if self.list.tools.len() >= MOST_TOOLS {
            return;
        }
        self.values += count_values(raw.get().as_bytes());
        let tool = match self.values > MOST_VALUES {
            true => Err(format!("the list has more than {MOST_VALUES} values")),
            false => read_tool(raw),
        };
        match tool {
            Ok(tool) if !self.known.insert(tool.name.clone()) => {
                self.leave_out(format!("tool '{}' is listed twice", tool.name));
            }
            Ok(tool) => self.list.tools.push(tool),
            Err(why) => self.leave_out(why),
        }
    }

    fn leave_out(&mut self, why: String) {
        self.left_out += 1;
        if self.left_out <= MOST_WARNINGS {
            self.list.warnings.push(why);
        }
    }

    /// Returns the list of all pages.
    pub(super) fn list(mut self) -> ToolList {
        if let Some(more @ 1..) = self.left_out.checked_sub(MOST_WARNINGS) {
            self.list.warnings.push(format!("{more} more tools are left out"));
        }
        let aliases = aliases(self.list.tools.iter().map(|tool| tool.name.as_str()));
        self.list.tools.iter_mut().zip(aliases).for_each(|(tool, alias)| tool.alias = alias);
        self.list
    }
}

/// The tools of a page, or the resources or prompts, unread.
#[derive(Debug, Default)]
pub(super) struct Entries<'a> {
    pub(super) read: Vec<&'a RawValue>,
    pub(super) left_out: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Entries<'de>, A::Error> {
                let mut entries = Entries::default();
                while entries.read.len() < MOST_TOOLS {
                    let Some(entry) = seq.next_element()? else { return Ok(entries) };
                    entries.read.push(entry);
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    entries.left_out += 1;
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_seq(Each)
    }
}

fn read_tool(raw: &RawValue) -> Result<Tool, String> {
    let value = parse(raw).map_err(|error| format!("could not read a tool: {error}"))?;
    let Value::Object(raw) = value else { return Err("a tool is not an object".into()) };
    let text = |key: &str| raw.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = text("name");
    if name.is_empty() {
        return Err("a tool has no name".into());
    }
    if name.len() > LONGEST_NAME {
        return Err(format!("the name of a tool has {} bytes, and {LONGEST_NAME} is the limit", name.len()));
    }
    let schema = |key: &str| raw.get(key).filter(|schema| schema.is_object()).cloned();
    Ok(Tool {
        alias: String::new(),
        description: text("description"),
        input_schema: schema("inputSchema").unwrap_or_else(|| Value::Object(Map::new())),
        output_schema: schema("outputSchema"),
        name,
        raw,
        digest: OnceLock::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::discovery::{Definition, Launch};

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.into()).unwrap()
    }

    fn outcome_of(json: &str) -> CallOutcome {
        CallOutcome::new(raw(json), None)
    }

    fn listed(page: &str) -> ToolList {
        let mut pages = Pages::default();
        pages.read(&raw(page)).unwrap();
        pages.list()
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
        let mut pages = Pages::default();
        assert_eq!(pages.read(&raw(page)).unwrap(), None);
        let list = pages.list();
        let names: Vec<_> = list.tools.iter().map(|tool| (tool.name.as_str(), tool.alias.as_str())).collect();
        assert_eq!(names, [("b-a", "b_a"), ("b a", "b_a_2"), ("odd", "odd")]);
        assert_eq!(list.tools[0].input_schema.to_string(), r#"{"properties":{"z":{},"a":{}}}"#);
        assert_eq!(list.tools[0].raw["execution"]["x"], 1);
        assert_eq!(list.warnings.len(), 3);
        assert_eq!(list.get("b_a").unwrap().name, "b-a");
        assert!(list.get("c").is_none());
    }

    #[test]
    fn a_list_has_so_many_tools_and_no_more() {
        let tools: Vec<String> = (0..=MOST_TOOLS).map(|at| format!(r#"{{"name":"a{at}"}}"#)).collect();
        let list = listed(&format!(r#"{{"tools":[{}],"nextCursor":"more"}}"#, tools.join(",")));
        assert_eq!(list.tools.len(), MOST_TOOLS);
        assert_eq!(list.warnings, ["tools beyond the first 10000 are left out"]);
        let mut pages = Pages::default();
        let page = raw(&format!(r#"{{"tools":[],"nextCursor":"next","x":"{}"}}"#, "x".repeat(40 << 20)));
        assert_eq!(pages.read(&page).unwrap().as_deref(), Some("next"));
        assert_eq!(pages.read(&page).unwrap(), None);
        assert!(pages.list().warnings[0].contains("64 MiB"));
    }

    #[test]
    fn tools_of_too_many_values_and_long_names_are_left_out() {
        let values = "0,".repeat(MOST_VALUES);
        let name = "n".repeat(LONGEST_NAME + 1);
        let page = format!(
            r#"{{"tools":[{{"name":"a"}},{{"name":"{name}"}},{{"name":"b","x":[{values}0]}}],"nextCursor":null}}"#
        );
        let list = listed(&page);
        assert_eq!(list.tools.len(), 1);
        assert_eq!(list.warnings.len(), 2, "{:?}", list.warnings);
        let nothing = listed(&format!(r#"{{"tools":[{}0]}}"#, "0,".repeat(1 << 20)));
        assert_eq!(nothing.warnings.len(), MOST_WARNINGS + 2);
        assert_eq!(nothing.warnings[MOST_WARNINGS], "tools beyond the first 10000 are left out");
    }

    #[test]
    fn a_failure_that_cannot_be_redacted_is_not_shown() {
        let definition = Definition {
            launch: Launch::Stdio {
                command: "x".into(),
                args: Vec::new(),
                env: vec![("\"odd\"_KEY".into(), "abcdef".into())],
                cwd: None,
            },
            startup_timeout: None,
            call_timeout: None,
            filled_in: Vec::new(),
        };
        let json = format!(r#"{{"isError":true,"x":[{}"abcdef"]}}"#, "0,".repeat(REDACTED.values));
        let outcome = outcome_of(&json).without(&Secrets::of(&definition));
        assert_eq!((outcome.json.get(), outcome.is_error), (HIDDEN, true));
    }
}
