//! Tasks of the extension for protocol 2026-07-28: the bridge decides which calls become tasks, and `tasks/get` has the result.
//!
//! <https://modelcontextprotocol.io/extensions/tasks/overview>

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, CreateTaskResult, DetailedTask, ErrorData, GetTaskResult, InputRequest, InputResponses,
    ProtocolVersion, Task as TaskData, TaskPayload, TaskStatus,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use super::registry::Tasks;
use super::task::{Seen, Task};
use crate::upstream::Refusal;

/// A call that ends within this time is answered with its result.
const MOMENT: Duration = Duration::from_secs(1);
/// How often a client may look.
const POLL: u64 = 1_000;
/// The JSON-RPC code for a malformed question.
const INVALID_PARAMS: i32 = -32602;

/// Whether the client of a call takes a task in place of the result of a long run.
pub(in crate::server) fn wants_task(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
        && context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
}

/// Waits a moment for the result; returns the task if there is none.
pub(in crate::server) async fn task_or_result(
    tasks: &Tasks,
    task: Arc<Task>,
    context: &RequestContext<RoleServer>,
) -> CallToolResponse {
    let moment = tokio::time::sleep(MOMENT);
    tokio::pin!(moment);
    loop {
        let changed = task.changed();
        if let Some(result) = task.result() {
            tasks.remove(&task);
            return (*result).clone().into();
        }
        tokio::select! {
            () = changed => {}
            () = &mut moment => {
                return CallToolResponse::Task(CreateTaskResult::new(data_of(&task, &task.seen())));
            }
            () = context.ct.cancelled() => {
                // The answer is dropped.
                task.cancel();
                tasks.remove(&task);
                return CallToolResponse::Task(CreateTaskResult::new(data_of(&task, &task.seen())));
            }
        }
    }
}

/// # Errors
/// There is no such task.
pub(in crate::server) fn get_task(tasks: &Tasks, id: &str) -> Result<GetTaskResult, ErrorData> {
    let task = tasks.get(id)?;
    let seen = task.seen();
    let payload = match (seen.status, task.result()) {
        (TaskStatus::Completed, Some(result)) => match serde_json::to_value(&*result) {
            Ok(Value::Object(result)) => TaskPayload::Completed { result },
            _ => TaskPayload::Working,
        },
        (TaskStatus::InputRequired, _) => match requests_of(&task) {
            // All were malformed, and are answered.
            requests if requests.is_empty() => TaskPayload::Working,
            input_requests => TaskPayload::InputRequired { input_requests },
        },
        (TaskStatus::Cancelled, _) => TaskPayload::Cancelled,
        _ => TaskPayload::Working,
    };
    Ok(GetTaskResult::new(DetailedTask::new(data_of(&task, &seen), payload)))
}

/// Passes answers on.
///
/// # Errors
/// There is no such task.
pub(in crate::server) fn update_task(
    tasks: &Tasks,
    id: &str,
    answers: InputResponses,
) -> Result<(), ErrorData> {
    let task = tasks.get(id)?;
    for (key, answer) in answers {
        if let Some(number) = key.strip_prefix("question-").and_then(|number| number.parse().ok()) {
            task.answer(number, Ok(answer));
        }
    }
    Ok(())
}

/// # Errors
/// There is no such task.
pub(in crate::server) fn cancel_task(tasks: &Tasks, id: &str) -> Result<(), ErrorData> {
    tasks.get(id)?.cancel();
    Ok(())
}

fn data_of(task: &Task, seen: &Seen) -> TaskData {
    let ttl = u64::try_from(task.ttl.as_millis()).unwrap_or(u64::MAX);
    let data = TaskData::new(&*task.id, seen.status, task.created.to_string(), seen.updated.to_string())
        .with_ttl_ms(ttl)
        .with_poll_interval_ms(POLL);
    match &seen.message {
        Some(message) => data.with_status_message(message),
        None => data,
    }
}

/// Returns what a task asks, by the keys of the answers.
fn requests_of(task: &Task) -> BTreeMap<String, InputRequest> {
    let mut requests = BTreeMap::new();
    for (number, question) in task.questions() {
        let request = json!({ "method": question.method, "params": question.params });
        match serde_json::from_value(request) {
            Ok(request) => {
                requests.insert(format!("question-{number}"), request);
            }
            Err(error) => {
                let message = format!("'{}' is malformed: {error}", question.method);
                task.answer(number, Err(Refusal { code: INVALID_PARAMS, message, data: None }));
            }
        }
    }
    requests
}
