//! The client's side of what servers ask.

use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation,
    ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Map, Value, json};

use super::inbox::QUESTION;
use crate::upstream::questions::{Answers, Question};

/// The client's side of requests that come from the server.
#[derive(Debug, Clone)]
pub(super) struct Handler {
    server: Arc<str>,
    answers: Arc<dyn Answers>,
    config: ClientConfig,
}

impl Handler {
    pub(super) fn new(server: Arc<str>, answers: Arc<dyn Answers>) -> Self {
        let offers = answers.offers();
        let mut capabilities = Map::new();
        for (name, is_offered) in
            [("elicitation", offers.elicitation), ("sampling", offers.sampling), ("roots", offers.roots)]
        {
            if is_offered {
                capabilities.insert(name.into(), json!({}));
            }
        }
        let capabilities: ClientCapabilities =
            serde_json::from_value(Value::Object(capabilities)).unwrap_or_default();
        let us = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        // The newest version of all has no `initialize`.
        let config = ClientConfig::new(capabilities, us)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        Self { server, answers, config }
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.strip_prefix(QUESTION).unwrap_or(&request.method).to_owned();
        let question = Question { server: Arc::clone(&self.server), method, params: request.params };
        tokio::select! {
            answer = self.answers.answer(question) => match answer {
                Ok(value) => Ok(CustomResult::new(value)),
                Err(refusal) => Err(ErrorData::new(ErrorCode(refusal.code), refusal.message, refusal.data)),
            },
            () = context.ct.cancelled() => Err(ErrorData::internal_error("taken back", None)),
        }
    }
}
