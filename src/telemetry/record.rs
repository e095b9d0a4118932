//! Records runs, calls and what else happens. With telemetry off, each of these is a look at a `None`.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use codebridge_runtimes::exec::visible_line;
use opentelemetry::KeyValue;
use opentelemetry::metrics::UpDownCounter;
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, Tracer};
use opentelemetry_sdk::trace::Span;
use tokio::runtime::Handle;

use super::context::TraceContext;
use super::facts::{Failed, RunEnd, Transport};
use super::instruments::Instruments;
use super::pipeline::Pipeline;
use super::plan::{Plan, PlanError, parent_of};
use super::state::TelemetryState;
use crate::settings::Environment;

/// The MCP method and the operation that are recorded.
const METHOD: &str = "tools/call";
const OPERATION: &str = "execute_tool";
const TOOL: &str = "gen_ai.tool.name";
const ERROR_TYPE: &str = "error.type";
/// Characters of a name. Models choose those of sessions, servers those of tools.
const LONGEST_NAME: usize = 80;
/// The tool of a call whose server has no such tool: anything that code can think of.
const UNKNOWN_TOOL: &str = "_OTHER";

/// Traces and metrics of this process. Off by default.
#[derive(Debug, Clone, Default)]
pub struct Telemetry(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    plan: Result<Plan, PlanError>,
    service: Option<String>,
    /// The trace that the process belongs to.
    parent: TraceContext,
    /// Made at the first run. It lives until the process ends, because its parts block when they are dropped.
    pipeline: OnceLock<Option<&'static Pipeline>>,
}

impl Telemetry {
    /// Returns what the variables ask for. Nothing starts before the first run.
    pub fn of(environment: &Environment) -> Self {
        let plan = match Plan::of(environment) {
            Ok(None) => return Self::default(),
            Ok(Some(plan)) => Ok(plan),
            Err(error) => Err(error),
        };
        let service = environment.get("OTEL_SERVICE_NAME").and_then(|name| name.to_str());
        let service = service.filter(|name| !name.is_empty()).map(str::to_owned);
        let (parent, pipeline) = (parent_of(environment), OnceLock::new());
        Self(Some(Arc::new(Inner { plan, service, parent, pipeline })))
    }

    /// Returns what is sent where, and sends what there is to find out whether the collector takes it.
    pub async fn examine(&self) -> TelemetryState {
        let Some(inner) = &self.0 else { return TelemetryState::off() };
        let state = TelemetryState::of(&inner.plan);
        match inner.pipeline.get() {
            Some(Some(pipeline)) => TelemetryState { error: pipeline.check().await, ..state },
            _ => state,
        }
    }

    /// Sends what is left, for a short time.
    pub async fn close(&self) {
        if let Some(inner) = &self.0
            && let Some(Some(pipeline)) = inner.pipeline.get()
        {
            pipeline.close().await;
        }
    }

    fn pipeline(&self) -> Option<&'static Pipeline> {
        let inner = self.0.as_ref()?;
        *inner.pipeline.get_or_init(|| inner.start())
    }

    fn instruments(&self) -> Option<&'static Instruments> {
        self.pipeline()?.instruments.as_ref()
    }

    /// Begins a run of code in a session, as a child of what its client says or the process was started in.
    pub fn begin_run(&self, session: &str, parent: &TraceContext) -> RunSpan {
        let Some(pipeline) = self.pipeline() else { return RunSpan(None) };
        let own = self.0.as_ref().map(|inner| &inner.parent);
        let parent = own.filter(|_| *parent == TraceContext::default()).unwrap_or(parent);
        let mut attributes = about();
        attributes.push(KeyValue::new(TOOL, "run_python"));
        attributes.push(KeyValue::new("codebridge.session.name", bounded(session)));
        let name = format!("{METHOD} run_python");
        RunSpan(Some(Recorded::begin(pipeline, name, SpanKind::Server, attributes, parent)))
    }

    /// Begins a call of a server's tool.
    pub fn begin_call(&self, server: &str, transport: Option<Transport>, parent: &TraceContext) -> CallSpan {
        let Some(pipeline) = self.pipeline() else { return CallSpan(None) };
        let own = self.0.as_ref().map(|inner| &inner.parent);
        let parent = own.filter(|_| *parent == TraceContext::default()).unwrap_or(parent);
        let mut attributes = about();
        attributes.push(KeyValue::new("codebridge.server.name", bounded(server)));
        attributes.extend(transport.map(|transport| KeyValue::new("network.transport", transport.name())));
        CallSpan(Some(Recorded::begin(pipeline, METHOD.to_owned(), SpanKind::Client, attributes, parent)))
    }

    /// Counts a session until this is dropped.
    pub fn open_session(&self) -> Opened {
        Opened::count(self.instruments().map(|instruments| &instruments.sessions))
    }

    /// Counts a connection to a server until this is dropped.
    pub fn open_connection(&self) -> Opened {
        Opened::count(self.instruments().map(|instruments| &instruments.connections))
    }

    /// Records the start of a sandbox; `error` is a word for why it failed.
    pub fn sandbox_started(&self, runtime: &'static str, time: Duration, error: Option<&'static str>) {
        let Some(instruments) = self.instruments() else { return };
        let mut attributes = vec![KeyValue::new("codebridge.runtime", runtime)];
        attributes.extend(error.map(|word| KeyValue::new(ERROR_TYPE, word)));
        instruments.starts.record(time.as_secs_f64(), &attributes);
    }

    /// Counts a run that lost a process to the memory limit.
    pub fn out_of_memory(&self) {
        if let Some(instruments) = self.instruments() {
            instruments.out_of_memory.add(1, &[]);
        }
    }

    /// Counts sandboxes of dead bridges that were removed.
    pub fn swept(&self, count: usize) {
        if let Some(instruments) = self.instruments()
            && count > 0
        {
            instruments.swept.add(count as u64, &[]);
        }
    }

    /// Counts a question to the person. The answer is `approved`, `refused`, `unanswered` or `not_asked`.
    pub fn answered(&self, answer: &'static str) {
        if let Some(instruments) = self.instruments() {
            instruments.approvals.add(1, &[KeyValue::new("codebridge.answer", answer)]);
        }
    }
}

impl Inner {
    fn start(&self) -> Option<&'static Pipeline> {
        let plan = match &self.plan {
            Ok(plan) => plan,
            Err(error) => {
                tracing::warn!(hint = error.hint, %error, "telemetry is off");
                return None;
            }
        };
        match Pipeline::start(plan, self.service.as_deref(), Handle::try_current().ok()?) {
            Ok(pipeline) => Some(Box::leak(Box::new(pipeline))),
            Err(error) => {
                tracing::warn!(%error, "telemetry is off");
                None
            }
        }
    }
}

/// What spans and metrics of MCP have: <https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/>.
fn about() -> Vec<KeyValue> {
    vec![KeyValue::new("mcp.method.name", METHOD), KeyValue::new("gen_ai.operation.name", OPERATION)]
}

/// Returns the start of a name that somebody else chose, in one visible line.
fn bounded(name: &str) -> String {
    let start: String = name.chars().take(LONGEST_NAME).collect();
    visible_line(&start).to_string()
}

/// Something with a duration that is recorded when it ends.
#[derive(Debug)]
struct Recorded {
    pipeline: &'static Pipeline,
    /// None if traces are not wanted.
    span: Option<Span>,
    parent: TraceContext,
    attributes: Vec<KeyValue>,
    begun: Instant,
}

impl Recorded {
    fn begin(
        pipeline: &'static Pipeline,
        name: String,
        kind: SpanKind,
        attributes: Vec<KeyValue>,
        parent: &TraceContext,
    ) -> Self {
        let span = pipeline.tracer.as_ref().map(|tracer| {
            let builder =
                SpanBuilder::from_name(name).with_kind(kind).with_attributes(attributes.iter().cloned());
            tracer.build_with_context(builder, &parent.as_parent())
        });
        Self { pipeline, span, parent: parent.clone(), attributes, begun: Instant::now() }
    }

    fn context(&self) -> TraceContext {
        match &self.span {
            Some(span) => TraceContext::of(span.span_context().clone()),
            None => self.parent.clone(),
        }
    }

    /// Ends the span, and returns the duration with the attributes of its metric.
    fn end(mut self, error: Option<Cow<'static, str>>, more: Vec<KeyValue>) -> (f64, Vec<KeyValue>) {
        if let Some(span) = &mut self.span {
            span.set_attributes(more);
            if let Some(error) = &error {
                span.set_attribute(KeyValue::new(ERROR_TYPE, error.clone()));
                span.set_status(Status::error(error.clone()));
            }
            span.end();
        }
        let mut attributes = self.attributes;
        // A model can make any number of sessions.
        attributes.retain(|attribute| attribute.key.as_str() != "codebridge.session.name");
        attributes.extend(error.map(|error| KeyValue::new(ERROR_TYPE, error)));
        (self.begun.elapsed().as_secs_f64(), attributes)
    }
}

/// A run that is recorded when it ends or is dropped.
#[derive(Debug, Default)]
pub struct RunSpan(Option<Recorded>);

impl RunSpan {
    /// Returns the trace for what the run does.
    pub fn context(&self) -> TraceContext {
        self.0.as_ref().map(Recorded::context).unwrap_or_default()
    }

    /// Ends the run.
    pub fn end(mut self, end: RunEnd) {
        self.finish(end);
    }

    fn finish(&mut self, end: RunEnd) {
        let Some(recorded) = self.0.take() else { return };
        let instruments = recorded.pipeline.instruments.as_ref();
        let outcome = KeyValue::new("codebridge.run.outcome", end.outcome);
        let mut more = vec![outcome.clone()];
        if end.run > 0 {
            more.push(KeyValue::new("codebridge.run.id", i64::from(end.run)));
        }
        more.extend(end.exit_code.map(|code| KeyValue::new("codebridge.run.exit_code", i64::from(code))));
        // The client gets a result that says `isError`.
        let error = (end.outcome != "success").then(|| Failed::Tool.error_type().into());
        let (seconds, attributes) = recorded.end(error, more);
        let Some(instruments) = instruments else { return };
        instruments.server_duration.record(seconds, &attributes);
        instruments.runs.add(1, &[outcome]);
        for (stream, bytes) in [("stdout", end.stdout), ("stderr", end.stderr)] {
            if bytes > 0 {
                instruments.output.add(bytes, &[KeyValue::new("codebridge.stream", stream)]);
            }
        }
    }
}

impl Drop for RunSpan {
    fn drop(&mut self) {
        self.finish(RunEnd::DROPPED);
    }
}

/// A call that is recorded when it ends or is dropped.
#[derive(Debug, Default)]
pub struct CallSpan(Option<Recorded>);

impl CallSpan {
    /// Returns the trace for what the server does; None if there is nothing to pass on.
    pub fn context(&self) -> Option<TraceContext> {
        self.0.as_ref().map(Recorded::context)
    }

    /// Names the tool, once it is known that its server has it.
    pub fn set_tool(&mut self, tool: &str) {
        let Some(recorded) = &mut self.0 else { return };
        let tool = KeyValue::new(TOOL, bounded(tool));
        if let Some(span) = &mut recorded.span {
            span.update_name(format!("{METHOD} {}", tool.value.as_str()));
            span.set_attribute(tool.clone());
        }
        recorded.attributes.push(tool);
    }

    /// Ends the call.
    pub fn end(mut self, failed: Option<Failed>) {
        self.finish(failed);
    }

    fn finish(&mut self, failed: Option<Failed>) {
        let Some(recorded) = self.0.take() else { return };
        let instruments = recorded.pipeline.instruments.as_ref();
        let code = match failed {
            Some(Failed::Protocol(code)) => vec![KeyValue::new("rpc.response.status_code", code.to_string())],
            _ => Vec::new(),
        };
        let (seconds, mut attributes) = recorded.end(failed.map(|failed| failed.error_type().into()), code);
        if let Some(instruments) = instruments {
            if attributes.iter().all(|attribute| attribute.key.as_str() != TOOL) {
                attributes.push(KeyValue::new(TOOL, UNKNOWN_TOOL));
            }
            instruments.client_duration.record(seconds, &attributes);
        }
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        self.finish(Some(Failed::DROPPED));
    }
}

/// An open session or connection, which counts until it is dropped.
#[derive(Debug)]
pub struct Opened(Option<&'static UpDownCounter<i64>>);

impl Opened {
    fn count(counter: Option<&'static UpDownCounter<i64>>) -> Self {
        if let Some(counter) = counter {
            counter.add(1, &[]);
        }
        Self(counter)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(counter) = self.0 {
            counter.add(-1, &[]);
        }
    }
}
