//! Tools that answer with a task: it is awaited, so that its call has a result like any other.
//!
//! There are two forms. Of protocol 2025-11-25, where the call asks for a task and `tasks/result` has the result:
//! <https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks>. And of the extension for 2026-07-28, where
//! the server decides and `tasks/get` has the result.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, CustomRequest, ErrorData};
use rmcp::service::{Peer, PeerRequestOptions};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::connection::Connection;
use super::inputs::questions;
use super::outcome::CallOutcome;
use crate::mcp::bounds::Bounds;
use crate::mcp::client::ServerProgress;
use crate::upstream::error::UpstreamError;
use crate::upstream::options::CallOptions;

/// Bytes of an answer that may be a task.
const LARGEST: usize = 64 << 10;
/// Bytes of the id of a task.
const LONGEST_ID: usize = 4 << 10;
/// How soon a task is looked at, and how often at most and at least.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Characters of a status.
const LONGEST_STATUS: usize = 1_000;

/// The answer to a call that has become a task.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Created<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    /// Of the older form.
    task: Option<CreatedTask>,
    /// Of the newer form.
    result_type: Option<String>,
    task_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreatedTask {
    task_id: String,
}

/// What a server says of a task.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskState<'a> {
    status: String,
    #[serde(default)]
    status_message: Option<String>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input_requests: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "pollIntervalMs")]
    poll_interval: Option<&'a RawValue>,
}

/// Which of the two forms a task has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Older,
    Newer,
}

/// Returns the form and the id of the task that a call has become; None if it has a result.
fn created(outcome: &CallOutcome) -> Option<(Form, String)> {
    let json = outcome.json.get();
    if json.len() > LARGEST || !json.contains("taskId") {
        return None;
    }
    let Created { content: None, task, result_type, task_id } = serde_json::from_str(json).ok()? else {
        return None;
    };
    let (form, id) = match (task, result_type.as_deref(), task_id) {
        (Some(task), ..) => (Form::Older, task.task_id),
        (None, Some("task"), Some(id)) => (Form::Newer, id),
        _ => return None,
    };
    (id.len() <= LONGEST_ID).then_some((form, id))
}

/// A task that its server goes on with, until it has a result or is dropped.
struct Running<'a> {
    connection: &'a Connection,
    tool: &'a str,
    form: Form,
    id: String,
    deadline: Instant,
    limit: Duration,
    has_ended: bool,
}

impl Connection {
    /// Whether a tool has to be called as a task.
    pub(super) fn is_task(&self, tool: &str) -> bool {
        let listing = self.last_tools();
        let listed = listing.as_ref().and_then(|listing| listing.tools.get(tool));
        let support = listed.and_then(|tool| tool.raw.get("execution")?.get("taskSupport")?.as_str());
        support == Some("required")
    }

    /// Returns the result of a call, which may have become a task.
    pub(super) async fn result_of(
        &self,
        tool: &str,
        outcome: CallOutcome,
        options: CallOptions<'_>,
        (begun, limit): (Instant, Duration),
    ) -> Result<CallOutcome, UpstreamError> {
        let Some((form, id)) = created(&outcome) else { return Ok(outcome) };
        let limit = self.parts.definition.call_timeout.unwrap_or(limit.max(options.at_least));
        let deadline = begun + limit;
        let mut running = Running { connection: self, tool, form, id, deadline, limit, has_ended: false };
        // A server may ask as during any other call.
        let _call = self.parts.calls.begin(&options.answers);
        let outcome = running.wait(&options).await;
        running.has_ended = !matches!(
            outcome,
            Err(UpstreamError::TimedOut { .. }
                | UpstreamError::Cancelled { .. }
                | UpstreamError::Malformed { .. })
        );
        outcome
    }
}

impl Running<'_> {
    async fn wait(&self, options: &CallOptions<'_>) -> Result<CallOutcome, UpstreamError> {
        let (mut pause, mut steps, mut last) = (FIRST_PAUSE, 0.0, None);
        let mut answered = HashSet::new();
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            tokio::select! {
                () = tokio::time::sleep(pause.min(left)) => {}
                () = options.cancel.cancelled() => return Err(self.connection.cancelled(self.tool)),
                () = self.connection.parts.gone.cancelled() => return Err(self.connection.ended().await),
            }
            if left <= pause {
                return Err(self.connection.timed_out(self.tool, self.limit));
            }
            let answer = self.ask("tasks/get", json!({}), options).await?;
            let state: TaskState<'_> = serde_json::from_str(answer.json.get())
                .map_err(|error| self.malformed(&error.to_string()))?;
            if let (Some(message), Some(progress)) = (&state.status_message, &options.progress)
                && last.as_ref() != Some(message)
            {
                steps += 1.0;
                let text = message.chars().take(LONGEST_STATUS).collect();
                // A receiver that is slower than the server misses some.
                let _ =
                    progress.try_send(ServerProgress { progress: steps, total: None, message: Some(text) });
                last = Some(message.clone());
            }
            match (state.status.as_str(), self.form) {
                // It waits until there is a result, and lets the server ask meanwhile.
                ("completed" | "failed" | "input_required", Form::Older) => {
                    return self.ask("tasks/result", json!({}), options).await;
                }
                ("completed", Form::Newer) => {
                    let result = state.result.ok_or_else(|| self.malformed("the task has no result"))?;
                    return Ok(CallOutcome::new(result.to_owned(), None));
                }
                ("failed", Form::Newer) => return Err(self.failed(state.error)),
                ("cancelled", _) => return Err(self.failed(None)),
                ("input_required", Form::Newer) => {
                    self.answer(state.input_requests, &mut answered, options).await?
                }
                _ => {}
            }
            let interval = state.poll_interval.and_then(|raw| raw.get().parse::<f64>().ok());
            let interval =
                interval.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()).unwrap_or(LONGEST_PAUSE);
            pause = (2 * pause).min(interval.clamp(FIRST_PAUSE, LONGEST_PAUSE));
        }
    }

    /// Sends a request about the task.
    async fn ask(
        &self,
        method: &str,
        mut params: Value,
        options: &CallOptions<'_>,
    ) -> Result<CallOutcome, UpstreamError> {
        params["taskId"] = Value::from(self.id.as_str());
        let request = ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)));
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.connection.ask_within(method, request, options.again(), left).await {
            Err(UpstreamError::TimedOut { .. }) => Err(self.connection.timed_out(self.tool, self.limit)),
            answer => answer,
        }
    }

    /// Has the person answer what the task asks, and passes the answers on.
    async fn answer(
        &self,
        requests: Option<&RawValue>,
        answered: &mut HashSet<String>,
        options: &CallOptions<'_>,
    ) -> Result<(), UpstreamError> {
        let mut requests = questions(requests);
        requests.retain(|key, _| answered.insert(key.clone()));
        if requests.is_empty() {
            return Ok(());
        }
        let responses = self.connection.answers_to(requests, self.tool, options, self.deadline).await?;
        self.ask("tasks/update", json!({ "inputResponses": responses }), options).await.map(|_| ())
    }

    /// Returns the error of a task that has failed, or was cancelled at its server.
    fn failed(&self, error: Option<&RawValue>) -> UpstreamError {
        let error = error.and_then(|raw| Bounds::SMALL.parse(raw)).and_then(Result::ok);
        let error = error.and_then(|value| serde_json::from_value::<ErrorData>(value).ok());
        let cancelled = || ErrorData::internal_error("the server ended the task without a result", None);
        self.connection.refused(self.tool, error.unwrap_or_else(cancelled))
    }

    fn malformed(&self, why: &str) -> UpstreamError {
        self.connection.malformed(self.tool, why)
    }
}

impl Drop for Running<'_> {
    /// Tells the server that nobody waits for the task.
    fn drop(&mut self) {
        if self.has_ended || self.connection.has_gone() {
            return;
        }
        let params = json!({ "taskId": self.id });
        tokio::spawn(cancel(self.connection.peer.clone(), params));
    }
}

async fn cancel(peer: Peer<RoleClient>, params: Value) {
    let request = ClientRequest::CustomRequest(CustomRequest::new("tasks/cancel", Some(params)));
    // Whatever the server answers, nobody needs it.
    if let Ok(sent) = peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await {
        let _ = tokio::time::timeout(LONGEST_PAUSE, sent.await_response()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form_of(json: &str) -> Option<(Form, String)> {
        created(&CallOutcome::new(RawValue::from_string(json.into()).unwrap(), None))
    }

    #[test]
    fn a_task_is_told_from_a_result() {
        let older = r#"{"task":{"taskId":"7","status":"working"}}"#;
        assert_eq!(form_of(older), Some((Form::Older, "7".into())));
        let newer = r#"{"resultType":"task","taskId":"8","status":"working","ttlMs":null}"#;
        assert_eq!(form_of(newer), Some((Form::Newer, "8".into())));
        for other in [
            r#"{"content":[],"task":{"taskId":"7"}}"#,
            r#"{"content":[{"type":"text","text":"taskId"}]}"#,
            r#"{"taskId":"8"}"#,
            r#"{"task":{"taskId":7}}"#,
            r#"["taskId"]"#,
        ] {
            assert_eq!(form_of(other), None, "{other}");
        }
    }
}
