//! The client's side of what servers ask.

use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation,
    ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::mcp::client::Questions;
use crate::upstream::questions::{Answers, Question};

/// The client's side of requests that come from the server.
#[derive(Debug, Clone)]
pub(super) struct Handler {
    server: Arc<str>,
    answers: Arc<dyn Answers>,
    config: ClientConfig,
    calls: Calls,
    /// Where the questions are that `rmcp` only has the ids of.
    questions: Questions,
}

impl Handler {
    pub(super) fn new(
        server: Arc<str>,
        answers: Arc<dyn Answers>,
        calls: Calls,
        questions: Questions,
    ) -> Self {
        let offers = answers.offers();
        let mut capabilities = Map::new();
        for (name, is_offered) in
            [("elicitation", offers.elicitation), ("sampling", offers.sampling), ("roots", offers.roots)]
        {
            if is_offered {
                capabilities.insert(name.into(), json!({}));
            }
        }
        if offers.elicitation_by_url {
            // Without a word on its kinds, forms are meant.
            let mut kinds = json!({ "url": {} });
            if offers.elicitation {
                kinds["form"] = json!({});
            }
            capabilities.insert("elicitation".into(), kinds);
        }
        let capabilities: ClientCapabilities =
            serde_json::from_value(Value::Object(capabilities)).unwrap_or_default();
        let us = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        // The newest version of all has no `initialize`.
        let config = ClientConfig::new(capabilities, us)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        Self { server, answers, config, calls, questions }
    }
}

/// The calls of tools under way on one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls(Arc<watch::Sender<usize>>);

/// One of them, as long as it lives.
pub(super) struct Call<'a>(&'a Calls);

impl Calls {
    pub(super) fn begin(&self) -> Call<'_> {
        self.0.send_modify(|count| *count += 1);
        Call(self)
    }

    /// Waits until none is under way any more; for ever, when there is none now.
    async fn over(&self) {
        let mut count = self.0.subscribe();
        if *count.borrow_and_update() == 0 || count.wait_for(|count| *count == 0).await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
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
        let Some((method, params)) = self.questions.take(&context.id) else {
            return Err(ErrorData::internal_error("the question was answered already", None));
        };
        let question = Question { server: Arc::clone(&self.server), method, params };
        tokio::select! {
            answer = self.answers.answer(question) => match answer {
                Ok(value) => Ok(CustomResult::new(value)),
                Err(refusal) => Err(ErrorData::new(ErrorCode(refusal.code), refusal.message, refusal.data)),
            },
            () = context.ct.cancelled() => Err(ErrorData::internal_error("taken back", None)),
            // Servers ask for the sake of a call, and not all of them take a question back with it.
            () = self.calls.over() => Err(ErrorData::internal_error("the call that it was asked for is over", None)),
        }
    }
}
