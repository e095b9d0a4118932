//! `codebridge tools` and `codebridge call`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::errors::CommandError;
use super::output::{print, write};
use super::say::say;
use super::servers::in_a_line;
use super::signals::until_stopped;
use super::{CallArgs, Form, SearchArgs, ToolsCommand};
use crate::error::Exit;
use crate::upstream::catalog::{Detail, ServerDocs, ToolItem};
use crate::upstream::discovery::Server;
use crate::upstream::{CallOptions, RawArguments, Searched, UpstreamError};
use crate::workspace::Workspace;

/// How long a search waits for servers that were never asked.
const ASK_LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn tools(workspace: &Workspace, command: ToolsCommand) -> Result<ExitCode, CommandError> {
    match command {
        ToolsCommand::Search(args) => search(workspace, args).await,
        ToolsCommand::Show { name, form } => show(workspace, &name, &form).await,
    }
}

async fn search(workspace: &Workspace, args: SearchArgs) -> Result<ExitCode, CommandError> {
    let query = args.query.join(" ");
    let stop = CancellationToken::new();
    let search = async {
        tokio::select! {
            searched = workspace.upstream.search(&query, args.limit.into(), args.detail, ASK_LIMIT) => searched,
            () = stop.cancelled() => Searched::default(),
        }
    };
    let Searched { tools, unknown } = until_stopped(workspace, &stop, search).await?;
    for server in unknown {
        let why = server.failure.as_deref().map_or_else(|| "it has not answered yet".into(), in_a_line);
        say(format_args!("warning: the tools of '{}' are not known: {why}", server.name));
        say(format_args!("hint: run `codebridge servers refresh {}`", server.name));
    }
    let mut text: String = tools.iter().map(described).collect();
    if text.is_empty() {
        text = "no tool matches\n".into();
    }
    write(&args.form, &tools, text, Exit::Success).await
}

async fn show(workspace: &Workspace, name: &str, form: &Form) -> Result<ExitCode, CommandError> {
    let (server, tool) = split(workspace, name);
    let stop = CancellationToken::new();
    let docs = workspace.upstream.docs_of(server, &stop);
    let (server, docs) = until_stopped(workspace, &stop, docs).await??;
    let items = items(&server, &docs, tool)?;
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
    let mut text = format!("{}.{}\n", item.server_alias, item.signature);
    for line in item.description.lines() {
        text.push_str(format!("    {line}").trim_end());
        text.push('\n');
    }
    for (name, schema) in [("arguments", &item.input_schema), ("result", &item.output_schema)] {
        if let Some(schema) = schema.as_ref().and_then(|schema| serde_json::to_string_pretty(schema).ok()) {
            text.push_str(&format!("  {name}: {}\n", schema.replace('\n', "\n  ")));
        }
    }
    text
}

/// Calls a tool and prints its MCP result as JSON. Ctrl-C cancels the call.
pub(super) async fn call(workspace: &Workspace, args: CallArgs) -> Result<ExitCode, CommandError> {
    let arguments = RawArguments::new(args.arguments).map_err(CommandError::Arguments)?;
    let (server, Some(tool)) = split(workspace, &args.tool) else {
        return Err(CommandError::ToolName(args.tool));
    };
    let stop = CancellationToken::new();
    let call = workspace.upstream.call(server, tool, arguments, CallOptions::new(&stop));
    let outcome = until_stopped(workspace, &stop, call).await??;
    print(&format!("{}\n", outcome.json.get())).await?;
    let exit = if outcome.is_error { Exit::Tool } else { Exit::Success };
    Ok(exit.into())
}

/// Splits `SERVER.TOOL`. Both can have dots: the server is the part that names one.
fn split<'a>(workspace: &Workspace, name: &'a str) -> (&'a str, Option<&'a str>) {
    let is_server =
        |name: &str| !matches!(workspace.upstream.server(name), Err(UpstreamError::Unknown { .. }));
    if is_server(name) {
        return (name, None);
    }
    let parts = || name.match_indices('.').map(|(at, _)| (&name[..at], Some(&name[at + 1..])));
    parts().find(|(server, _)| is_server(server)).or_else(|| parts().next()).unwrap_or((name, None))
}
