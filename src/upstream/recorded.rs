//! Calls that were recorded, for a replay: their results take the place of the servers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use serde_json::value::RawValue;

use super::catalog::ServerDocs;
use super::discovery::Server;
use super::error::UpstreamError;
use super::pool::CallOutcome;
use super::raw_arguments::RawArguments;
use super::tool_doc::{About, ToolDoc};
use crate::policy::Kind;

/// Calls of a replay that are listed because they were not recorded.
const MOST_UNEXPECTED: usize = 20;

/// A call of the audit log.
#[derive(Debug, Clone)]
pub struct RecordedCall {
    pub server: String,
    /// None for a tool, else `resource` or `prompt`.
    pub kind: Option<String>,
    /// The name at the server, and the one that code used if it is another.
    pub tool: String,
    pub called_as: Option<String>,
    /// JSON
    pub arguments: String,
    /// The result as JSON, or the message and the kind of the error.
    pub outcome: Result<String, (String, Option<&'static str>)>,
    /// The documentation of the tool, as JSON.
    pub doc: Option<String>,
}

/// The calls of a run, until they are made again.
#[derive(Debug, Clone, Default)]
pub struct Recorded(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    left: Vec<RecordedCall>,
    docs: BTreeMap<String, Vec<ToolDoc>>,
    unexpected: Vec<String>,
}

impl Recorded {
    /// Adds the calls of the next run; those of the one before that are left are dropped.
    pub fn next_run(&self, calls: Vec<RecordedCall>) {
        let mut state = self.lock();
        for call in calls.iter().filter(|call| call.kind.is_none()) {
            let doc = call.doc.as_ref().and_then(|doc| serde_json::from_str::<ToolDoc>(doc).ok());
            let doc = doc.unwrap_or_else(|| ToolDoc { name: call.tool.clone(), ..ToolDoc::default() });
            let docs = state.docs.entry(call.server.clone()).or_default();
            docs.retain(|known| known.name != doc.name);
            docs.push(doc);
        }
        (state.left, state.unexpected) = (calls, Vec::new());
    }

    /// Returns the calls that were recorded and not made, and those that were made and not recorded.
    pub fn differences(&self) -> (Vec<String>, Vec<String>) {
        let state = self.lock();
        let left = state.left.iter().map(|call| format!("{}.{}", call.server, call.tool));
        (left.collect(), state.unexpected.clone())
    }

    /// Returns what the first call with these arguments gave; `kind` says what it is about, if not about a tool.
    pub(super) fn call(
        &self,
        server: &Server,
        (kind, tool): (Option<Kind>, &str),
        arguments: &RawArguments,
    ) -> Result<CallOutcome, UpstreamError> {
        let mut state = self.lock();
        let given = serde_json::from_slice::<Value>(arguments.as_bytes()).ok();
        let kind = kind.map(|kind| kind.to_string());
        let is_same = |call: &RecordedCall| {
            // Of a long URI only the beginning is recorded as a name; the arguments have all of it.
            let is_named = kind.is_some() || call.tool == tool || call.called_as.as_deref() == Some(tool);
            *call.server == *server.name
                && call.kind == kind
                && is_named
                && (call.arguments.as_bytes() == arguments.as_bytes()
                    || (given.is_some() && given == serde_json::from_str::<Value>(&call.arguments).ok()))
        };
        let Some(at) = state.left.iter().position(is_same) else {
            let name = format!("{}.{tool}", server.name);
            if state.unexpected.len() < MOST_UNEXPECTED {
                state.unexpected.push(name.clone());
            }
            let text = format!("the call of {name} with these arguments was not recorded");
            return Err(UpstreamError::Replayed { text, kind: None });
        };
        match state.left.remove(at).outcome {
            Ok(json) => {
                let malformed = |error: serde_json::Error| UpstreamError::Replayed {
                    text: format!("the recorded result of {}.{tool} is no JSON: {error}", server.name),
                    kind: None,
                };
                Ok(CallOutcome::new(RawValue::from_string(json).map_err(malformed)?, None))
            }
            Err((text, kind)) => Err(UpstreamError::Replayed { text, kind }),
        }
    }

    /// Returns what was recorded of the tools of a server: only those that were called.
    pub(super) fn docs_of(&self, server: &Server) -> Arc<ServerDocs> {
        let docs = self.lock().docs.get(&*server.name).cloned().unwrap_or_default();
        Arc::new(ServerDocs::new(About::default(), docs))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
