//! Tasks of protocol 2025-11-25: the call asks for one, and `tasks/result` waits for its result.
//!
//! <https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks>

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CustomNotification, CustomRequest, ErrorData, ProtocolVersion, ServerNotification, TaskStatus, object,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};

use super::registry::Tasks;
use super::task::{Seen, Task};
use crate::server::peer_answers::PeerAnswers;
use crate::upstream::{Answers, ClientId, Question};

/// How often a client may look, and is told of progress.
const POLL: Duration = Duration::from_secs(1);
/// Names the task that a message belongs to.
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// What a client asks of its tasks.
#[derive(Debug)]
pub(in crate::server) enum Asked {
    Get(String),
    Result(String),
    Cancel(String),
    List,
}

/// Whether a client speaks this protocol.
pub(in crate::server) fn speaks(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version() == Some(ProtocolVersion::V_2025_11_25)
}

impl Asked {
    /// Returns None if a request is about something else.
    pub(in crate::server) fn by(request: &CustomRequest) -> Option<Result<Self, ErrorData>> {
        let make = match request.method.as_str() {
            "tasks/list" => return Some(Ok(Self::List)),
            "tasks/get" => Self::Get,
            "tasks/cancel" => Self::Cancel,
            "tasks/result" => Self::Result,
            _ => return None,
        };
        let id = request.params.as_ref().and_then(|params| params["taskId"].as_str());
        let malformed = || ErrorData::invalid_params("'taskId' must be a string", None);
        Some(id.map(|id| make(id.to_owned())).ok_or_else(malformed))
    }
}

/// Answers a request about tasks.
///
/// # Errors
/// There is no such task, or it has ended and cannot be cancelled.
pub(in crate::server) async fn answer(
    tasks: &Tasks,
    asked: Asked,
    client: ClientId,
    context: &RequestContext<RoleServer>,
) -> Result<Value, ErrorData> {
    match asked {
        Asked::Get(id) => Ok(state_of(&*tasks.get(&id)?)),
        Asked::List => {
            let tasks: Vec<Value> = tasks.list().iter().map(|task| state_of(task)).collect();
            Ok(json!({ "tasks": tasks }))
        }
        Asked::Cancel(id) => {
            let task = tasks.get(&id)?;
            match task.cancel() {
                true => Ok(state_of(&task)),
                false => Err(ErrorData::invalid_params("the task has ended: it cannot be cancelled", None)),
            }
        }
        Asked::Result(id) => result_of(&*tasks.get(&id)?, client, context).await,
    }
}

/// Returns the answer to a call that has become a task.
pub(in crate::server) fn begun(task: &Task) -> Value {
    json!({ "task": state_of(task) })
}

/// Returns a task as clients read it.
fn state_of(task: &Task) -> Value {
    let Seen { status, message, updated, is_error } = task.seen();
    let mut state = json!({
        "taskId": task.id,
        "status": if is_error && status == TaskStatus::Completed { TaskStatus::Failed } else { status },
        "createdAt": task.created.to_string(),
        "lastUpdatedAt": updated.to_string(),
        "ttl": u64::try_from(task.ttl.as_millis()).unwrap_or(u64::MAX),
        "pollInterval": u64::try_from(POLL.as_millis()).unwrap_or(u64::MAX),
    });
    if let Some(message) = message {
        state["statusMessage"] = message.into();
    }
    state
}

/// Waits for the result; asks the client meanwhile what servers ask.
async fn result_of(
    task: &Task,
    client: ClientId,
    context: &RequestContext<RoleServer>,
) -> Result<Value, ErrorData> {
    let related = json!({ RELATED: { "taskId": task.id } });
    let first = || task.questions().into_iter().next().map(|(key, _)| key);
    loop {
        if let Some(result) = task.result() {
            let mut result = serde_json::to_value(&*result)
                .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
            without_type(&mut result);
            result["_meta"][RELATED] = related[RELATED].clone();
            return Ok(result);
        }
        // Progress is no reason to withdraw a question.
        let before = first();
        let news = async {
            loop {
                let changed = task.changed();
                if task.result().is_some() || first() != before {
                    return;
                }
                changed.await;
            }
        };
        let asking = async {
            let _turn = task.asking.lock().await;
            match (task.questions().into_iter().next(), PeerAnswers::new(client, &context.peer)) {
                (Some((key, question)), Some(answers)) => {
                    let answer = answers.answer(about(&question, &related)).await;
                    task.answer(key, answer);
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
            () = asking => {}
            () = news => {}
        }
    }
}

/// Returns a question that names its task.
fn about(question: &Question, related: &Value) -> Question {
    let mut params = question.params.clone().unwrap_or_else(|| json!({}));
    if let Some(params) = params.as_object_mut() {
        let meta = params.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.extend(object(related.clone()));
        }
    }
    Question { params: Some(params), ..question.clone() }
}

/// Tells the client how a task goes on, until it has ended.
pub(in crate::server) async fn notify_changes(task: Arc<Task>, peer: Peer<RoleServer>) {
    let mut last = (TaskStatus::Working, None);
    loop {
        let changed = task.changed();
        let Seen { status, message, .. } = task.seen();
        let now = (status, message);
        if now != last {
            let params = Some(state_of(&task));
            let notification = CustomNotification::new("notifications/tasks/status", params);
            if peer.send_notification(ServerNotification::CustomNotification(notification)).await.is_err() {
                return;
            }
            last = now;
        }
        if status.is_terminal() {
            return;
        }
        changed.await;
        // A question or the end is news at once; of progress, the latest counts.
        if task.seen().status == TaskStatus::Working {
            let ended = async {
                loop {
                    let changed = task.changed();
                    if task.seen().status != TaskStatus::Working {
                        return;
                    }
                    changed.await;
                }
            };
            let _ = tokio::time::timeout(POLL, ended).await;
        }
    }
}

/// Returns the tools as older clients read them; some can call them as tasks.
pub(in crate::server) fn listed(mut list: Value, has_tasks: bool) -> Value {
    without_type(&mut list);
    for tool in list["tools"].as_array_mut().into_iter().flatten().filter(|_| has_tasks) {
        tool["execution"] = json!({ "taskSupport": "optional" });
    }
    list
}

/// Removes what older protocols do not know of a result.
fn without_type(result: &mut Value) {
    if let Some(result) = result.as_object_mut() {
        result.shift_remove("resultType");
    }
}
