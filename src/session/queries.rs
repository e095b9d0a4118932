//! What code in the sandbox may ask of the bridge. Every question is hostile input; every answer is a value or a sentence.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::{Value, json};

use super::OutputStream;
use super::output::Outputs;
use super::tools::SavedTools;

/// Bytes of kept output in one answer.
const LONGEST_OUTPUT: u64 = 16 << 20;

/// A question.
#[derive(Debug, Deserialize)]
#[serde(tag = "method", content = "params", rename_all = "snake_case")]
enum Query {
    /// A part of the output of an earlier run.
    Output {
        run_id: u32,
        #[serde(default)]
        stream: Option<String>,
        #[serde(default)]
        start: u64,
        #[serde(default)]
        length: Option<u64>,
    },
    /// Keep a function's source.
    SaveTool { name: String, source: String },
    /// Names of the kept functions.
    ListSavedTools {},
}

/// Answers questions.
#[derive(Debug)]
pub(super) struct Queries {
    outputs: Arc<Mutex<Outputs>>,
    tools: SavedTools,
}

impl Queries {
    pub(super) fn new(outputs: Arc<Mutex<Outputs>>, state_dir: PathBuf) -> Self {
        Self { outputs, tools: SavedTools::at(state_dir) }
    }

    pub(super) fn tools(&self) -> &SavedTools {
        &self.tools
    }

    /// The answer to a question, as JSON: `{"ok": VALUE}` or `{"error": TEXT}`.
    pub(super) async fn answer(&self, json: &[u8]) -> Vec<u8> {
        let answer = match serde_json::from_slice(json) {
            Ok(query) => self.value(query),
            Err(error) => Err(format!("the bridge does not understand this: {error}")),
        };
        let answer = match answer {
            Ok(value) => json!({ "ok": value }),
            Err(text) => json!({ "error": text }),
        };
        serde_json::to_vec(&answer)
            .unwrap_or_else(|_| br#"{"error":"the answer could not be written"}"#.to_vec())
    }

    fn value(&self, query: Query) -> Result<Value, String> {
        match query {
            Query::Output { run_id, stream, start, length } => {
                let stream = match stream.as_deref() {
                    None | Some("stdout") => OutputStream::Stdout,
                    Some("stderr") => OutputStream::Stderr,
                    Some(other) => return Err(format!("'{other}' is no stream: use 'stdout' or 'stderr'")),
                };
                let outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
                let length = length.unwrap_or(LONGEST_OUTPUT).min(LONGEST_OUTPUT);
                let bytes = outputs.read(run_id, stream, start, length).ok_or_else(|| {
                    format!(
                        "no output of run {run_id} is kept; only what was cut is, and of these the runs {:?}",
                        outputs.runs()
                    )
                })?;
                Ok(String::from_utf8_lossy(&bytes).into())
            }
            Query::SaveTool { name, source } => self
                .tools
                .save(&name, &source)
                .map(|path| path.display().to_string().into())
                .map_err(|e| e.to_string()),
            Query::ListSavedTools {} => Ok(self.tools.load().into_iter().map(|(name, _)| name).collect()),
        }
    }
}
