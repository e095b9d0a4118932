//! Saved functions, which are searched together with the tools of servers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::saved::{SavedTool, SavedTools, State};
use crate::upstream::catalog::{Detail, ListedServer, Schemas, ServerDocs, ToolItem};
use crate::upstream::tool_doc::{About, ToolDoc};

/// Their key among those of definitions, none of which has this form.
const KEY: &str = "saved functions";

/// A saved function, and the digests of the tools that it names.
pub type ToTest = (SavedTool, BTreeMap<String, String>);

/// The saved functions of a user, read again when they have changed.
#[derive(Debug)]
pub(super) struct SavedFunctions {
    saved: SavedTools,
    last: Mutex<Option<Arc<Functions>>>,
}

/// Those that sessions define.
#[derive(Debug)]
pub(super) struct Functions {
    stamp: u64,
    tools: Vec<SavedTool>,
    pub(super) docs: Arc<ServerDocs>,
}

impl SavedFunctions {
    pub(super) fn at(state_dir: &Path) -> Self {
        Self { saved: SavedTools::at(state_dir), last: Mutex::default() }
    }

    /// Returns the functions as they are now.
    pub(super) fn current(&self) -> Arc<Functions> {
        let stamp = self.saved.stamp();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = last.as_ref().filter(|known| known.stamp == stamp) {
            return Arc::clone(known);
        }
        let usable = |tool: &SavedTool| tool.trouble.is_none();
        let tools: Vec<SavedTool> = self.saved.list().into_iter().filter(usable).collect();
        let doc = |tool: &SavedTool| ToolDoc {
            name: tool.name.clone(),
            description: tool.details.doc.clone(),
            ..ToolDoc::default()
        };
        let docs = Arc::new(ServerDocs::new(About::default(), tools.iter().map(doc).collect()));
        let functions = Arc::new(Functions { stamp, tools, docs });
        *last = Some(Arc::clone(&functions));
        functions
    }
}

impl Functions {
    pub(super) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Returns them in the place of a server. It has no name: no query names it.
    pub(super) fn listed() -> ListedServer {
        ListedServer { name: String::new(), alias: String::new(), key: KEY.into() }
    }

    /// Returns those whose example is to be run again, because a tool that they name has changed, with the digests of their tools.
    pub(super) fn to_test(&self, schemas: impl FnOnce() -> Schemas) -> Vec<ToTest> {
        let with_example = || self.tools.iter().filter(|tool| tool.example.is_some());
        if with_example().next().is_none() {
            return Vec::new();
        }
        let schemas = schemas();
        let digest = |server: &str, name: &str| schemas.digest(server, name);
        let needs_test = |tool: &&SavedTool| tool.state(digest) == State::NeedsTest;
        let to_test = |tool: &SavedTool| (tool.clone(), schemas.digests(&tool.details.tools));
        with_example().filter(needs_test).map(to_test).collect()
    }

    /// Returns the documentation of number `at`, and whether it needs a test.
    pub(super) fn item(&self, at: usize, detail: Detail, schemas: &Schemas) -> Option<ToolItem> {
        let summary = self.docs.tools().get(at)?;
        let tool = self.tools.iter().find(|tool| tool.name == *summary.name)?;
        let state = tool.state(|server, name| schemas.digest(server, name));
        let marked = matches!(state, State::NeedsTest | State::Broken).then(|| state.to_string());
        Some(ToolItem::of_function(tool, &summary.description, marked, detail))
    }
}
