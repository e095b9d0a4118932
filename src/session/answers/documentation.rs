//! The documentation of servers and their tools, as code reads it. Code may read that of all servers.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::access::{ServerAccess, UnderWay};
use super::grant::ServerName;
use crate::session::questions::{
    Answer, OneServer, OneTool, QuestionError, Search, ServerFilter, ToolFilter, ok,
};
use crate::upstream::catalog::{Detail, Parameter, Schemas, ServerDocs, ToolItem, parameters};
use crate::upstream::discovery::Server;

/// Tools in the result of one search.
const MOST_FOUND: usize = 20;

impl ServerAccess {
    /// Returns the names of the defined servers, and what each is for if that is wanted.
    pub(in crate::session) async fn servers(&self, filter: ServerFilter) -> Result<Answer, QuestionError> {
        if filter.detailed {
            self.upstream.usable()?;
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
            let snapshot = upstream.usable()?;
            ok(&Items(|| snapshot.servers.iter().filter(wanted).map(|server| ServerName::of(server))))
        })
    }

    /// Returns the schemas of tools, as far as the catalogue has them.
    pub(in crate::session) async fn schemas(&self) -> Schemas {
        self.upstream.known_schemas().await
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

    /// Returns the tools of all servers that fit a query best.
    pub(in crate::session) async fn search(&self, search: &Search) -> Result<Answer, QuestionError> {
        let Search { query, limit, detail } = search;
        let detail = detail_of(detail.as_deref())?;
        let limit = limit.unwrap_or(5).clamp(1, MOST_FOUND as i64);
        let patience = self.patience();
        self.upstream.usable()?;
        let turn = self.searches.acquire().await;
        let mut found =
            self.upstream.search(query, usize::try_from(limit).unwrap_or(1), detail, patience).await;
        drop(turn);
        self.upstream.mark_denied(&mut found.tools, &self.by());
        Answer::work(move || {
            // The tools of a server that failed will not be known a moment later either.
            let pending = found.unknown.iter().filter(|server| server.failure.is_none());
            let pending: Vec<_> = pending.map(|server| &server.name).collect();
            let items: Vec<Value> = found.tools.iter().map(|item| tool_value(item, detail)).collect();
            ok(&json!({ "items": items, "pending": pending }))
        })
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
}

/// What is known of a server.
#[derive(Serialize)]
struct Description<'a, T> {
    name: &'a str,
    alias: &'a str,
    description: Cow<'a, str>,
    /// What the server says about its use.
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
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
            instructions: docs.about().instructions.as_deref().filter(|text| !text.trim().is_empty()),
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
    for (key, schema) in [("inputSchema", &item.input_schema), ("outputSchema", &item.output_schema)] {
        if detail == Detail::Full && schema.is_none() {
            value[key] = Value::Null;
        }
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
