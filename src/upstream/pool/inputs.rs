//! What a server has to know before a request has a result. By protocol 2026-07-28 it answers with questions, and the request is made
//! again with what the person has answered: <https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr>.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::model::{ClientRequest, ErrorCode, ErrorData};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::connection::Connection;
use super::outcome::CallOutcome;
use crate::mcp::bounds::Bounds;
use crate::upstream::error::UpstreamError;
use crate::upstream::options::CallOptions;
use crate::upstream::questions::Question;

/// How often a server may ask before its request has a result.
const MOST_ROUNDS: usize = 20;
/// How long to wait before a request is made again of which the server wants to know nothing.
const PAUSE: Duration = Duration::from_millis(100);
/// What is parsed of the questions of one answer.
const QUESTIONS: Bounds = Bounds { bytes: 1 << 20, values: 20_000 };
/// Bytes of what a server gives us to send back.
const LONGEST_STATE: usize = 1 << 20;

/// An answer that is no result yet.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Needed<'a> {
    result_type: Option<String>,
    #[serde(borrow, default)]
    input_requests: Option<&'a RawValue>,
    request_state: Option<String>,
}

/// What goes with a request that is made again.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Inputs {
    responses: Map<String, Value>,
    state: Option<String>,
}

impl Inputs {
    /// Adds them to the parameters of a request.
    pub(super) fn add_to(self, params: &mut Map<String, Value>) {
        if !self.responses.is_empty() {
            params.insert("inputResponses".into(), self.responses.into());
        }
        if let Some(state) = self.state {
            params.insert("requestState".into(), state.into());
        }
    }

    /// Returns them as the last members of an object, with the comma before them.
    pub(super) fn as_members(&self) -> String {
        let mut members = Map::new();
        self.clone().add_to(&mut members);
        let text = Value::from(members).to_string();
        match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(members) if !members.is_empty() => format!(",{members}"),
            _ => String::new(),
        }
    }
}

/// Returns the questions by their keys; none of what cannot be read.
pub(super) fn questions(raw: Option<&RawValue>) -> BTreeMap<String, Value> {
    let parsed = raw.and_then(|raw| QUESTIONS.parse(raw)).and_then(Result::ok);
    parsed.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
}

fn needed(outcome: &CallOutcome) -> Option<Needed<'_>> {
    let json = outcome.json.get();
    if json.len() > QUESTIONS.bytes + LONGEST_STATE || !json.contains("input_required") {
        return None;
    }
    let needed: Needed<'_> = serde_json::from_str(json).ok()?;
    (needed.result_type.as_deref() == Some("input_required")).then_some(needed)
}

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
        Err(self.malformed(method, "it has no result, but asks again and again"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_needs_is_told_from_a_result() {
        let of = |json: &str| CallOutcome::new(RawValue::from_string(json.into()).unwrap(), None);
        let outcome =
            of(r#"{"resultType":"input_required","inputRequests":{"a":{"method":"m"}},"requestState":"s"}"#);
        let found = needed(&outcome).unwrap();
        assert_eq!(questions(found.input_requests)["a"]["method"], "m");
        assert_eq!(found.request_state.as_deref(), Some("s"));
        for other in [
            r#"{"content":[{"type":"text","text":"input_required"}]}"#,
            r#"{"resultType":"complete","structuredContent":{"resultType":"input_required"}}"#,
            r#"["input_required"]"#,
        ] {
            assert!(needed(&of(other)).is_none(), "{other}");
        }
        let odd = of(r#"{"resultType":"input_required","inputRequests":[7]}"#);
        assert!(questions(needed(&odd).unwrap().input_requests).is_empty());
    }

    #[test]
    fn inputs_are_members_of_the_parameters() {
        let mut inputs = Inputs::default();
        assert_eq!(inputs.as_members(), "");
        inputs.responses.insert("a".into(), json!({ "action": "accept" }));
        inputs.state = Some("s\"".into());
        let members = r#","inputResponses":{"a":{"action":"accept"}},"requestState":"s\"""#;
        assert_eq!(inputs.as_members(), members);
    }
}
