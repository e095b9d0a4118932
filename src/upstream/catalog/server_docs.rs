//! The documentation of one server's tools, in memory: what lists and searches need at hand, the rest packed.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::limits::{Cut, limited};
use super::packed::Packed;
use super::signature::signature;
use super::summary::summary;
use crate::upstream::alias::aliases;
use crate::upstream::nearest::nearest;
use crate::upstream::search::{Boilerplate, Terms};
use crate::upstream::tool_doc::{About, ToolDoc};

/// Bytes of what a server says of itself.
const LONGEST_ABOUT: usize = 4 << 10;

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
}

/// A tool in a few words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSummary {
    /// The name that calls go by.
    pub name: Box<str>,
    /// Its name in Python.
    pub alias: Box<str>,
    /// How it is called.
    pub signature: Box<str>,
    /// What it does, on one line.
    pub description: Box<str>,
}

impl ServerDocs {
    /// From what a server sent.
    pub fn new(about: About, docs: Vec<ToolDoc>) -> Self {
        let (docs, cut) = limited(docs);
        let boilerplate = Boilerplate::of(&docs);
        let aliases = aliases(docs.iter().map(|doc| doc.name.as_str()));
        let summarized = |(doc, alias): (&ToolDoc, String)| ToolSummary {
            name: doc.name.as_str().into(),
            signature: signature(&alias, doc).into(),
            alias: alias.into(),
            description: summary(&doc.description, &boilerplate).into(),
        };
        Self {
            about: About {
                title: about.title.map(|text| cut_off(text, LONGEST_ABOUT)),
                instructions: about.instructions.map(|text| cut_off(text, LONGEST_ABOUT)),
            },
            cut,
            terms: Arc::new(Terms::of(&docs, &boilerplate)),
            tools: docs.iter().zip(aliases).map(summarized).collect(),
            docs: Packed::new(&docs),
        }
    }

    /// What the server says of itself.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// What was left out.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// Every tool, in the order of the server.
    pub fn tools(&self) -> &[ToolSummary] {
        &self.tools
    }

    /// The words to search by.
    pub fn terms(&self) -> &Arc<Terms> {
        &self.terms
    }

    /// The number of a tool, by its name or, when no name is meant, its alias.
    pub fn position(&self, tool: &str) -> Option<usize> {
        let by = |name: fn(&ToolSummary) -> &str| self.tools.iter().position(|known| name(known) == tool);
        by(|known| &known.name).or_else(|| by(|known| &known.alias))
    }

    /// The name of a tool that may have been meant by one that there is not.
    pub fn nearest(&self, tool: &str) -> Option<&str> {
        nearest(tool, self.tools.iter().map(|known| &*known.name))
    }

    /// The whole documentation of a tool; none when there is no such tool, or what the disk had of it is damaged.
    pub fn doc(&self, tool: usize) -> Option<ToolDoc> {
        self.docs.doc(tool)
    }

    /// The whole documentation of all tools; none when what the disk had of it is damaged.
    pub fn docs(&self) -> Option<Vec<ToolDoc>> {
        self.docs.all()
    }
}

impl fmt::Debug for ServerDocs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerDocs").field("tools", &self.tools.len()).finish_non_exhaustive()
    }
}

fn cut_off(mut text: String, most: usize) -> String {
    if let Some(end) = (0..=most).rev().find(|at| text.is_char_boundary(*at))
        && end < text.len()
    {
        text.truncate(end);
    }
    text
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
            title: None,
            description: "Paints a wall. Dries in an hour.".into(),
            input_schema: json!({ "properties": { "wall": { "type": "integer" } }, "required": ["wall"] }),
            output_schema: None,
        };
        let docs = ServerDocs::new(About::default(), vec![doc.clone()]);
        assert_eq!(&*docs.tools()[0].signature, "paint(wall: int)");
        assert_eq!(&*docs.tools()[0].description, "Paints a wall");
        assert_eq!(docs.doc(0), Some(doc));
        assert_eq!(docs.doc(1), None);
    }

    #[test]
    fn a_server_talks_of_itself_only_so_much() {
        let about = About { title: Some("ß".repeat(1 << 20)), instructions: None };
        let docs = ServerDocs::new(about, Vec::new());
        assert!(docs.about().title.as_ref().is_some_and(|title| title.len() <= LONGEST_ABOUT));
    }
}
