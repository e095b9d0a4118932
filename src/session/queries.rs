//! What code in the sandbox may ask of the bridge. Every question is hostile input; every answer is a value or a sentence.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::OutputStream;
use super::output::{Outputs, partial_character};
use super::tools::SavedTools;

/// Bytes of kept output in one answer, the guest asks for the next ones: JSON may need six for each, and the guest takes no frame above 64 MiB.
const LONGEST_OUTPUT: u64 = 8 << 20;

/// A question. What it asks with is read once it is known what is asked: to keep it as a value meanwhile would take
/// many times the bytes that came.
#[derive(Debug, Deserialize)]
struct Query<'a> {
    method: String,
    #[serde(borrow)]
    params: &'a RawValue,
}

/// A part of the output of an earlier run.
#[derive(Debug, Deserialize)]
struct Output {
    run_id: u32,
    #[serde(default)]
    stream: Option<String>,
    #[serde(default)]
    start: u64,
    #[serde(default)]
    length: Option<u64>,
}

/// Keep a function's source.
#[derive(Debug, Deserialize)]
struct SaveTool {
    name: String,
    source: String,
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

    /// The answer to a question, as JSON: `{"ok": VALUE}` or `{"error": TEXT}`. Off the tasks that have to be quick: the
    /// question and its answer may hold megabytes, and lie on a slow disk.
    pub(super) async fn answer(self: &Arc<Self>, json: Vec<u8>) -> Vec<u8> {
        let queries = Arc::clone(self);
        let answered = tokio::task::spawn_blocking(move || queries.answer_now(&json));
        answered.await.unwrap_or_else(|_| br#"{"error":"the bridge failed to answer"}"#.to_vec())
    }

    fn answer_now(&self, json: &[u8]) -> Vec<u8> {
        let answer = match serde_json::from_slice(json) {
            Ok(query) => self.value(&query),
            Err(error) => Err(not_understood(&error)),
        };
        let answer = match answer {
            Ok(value) => json!({ "ok": value }),
            Err(text) => json!({ "error": text }),
        };
        serde_json::to_vec(&answer)
            .unwrap_or_else(|_| br#"{"error":"the answer could not be written"}"#.to_vec())
    }

    fn value(&self, query: &Query<'_>) -> Result<Value, String> {
        match query.method.as_str() {
            "output" => self.output(&read(query.params)?),
            "save_tool" => self.save_tool(&read(query.params)?),
            "list_saved_tools" => Ok(self.tools.load().into_iter().map(|(name, _)| name).collect()),
            _ => Err("the bridge does not know this method".into()),
        }
    }

    fn output(&self, asked: &Output) -> Result<Value, String> {
        let stream = match asked.stream.as_deref() {
            None | Some("stdout") => OutputStream::Stdout,
            Some("stderr") => OutputStream::Stderr,
            Some(_) => return Err("the stream is 'stdout' or 'stderr'".into()),
        };
        let Output { run_id, start, .. } = *asked;
        let (kept, runs) = {
            let outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
            (outputs.get(run_id, stream), outputs.runs())
        };
        let kept = kept.ok_or_else(|| {
            format!("no output of run {run_id} is kept; only what was cut is, and of these the runs {runs:?}")
        })?;
        let wanted = asked.length.unwrap_or(u64::MAX).min(kept.length().saturating_sub(start));
        let mut bytes = kept.read(start, wanted.min(LONGEST_OUTPUT));
        if wanted > LONGEST_OUTPUT {
            // The next piece begins with a whole character.
            bytes.truncate(bytes.len() - partial_character(&bytes));
        }
        let end = start + bytes.len() as u64;
        let last = wanted <= LONGEST_OUTPUT || bytes.is_empty();
        Ok(json!({ "text": String::from_utf8_lossy(&bytes), "end": end, "last": last }))
    }

    /// Where it is kept is the host's affair.
    fn save_tool(&self, tool: &SaveTool) -> Result<Value, String> {
        let saved = self.tools.save(&tool.name, &tool.source);
        saved.map(|_| Value::Null).map_err(|error| shortened(&error.to_string()))
    }
}

fn read<T: DeserializeOwned>(params: &RawValue) -> Result<T, String> {
    serde_json::from_str(params.get()).map_err(|error| not_understood(&error))
}

fn not_understood(error: &serde_json::Error) -> String {
    format!("the bridge does not understand this: {}", shortened(&error.to_string()))
}

/// An error may quote what was asked with, which may be long.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(json: &str) -> Value {
        let dir = tempfile::tempdir().unwrap();
        let queries = Queries::new(Arc::default(), dir.path().into());
        serde_json::from_slice(&queries.answer_now(json.as_bytes())).unwrap()
    }

    #[test]
    fn what_is_no_question_gets_a_short_sentence() {
        let deep = "[".repeat(100_000);
        let long = "x".repeat(100_000);
        for json in [
            String::new(),
            "null".into(),
            "[]".into(),
            r#"{"method":"output"}"#.into(),
            format!(r#"{{"method":"{long}","params":{{}}}}"#),
            format!(r#"{{"method":"output","params":{{"run_id":"{long}"}}}}"#),
            format!(r#"{{"method":"output","params":{deep}"#),
            format!(r#"{{"params":{deep}"#),
            format!(r#"{{"method":"save_tool","params":{{"name":"../{long}","source":""}}}}"#),
        ] {
            let answer = answer(&json);
            let error = answer["error"].as_str().unwrap_or_default();
            assert!(!error.is_empty() && error.len() < 400, "{:.200} {:.1000}", json, error);
        }
    }

    #[test]
    fn a_saved_tool_is_confirmed_without_a_path_of_the_host() {
        let answer = answer(r#"{"params":{"source":"def f(): pass","name":"f"},"method":"save_tool"}"#);
        assert_eq!(answer, json!({ "ok": null }));
    }
}
