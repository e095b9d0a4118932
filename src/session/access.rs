//! What a session lends to its code: the user's MCP servers. Looking at their documentation is free; calls go only to
//! those that the current run may use, whatever the sandbox claims.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Progress;
use super::queries::{Answer, QueryError};
use crate::upstream::catalog::{Detail, Parameter, ServerDocs, ToolItem, parameters};
use crate::upstream::discovery::{Server, Snapshot};
use crate::upstream::{ServerProgress, Upstream, UpstreamError};

/// Stands for every server in the list of a call.
const ANY: &str = "*";
/// How long a search waits for servers whose tools are not known yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Lines of what a server says that is slow to start.
const WORDS_OF_START: usize = 3;
/// Tools that one search tells of.
const MOST_FOUND: usize = 20;
/// Messages of a running call that wait to be passed on.
const WAITING_PROGRESS: usize = 16;

/// Which servers a run may use.
#[derive(Debug, Clone, Default)]
pub(super) enum Grant {
    /// None at all, without a look at what there is.
    #[default]
    Nothing,
    /// These.
    Named(Vec<Arc<Server>>),
    /// Every one, also one that is defined later; these are there now.
    Any(Arc<Snapshot>),
}

/// What the guest is told before a run.
#[derive(Serialize)]
struct Context<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    any: bool,
    servers: Vec<Named<'a>>,
}

/// A server as code is told of it.
#[derive(Debug, Serialize)]
struct Named<'a> {
    name: &'a str,
    alias: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
}

impl<'a> Named<'a> {
    fn of(server: &'a Server) -> Self {
        Self { name: &server.name, alias: &server.alias, description: None }
    }
}

impl Grant {
    /// What a call asks for.
    ///
    /// # Errors
    /// A server that there is not, or whose definition is not used; in words for the caller.
    pub(super) fn of(names: &[String], upstream: &Upstream) -> Result<Self, String> {
        if names.is_empty() {
            return Ok(Self::Nothing);
        }
        if names.iter().any(|name| name == ANY) {
            return Ok(Self::Any(upstream.snapshot()));
        }
        let mut servers: Vec<Arc<Server>> = Vec::with_capacity(names.len());
        for name in names {
            let server = upstream.server(name).map_err(|error| error.to_string())?;
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        Ok(Self::Named(servers))
    }

    /// What the guest is told before the run, as JSON.
    pub(super) fn context(&self) -> Vec<u8> {
        let (any, servers) = match self {
            Self::Nothing => return b"{}".to_vec(),
            Self::Named(servers) => (false, servers),
            Self::Any(snapshot) => (true, &snapshot.servers),
        };
        let servers = servers.iter().map(|server| Named::of(server)).collect();
        serde_json::to_vec(&Context { any, servers }).unwrap_or_else(|_| b"{}".to_vec())
    }

    fn allows(&self, server: &Server) -> bool {
        match self {
            Self::Nothing => false,
            Self::Named(servers) => servers.iter().any(|named| named.name == server.name),
            Self::Any(_) => true,
        }
    }
}

/// The servers as one interpreter may use them.
#[derive(Debug)]
pub(super) struct Lending {
    upstream: Upstream,
    current: Mutex<Current>,
}

/// What holds for the run under way; the grant goes on to hold for what it leaves in the background.
#[derive(Debug, Default)]
struct Current {
    grant: Grant,
    progress: Option<mpsc::Sender<Progress>>,
    /// Servers that were called, by the name that they were called by: looking one up takes longer than a call does.
    called: HashMap<String, Arc<Server>>,
    /// What is being asked of servers.
    under_way: Vec<Asked>,
    /// How long a search waits for servers that are being asked.
    patience: Duration,
}

#[derive(Debug, Deserialize)]
struct Servers {
    #[serde(default)]
    aliases: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct OneServer {
    server: String,
    /// Which counts where one server's alias is another one's name: code that goes by documented aliases means those.
    #[serde(default)]
    alias_first: bool,
}

#[derive(Debug, Deserialize)]
struct OneTool {
    server: String,
    tool: String,
    /// As for servers.
    #[serde(default)]
    alias_first: bool,
}

#[derive(Debug, Deserialize)]
struct Tools {
    server: String,
    #[serde(default)]
    tool: Option<String>,
    #[serde(default)]
    detail: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Search {
    query: String,
    #[serde(default)]
    limit: Option<i64>,
    #[serde(default)]
    detail: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Call {
    server: String,
    tool: String,
    arguments: Map<String, Value>,
}

impl Lending {
    pub(super) fn new(upstream: Upstream) -> Self {
        Self { upstream, current: Mutex::default() }
    }

    /// From here on code may use what this run may; `progress` hears of its calls.
    pub(super) fn begin(&self, grant: Grant, timeout: Duration, progress: mpsc::Sender<Progress>) {
        let mut current = self.lock();
        let under_way = std::mem::take(&mut current.under_way);
        // Code that has little time wants what is known.
        let patience = PATIENCE.min(timeout / 2);
        *current = Current { grant, progress: Some(progress), called: HashMap::new(), under_way, patience };
    }

    /// The run is over.
    pub(super) fn end(&self) {
        self.lock().progress = None;
    }

    /// What code waits for: calls as `server.tool`, servers that are still starting with their last words.
    pub(super) fn under_way(&self) -> Vec<String> {
        let asked = self.lock().under_way.clone();
        let described = |(server, tool): Asked| match (self.upstream.words_of_start(&server), tool) {
            (Some(words), _) => {
                let lines: Vec<&str> = words.lines().rev().take(WORDS_OF_START).collect();
                let said: String = lines.into_iter().rev().collect::<Vec<_>>().join(" | ");
                let said = if said.is_empty() { said } else { format!(" (it said: {said})") };
                format!("the server '{server}', which is still starting{said},")
            }
            (None, Some(tool)) => format!("{server}.{tool}"),
            (None, None) => format!("the server '{server}'"),
        };
        let mut described: Vec<String> = asked.into_iter().map(described).collect();
        described.dedup();
        described
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a question about servers; None when it is about something else.
    pub(super) async fn answer(
        &self,
        method: &str,
        params: &str,
        cancel: &CancellationToken,
    ) -> Option<Result<Answer, QueryError>> {
        Some(match method {
            "call" => self.call(params, cancel).await,
            "tool" => self.tool(params, cancel).await.map(Answer::Value),
            "tools" => self.tools(params, cancel).await.map(Answer::Value),
            "search" => self.search(params).await.map(Answer::Value),
            "server" => self.server(params).map(Answer::Value),
            "servers" => self.servers(params).map(Answer::Value),
            "describe" => self.describe(params, cancel).await.map(Answer::Value),
            _ => return None,
        })
    }

    fn servers(&self, params: &str) -> Result<Value, QueryError> {
        let Servers { aliases } = QueryError::read(params)?;
        let snapshot = self.upstream.snapshot();
        let wanted = |server: &&Arc<Server>| match &aliases {
            Some(aliases) => aliases.iter().any(|alias| **alias == *server.alias),
            None => true,
        };
        let described = |server: &Arc<Server>| {
            let description = server.description.as_deref().unwrap_or_default();
            json!(Named { description: Some(description), ..Named::of(server) })
        };
        Ok(snapshot.servers.iter().filter(wanted).map(described).collect())
    }

    fn server(&self, params: &str) -> Result<Value, QueryError> {
        let OneServer { server: name, alias_first } = QueryError::read(params)?;
        let snapshot = self.upstream.snapshot();
        let meant = snapshot.servers.iter().find(|server| alias_first && *server.alias == *name);
        let server = meant.map_or_else(|| self.upstream.server(&name), |server| Ok(Arc::clone(server)))?;
        Ok(json!(Named::of(&server)))
    }

    async fn describe(&self, params: &str, cancel: &CancellationToken) -> Result<Value, QueryError> {
        let OneServer { server, .. } = QueryError::read(params)?;
        let (server, docs) = self.docs_of(&server, cancel).await?;
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
        // The user's words count more than the server's.
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

    async fn tool(&self, params: &str, cancel: &CancellationToken) -> Result<Value, QueryError> {
        let OneTool { server, tool, alias_first } = QueryError::read(params)?;
        let item = self.item(&server, &tool, alias_first, Detail::Full, cancel).await?;
        let schema = item.input_schema.clone().unwrap_or_default();
        let parameters: Vec<Value> =
            parameters(&schema).iter().map(|parameter| described(parameter, &schema)).collect();
        let mut value = told(&item, Detail::Full);
        value["parameters"] = parameters.into();
        Ok(value)
    }

    async fn tools(&self, params: &str, cancel: &CancellationToken) -> Result<Value, QueryError> {
        let Tools { server, tool, detail } = QueryError::read(params)?;
        let detail = detail_of(detail.as_deref())?;
        let found = match tool {
            Some(tool) => vec![told(&self.item(&server, &tool, false, detail, cancel).await?, detail)],
            None => {
                let (server, docs) = self.docs_of(&server, cancel).await?;
                items(&server, &docs, detail).map(|item| told(&item, detail)).collect()
            }
        };
        Ok(found.into())
    }

    /// The documentation of a server, which is started if nothing is known of it.
    async fn docs_of(
        &self,
        server: &str,
        cancel: &CancellationToken,
    ) -> Result<(Arc<Server>, Arc<ServerDocs>), QueryError> {
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
    ) -> Result<ToolItem, QueryError> {
        let item = |server: &Server, docs: &ServerDocs| {
            let aliased = docs.tools().iter().position(|known| alias_first && *known.alias == *tool);
            ToolItem::new(&server.name, &server.alias, docs, aliased.or_else(|| docs.position(tool))?, detail)
        };
        let (known, docs) = self.docs_of(server, cancel).await?;
        if let Some(item) = item(&known, &docs) {
            return Ok(item);
        }
        // It may be newer than what is known; if it is not there either, the error names one that is like it.
        let under_way = UnderWay::new(self, &known, None);
        self.upstream.tool(server, tool, cancel).await?;
        drop(under_way);
        let (known, docs) = self.docs_of(server, cancel).await?;
        item(&known, &docs).ok_or_else(|| {
            QueryError::plain(format!("the documentation of {server}.{tool} is not to be had"))
        })
    }

    async fn search(&self, params: &str) -> Result<Value, QueryError> {
        let Search { query, limit, detail } = QueryError::read(params)?;
        let detail = detail_of(detail.as_deref())?;
        let limit = limit.unwrap_or(5).clamp(1, MOST_FOUND as i64);
        let patience = self.lock().patience;
        let found = self.upstream.search(&query, usize::try_from(limit).unwrap_or(1), detail, patience).await;
        // One that could not be asked will not be known a moment later either.
        let pending = found.unknown.iter().filter(|server| server.failure.is_none());
        let pending: Vec<_> = pending.map(|server| &server.name).collect();
        let items: Vec<Value> = found.tools.iter().map(|item| told(item, detail)).collect();
        Ok(json!({ "items": items, "pending": pending }))
    }

    async fn call(&self, params: &str, cancel: &CancellationToken) -> Result<Answer, QueryError> {
        let Call { server, tool, arguments } = QueryError::read(params)?;
        let (server, progress) = self.granted(server)?;
        let progress = progress.map(|progress| pass_on(&server, &tool, progress));
        let _under_way = UnderWay::new(self, &server, Some(&tool));
        let outcome = self.upstream.call_of(&server, &tool, arguments, progress, cancel).await?;
        Ok(Answer::Raw(outcome.json))
    }

    /// The server of a name that the run under way may call, and who hears of the call.
    fn granted(&self, name: String) -> Result<(Arc<Server>, Option<mpsc::Sender<Progress>>), QueryError> {
        let mut current = self.lock();
        let progress = current.progress.clone();
        if let Some(server) = current.called.get(&name) {
            return Ok((Arc::clone(server), progress));
        }
        let server = self.upstream.server(&name)?;
        if !current.grant.allows(&server) {
            return Err(QueryError::of_kind("server", not_available(&server)));
        }
        current.called.insert(name, Arc::clone(&server));
        Ok((server, progress))
    }
}

/// A call under way, as long as it lives.
struct UnderWay<'a> {
    lending: &'a Lending,
    asked: Asked,
}

/// A server and, for a call, the tool.
type Asked = (Arc<str>, Option<String>);

impl<'a> UnderWay<'a> {
    fn new(lending: &'a Lending, server: &Server, tool: Option<&str>) -> Self {
        let asked = (Arc::clone(&server.name), tool.map(str::to_owned));
        lending.lock().under_way.push(asked.clone());
        Self { lending, asked }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut current = self.lending.lock();
        if let Some(at) = current.under_way.iter().position(|asked| *asked == self.asked) {
            current.under_way.swap_remove(at);
        }
    }
}

fn not_available(server: &Server) -> String {
    let name = json!(server.name);
    format!(
        "Server '{}' is not available: this call of run_python may not use it. Name it in the call: servers=[{name}], \
         or servers=[\"*\"] for any.",
        server.name
    )
}

/// Passes on what a server says of a call, for as long as it runs.
fn pass_on(server: &Server, tool: &str, progress: mpsc::Sender<Progress>) -> mpsc::Sender<ServerProgress> {
    let (sender, mut said) = mpsc::channel::<ServerProgress>(WAITING_PROGRESS);
    let name = format!("{}.{tool}", server.name);
    tokio::spawn(async move {
        while let Some(one) = said.recv().await {
            // What nobody has time for is out of date by then.
            let _ = progress.try_send(Progress::Calling(described_progress(&name, &one)));
        }
    });
    sender
}

fn described_progress(name: &str, said: &ServerProgress) -> String {
    let so_far = match said.total {
        Some(total) => format!("{}/{total}", said.progress),
        None => said.progress.to_string(),
    };
    match &said.message {
        Some(message) => format!("{name}: {message} ({so_far})"),
        None => format!("{name}: {so_far}"),
    }
}

fn items(server: &Server, docs: &ServerDocs, detail: Detail) -> impl Iterator<Item = ToolItem> {
    (0..docs.tools().len())
        .filter_map(move |tool| ToolItem::new(&server.name, &server.alias, docs, tool, detail))
}

/// A tool as code reads it: by its keys, so that in full all of them are there, also without a schema of results.
fn told(item: &ToolItem, detail: Detail) -> Value {
    let mut value = json!(item);
    if detail == Detail::Full && item.output_schema.is_none() {
        value["outputSchema"] = Value::Null;
    }
    value
}

fn described(parameter: &Parameter, schema: &Value) -> Value {
    json!({
        "name": parameter.name,
        "required": parameter.required,
        "type": parameter.type_name,
        "default": schema["properties"][&parameter.name]["default"],
    })
}

fn detail_of(name: Option<&str>) -> Result<Detail, QueryError> {
    let name = name.unwrap_or("summary");
    Detail::parse(name).ok_or_else(|| {
        QueryError::plain(format!("detail is 'summary' or 'full', not '{}'", name.escape_debug()))
    })
}

impl From<UpstreamError> for QueryError {
    fn from(error: UpstreamError) -> Self {
        let kind = match &error {
            UpstreamError::Unknown { .. } | UpstreamError::Skipped { .. } => Some("server"),
            UpstreamError::UnknownTool { .. } => Some("tool"),
            UpstreamError::Arguments { .. } => Some("arguments"),
            _ => None,
        };
        let text = match error.hint() {
            Some(hint) => format!("{error}. {hint}"),
            None => error.to_string(),
        };
        Self { kind, text }
    }
}
