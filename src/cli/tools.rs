//! `codebridge tools` and `codebridge call`: what the user's MCP servers can do, and doing it.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::host::{print, write};
use super::servers::{exit_of, in_a_line};
use super::signals::Signals;
use super::{CallArgs, Form, SearchArgs, ToolsCommand, complain};
use crate::error::Exit;
use crate::upstream::catalog::{Detail, ServerDocs, ToolItem};
use crate::upstream::discovery::Server;
use crate::upstream::{CallOptions, Searched, UpstreamError};
use crate::workspace::Workspace;

/// How long servers that were never asked are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn tools(workspace: &Workspace, command: ToolsCommand) -> ExitCode {
    match command {
        ToolsCommand::Search(args) => search(workspace, args).await,
        ToolsCommand::Show { name, form } => show(workspace, &name, &form).await,
    }
}

async fn search(workspace: &Workspace, args: SearchArgs) -> ExitCode {
    let query = args.query.join(" ");
    let stop = CancellationToken::new();
    let search = async {
        tokio::select! {
            searched = workspace.upstream.search(&query, args.limit.into(), args.detail, PATIENCE) => searched,
            () = stop.cancelled() => Searched::default(),
        }
    };
    let Searched { tools, unknown } = match until_told(workspace, &stop, search).await {
        Ok(searched) => searched,
        Err(exit) => return exit,
    };
    for server in unknown {
        let why = server.failure.as_deref().map_or_else(|| "it has not answered yet".into(), in_a_line);
        eprintln!("codebridge: what '{0}' offers is not known: {why}", server.name);
        eprintln!("hint: `codebridge servers refresh {}` asks it now", server.name);
    }
    let mut text: String = tools.iter().map(described).collect();
    if text.is_empty() {
        text = "nothing fits\n".into();
    }
    write(&args.form, &tools, text, Exit::Success).await
}

async fn show(workspace: &Workspace, name: &str, form: &Form) -> ExitCode {
    let (server, tool) = split(workspace, name);
    let stop = CancellationToken::new();
    let docs = match until_told(workspace, &stop, workspace.upstream.docs_of(server, &stop)).await {
        Ok(Ok((server, docs))) => items(&server, &docs, tool),
        Ok(Err(error)) => Err(error),
        Err(exit) => return exit,
    };
    let items = match docs {
        Ok(items) => items,
        Err(error) => return complain(&error, error.hint().as_deref(), exit_of(&error)),
    };
    let text: String = items.iter().map(described).collect();
    match (tool, items.as_slice()) {
        (Some(_), [item]) => write(form, item, text, Exit::Success).await,
        _ => write(form, &items, text, Exit::Success).await,
    }
}

/// One tool in full, or all in a few words.
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

/// A tool for people: how it is called, what it does, and its schemas when they are there.
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

/// Calls one tool and prints its MCP result as JSON. Ctrl-C cancels the call.
pub(super) async fn call(workspace: &Workspace, args: CallArgs) -> ExitCode {
    let arguments = match serde_json::from_str::<Map<String, Value>>(&args.arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let error = io::Error::other(format!("the arguments are no JSON object: {error}"));
            return complain(&error, None, Exit::Usage);
        }
    };
    let (server, Some(tool)) = split(workspace, &args.tool) else {
        let error = io::Error::other(format!("'{}' is not of the form SERVER.TOOL", args.tool));
        return complain(&error, None, Exit::Usage);
    };
    let stop = CancellationToken::new();
    let call = workspace.upstream.call(server, tool, arguments, CallOptions::new(&stop));
    match until_told(workspace, &stop, call).await {
        Ok(Ok(outcome)) => {
            let exit = if outcome.is_error { Exit::Tool } else { Exit::Success };
            match print(&format!("{}\n", outcome.json.get())).await {
                Ok(()) => exit.into(),
                Err(error) => complain(&error, None, Exit::Io),
            }
        }
        Ok(Err(error)) => complain(&error, error.hint().as_deref(), exit_of(&error)),
        Err(exit) => exit,
    }
}

/// Does the work and ends the servers that it needed; told to stop, it says how the program ends.
pub(super) async fn until_told<T>(
    workspace: &Workspace,
    stop: &CancellationToken,
    work: impl Future<Output = T>,
) -> Result<T, ExitCode> {
    let signals = Signals::listen().map_err(|error| complain(&error, None, Exit::Io))?;
    let work = async {
        let done = work.await;
        workspace.close().await;
        done
    };
    match signals.until_told_twice(stop, work).await {
        (Some(done), None) => Ok(done),
        (_, told) => Err(told.unwrap_or(Exit::Interrupted).into()),
    }
}

/// `SERVER.TOOL`, where both may have dots: the server is what there is one of.
fn split<'a>(workspace: &Workspace, name: &'a str) -> (&'a str, Option<&'a str>) {
    let is_server =
        |name: &str| !matches!(workspace.upstream.server(name), Err(UpstreamError::Unknown { .. }));
    if is_server(name) {
        return (name, None);
    }
    let parts = || name.match_indices('.').map(|(at, _)| (&name[..at], Some(&name[at + 1..])));
    parts().find(|(server, _)| is_server(server)).or_else(|| parts().next()).unwrap_or((name, None))
}
