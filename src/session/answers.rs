//! Answers the questions of one guest, side by side, as long as their answers are needed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::OutputStream;
use super::access::ServerAccess;
use super::frames::ToGuest;
use super::guest_questions::{Answer, GuestQuestion, OutputPart, QuestionError, ToolSource, encode};
use super::output::{Outputs, whole_characters};
use super::tools::SavedTools;

/// Bytes of kept output in one answer. The guest asks for the rest: JSON may need six bytes for each, and the guest takes no
/// frame above 64 MiB.
const LONGEST_OUTPUT: u64 = 8 << 20;

/// What the guest sends apart from the frames of a run.
#[derive(Debug)]
pub(super) enum QuestionFromGuest {
    /// A question as JSON, with its share of the bytes that may wait.
    New { id: u32, json: Vec<u8>, share: OwnedSemaphorePermit },
    /// The answer to that question is no longer needed.
    Withdrawn(u32),
}

/// Answers questions until the guest is gone, then cancels those that are still being answered.
pub(super) async fn answer_questions(
    mut questions: mpsc::UnboundedReceiver<QuestionFromGuest>,
    answerer: Arc<Answerer>,
    access: Arc<ServerAccess>,
    answers: mpsc::Sender<ToGuest>,
) {
    let gone = CancellationToken::new();
    let _cancel_at_the_end = gone.clone().drop_guard();
    let mut under_way: HashMap<u32, CancellationToken> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            question = questions.recv() => match question {
                Some(QuestionFromGuest::New { id, json, share }) => {
                    let cancel = gone.child_token();
                    // A number that is used twice is the guest's own mistake.
                    under_way.insert(id, cancel.clone());
                    let (answerer, access) = (Arc::clone(&answerer), Arc::clone(&access));
                    let answers = answers.clone();
                    tasks.spawn(async move {
                        let answer = answerer.answer(&access, json, &cancel).await;
                        if !cancel.is_cancelled() {
                            let _ = answers.send(ToGuest::Answer(id, answer)).await;
                        }
                        drop(share);
                        id
                    });
                }
                Some(QuestionFromGuest::Withdrawn(id)) => {
                    if let Some(cancel) = under_way.remove(&id) {
                        cancel.cancel();
                    }
                }
                None => break,
            },
            Some(done) = tasks.join_next() => {
                if let Ok(id) = done {
                    under_way.remove(&id);
                }
            }
        }
    }
    // The tasks tell servers that their calls are cancelled, which is not waited for.
    gone.cancel();
    tasks.detach_all();
}

/// Answers questions of all sessions.
#[derive(Debug)]
pub(super) struct Answerer {
    /// Held while a question is answered from files.
    files: tokio::sync::Mutex<()>,
    outputs: Arc<Mutex<Outputs>>,
    tools: SavedTools,
}

impl Answerer {
    pub(super) fn new(outputs: Arc<Mutex<Outputs>>, state_dir: PathBuf) -> Self {
        Self { files: tokio::sync::Mutex::default(), outputs, tools: SavedTools::at(state_dir) }
    }

    pub(super) fn tools(&self) -> &SavedTools {
        &self.tools
    }

    pub(super) async fn answer(
        self: &Arc<Self>,
        access: &ServerAccess,
        json: Vec<u8>,
        cancel: &CancellationToken,
    ) -> Vec<u8> {
        let question = GuestQuestion::parse(&json);
        drop(json);
        let value = match question {
            Ok(GuestQuestion::Output(part)) => return self.from_files(move |it| it.output(&part)).await,
            Ok(GuestQuestion::SaveTool(tool)) => return self.from_files(move |it| it.save_tool(&tool)).await,
            Ok(GuestQuestion::ListSavedTools) => return self.from_files(Self::saved_tools).await,
            Ok(GuestQuestion::Call(call)) => return encode(access.call(call, cancel).await),
            Ok(GuestQuestion::Servers(filter)) => Ok(access.servers(&filter)),
            Ok(GuestQuestion::Server(server)) => access.server(&server),
            Ok(GuestQuestion::Describe(server)) => access.describe(&server, cancel).await,
            Ok(GuestQuestion::Tool(tool)) => access.tool(&tool, cancel).await,
            Ok(GuestQuestion::Tools(filter)) => access.tools(&filter, cancel).await,
            Ok(GuestQuestion::Search(search)) => access.search(&search).await,
            Err(error) => Err(error),
        };
        encode(value.map(Answer::Value))
    }

    /// Answers from files, on a thread that may wait: the answer may hold megabytes, and the disk may be slow. One at a time,
    /// for the same reason.
    async fn from_files(
        self: &Arc<Self>,
        answer: impl FnOnce(&Self) -> Result<Value, QuestionError> + Send + 'static,
    ) -> Vec<u8> {
        let _turn = self.files.lock().await;
        let answerer = Arc::clone(self);
        let answered = spawn_blocking(move || encode(answer(&answerer).map(Answer::Value)));
        answered.await.unwrap_or_else(|_| br#"{"error":"the bridge failed to answer"}"#.to_vec())
    }

    fn output(&self, part: &OutputPart) -> Result<Value, QuestionError> {
        let stream = OutputStream::named(part.stream.as_deref().unwrap_or("stdout"))
            .ok_or_else(|| QuestionError::plain("stream must be 'stdout', 'stderr' or 'traceback'"))?;
        let OutputPart { run_id, start, .. } = *part;
        let (kept, runs) = {
            let outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
            (outputs.get(run_id, stream), outputs.runs())
        };
        let kept = kept.ok_or_else(|| {
            QuestionError::plain(format!(
                "no output of run {run_id} is kept: only cut output is kept, at present that of the runs {runs:?}"
            ))
        })?;
        let wanted = part.length.unwrap_or(u64::MAX).min(kept.length().saturating_sub(start));
        let mut bytes = kept.read(start, wanted.min(LONGEST_OUTPUT));
        if wanted > LONGEST_OUTPUT {
            // The next piece begins with a whole character.
            bytes.truncate(whole_characters(&bytes));
        }
        let end = start + bytes.len() as u64;
        let last = wanted <= LONGEST_OUTPUT || bytes.is_empty();
        Ok(json!({ "text": String::from_utf8_lossy(&bytes), "end": end, "last": last }))
    }

    /// Saves a function. The sandbox does not learn where on the host.
    fn save_tool(&self, tool: &ToolSource) -> Result<Value, QuestionError> {
        let saved = self.tools.save(&tool.name, &tool.source);
        saved.map(|()| Value::Null).map_err(|error| QuestionError::quoting(&error.to_string()))
    }

    fn saved_tools(&self) -> Result<Value, QuestionError> {
        Ok(self.tools.load().into_iter().map(|(name, _)| name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reaper::Reaper;
    use crate::settings::{RawSettings, Settings};
    use crate::upstream::Upstream;

    async fn answer(json: &str) -> Value {
        let dir = tempfile::tempdir().unwrap();
        let answerer = Arc::new(Answerer::new(Arc::default(), dir.path().into()));
        let settings = Settings::resolve(&RawSettings::from_environment(&[].into()).unwrap()).unwrap();
        let access = ServerAccess::new(Upstream::new(&settings, [].into(), Reaper::of(None)));
        let answer = answerer.answer(&access, json.into(), &CancellationToken::new()).await;
        serde_json::from_slice(&answer).unwrap()
    }

    #[tokio::test]
    async fn a_malformed_question_gets_a_short_error() {
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
            format!(r#"{{"method":"call","params":{{"server":"s","tool":"t","arguments":"{long}"}}}}"#),
            format!(r#"{{"method":"tools","params":{{"server":"s","detail":["{long}"]}}}}"#),
        ] {
            let answer = answer(&json).await;
            let error = answer["error"].as_str().unwrap_or_default();
            assert!(!error.is_empty() && error.len() < 400, "{:.200} {:.1000}", json, error);
        }
    }

    #[tokio::test]
    async fn a_saved_tool_is_confirmed_without_a_path_of_the_host() {
        let answer = answer(r#"{"params":{"source":"def f(): pass","name":"f"},"method":"save_tool"}"#).await;
        assert_eq!(answer, json!({ "ok": null }));
    }
}
