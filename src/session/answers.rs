//! What code in the sandbox may ask of the bridge. Every question is hostile input; every answer is a value or a sentence.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::OutputStream;
use super::lending::Lending;
use super::output::{Outputs, partial_character};
use super::tools::SavedTools;

/// Bytes of kept output in one answer, the guest asks for the next ones: JSON may need six for each, and the guest takes no frame above 64 MiB.
const LONGEST_OUTPUT: u64 = 8 << 20;

/// Bytes of one answer: what the guest takes.
const LONGEST_ANSWER: usize = 136 << 20;

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

/// What the guest is told.
#[derive(Debug)]
pub(super) enum Answer {
    /// A value of ours.
    Value(Value),
    /// JSON that is passed on as it came.
    Raw(Box<RawValue>),
}

/// Why there is no answer, in a sentence for code, and of a kind when code has to tell.
#[derive(Debug)]
pub(super) struct QueryError {
    pub(super) kind: Option<&'static str>,
    pub(super) text: String,
}

impl QueryError {
    pub(super) fn plain(text: String) -> Self {
        Self { kind: None, text }
    }

    pub(super) fn of_kind(kind: &'static str, text: String) -> Self {
        Self { kind: Some(kind), text }
    }

    /// What was asked with.
    pub(super) fn read<T: DeserializeOwned>(params: &str) -> Result<T, Self> {
        serde_json::from_str(params).map_err(|error| Self::plain(not_understood(&error)))
    }
}

/// Answers questions of all sessions.
#[derive(Debug)]
pub(super) struct Queries {
    /// Held by whoever reads or writes files.
    files: tokio::sync::Mutex<()>,
    outputs: Arc<Mutex<Outputs>>,
    tools: SavedTools,
}

impl Queries {
    pub(super) fn new(outputs: Arc<Mutex<Outputs>>, state_dir: PathBuf) -> Self {
        Self { files: tokio::sync::Mutex::default(), outputs, tools: SavedTools::at(state_dir) }
    }

    pub(super) fn tools(&self) -> &SavedTools {
        &self.tools
    }

    /// The answer to a question, as JSON: `{"ok": VALUE}` or `{"error": TEXT}`.
    pub(super) async fn answer(
        self: &Arc<Self>,
        lending: &Lending,
        json: Vec<u8>,
        cancel: &CancellationToken,
    ) -> Vec<u8> {
        let query = match serde_json::from_slice::<Query<'_>>(&json) {
            Ok(query) => query,
            Err(error) => return written(Err(QueryError::plain(not_understood(&error)))),
        };
        if let Some(answer) = lending.answer(&query.method, query.params.get(), cancel).await {
            return written(answer);
        }
        // Off the tasks that have to be quick: the answer may hold megabytes, and lie on a slow disk. One at a time, for
        // the same reason.
        let _turn = self.files.lock().await;
        let queries = Arc::clone(self);
        let answered = spawn_blocking(move || written(queries.answer_of_files(&json)));
        answered.await.unwrap_or_else(|_| br#"{"error":"the bridge failed to answer"}"#.to_vec())
    }

    fn answer_of_files(&self, json: &[u8]) -> Result<Answer, QueryError> {
        let query: Query<'_> =
            serde_json::from_slice(json).map_err(|error| QueryError::plain(not_understood(&error)))?;
        let params = query.params.get();
        let value = match query.method.as_str() {
            "output" => self.output(&QueryError::read(params)?),
            "save_tool" => self.save_tool(&QueryError::read(params)?),
            "list_saved_tools" => Ok(self.tools.load().into_iter().map(|(name, _)| name).collect()),
            _ => Err("the bridge does not know this method".into()),
        };
        value.map(Answer::Value).map_err(QueryError::plain)
    }

    fn output(&self, asked: &Output) -> Result<Value, String> {
        let stream = match asked.stream.as_deref() {
            None | Some("stdout") => OutputStream::Stdout,
            Some("stderr") => OutputStream::Stderr,
            Some("traceback") => OutputStream::Traceback,
            Some(_) => return Err("the stream is 'stdout', 'stderr' or 'traceback'".into()),
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

fn written(answer: Result<Answer, QueryError>) -> Vec<u8> {
    let json = match answer {
        Ok(Answer::Raw(json)) => [br#"{"ok":"#, json.get().as_bytes(), b"}"].concat(),
        Ok(Answer::Value(value)) => json!({ "ok": value }).to_string().into_bytes(),
        Err(QueryError { kind: None, text }) => json!({ "error": text }).to_string().into_bytes(),
        Err(QueryError { kind, text }) => json!({ "error": text, "kind": kind }).to_string().into_bytes(),
    };
    if json.len() <= LONGEST_ANSWER {
        return json;
    }
    let text = format!("the answer has {} MB, more than fits into the sandbox", json.len() >> 20);
    json!({ "error": text }).to_string().into_bytes()
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
        serde_json::from_slice(&written(queries.answer_of_files(json.as_bytes()))).unwrap()
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
