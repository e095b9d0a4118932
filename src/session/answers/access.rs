//! The access that the code of a session has to the user's MCP servers. It may read the documentation of all of them; calls
//! go only to those that the current run may use, whatever the sandbox claims.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::grant::{Grant, ServerName, not_available};
use super::packages::SessionPackages;
use super::paused_time::PausedTime;
use super::transfers::Transfers;
use crate::session::call::Script;
use crate::session::capacity::Capacity;
use crate::session::questions::{
    Answer, Call, InstallQuestion, OneServer, OneTool, QuestionError, Search, ServerFilter, ToolFilter, ok,
};
use crate::session::{Caller, Progress};
use crate::upstream::catalog::{Detail, Parameter, ServerDocs, ToolItem, parameters};
use crate::upstream::discovery::Server;
use crate::upstream::{Answers, CallOptions, CallerGuard, NoAnswers, UnreadResults, Upstream, UpstreamError};

/// How long a search waits for servers whose tools are not known yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Lines shown of the standard error of a server that is slow to start.
const START_LINES: usize = 3;
/// Tools in the result of one search.
const MOST_FOUND: usize = 20;
/// Searches of one session at once. They use the processor, and there are few threads for that.
const SEARCHES: usize = 4;
/// Things that code waits for, of those that are named.
const MOST_NAMED: usize = 8;
/// Progress messages of a call that wait to be forwarded.
const WAITING_PROGRESS: usize = 16;

/// The access of one interpreter.
#[derive(Debug)]
pub(in crate::session) struct ServerAccess {
    upstream: Upstream,
    capacity: Arc<Capacity>,
    /// The artifacts that its code saves.
    transfers: Arc<Transfers>,
    /// Whether a person at a terminal reads the messages.
    one_shot: bool,
    searches: Semaphore,
    /// Results of calls that the guest has not read.
    unread: UnreadResults,
    current: Mutex<Current>,
    /// Set before the sandbox starts.
    packages: OnceLock<SessionPackages>,
    /// How long the run has waited for packages.
    waits: PausedTime,
}

/// What holds for the current run. Grant and answers go on to hold for tasks that it leaves in the background.
#[derive(Debug)]
struct Current {
    grant: Grant,
    progress: Option<mpsc::Sender<Progress>>,
    answers: Arc<dyn Answers>,
    script: Option<Arc<Script>>,
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
    pub(in crate::session) fn new(
        upstream: Upstream,
        capacity: Arc<Capacity>,
        transfers: Arc<Transfers>,
        one_shot: bool,
    ) -> Self {
        let current = Current {
            grant: Grant::Nothing,
            progress: None,
            answers: Arc::new(NoAnswers::default()),
            script: None,
            run: None,
            called: HashMap::new(),
            under_way: Vec::new(),
            patience: Duration::ZERO,
        };
        Self {
            upstream,
            capacity,
            transfers,
            one_shot,
            searches: Semaphore::new(SEARCHES),
            unread: UnreadResults::default(),
            current: Mutex::new(current),
            packages: OnceLock::new(),
            waits: PausedTime::default(),
        }
    }

    pub(in crate::session) fn transfers(&self) -> &Arc<Transfers> {
        &self.transfers
    }

    /// Begins a run: from here on code may call what `grant` allows, and `caller` gets the progress of its calls until the run
    /// is dropped.
    pub(in crate::session) fn begin(&self, grant: Grant, timeout: Duration, caller: &Caller) -> Run<'_> {
        self.waits.reset();
        let mut current = self.lock();
        let under_way = std::mem::take(&mut current.under_way);
        // A run with little time gets what is known.
        let patience = PATIENCE.min(timeout / 2);
        let run = Some(self.upstream.begin_run(&caller.answers, grant.askers()));
        *current = Current {
            grant,
            progress: Some(caller.progress.clone()),
            answers: Arc::clone(&caller.answers),
            script: caller.script.clone(),
            run,
            called: HashMap::new(),
            under_way,
            patience,
        };
        Run(self)
    }

    /// Returns what code waits for: calls as `server.tool`, servers that are still starting with the last lines of their
    /// standard error.
    pub(in crate::session) fn under_way(&self) -> Vec<String> {
        let mut under_way = self.lock().under_way.clone();
        under_way.dedup();
        let more = under_way.len().saturating_sub(MOST_NAMED);
        under_way.truncate(MOST_NAMED);
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
        if more > 0 {
            described.push(format!("{more} more"));
        }
        described
    }

    /// Gives the session its packages.
    pub(in crate::session) fn set_packages(&self, packages: SessionPackages) {
        // Another start of the same session has the same.
        let _ = self.packages.set(packages);
    }

    pub(in crate::session) fn packages(&self) -> Result<&SessionPackages, QuestionError> {
        self.packages.get().ok_or_else(|| QuestionError::plain("this session has no packages"))
    }

    /// Installs packages. The time that it takes is not that of the run.
    pub(in crate::session) async fn install(
        &self,
        question: InstallQuestion,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let progress = self.lock().progress.clone();
        let _wait = self.waits.pause();
        self.packages()?.install(question, progress, cancel).await
    }

    /// Returns how long the run has waited for packages, which is no run time.
    pub(in crate::session) fn paused(&self) -> Duration {
        self.waits.total()
    }

    /// Returns what the command line gave to the current run.
    pub(in crate::session) fn script(&self) -> Result<Arc<Script>, QuestionError> {
        let script = self.lock().script.clone();
        script.ok_or_else(|| QuestionError::plain("only `codebridge exec` has a script and standard input"))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names of the defined servers, and what each is for if that is wanted.
    pub(in crate::session) async fn servers(&self, filter: ServerFilter) -> Result<Answer, QuestionError> {
        if filter.detailed {
            let all = self.upstream.all_known_docs().await;
            return Answer::work(move || {
                ok(&Items(|| all.iter().map(|(server, known)| described(server, known.docs.as_deref()))))
            });
        }
        let upstream = self.upstream.clone();
        Answer::work(move || {
            let aliases: Option<HashSet<&str>> =
                filter.aliases.as_ref().map(|aliases| aliases.iter().map(|alias| &**alias).collect());
            let wanted =
                |server: &&Arc<Server>| aliases.as_ref().is_none_or(|wanted| wanted.contains(&*server.alias));
            let snapshot = upstream.snapshot();
            ok(&Items(|| snapshot.servers.iter().filter(wanted).map(|server| ServerName::of(server))))
        })
    }

    /// Returns the name of one server.
    pub(in crate::session) fn server(&self, server: OneServer) -> Result<Answer, QuestionError> {
        let upstream = self.upstream.clone();
        Answer::work(move || {
            let OneServer { server: name, alias_first } = server;
            let snapshot = upstream.snapshot();
            let meant = snapshot.servers.iter().find(|server| alias_first && *server.alias == *name);
            let server = meant.map_or_else(|| upstream.server(&name), |server| Ok(Arc::clone(server)))?;
            ok(&ServerName::of(&server))
        })
    }

    /// Returns everything that is known of a server.
    pub(in crate::session) async fn describe(
        &self,
        server: &OneServer,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let (server, docs) = self.docs_of(&server.server, cancel).await?;
        Answer::work(move || ok(&Description::of(&server, &docs)))
    }

    /// Returns the documentation of one tool, with its parameters in the order of the signature.
    pub(in crate::session) async fn tool(
        &self,
        tool: &OneTool,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let item = self.item(&tool.server, &tool.tool, tool.alias_first, Detail::Full, cancel).await?;
        Answer::work(move || {
            let schema = item.input_schema.clone().unwrap_or_default();
            let parameters: Vec<Value> =
                parameters(&schema).iter().map(|parameter| parameter_value(parameter, &schema)).collect();
            let mut value = tool_value(&item, Detail::Full);
            value["parameters"] = parameters.into();
            ok(&value)
        })
    }

    /// Returns the documentation of the tools of a server.
    pub(in crate::session) async fn tools(
        &self,
        filter: &ToolFilter,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let detail = detail_of(filter.detail.as_deref())?;
        let Some(tool) = &filter.tool else {
            let (server, docs) = self.docs_of(&filter.server, cancel).await?;
            // Item by item: parsed, all of them take many times the bytes of their text.
            return Answer::work(move || {
                ok(&Items(|| items(&server, &docs, detail).map(|item| tool_value(&item, detail))))
            });
        };
        let item = self.item(&filter.server, tool, false, detail, cancel).await?;
        Answer::work(move || ok(&[tool_value(&item, detail)]))
    }

    /// Returns the server of a name or an alias: definitions are read from files, and a wrong name is compared with all.
    async fn look_up(&self, name: &str) -> Result<Arc<Server>, QuestionError> {
        Ok(self.try_look_up(name).await??)
    }

    async fn try_look_up(&self, name: &str) -> Result<Result<Arc<Server>, UpstreamError>, QuestionError> {
        let (upstream, name) = (self.upstream.clone(), name.to_owned());
        let found = self.capacity.work(move || upstream.server(&name)).await;
        found.ok_or_else(|| QuestionError::plain("the bridge failed to read the definitions of servers"))
    }

    /// Returns the documentation of a server, which is started if none is known.
    async fn docs_of(
        &self,
        server: &str,
        cancel: &CancellationToken,
    ) -> Result<(Arc<Server>, Arc<ServerDocs>), QuestionError> {
        let server = self.look_up(server).await?;
        let _under_way = UnderWay::new(self, &server, None);
        let docs = self.upstream.docs_of_server(&server, cancel).await?;
        Ok((server, docs))
    }

    async fn item(
        &self,
        server: &str,
        tool: &str,
        alias_first: bool,
        detail: Detail,
        cancel: &CancellationToken,
    ) -> Result<ToolItem, QuestionError> {
        if let Some(item) = self.known_item(server, tool, alias_first, detail, cancel).await? {
            return Ok(item);
        }
        // It may be newer than what is known. If the server does not have it either, the error names one that is like it.
        let known = self.look_up(server).await?;
        let under_way = UnderWay::new(self, &known, None);
        self.upstream.tool(&known, tool, cancel).await?;
        drop(under_way);
        let item = self.known_item(server, tool, alias_first, detail, cancel).await?;
        item.ok_or_else(|| QuestionError::plain(format!("there is no documentation of {server}.{tool}")))
    }

    /// Returns a tool as far as its documentation is known.
    async fn known_item(
        &self,
        server: &str,
        tool: &str,
        alias_first: bool,
        detail: Detail,
        cancel: &CancellationToken,
    ) -> Result<Option<ToolItem>, QuestionError> {
        let (server, docs) = self.docs_of(server, cancel).await?;
        let tool = tool.to_owned();
        let find = move || {
            let aliased = docs.tools().iter().position(|known| alias_first && *known.alias == *tool);
            let position = aliased.or_else(|| docs.position(&tool))?;
            ToolItem::new(&server.name, &server.alias, &docs, position, detail)
        };
        Ok(self.capacity.work(find).await.flatten())
    }

    /// Returns the tools of all servers that fit a query best.
    pub(in crate::session) async fn search(&self, search: &Search) -> Result<Answer, QuestionError> {
        let Search { query, limit, detail } = search;
        let detail = detail_of(detail.as_deref())?;
        let limit = limit.unwrap_or(5).clamp(1, MOST_FOUND as i64);
        let patience = self.lock().patience;
        let turn = self.searches.acquire().await;
        let found = self.upstream.search(query, usize::try_from(limit).unwrap_or(1), detail, patience).await;
        drop(turn);
        Answer::work(move || {
            // The tools of a server that failed will not be known a moment later either.
            let pending = found.unknown.iter().filter(|server| server.failure.is_none());
            let pending: Vec<_> = pending.map(|server| &server.name).collect();
            let items: Vec<Value> = found.tools.iter().map(|item| tool_value(item, detail)).collect();
            ok(&json!({ "items": items, "pending": pending }))
        })
    }

    /// Calls a tool, if the current run may.
    pub(in crate::session) async fn call(
        &self,
        call: Call,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let Call { server, tool, arguments } = call;
        let (server, progress, answers) = self.granted(&server, cancel).await?;
        let progress = progress.map(|progress| forward_server_progress(&server, &tool, progress));
        let options = CallOptions { progress, answers, unread: Some(self.unread.clone()), cancel };
        let _under_way = UnderWay::new(self, &server, Some(&tool));
        let outcome = self.upstream.call_of(&server, &tool, arguments, options).await?;
        Answer::result(outcome)
    }

    /// Returns the server of a name that the current run may call, and where progress and questions of the call go. In a run that
    /// may call any server, the person may have to approve its definition first.
    async fn granted(&self, name: &str, cancel: &CancellationToken) -> Result<Granted, QuestionError> {
        let granted = |current: &Current, server: &Arc<Server>| {
            (Arc::clone(server), current.progress.clone(), Arc::clone(&current.answers))
        };
        let known = {
            let current = self.lock();
            current.called.get(name).map(|server| granted(&current, server))
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let server = match self.try_look_up(name).await? {
            Err(error) if matches!(self.lock().grant, Grant::Any(_)) => {
                let answers = Arc::clone(&self.lock().answers);
                tokio::select! {
                    approved = self.upstream.ask_for_approval(error, &*answers) => approved?,
                    () = cancel.cancelled() => return Err(QuestionError::plain("the call was cancelled")),
                }
                self.look_up(name).await?
            }
            found => found?,
        };
        let mut current = self.lock();
        if !current.grant.allows(&server) {
            return Err(QuestionError {
                kind: Some("server"),
                message: not_available(&server.name, self.one_shot),
            });
        }
        current.called.insert(name.to_owned(), Arc::clone(&server));
        Ok(granted(&current, &server))
    }
}

/// A run under way.
pub(in crate::session) struct Run<'a>(&'a ServerAccess);

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

/// What is known of a server.
#[derive(Serialize)]
struct Description<'a, T> {
    name: &'a str,
    alias: &'a str,
    description: Cow<'a, str>,
    cwd: Option<&'a Path>,
    tools: T,
}

impl<'a> Description<'a, ()> {
    fn of(server: &'a Server, docs: &'a ServerDocs) -> impl Serialize + 'a {
        let tool = |item: ToolItem| {
            json!({
                "name": item.tool,
                "alias": item.tool_alias,
                "description": item.description,
                "input_schema": item.input_schema,
            })
        };
        // The user's description comes before the server's.
        let told = server.description.as_deref().or(docs.about().instructions.as_deref());
        let told = told.filter(|text| !text.trim().is_empty()).map(Cow::Borrowed);
        Description {
            name: &server.name,
            alias: &server.alias,
            description: told.or_else(|| docs.purpose().map(Cow::Owned)).unwrap_or_default(),
            cwd: server.definition.as_ref().ok().and_then(|definition| definition.launch.cwd()),
            tools: Items(move || items(server, docs, Detail::Full).map(tool)),
        }
    }
}

/// A list whose items are made while it is written.
struct Items<F>(F);

impl<F, I> Serialize for Items<F>
where
    F: Fn() -> I,
    I: Iterator<Item: Serialize>,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// Returns a server with its description: the user's, else what the server says of itself.
fn described<'a>(server: &'a Server, docs: Option<&ServerDocs>) -> ServerName<'a> {
    let told = server.description.as_deref().map(Cow::Borrowed);
    let description = told.or_else(|| docs?.purpose().map(Cow::Owned)).unwrap_or_default();
    ServerName { description: Some(description), ..ServerName::of(server) }
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
