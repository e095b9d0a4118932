//! What the server answers, request by request.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest, CustomResult,
    ErrorCode, ErrorData, Implementation, InitializeRequestParams, InitializeResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::arguments::{Timeouts, parse_arguments};
use super::client::Client;
use super::order::Turn;
use super::{Payload, progress, render, resources, tool};
use crate::session::{RunPython, RunRequest};
use crate::settings::{OutputMode, Settings};

/// The server of one connection.
#[derive(Debug)]
pub(super) struct Bridge<P> {
    sessions: Arc<P>,
    client: Arc<Client>,
    timeouts: Timeouts,
    output_mode: OutputMode,
}

impl<P: RunPython> Bridge<P> {
    pub(super) fn new(sessions: Arc<P>, client: Arc<Client>, settings: &Settings) -> Self {
        let timeouts = Timeouts { default: *settings.timeout, max: *settings.max_timeout };
        Self { sessions, client, timeouts, output_mode: *settings.output_mode }
    }

    async fn run(&self, request: RunRequest, context: RequestContext<RoleServer>) -> Payload {
        let (progress, events) = mpsc::channel(progress::QUEUE);
        // Boxed, because the type of this future would be nested too deep for the compiler.
        let run = Box::pin(self.sessions.run(request.clone(), progress, context.ct.clone()));
        let turn = context.extensions.get::<Turn>().cloned();
        let run = async move {
            match turn {
                Some(turn) => turn.start(run).await,
                None => run.await,
            }
        };
        let outcome = match context.meta.get_progress_token() {
            Some(token) => progress::reported(run, events, &context.peer, token, &context.ct).await,
            None => {
                drop(events);
                run.await
            }
        };
        Payload::new(&request, outcome)
    }

    fn result(&self, payload: &Payload) -> CallToolResult {
        let rendered = render(payload, self.output_mode);
        let content = vec![ContentBlock::text(rendered.text)];
        let mut result = match rendered.is_error {
            true => CallToolResult::error(content),
            false => CallToolResult::success(content),
        };
        result.structured_content = Some(rendered.structured);
        result
    }

    fn refusal(&self, message: String) -> CallToolResult {
        self.result(&Payload::validation_error(message))
    }
}

impl<P: RunPython> ServerHandler for Bridge<P> {
    #[expect(deprecated, reason = "clients of the versions before 2026-07-28 hear what servers log")]
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_logging().build();
        let server = Implementation::new("codebridge", env!("CARGO_PKG_VERSION")).with_title("codebridge");
        ServerConfig::new(capabilities).with_server_info(server)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let result = self.negotiate_initialize(&request)?;
        // Later requests are handled in the protocol that was agreed on, not in the one that was asked for.
        let mut client = request;
        client.protocol_version = result.protocol_version.clone();
        context.peer.set_peer_info(client);
        self.client.connected(&context.peer);
        Ok(result)
    }

    #[expect(deprecated, reason = "clients of the versions before 2026-07-28 may ask for it")]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if let Ok(Value::String(level)) = serde_json::to_value(request.level) {
            self.client.set_level(&level);
        }
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![tool::run_python(self.timeouts)]))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if call.name != tool::RUN_PYTHON {
            return Ok(self.refusal(format!("Unknown tool: {}", call.name)).into());
        }
        Ok(match parse_arguments(call.arguments.unwrap_or_default(), self.timeouts) {
            Ok(request) => self.result(&self.run(request, context).await),
            Err(message) => self.refusal(message),
        }
        .into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list(&*self.sessions)))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match resources::read(&*self.sessions, &request.uri) {
            Some(contents) => Ok(ReadResourceResult::new(vec![contents]).into()),
            None => {
                Err(ErrorData::resource_not_found("no such resource", Some(json!({ "uri": request.uri }))))
            }
        }
    }

    /// Also where requests of known methods end whose parameters do not fit.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        match request.method.as_str() {
            "tools/call" => {
                let name =
                    request.params.as_ref().and_then(|params| params.get("name")).and_then(Value::as_str);
                let refusal = match name {
                    Some(tool::RUN_PYTHON) | None => self.refusal("'arguments' must be an object".into()),
                    Some(other) => self.refusal(format!("Unknown tool: {other}")),
                };
                let refusal = serde_json::to_value(refusal)
                    .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                Ok(CustomResult::new(refusal))
            }
            "resources/read" => Err(ErrorData::invalid_params("malformed params of resources/read", None)),
            method => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("no method {method}"), None)),
        }
    }
}
