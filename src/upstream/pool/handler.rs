//! Answers what a server asks over its connection.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation,
    ProtocolVersion, RequestId, ServerJsonRpcMessage, ServerRequest, TASKS_EXTENSION_ID,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Map, Value, json};

use crate::mcp::client::{Questions, RawQuestion};
use crate::upstream::questions::{Answers, CallNumber, CallerGuard, Callers, Question, Refusal};

/// The bridge's side of one connection.
#[derive(Debug, Clone)]
pub(super) struct Handler {
    server: Arc<str>,
    /// The runs under way in the workspace.
    runs: Callers,
    config: ClientConfig,
    calls: Calls,
    /// Where the questions are that `rmcp` only has the ids of.
    questions: Questions,
}

impl Handler {
    /// `knows_tasks`: whether the server may answer calls with tasks of its own accord.
    pub(super) fn new(
        server: Arc<str>,
        runs: Callers,
        calls: Calls,
        questions: Questions,
        knows_tasks: bool,
    ) -> Self {
        let offers = runs.offers();
        let mut capabilities = Map::new();
        if knows_tasks {
            capabilities.insert("extensions".into(), json!({ TASKS_EXTENSION_ID: {} }));
        }
        for (name, is_offered) in
            [("elicitation", offers.elicitation), ("sampling", offers.sampling), ("roots", offers.roots)]
        {
            if is_offered {
                capabilities.insert(name.into(), json!({}));
            }
        }
        if offers.elicitation_by_url {
            // A client that names no kinds means forms.
            let mut kinds = json!({ "url": {} });
            if offers.elicitation {
                kinds["form"] = json!({});
            }
            capabilities.insert("elicitation".into(), kinds);
        }
        let capabilities: ClientCapabilities =
            serde_json::from_value(Value::Object(capabilities)).unwrap_or_default();
        let us = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        // The latest version has no `initialize`.
        let config = ClientConfig::new(capabilities, us)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        Self { server, runs, config, calls, questions }
    }
}

/// Pages of a server that are remembered until they have done their work.
const MOST_PAGES: usize = 32;

/// The calls under way on one connection, and which of them a question belongs to.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls(Arc<CallsInner>);

#[derive(Debug, Default)]
struct CallsInner {
    callers: Callers,
    /// The calls on whose streams questions came, until those are handled.
    origins: Mutex<HashMap<RequestId, CallNumber>>,
    /// The pages that the server has shown, and to whom, the oldest first.
    pages: Mutex<VecDeque<(String, Arc<dyn Answers>)>>,
}

/// Rides on the request of a call to where its stream is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallOrigin(CallNumber);

/// A call under way, as long as it lives.
pub(super) struct Call<'a> {
    calls: &'a Calls,
    guard: CallerGuard,
}

impl Calls {
    pub(super) fn begin(&self, answers: &Arc<dyn Answers>) -> Call<'_> {
        Call { calls: self, guard: self.0.callers.enter(answers, None) }
    }

    /// Remembers that the questions among these messages came on the stream of a call.
    pub(super) fn came_with(&self, origin: CallOrigin, messages: &[ServerJsonRpcMessage]) {
        for message in messages {
            if let ServerJsonRpcMessage::Request(request) = message
                && !matches!(request.request, ServerRequest::PingRequest(_))
            {
                self.origins().insert(request.id.clone(), origin.0);
            }
        }
    }

    /// Remembers who is shown a page, if a question is one.
    fn shows(&self, question: &Question, to: &Arc<dyn Answers>) {
        let params = question.params.as_ref().filter(|params| params["mode"] == "url");
        let Some(id) = params.and_then(|params| params["elicitationId"].as_str()) else { return };
        let mut pages = self.pages();
        if pages.len() >= MOST_PAGES {
            pages.pop_front();
        }
        pages.push_back((id.to_owned(), Arc::clone(to)));
    }

    /// Tells whoever was shown a page that it has done its work.
    pub(super) fn page_done(&self, id: &str) {
        let mut pages = self.pages();
        let Some(at) = pages.iter().position(|(shown, _)| shown == id) else { return };
        let shown = pages.remove(at);
        drop(pages);
        if let Some((id, answers)) = shown {
            answers.page_done(&id);
        }
    }

    fn pages(&self) -> MutexGuard<'_, VecDeque<(String, Arc<dyn Answers>)>> {
        self.0.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn origins(&self) -> MutexGuard<'_, HashMap<RequestId, CallNumber>> {
        self.0.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call<'_> {
    pub(super) fn origin(&self) -> CallOrigin {
        CallOrigin(self.guard.number)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let number = self.guard.number;
        self.calls.origins().retain(|_, origin| *origin != number);
    }
}

impl Handler {
    /// Asks the client whose call caused the question.
    ///
    /// Over streamable HTTP a question comes on the stream of its call. Over other transports nothing ties it to a call: when
    /// all calls under way on the connection are of one client, it is asked. Otherwise the question is refused, because the
    /// wrong client would see it. A server that asks before its first call, as many do once they are started, reaches the
    /// client of the runs that may call it.
    async fn ask(&self, origin: Option<CallNumber>, question: Question) -> Result<Value, Refusal> {
        let calls = &self.calls.0.callers;
        let of_connection = match origin {
            Some(call) => Some(calls.caller_of(call).ok_or_else(Refusal::call_ended)?),
            None => calls.caller_for(&question)?,
        };
        let (callers, caller) = match of_connection {
            Some(caller) => (calls, caller),
            None => {
                let caller = self.runs.caller_for(&question)?;
                (&self.runs, caller.ok_or_else(|| Refusal::no_call(&question.method))?)
            }
        };
        self.calls.shows(&question, &caller);
        tokio::select! {
            answer = caller.answer(question) => answer,
            // Not every server withdraws a question when its call is cancelled.
            () = callers.ended(origin, caller.client()) => Err(Refusal::call_ended()),
        }
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn on_custom_request(
        &self,
        _: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        let origin = self.calls.origins().remove(&context.id);
        let RawQuestion { method, params, share: _share } = self.questions.take(&context.id)?;
        let question = Question { server: Arc::clone(&self.server), method, params };
        tokio::select! {
            answer = self.ask(origin, question) => match answer {
                Ok(value) => Ok(CustomResult::new(value)),
                Err(refusal) => Err(ErrorData::new(ErrorCode(refusal.code), refusal.message, refusal.data)),
            },
            () = context.ct.cancelled() => Err(ErrorData::internal_error("the question was withdrawn", None)),
        }
    }
}
