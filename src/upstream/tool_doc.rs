//! What a server says of one of its tools.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pool::Tool;

/// The documentation of a tool, as its server sent it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDoc {
    /// The name that calls go by.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Prose.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments.
    #[serde(default)]
    pub input_schema: Value,
    /// JSON Schema of structured results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

impl From<&Tool> for ToolDoc {
    fn from(tool: &Tool) -> Self {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        // Where it was before it had a place of its own.
        let annotated = tool.raw.get("annotations").and_then(|annotations| annotations.get("title"));
        Self {
            name: tool.name.clone(),
            title: text(tool.raw.get("title")).or_else(|| text(annotated)),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            output_schema: tool.output_schema.clone(),
        }
    }
}
