//! What a server says of its tools and of itself.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// What a server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Its name for people.
    pub title: Option<String>,
    /// What it is for.
    pub instructions: Option<String>,
}
