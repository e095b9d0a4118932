//! `codebridge tools`: the documentation of tools.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::errors::CommandError;
use super::output::write;
use super::say::say;
use super::servers::{in_a_line, say_none_defined};
use super::signals::until_stopped;
use super::spinner::Spinner;
use super::{Form, SearchArgs, ToolsCommand};
use crate::error::Exit;
use crate::upstream::catalog::{Detail, ServerDocs, ToolItem};
use crate::upstream::discovery::Server;
use crate::upstream::{CalledBy, Searched, UnknownServer, UpstreamError, shell_word};
use crate::workspace::Workspace;

/// How long a search waits for servers that were never asked.
const ASK_LIMIT: Duration = Duration::from_secs(60);
/// Servers that are named, of those that could not be searched.
const NAMED: usize = 5;

pub(super) async fn tools(workspace: &Workspace, command: ToolsCommand) -> Result<ExitCode, CommandError> {
    match command {
        ToolsCommand::Search(args) => search(workspace, args).await,
        ToolsCommand::Show { name, form } => show(workspace, &name, &form).await,
    }
}

async fn search(workspace: &Workspace, args: SearchArgs) -> Result<ExitCode, CommandError> {
    workspace.upstream.usable()?;
    let query = args.query.join(" ");
    let stop = CancellationToken::new();
    let search = async {
        tokio::select! {
            searched = workspace.upstream.search(&query, args.limit.into(), args.detail, ASK_LIMIT) => searched,
            () = stop.cancelled() => Searched::default(),
        }
    };
    let mut spinner = Spinner::default();
    spinner.show("searching".into());
    let Searched { mut tools, unknown } = until_stopped(workspace, &stop, search).await?;
    spinner.clear();
    workspace.upstream.mark_denied(&mut tools, &CalledBy::default());
    say_unknown(unknown);
    if tools.is_empty() && workspace.upstream.snapshot().servers.is_empty() {
        say_none_defined(workspace);
    } else if tools.is_empty() {
        say(format_args!("no tool matches '{query}'"));
        say("hint: use other words, or list servers with `codebridge servers`");
    }
    write(&args.form, &tools, tools.iter().map(described).collect(), Exit::Success).await
}

/// Says which servers could not be searched: of one why, of several their names.
fn say_unknown(mut unknown: Vec<UnknownServer>) {
    if unknown.len() > 1 {
        let names: Vec<&str> = unknown.iter().take(NAMED).map(|server| server.name.as_str()).collect();
        let more = if unknown.len() > NAMED { " and others" } else { "" };
        let (count, names) = (unknown.len(), names.join(", "));
        say(format_args!("warning: the tools of {count} servers are not known: {names}{more}"));
        return say("hint: `codebridge servers` says why, `codebridge servers refresh` asks them again");
    }
    let Some(server) = unknown.pop() else { return };
    let failure = server.failure.map(|failure| failure.why);
    let why = failure.as_ref().map_or_else(|| "it has not answered yet".into(), |why| in_a_line(&why.error));
    say(format_args!("warning: the tools of '{}' are not known: {why}", server.name));
    let refresh = format!("run `codebridge servers refresh {}`", shell_word(&server.name));
    match failure.and_then(|why| why.hint) {
        Some(hint) => say(format_args!("hint: {hint}; then {refresh}")),
        None => say(format_args!("hint: {refresh}")),
    }
}

async fn show(workspace: &Workspace, name: &str, form: &Form) -> Result<ExitCode, CommandError> {
    let (server, tool) = split(workspace, name);
    let stop = CancellationToken::new();
    let docs = workspace.upstream.docs_of(server, &stop);
    let mut spinner = Spinner::default();
    spinner.show("asking the server for its tools".into());
    let docs = until_stopped(workspace, &stop, docs).await?;
    spinner.clear();
    let (server, docs) = docs?;
    let mut items = items(&server, &docs, tool)?;
    workspace.upstream.mark_denied(&mut items, &CalledBy::default());
    let text: String = items.iter().map(described).collect();
    match (tool, items.as_slice()) {
        (Some(_), [item]) => write(form, item, text, Exit::Success).await,
        _ => write(form, &items, text, Exit::Success).await,
    }
}

/// Returns one tool in full, or all in short.
fn items(server: &Server, docs: &ServerDocs, tool: Option<&str>) -> Result<Vec<ToolItem>, UpstreamError> {
    let item = |at, detail| ToolItem::new(&server.name, &server.alias, docs, at, detail);
    let Some(tool) = tool else {
        return Ok((0..docs.tools().len()).filter_map(|at| item(at, Detail::Summary)).collect());
    };
    let found = docs.position(tool).and_then(|at| item(at, Detail::Full));
    found.map(|item| vec![item]).ok_or_else(|| UpstreamError::UnknownTool {
        server: Arc::clone(&server.name),
        tool: tool.to_owned(),
        nearest: docs.nearest(tool).map(Into::into),
    })
}

/// Returns a tool for people: how to call it, what it does, and its schemas if they are there.
fn described(item: &ToolItem) -> String {
    let mut text = match item.kind {
        None => format!("{}.{}\n", item.server_alias, item.signature),
        Some(kind) => format!("{}    ({kind})\n", item.signature),
    };
    for line in item.description.lines() {
        text.push_str(format!("    {line}").trim_end());
        text.push('\n');
    }
    if !item.servers.is_empty() {
        text.push_str(&format!("  it uses the servers: {}\n", item.servers.join(", ")));
    }
    if let Some(state) = &item.state {
        text.push_str(&format!("  {state}: see `codebridge saved test {}`\n", item.name));
    }
    if item.denied {
        text.push_str("  the policy denies it\n");
    }
    for suspicious in &item.suspicious {
        text.push_str(&format!("  warning: it has {suspicious}\n"));
    }
    let schemas = [
        ("arguments", &item.input_schema),
        ("result", &item.output_schema),
        ("result, as seen", &item.seen_schema),
    ];
    for (name, schema) in schemas {
        if let Some(schema) = schema.as_ref().and_then(|schema| serde_json::to_string_pretty(schema).ok()) {
            text.push_str(&format!("  {name}: {}\n", schema.replace('\n', "\n  ")));
        }
    }
    text
}

/// Splits `SERVER.TOOL`. Both can have dots: the server is the part that names one.
pub(super) fn split<'a>(workspace: &Workspace, name: &'a str) -> (&'a str, Option<&'a str>) {
    let is_server =
        |name: &str| !matches!(workspace.upstream.server(name), Err(UpstreamError::Unknown { .. }));
    if is_server(name) {
        return (name, None);
    }
    let parts = || name.match_indices('.').map(|(at, _)| (&name[..at], Some(&name[at + 1..])));
    parts().find(|(server, _)| is_server(server)).or_else(|| parts().next()).unwrap_or((name, None))
}
