//! The access that the code of a session has to the user's MCP servers. It may read the documentation of all of them; calls
//! go only to those that the current run may use, whatever the sandbox claims.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::grant::{Grant, ServerName, not_available};
use super::guest_questions::{
    Answer, Call, OneServer, OneTool, QuestionError, Search, ServerFilter, ToolFilter,
};
use super::{Caller, Progress};
use crate::upstream::catalog::{Detail, Parameter, ServerDocs, ToolItem, parameters};
use crate::upstream::discovery::Server;
use crate::upstream::{Answers, CallOptions, CallerGuard, NoAnswers, Upstream, UpstreamError};

/// How long a search waits for servers whose tools are not known yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Lines shown of the standard error of a server that is slow to start.
const START_LINES: usize = 3;
/// Tools in the result of one search.
const MOST_FOUND: usize = 20;
/// Progress messages of a call that wait to be forwarded.
const WAITING_PROGRESS: usize = 16;

/// The access of one interpreter.
#[derive(Debug)]
pub(super) struct ServerAccess {
    upstream: Upstream,
    current: Mutex<Current>,
}

/// What holds for the current run. Grant and answers go on to hold for tasks that it leaves in the background.
#[derive(Debug)]
struct Current {
    grant: Grant,
    progress: Option<mpsc::Sender<Progress>>,
    answers: Arc<dyn Answers>,
    /// Lets servers that the run may call ask its client while they are started.
    run: Option<CallerGuard>,
    /// Servers by the names under which they were called: to look one up takes longer than a call.
    called: HashMap<String, Arc<Server>>,
    under_way: Vec<Awaited>,
    patience: Duration,
}

/// A server that code may call, and where progress and questions of the call go.
type Granted = (Arc<Server>, Option<mpsc::Sender<Progress>>, Arc<dyn Answers>);

impl ServerAccess {
    pub(super) fn new(upstream: Upstream) -> Self {
        let current = Current {
            grant: Grant::Nothing,
            progress: None,
            answers: Arc::new(NoAnswers::default()),
            run: None,
            called: HashMap::new(),
            under_way: Vec::new(),
            patience: Duration::ZERO,
        };
        Self { upstream, current: Mutex::new(current) }
    }

    /// Begins a run: from here on code may call what `grant` allows, and `caller` gets the progress of its calls until the run
    /// is dropped.
    pub(super) fn begin(&self, grant: Grant, timeout: Duration, caller: &Caller) -> Run<'_> {
        let mut current = self.lock();
        let under_way = std::mem::take(&mut current.under_way);
        // A run with little time gets what is known.
        let patience = PATIENCE.min(timeout / 2);
        let run = Some(self.upstream.begin_run(&caller.answers, grant.askers()));
        *current = Current {
            grant,
            progress: Some(caller.progress.clone()),
            answers: Arc::clone(&caller.answers),
            run,
            called: HashMap::new(),
            under_way,
            patience,
        };
        Run(self)
    }

    /// Returns what code waits for: calls as `server.tool`, servers that are still starting with the last lines of their
    /// standard error.
    pub(super) fn under_way(&self) -> Vec<String> {
        let under_way = self.lock().under_way.clone();
        let describe = |(server, tool): Awaited| match (self.upstream.startup_output(&server), tool) {
            (Some(words), _) => {
                let lines: Vec<&str> = words.lines().rev().take(START_LINES).collect();
                let stderr: String = lines.into_iter().rev().collect::<Vec<_>>().join(" | ");
                let stderr = if stderr.is_empty() { stderr } else { format!(" (its output: {stderr})") };
                format!("the server '{server}', which is still starting{stderr},")
            }
            (None, Some(tool)) => format!("{server}.{tool}"),
            (None, None) => format!("the server '{server}'"),
        };
        let mut described: Vec<String> = under_way.into_iter().map(describe).collect();
        described.dedup();
        described
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names of the defined servers.
    pub(super) fn servers(&self, filter: &ServerFilter) -> Value {
        let snapshot = self.upstream.snapshot();
        let wanted = |server: &&Arc<Server>| match &filter.aliases {
            Some(aliases) => aliases.iter().any(|alias| **alias == *server.alias),
            None => true,
        };
        let described = |server: &Arc<Server>| {
            let description = server.description.as_deref().unwrap_or_default();
            json!(ServerName { description: Some(description), ..ServerName::of(server) })
        };
        snapshot.servers.iter().filter(wanted).map(described).collect()
    }

    /// Returns the name of one server.
    pub(super) fn server(&self, server: &OneServer) -> Result<Value, QuestionError> {
        let OneServer { server: name, alias_first } = server;
        let snapshot = self.upstream.snapshot();
        let meant = snapshot.servers.iter().find(|server| *alias_first && *server.alias == **name);
        let server = meant.map_or_else(|| self.upstream.server(name), |server| Ok(Arc::clone(server)))?;
        Ok(json!(ServerName::of(&server)))
    }

    /// Returns everything that is known of a server.
    pub(super) async fn describe(
        &self,
        server: &OneServer,
        cancel: &CancellationToken,
    ) -> Result<Value, QuestionError> {
        let (server, docs) = self.docs_of(&server.server, cancel).await?;
        let tools: Vec<Value> = items(&server, &docs, Detail::Full)
            .map(|item| {
                json!({
                    "name": item.tool,
                    "alias": item.tool_alias,
                    "description": item.description,
                    "input_schema": item.input_schema,
                })
            })
            .collect();
        let cwd = server.definition.as_ref().ok().and_then(|definition| definition.launch.cwd());
        // The user's description comes before the server's.
        let description =
            server.description.clone().or_else(|| docs.about().instructions.clone()).unwrap_or_default();
        Ok(json!({
            "name": server.name,
            "alias": server.alias,
            "description": description,
            "cwd": cwd,
            "tools": tools,
        }))
    }

    /// Returns the documentation of one tool, with its parameters in the order of the signature.
    pub(super) async fn tool(
        &self,
        tool: &OneTool,
        cancel: &CancellationToken,
    ) -> Result<Value, QuestionError> {
        let item = self.item(&tool.server, &tool.tool, tool.alias_first, Detail::Full, cancel).await?;
        let schema = item.input_schema.clone().unwrap_or_default();
        let parameters: Vec<Value> =
            parameters(&schema).iter().map(|parameter| parameter_value(parameter, &schema)).collect();
        let mut value = tool_value(&item, Detail::Full);
        value["parameters"] = parameters.into();
        Ok(value)
    }

    /// Returns the documentation of the tools of a server.
    pub(super) async fn tools(
        &self,
        filter: &ToolFilter,
        cancel: &CancellationToken,
    ) -> Result<Value, QuestionError> {
        let detail = detail_of(filter.detail.as_deref())?;
        let found = match &filter.tool {
            Some(tool) => {
                vec![tool_value(&self.item(&filter.server, tool, false, detail, cancel).await?, detail)]
            }
            None => {
                let (server, docs) = self.docs_of(&filter.server, cancel).await?;
                items(&server, &docs, detail).map(|item| tool_value(&item, detail)).collect()
            }
        };
        Ok(found.into())
    }

    /// Returns the documentation of a server, which is started if none is known.
    async fn docs_of(
        &self,
        server: &str,
        cancel: &CancellationToken,
    ) -> Result<(Arc<Server>, Arc<ServerDocs>), QuestionError> {
        let known = self.upstream.server(server)?;
        let _under_way = UnderWay::new(self, &known, None);
        Ok(self.upstream.docs_of(server, cancel).await?)
    }

    async fn item(
        &self,
        server: &str,
        tool: &str,
        alias_first: bool,
        detail: Detail,
        cancel: &CancellationToken,
    ) -> Result<ToolItem, QuestionError> {
        let item = |server: &Server, docs: &ServerDocs| {
            let aliased = docs.tools().iter().position(|known| alias_first && *known.alias == *tool);
            ToolItem::new(&server.name, &server.alias, docs, aliased.or_else(|| docs.position(tool))?, detail)
        };
        let (known, docs) = self.docs_of(server, cancel).await?;
        if let Some(item) = item(&known, &docs) {
            return Ok(item);
        }
        // It may be newer than what is known. If the server does not have it either, the error names one that is like it.
        let under_way = UnderWay::new(self, &known, None);
        self.upstream.tool(server, tool, cancel).await?;
        drop(under_way);
        let (known, docs) = self.docs_of(server, cancel).await?;
        item(&known, &docs)
            .ok_or_else(|| QuestionError::plain(format!("there is no documentation of {server}.{tool}")))
    }

    /// Returns the tools of all servers that fit a query best.
    pub(super) async fn search(&self, search: &Search) -> Result<Value, QuestionError> {
        let Search { query, limit, detail } = search;
        let detail = detail_of(detail.as_deref())?;
        let limit = limit.unwrap_or(5).clamp(1, MOST_FOUND as i64);
        let patience = self.lock().patience;
        let found = self.upstream.search(query, usize::try_from(limit).unwrap_or(1), detail, patience).await;
        // The tools of a server that failed will not be known a moment later either.
        let pending = found.unknown.iter().filter(|server| server.failure.is_none());
        let pending: Vec<_> = pending.map(|server| &server.name).collect();
        let items: Vec<Value> = found.tools.iter().map(|item| tool_value(item, detail)).collect();
        Ok(json!({ "items": items, "pending": pending }))
    }

    /// Calls a tool, if the current run may.
    pub(super) async fn call(&self, call: Call, cancel: &CancellationToken) -> Result<Answer, QuestionError> {
        let Call { server, tool, arguments } = call;
        self.ask_for_approval(&server, cancel).await?;
        let (server, progress, answers) = self.granted(server)?;
        let progress = progress.map(|progress| forward_server_progress(&server, &tool, progress));
        let options = CallOptions { progress, answers, cancel };
        let _under_way = UnderWay::new(self, &server, Some(&tool));
        let outcome = self.upstream.call_of(&server, &tool, arguments, options).await?;
        Ok(Answer::Raw(outcome.json))
    }

    /// Has the person approve the definition of a server, where that is missing and the run may call any server. The servers that
    /// a run names were approved before it began.
    async fn ask_for_approval(&self, name: &str, cancel: &CancellationToken) -> Result<(), QuestionError> {
        let answers = {
            let current = self.lock();
            if current.called.contains_key(name) || !matches!(current.grant, Grant::Any(_)) {
                return Ok(());
            }
            Arc::clone(&current.answers)
        };
        tokio::select! {
            server = self.upstream.server_for_calls(name, &*answers) => {
                server?;
                Ok(())
            }
            () = cancel.cancelled() => Err(QuestionError::plain("the call was cancelled")),
        }
    }

    /// Returns the server of a name that the current run may call, and where progress and questions of the call go.
    fn granted(&self, name: String) -> Result<Granted, QuestionError> {
        let mut current = self.lock();
        let (progress, answers) = (current.progress.clone(), Arc::clone(&current.answers));
        if let Some(server) = current.called.get(&name) {
            return Ok((Arc::clone(server), progress, answers));
        }
        let server = self.upstream.server(&name)?;
        if !current.grant.allows(&server) {
            return Err(QuestionError { kind: Some("server"), message: not_available(&server) });
        }
        current.called.insert(name, Arc::clone(&server));
        Ok((server, progress, answers))
    }
}

/// A run under way.
pub(super) struct Run<'a>(&'a ServerAccess);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut current = self.0.lock();
        current.progress = None;
        current.run = None;
    }
}

/// Something that code waits for, as long as it lives.
struct UnderWay<'a> {
    access: &'a ServerAccess,
    awaited: Awaited,
}

/// A server and, for a call, the tool.
type Awaited = (Arc<str>, Option<String>);

impl<'a> UnderWay<'a> {
    fn new(access: &'a ServerAccess, server: &Server, tool: Option<&str>) -> Self {
        let awaited = (Arc::clone(&server.name), tool.map(str::to_owned));
        access.lock().under_way.push(awaited.clone());
        Self { access, awaited }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut current = self.access.lock();
        if let Some(at) = current.under_way.iter().position(|other| *other == self.awaited) {
            current.under_way.swap_remove(at);
        }
    }
}

/// Forwards the progress that a server reports of a call, as long as the call runs.
fn forward_server_progress<R: Display + Send + 'static>(
    server: &Server,
    tool: &str,
    progress: mpsc::Sender<Progress>,
) -> mpsc::Sender<R> {
    let (sender, mut reports) = mpsc::channel::<R>(WAITING_PROGRESS);
    let name = format!("{}.{tool}", server.name);
    tokio::spawn(async move {
        while let Some(report) = reports.recv().await {
            // What does not fit in the queue is out of date by the time it would.
            let _ = progress.try_send(Progress::Calling(format!("{name}: {report}")));
        }
    });
    sender
}

fn items(server: &Server, docs: &ServerDocs, detail: Detail) -> impl Iterator<Item = ToolItem> {
    (0..docs.tools().len())
        .filter_map(move |tool| ToolItem::new(&server.name, &server.alias, docs, tool, detail))
}

/// Returns a tool as code reads it. Code reads by keys, so in full all of them are there, also without an output schema.
fn tool_value(item: &ToolItem, detail: Detail) -> Value {
    let mut value = json!(item);
    if detail == Detail::Full && item.output_schema.is_none() {
        value["outputSchema"] = Value::Null;
    }
    value
}

fn parameter_value(parameter: &Parameter, schema: &Value) -> Value {
    json!({
        "name": parameter.name,
        "required": parameter.required,
        "type": parameter.type_name,
        "default": schema["properties"][&parameter.name]["default"],
    })
}

fn detail_of(name: Option<&str>) -> Result<Detail, QuestionError> {
    let name = name.unwrap_or("summary");
    Detail::parse(name).ok_or_else(|| {
        QuestionError::quoting(&format!("detail must be 'summary' or 'full', not '{}'", name.escape_debug()))
    })
}

impl From<UpstreamError> for QuestionError {
    fn from(error: UpstreamError) -> Self {
        let kind = match &error {
            UpstreamError::Unknown { .. }
            | UpstreamError::Skipped { .. }
            | UpstreamError::Distrusted { .. } => Some("server"),
            UpstreamError::UnknownTool { .. } => Some("tool"),
            UpstreamError::Arguments { .. } => Some("arguments"),
            _ => None,
        };
        let message = match error.hint() {
            Some(hint) => format!("{error}; hint: {hint}"),
            None => error.to_string(),
        };
        Self { kind, message }
    }
}
