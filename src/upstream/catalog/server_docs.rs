//! The documentation of one server's tools in memory: summaries and search terms as they are, the rest compressed.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::limits::{Cut, limited};
use super::packed::Packed;
use super::seen::SeenResults;
use super::signature::signature;
use super::summary::summary;
use crate::nearest::nearest;
use crate::upstream::alias::aliases;
use crate::upstream::search::{Boilerplate, Terms};
use crate::upstream::tool_doc::{About, DocKind, ToolDoc, floor_char_boundary};

/// Bytes of a server's title, and of its instructions.
const LONGEST_ABOUT: usize = 4 << 10;

/// Bytes of the names of tools that say what a server is for.
const LONGEST_PURPOSE: usize = 80;

/// The documentation of one server's tools.
#[derive(Serialize, Deserialize)]
pub struct ServerDocs {
    pub(super) about: About,
    pub(super) cut: Cut,
    pub(super) terms: Arc<Terms>,
    pub(super) tools: Vec<ToolSummary>,
    /// Follows the rest in a file, so that it stays compressed.
    #[serde(skip)]
    pub(super) docs: Packed,
    /// What results looked like, in a file of its own.
    #[serde(skip)]
    pub(super) seen: SeenResults,
}

/// The short form of a tool's documentation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSummary {
    pub kind: DocKind,
    pub name: Box<str>,
    /// The name in Python.
    pub alias: Box<str>,
    pub signature: Box<str>,
    /// One line.
    pub description: Box<str>,
}

impl ServerDocs {
    /// Makes documentation of what a server sent.
    pub fn new(about: About, docs: Vec<ToolDoc>) -> Self {
        let (docs, cut) = limited(docs);
        let cut_off = |mut text: String| {
            text.truncate(floor_char_boundary(&text, LONGEST_ABOUT));
            text
        };
        let boilerplate = Boilerplate::of(&docs);
        let aliases = aliases(docs.iter().map(|doc| doc.name.as_str()));
        let summarized = |(doc, alias): (&ToolDoc, String)| ToolSummary {
            kind: doc.kind,
            name: doc.name.as_str().into(),
            signature: signature(&alias, doc).into(),
            alias: if doc.kind.is_tool() { alias.into() } else { doc.name.as_str().into() },
            description: summary(&doc.description, &boilerplate).into(),
        };
        Self {
            about: About {
                title: about.title.map(cut_off),
                instructions: about.instructions.map(cut_off),
                ..about
            },
            cut,
            terms: Arc::new(Terms::of(&docs, &boilerplate)),
            tools: docs.iter().zip(aliases).map(summarized).collect(),
            docs: Packed::new(&docs),
            seen: SeenResults::default(),
        }
    }

    /// Returns what the server says of itself.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Returns what the server is for, in a line: the first sentence of its instructions, else the names of its tools.
    pub fn purpose(&self) -> Option<String> {
        let told = self.about.instructions.as_deref().map(|text| {
            // Headings of Markdown say nothing.
            let is_heading = |line: &&str| line.trim().is_empty() || line.starts_with('#');
            let start = text.lines().find(|line| !is_heading(line));
            let start = start.map_or(0, |line| line.as_ptr() as usize - text.as_ptr() as usize);
            summary(&text[start..], &Boilerplate::of(&[]))
        });
        told.filter(|line| !line.is_empty()).or_else(|| {
            let mut line = String::from("tools: ");
            for (at, tool) in self.tools.iter().enumerate() {
                if line.len() + tool.name.len() > LONGEST_PURPOSE && at > 0 {
                    line.push_str(&format!(" and {} more", self.tools.len() - at));
                    break;
                }
                line.push_str(if at > 0 { ", " } else { "" });
                line.extend(tool.name.chars().take(LONGEST_PURPOSE));
            }
            (!self.tools.is_empty()).then_some(line)
        })
    }

    /// Returns the short form of every tool, in the server's order.
    pub fn tools(&self) -> &[ToolSummary] {
        &self.tools
    }

    /// Returns the position of the tool of a name, or of an alias if no tool has the name.
    pub fn position(&self, tool: &str) -> Option<usize> {
        let by = |name: fn(&ToolSummary) -> &str| self.tools.iter().position(|known| name(known) == tool);
        by(|known| &known.name).or_else(|| by(|known| &known.alias))
    }

    /// Returns the tool name that is most similar to one that does not exist.
    pub fn nearest(&self, tool: &str) -> Option<&str> {
        nearest(tool, self.tools.iter().map(|known| &*known.name))
    }

    /// Returns the whole documentation of a tool; None if there is no such tool or it is damaged on disk.
    pub fn doc(&self, tool: usize) -> Option<ToolDoc> {
        self.docs.doc(tool)
    }

    #[cfg(test)]
    pub(super) fn docs(&self) -> Option<Vec<ToolDoc>> {
        self.docs.all()
    }
}

impl fmt::Debug for ServerDocs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerDocs").field("tools", &self.tools.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_are_found_by_name_before_alias() {
        let docs =
            ["get-page", "get_page", "x"].map(|name| ToolDoc { name: name.into(), ..ToolDoc::default() });
        let docs = ServerDocs::new(About::default(), docs.to_vec());
        let aliases: Vec<_> = docs.tools().iter().map(|tool| &*tool.alias).collect();
        assert_eq!(aliases, ["get_page", "get_page_2", "x"]);
        assert_eq!(docs.position("get_page"), Some(1));
        assert_eq!(docs.position("get_page_2"), Some(1));
        assert_eq!(docs.position("get-page"), Some(0));
        assert_eq!(docs.position("y"), None);
    }

    #[test]
    fn a_tool_is_summarized_and_kept_whole() {
        let doc = ToolDoc {
            name: "paint".into(),
            description: "Paints a wall. Dries in an hour.".into(),
            input_schema: json!({ "properties": { "wall": { "type": "integer" } }, "required": ["wall"] }),
            ..ToolDoc::default()
        };
        let docs = ServerDocs::new(About::default(), vec![doc.clone()]);
        assert_eq!(&*docs.tools()[0].signature, "paint(wall: int)");
        assert_eq!(&*docs.tools()[0].description, "Paints a wall");
        assert_eq!(docs.doc(0), Some(doc));
        assert_eq!(docs.doc(1), None);
    }

    #[test]
    fn the_purpose_of_a_server_is_a_sentence_or_its_tools() {
        let purpose = |instructions: Option<&str>, names: &[&str]| {
            let docs = names.iter().map(|name| ToolDoc { name: (*name).into(), ..ToolDoc::default() });
            let about = About { instructions: instructions.map(Into::into), ..About::default() };
            ServerDocs::new(about, docs.collect()).purpose()
        };
        let told = Some("# Time – Instructions\n\nKeeps time zones.\nAlways use it.");
        assert_eq!(purpose(told, &["now"]).as_deref(), Some("Keeps time zones"));
        assert_eq!(purpose(Some(" "), &["now", "then"]).as_deref(), Some("tools: now, then"));
        let many: Vec<String> = (0..100).map(|n| format!("tool_number_{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let shown = purpose(None, &many).unwrap();
        assert!(shown.ends_with("tool_number_4 and 95 more") && shown.len() < 100, "{shown}");
        assert!(purpose(None, &[&"x".repeat(100)]).unwrap().len() < 100);
        assert_eq!(purpose(None, &[]), None);
    }

    #[test]
    fn title_and_instructions_are_limited() {
        let about = About { title: Some("ß".repeat(1 << 20)), ..About::default() };
        let docs = ServerDocs::new(about, Vec::new());
        assert!(docs.about().title.as_ref().is_some_and(|title| title.len() <= LONGEST_ABOUT));
    }
}
