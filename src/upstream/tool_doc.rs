//! What a server says of its tools and of itself.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Returns the last position up to `at` that is between two characters. `std` has this from Rust 1.91.
pub(super) fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// What a documentation is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DocKind {
    #[default]
    Tool,
    /// It has its URI in place of a name.
    Resource,
    /// Resources whose URIs have variables: a URI template in place of a name.
    Template,
    Prompt,
}

impl DocKind {
    pub fn is_tool(&self) -> bool {
        *self == Self::Tool
    }

    /// Returns what results of searches call it; tools have no name.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Tool => None,
            Self::Resource => Some("resource"),
            Self::Template => Some("template"),
            Self::Prompt => Some("prompt"),
        }
    }
}

/// The documentation of a tool, as its server sent it, or of something else that servers offer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDoc {
    #[serde(default, skip_serializing_if = "DocKind::is_tool")]
    pub kind: DocKind,
    pub name: String,
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments.
    #[serde(default)]
    pub input_schema: Value,
    /// JSON Schema of the structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

/// What a server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The display name.
    pub title: Option<String>,
    /// What the server is for, and how to use it.
    pub instructions: Option<String>,
    /// Whether it offers resources or prompts.
    pub has_offers: bool,
}
