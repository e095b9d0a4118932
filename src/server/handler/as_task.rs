//! Calls as tasks, and the requests of protocol 2025-11-25 that `rmcp` does not know.

use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, CustomRequest, ErrorData, ServerResult};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{McpHandler, client_of, in_turn, perform, trace_of, without_code};
use crate::mcp::server::{TaskCall, Turn};
use crate::server::arguments::{Asked, parse_arguments};
use crate::server::held::Held;
use crate::server::offers::offers_of;
use crate::server::payload::Payload;
use crate::server::render::render;
use crate::server::tasks::{self, Task, TaskAnswers};
use crate::server::{progress, tool};
use crate::session::{Caller, RunPython};

fn json_of(answer: impl Serialize) -> Result<Value, ErrorData> {
    serde_json::to_value(answer).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

impl<P: RunPython> McpHandler<P> {
    /// Answers a request that `rmcp` does not read: about tasks, or one whose answer says something of tasks. None for others.
    pub(super) async fn answer_unread(
        &self,
        request: &CustomRequest,
        context: &RequestContext<RoleServer>,
    ) -> Option<Result<Value, ErrorData>> {
        let has_tasks = tasks::speaks(context);
        if has_tasks && let Some(asked) = tasks::Asked::by(request) {
            return Some(match asked {
                Ok(asked) => tasks::answer(&self.tasks, asked, self.id, context).await,
                Err(malformed) => Err(malformed),
            });
        }
        match request.method.as_str() {
            "tools/list" => {
                let list = self.list_tools(None, context.clone()).await.and_then(json_of);
                Some(list.map(|list| tasks::listed(list, has_tasks)))
            }
            "tools/call" => {
                let task = TaskCall::of(&context.extensions)?;
                let call = serde_json::from_value::<CallToolRequestParams>(request.params.clone()?).ok()?;
                Some(match has_tasks {
                    true => self.call_as_task(call, &task, context),
                    // A session of an older protocol, which has no tasks.
                    false => self.call_tool(call, context.clone()).await.and_then(|answer| {
                        let mut answer = ServerResult::from(answer);
                        answer.strip_result_type_for_legacy_peer();
                        json_of(answer)
                    }),
                })
            }
            _ => None,
        }
    }

    /// Begins a call that its client wants as a task.
    ///
    /// # Errors
    /// The call is malformed; nothing was started.
    fn call_as_task(
        &self,
        call: CallToolRequestParams,
        wanted: &TaskCall,
        context: &RequestContext<RoleServer>,
    ) -> Result<Value, ErrorData> {
        let malformed = |why: String| ErrorData::invalid_params(why, None);
        if call.name != tool::RUN_PYTHON {
            return Err(malformed(format!("Unknown tool: {}", call.name)));
        }
        let ttl = "'task' must be an object, and its 'ttl' a number of milliseconds";
        let ttl = wanted.ttl().ok_or_else(|| malformed(ttl.into()))?;
        let (asked, notes) = parse_arguments(call.arguments.unwrap_or_default(), self.timeouts);
        let task = self.begin_task(asked.map_err(malformed)?, notes, ttl, context);
        tokio::spawn(tasks::notify_changes(Arc::clone(&task), context.peer.clone()));
        Ok(tasks::begun(&task))
    }

    /// Begins a call that its client does not wait for.
    pub(super) fn begin_task(
        &self,
        asked: Asked,
        notes: Vec<String>,
        ttl: Option<u64>,
        context: &RequestContext<RoleServer>,
    ) -> Arc<Task> {
        let offers = context.client_capabilities().map(|can| offers_of(&can)).unwrap_or_default();
        let cancel = self.authority.child_token();
        let task = self.tasks.add(ttl, cancel.clone());
        let (progress, events) = mpsc::channel(progress::QUEUE);
        let caller = Caller {
            progress,
            answers: Arc::new(TaskAnswers { client: self.id, offers, task: Arc::clone(&task) }),
            cancel,
            script: None,
            trace: trace_of(context),
            client: client_of(context),
            authority: self.authority.clone(),
            until_end: true,
            unattended: None,
        };
        let (sessions, following) = (Arc::clone(&self.sessions), Arc::clone(&task));
        let tasks = Arc::clone(&self.tasks);
        let (turn, held) = (context.extensions.get::<Turn>().cloned(), Held::of(&context.extensions));
        let (about, mode) = (without_code(&asked), self.output_mode);
        tokio::spawn(async move {
            // The code is in memory for as long.
            let _held = held;
            let run = in_turn(turn, notes, Box::pin(perform(&*sessions, asked, caller)));
            let render = |outcome| {
                let payload = Payload::new(&about, outcome);
                (payload.summary.clone(), render(&payload, mode))
            };
            following.follow(run, events, render).await;
            tasks.trim();
        });
        task
    }
}
