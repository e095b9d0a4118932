//! Answers the requests of one client.

mod as_task;

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock, CustomRequest,
    CustomResult, ErrorCode, ErrorData, GetTaskParams, GetTaskResult, Implementation,
    InitializeRequestParams, InitializeResult, InputRequiredResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::arguments::{Asked, Timeouts, parse_arguments};
use super::guard::guarded;
use super::held::Held;
use super::logs::LogReceiver;
use super::offers::offers_of;
use super::payload::Payload;
use super::peer_answers::PeerAnswers;
use super::render::render;
use super::rounds::{Round, Rounds, Step};
use super::tasks::Tasks;
use super::{progress, resources, tasks, tool, viewer};
use crate::mcp::server::Turn;
use crate::session::{Authority, Caller, RunOutcome, RunPython, RunRequest};
use crate::settings::{OutputMode, Settings};
use crate::telemetry::TraceContext;
use crate::upstream::{Answers, ClientId, NoAnswers, Offers};

/// Returns what the client of a call can be asked by its result; None for one that is asked by requests, or answers nothing.
fn offers_by_result(context: &RequestContext<RoleServer>) -> Option<Offers> {
    let has_rounds = context.protocol_version()? >= ProtocolVersion::V_2026_07_28;
    let offers = offers_of(&context.client_capabilities()?);
    (has_rounds && offers != Offers::default()).then_some(offers)
}

/// Returns the trace that the client says its call belongs to.
fn trace_of(context: &RequestContext<RoleServer>) -> TraceContext {
    TraceContext::parse(context.meta.get_traceparent(), context.meta.get_tracestate())
}

/// Returns the name and the version of the client, as it says them.
fn client_of(context: &RequestContext<RoleServer>) -> Option<Arc<str>> {
    let of_peer = || context.peer.peer_info().map(|info| info.client_info.clone());
    let client = context.meta.client_info().or_else(of_peer)?;
    Some(format!("{} {}", client.name, client.version).into())
}

/// What a call says whose result has no space.
const UNREAD: &str = "the answer is left out: this user has not read answers of 64 MiB\nhint: read the answers of other calls first; what the code did is done";

/// Whether there is space for an answer until it is read.
async fn has_space(held: Option<Held>, answer: &impl Serialize) -> bool {
    match held {
        Some(held) => held.add_result(answer).await,
        None => true,
    }
}

/// Refuses a method that newer clients do not have.
fn only_before_2026_07_28(method: &str, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    match context.protocol_version() {
        Some(version) if version >= ProtocolVersion::V_2026_07_28 => {
            Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("no method {method}"), None))
        }
        _ => Ok(()),
    }
}

fn has_viewer(context: &RequestContext<RoleServer>) -> bool {
    context.client_capabilities().is_some_and(|capabilities| viewer::is_shown_by(&capabilities))
}

/// Returns what a result says of its call. Code can be long.
fn without_code(asked: &Asked) -> RunRequest {
    let (Asked::Run(request) | Asked::Background(request)) = asked else {
        let (code, servers, session) = (String::new(), Vec::new(), String::new());
        // How long a look waits is not how long its run may take.
        return RunRequest { code, servers, timeout: Duration::ZERO, session, clamped: None };
    };
    let RunRequest { servers, timeout, session, clamped, .. } = request;
    let (servers, session) = (servers.clone(), session.clone());
    RunRequest { code: String::new(), servers, timeout: *timeout, session, clamped: *clamped }
}

/// Does what a call asks for.
async fn perform<P: RunPython>(sessions: &P, asked: Asked, caller: Caller) -> RunOutcome {
    match asked {
        Asked::Run(request) => sessions.run(request, caller).await,
        Asked::Background(request) => sessions.start(request, caller).await,
        Asked::Look(look) => sessions.look(look, caller).await,
    }
}

/// Runs a call in the order in which calls were read. The notes are on its arguments.
async fn in_turn(
    turn: Option<Turn>,
    notes: Vec<String>,
    run: impl Future<Output = RunOutcome>,
) -> RunOutcome {
    let mut outcome = match turn {
        Some(turn) => turn.start(run).await,
        None => run.await,
    };
    outcome.notices.splice(0..0, notes);
    outcome
}

/// The server of one connection.
#[derive(Debug)]
pub(super) struct McpHandler<P> {
    sessions: Arc<P>,
    id: ClientId,
    logs: LogReceiver,
    rounds: Arc<Rounds>,
    tasks: Arc<Tasks>,
    timeouts: Timeouts,
    output_mode: OutputMode,
    authority: Authority,
}

impl<P: RunPython> McpHandler<P> {
    /// Returns the server of a client. Its calls that wait for answers are among `rounds`, those that it does not wait for among
    /// `tasks`.
    pub(super) fn new(
        sessions: Arc<P>,
        logs: LogReceiver,
        (rounds, tasks): (Arc<Rounds>, Arc<Tasks>),
        settings: &Settings,
    ) -> Self {
        let max = &settings.max_timeout;
        let background = &settings.max_background;
        let timeouts = Timeouts {
            default: *settings.timeout,
            max: **max,
            max_from: max.origin,
            background: **background,
            background_from: background.origin,
        };
        let id = ClientId::next();
        let (output_mode, authority) = (*settings.output_mode, Authority::default());
        Self { sessions, id, logs, rounds, tasks, timeouts, output_mode, authority }
    }

    /// Returns the same, for a client whose calls end with what it makes them with.
    pub(super) fn with_authority(self, authority: Authority) -> Self {
        Self { authority, ..self }
    }

    async fn run(
        &self,
        asked: Asked,
        notes: Vec<String>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let (progress, mut events) = mpsc::channel(progress::QUEUE);
        let answers: Arc<dyn Answers> = match PeerAnswers::new(self.id, &context.peer) {
            Some(answers) => Arc::new(answers),
            None => Arc::new(NoAnswers(self.id)),
        };
        let caller = Caller {
            progress,
            answers,
            cancel: context.ct.clone(),
            script: None,
            trace: trace_of(&context),
            client: client_of(&context),
            authority: self.authority.clone(),
            unattended: None,
            until_end: false,
        };
        // Boxed, because the type of this future would be nested too deep for the compiler.
        let about = without_code(&asked);
        let run = Box::pin(perform(&*self.sessions, asked, caller));
        let run = in_turn(context.extensions.get::<Turn>().cloned(), notes, run);
        let outcome = progress::forward_progress(run, &mut events, &context).await;
        self.result(&Payload::new(&about, outcome))
    }

    /// Begins a call whose client can be asked by its result.
    fn begin(
        &self,
        asked: Asked,
        notes: Vec<String>,
        offers: Offers,
        context: &RequestContext<RoleServer>,
    ) -> Round {
        let (sessions, turn) = (Arc::clone(&self.sessions), context.extensions.get::<Turn>().cloned());
        let (trace, client) = (trace_of(context), client_of(context));
        // The code goes on between its rounds, and its request is held for as long.
        let held = Held::of(&context.extensions);
        let authority = self.authority.clone();
        Round::begin(without_code(&asked), self.id, offers, (trace, client), authority, |caller| {
            tokio::spawn(async move {
                let _held = held;
                in_turn(turn, notes, Box::pin(perform(&*sessions, asked, caller))).await
            })
        })
    }

    /// Resumes such a call until it ends or the client has to answer a question.
    async fn resume_round(&self, mut round: Round, context: RequestContext<RoleServer>) -> CallToolResponse {
        let step = round.running.step(&context.ct);
        match progress::forward_progress(step, &mut round.events, &context).await {
            Step::Done(outcome) => self.result(&Payload::new(&round.request, *outcome)).into(),
            Step::Asks(questions) => {
                let name = self.rounds.pause(round);
                InputRequiredResult::new(Some(questions), Some(name)).into()
            }
        }
    }

    async fn call(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if call.name != tool::RUN_PYTHON {
            return Ok(self.refusal(format!("Unknown tool: {}", call.name)).into());
        }
        if let Some(name) = &call.request_state {
            let round = self.rounds.resume(name, call.input_responses.unwrap_or_default());
            return Ok(match round {
                Some(round) => self.resume_round(round, context).await,
                None => self.refusal("no call waits for these answers: make the call again".into()).into(),
            });
        }
        let (asked, notes) = parse_arguments(call.arguments.unwrap_or_default(), self.timeouts);
        let asked = match asked {
            Ok(asked) => asked,
            Err(message) => {
                let refused = Payload { notices: notes, ..Payload::validation_error(message) };
                return Ok(self.result(&refused).into());
            }
        };
        if matches!(asked, Asked::Background(_)) && tasks::wants_task(&context) {
            let task = self.begin_task(asked, notes, None, &context);
            return Ok(tasks::task_or_result(&self.tasks, task, &context).await);
        }
        Ok(match offers_by_result(&context) {
            Some(offers) => self.resume_round(self.begin(asked, notes, offers, &context), context).await,
            None => self.run(asked, notes, context).await.into(),
        })
    }

    fn result(&self, payload: &Payload) -> CallToolResult {
        render(payload, self.output_mode)
    }

    fn refusal(&self, message: String) -> CallToolResult {
        self.result(&Payload::validation_error(message))
    }
}

impl<P: RunPython> ServerHandler for McpHandler<P> {
    #[expect(deprecated, reason = "clients of the versions before 2026-07-28 get log messages")]
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_logging()
            .enable_tasks()
            .build();
        let server = Implementation::new("codebridge", env!("CARGO_PKG_VERSION")).with_title("codebridge");
        ServerConfig::new(capabilities).with_server_info(server).with_instructions(tool::INSTRUCTIONS)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let result = self.negotiate_initialize(&request)?;
        // Later requests are handled in the agreed protocol, not in the requested one.
        let mut client = request;
        client.protocol_version = result.protocol_version.clone();
        context.peer.set_peer_info(client);
        self.logs.connected(&context.peer);
        Ok(result)
    }

    #[expect(deprecated, reason = "clients of the versions before 2026-07-28 may set it")]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        only_before_2026_07_28("logging/setLevel", &context)?;
        if let Ok(Value::String(level)) = serde_json::to_value(request.level) {
            self.logs.set_level(&level);
        }
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = tool::run_python(self.timeouts);
        let tool = if has_viewer(&context) { viewer::with_viewer(tool) } else { tool };
        Ok(ListToolsResult::with_all_items(vec![tool]))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let held = Held::of(&context.extensions);
        let answer = guarded(self.call(call, context)).await?;
        match &answer {
            CallToolResponse::Complete(result) if !has_space(held, result).await => {
                Ok(CallToolResult::error(vec![ContentBlock::text(format!("error: {UNREAD}"))]).into())
            }
            _ => Ok(answer),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        guarded(async {
            let mut resources = resources::list(&*self.sessions);
            resources.extend(has_viewer(&context).then(viewer::resource));
            Ok(ListResourcesResult::with_all_items(resources))
        })
        .await
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
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri == viewer::URI {
            return Ok(ReadResourceResult::new(vec![viewer::contents()]).into());
        }
        let reading = guarded(async { Ok(resources::read(&*self.sessions, &request.uri).await) });
        match reading.await? {
            Ok(contents) => {
                let contents = ReadResourceResult::new(contents);
                match has_space(Held::of(&context.extensions), &contents).await {
                    true => Ok(contents.into()),
                    false => Err(ErrorData::internal_error(UNREAD, None)),
                }
            }
            Err(why) => Err(ErrorData::resource_not_found(why, Some(json!({ "uri": request.uri })))),
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        tasks::get_task(&self.tasks, &request.task_id)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::update_task(&self.tasks, &request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::cancel_task(&self.tasks, &request.task_id)
    }

    /// Also gets requests of known methods whose parameters do not fit.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let unread = guarded(async { self.answer_unread(&request, &context).await.transpose() });
        if let Some(answer) = unread.await? {
            return match has_space(Held::of(&context.extensions), &answer).await {
                true => Ok(CustomResult::new(answer)),
                false => Err(ErrorData::internal_error(UNREAD, None)),
            };
        }
        let method = request.method.as_str();
        match method {
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
            "logging/setLevel" => {
                only_before_2026_07_28(method, &context)?;
                Err(ErrorData::invalid_params(format!("malformed params of {method}"), None))
            }
            "resources/read" | "completion/complete" | "tasks/get" | "tasks/update" | "tasks/cancel" => {
                Err(ErrorData::invalid_params(format!("malformed params of {method}"), None))
            }
            _ => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("no method {method}"), None)),
        }
    }
}
