//! Requests that are made again and again, until their server has asked all that it needs to know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::model::{ClientRequest, ErrorCode, ErrorData};
use serde_json::{Map, Value, json};

use super::connection::Connection;
use super::inputs::{Inputs, needed, questions};
use super::outcome::CallOutcome;
use crate::upstream::error::UpstreamError;
use crate::upstream::options::CallOptions;
use crate::upstream::questions::Question;

/// How often a server may ask before its request has a result.
const MOST_ROUNDS: usize = 20;
/// How long to wait before a request is made again of which the server wants to know nothing.
const PAUSE: Duration = Duration::from_millis(100);

impl Connection {
    /// Makes a request as often as its server needs answers of the person, which `request` gets.
    pub(super) async fn ask_with_inputs(
        &self,
        method: &str,
        request: impl Fn(Option<Inputs>) -> ClientRequest,
        options: CallOptions<'_>,
        limit: Duration,
    ) -> Result<CallOutcome, UpstreamError> {
        let mut inputs = None;
        for _ in 0..MOST_ROUNDS {
            let outcome = self.ask(method, request(inputs.take()), options.again(), limit).await?;
            let Some(needed) = needed(&outcome) else { return Ok(outcome) };
            let deadline = Instant::now() + self.limit_of(&options, limit);
            let requests = questions(needed.input_requests);
            if requests.is_empty() {
                self.pause(method, &options).await?;
            }
            let responses = self.answers_to(requests, method, &options, deadline).await?;
            inputs = Some(Inputs { responses, state: needed.request_state });
        }
        Err(self.malformed(method, "it keeps asking and returns no result"))
    }

    async fn pause(&self, method: &str, options: &CallOptions<'_>) -> Result<(), UpstreamError> {
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => Ok(()),
            () = options.cancel.cancelled() => Err(self.cancelled(method)),
            () = self.parts.gone.cancelled() => Err(self.ended().await),
        }
    }

    /// Has the person answer questions; returns the answers by the keys of the questions.
    ///
    /// # Errors
    /// Nobody can answer one of them, or nobody has until the deadline. A form that nobody can show counts as closed.
    pub(super) async fn answers_to(
        &self,
        questions: BTreeMap<String, Value>,
        what: &str,
        options: &CallOptions<'_>,
        deadline: Instant,
    ) -> Result<Map<String, Value>, UpstreamError> {
        let limit = deadline.saturating_duration_since(Instant::now());
        let mut answers = Map::new();
        for (key, mut question) in questions {
            let method = question["method"].as_str().unwrap_or_default().to_owned();
            let params = question.get_mut("params").map(Value::take);
            let is_form = method == "elicitation/create";
            let question = Question { server: Arc::clone(&self.parts.server), method, params };
            let answer = tokio::select! {
                answer = options.answers.answer(question) => answer,
                () = options.cancel.cancelled() => return Err(self.cancelled(what)),
                () = self.parts.gone.cancelled() => return Err(self.ended().await),
                () = tokio::time::sleep_until(deadline.into()) => return Err(self.timed_out(what, limit)),
            };
            let answer = match answer {
                Ok(answer) => answer,
                Err(_) if is_form => json!({ "action": "cancel" }),
                Err(refusal) => {
                    let (code, message) = (ErrorCode(refusal.code), refusal.message);
                    return Err(self.refused(what, ErrorData::new(code, message, None)));
                }
            };
            answers.insert(key, answer);
        }
        Ok(answers)
    }
}
