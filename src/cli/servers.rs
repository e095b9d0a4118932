//! `codebridge servers`: which MCP servers the user has, and what is known of them.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

use codebridge_runtimes::exec::visible_line;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::errors::CommandError;
use super::output::{columns, write};
use super::say::say;
use super::signals::until_stopped;
use super::{Form, ServersArgs, ServersCommand, trust};
use crate::error::Exit;
use crate::upstream::catalog::ServerDocs;
use crate::upstream::discovery::{Server, Skip};
use crate::upstream::{UpstreamError, trust_command};
use crate::workspace::Workspace;

/// One definition, as it is shown: without arguments, environment and headers, which hold credentials.
#[derive(Debug, Serialize)]
struct ServerEntry {
    name: String,
    alias: String,
    /// `stdio` or `http`; None for a definition that is not used.
    transport: Option<&'static str>,
    /// What is known of its tools. Whether it runs is not known here: it runs in another bridge.
    state: &'static str,
    /// The number of tools, as far as it is known.
    tools: Option<usize>,
    /// Whether calls can use it.
    used: bool,
    /// File and line.
    source: String,
    description: Option<String>,
    /// Why it is not used.
    skipped: Option<String>,
    /// Why it did not list its tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl ServerEntry {
    fn of(server: &Server, docs: Option<&ServerDocs>, failure: Option<&UpstreamError>) -> Self {
        let state = match (&server.definition, docs, failure) {
            (Err(Skip::Untrusted(_)), ..) => "untrusted",
            (Err(_), ..) => "skipped",
            (Ok(_), _, Some(_)) => "failed",
            (Ok(_), Some(_), None) => "known",
            // The server is asked at the first search, or at its first use.
            (Ok(_), None, None) => "new",
        };
        Self {
            name: server.name.to_string(),
            alias: server.alias.to_string(),
            transport: server.definition.as_ref().ok().map(|definition| definition.launch.transport()),
            state,
            tools: docs.map(|docs| docs.tools().len()),
            used: server.definition.is_ok(),
            source: server.source.to_string(),
            description: server.description.clone(),
            skipped: server.definition.as_ref().err().map(ToString::to_string),
            error: failure.map(ToString::to_string),
        }
    }

    /// Returns the most important thing to say of it, in a line.
    fn remark(&self) -> String {
        if self.state == "untrusted" {
            return format!("to use it, run `{}`", trust_command(&self.name));
        }
        let remark = self.skipped.as_ref().or(self.error.as_ref()).or(self.description.as_ref());
        remark.map(|remark| in_a_line(remark)).unwrap_or_default()
    }
}

pub(super) async fn servers(workspace: &Workspace, args: ServersArgs) -> Result<ExitCode, CommandError> {
    match args.command {
        None => list(workspace, &args.form).await,
        Some(ServersCommand::Trust { name }) => trust::trust(workspace, name).await,
        Some(ServersCommand::Refresh { names, form }) => refresh(workspace, &names, &form).await,
    }
}

/// Lists every definition, used or not. Files that cannot be read are named on standard error.
async fn list(workspace: &Workspace, form: &Form) -> Result<ExitCode, CommandError> {
    let known = workspace.upstream.all_known_docs().await.into_iter();
    let mut docs: HashMap<_, _> =
        known.filter_map(|(server, docs)| docs.map(|docs| (Arc::clone(&server.name), docs))).collect();
    let snapshot = workspace.upstream.snapshot();
    let used = snapshot.servers.iter();
    let used = used.map(|server| ServerEntry::of(server, docs.remove(&server.name).as_deref(), None));
    let skipped = snapshot.skipped.iter().map(|server| ServerEntry::of(server, None, None));
    let entries: Vec<ServerEntry> = used.chain(skipped).collect();
    for warning in snapshot.warnings_of_files() {
        say(format_args!("warning: {warning}"));
    }
    write(form, &entries, table(&entries), Exit::Success).await
}

/// Asks servers for their tools, and keeps the answers for searches.
async fn refresh(workspace: &Workspace, names: &[String], form: &Form) -> Result<ExitCode, CommandError> {
    for name in names {
        workspace.upstream.server(name)?;
    }
    let stop = CancellationToken::new();
    let refreshed = until_stopped(workspace, &stop, workspace.upstream.refresh(names, &stop)).await?;
    let entries: Vec<ServerEntry> = refreshed
        .iter()
        .filter_map(|one| Some((workspace.upstream.server(&one.name).ok()?, &one.docs)))
        .map(|(server, docs)| ServerEntry::of(&server, docs.as_deref().ok(), docs.as_ref().err()))
        .collect();
    let mut exit = Exit::Success;
    for error in refreshed.iter().filter_map(|one| one.docs.as_ref().err()) {
        say(format_args!("error: {error}"));
        exit = Exit::Server;
    }
    write(form, &entries, table(&entries), exit).await
}

fn table(entries: &[ServerEntry]) -> String {
    if entries.is_empty() {
        return "no servers are defined\n".into();
    }
    let rows = entries.iter().map(|entry| {
        vec![
            // The name of a skipped definition can be anything.
            visible_line(&entry.name),
            entry.transport.unwrap_or("-").to_string(),
            entry.state.to_string(),
            entry.tools.map_or_else(|| "-".into(), |tools| tools.to_string()),
            visible_line(&entry.source),
            entry.remark(),
        ]
    });
    columns(&["NAME", "TRANSPORT", "STATE", "TOOLS", "SOURCE", ""], rows)
}

/// Returns the first line of a text, and the last one with words: what a server prints before it exits can be long.
pub(super) fn in_a_line(text: &str) -> String {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    match lines.rfind(|line| line.contains(char::is_alphabetic)) {
        Some(last) => format!("{first} {}", last.trim_start_matches(|c: char| !c.is_alphanumeric())),
        None => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_text_the_first_and_the_last_line_are_shown() {
        for (text, line) in [
            ("", ""),
            ("it ended", "it ended"),
            (
                "the end of its stderr:\nTraceback\n  | Error: no luck\n  +----\n",
                "the end of its stderr: Error: no luck",
            ),
        ] {
            assert_eq!(in_a_line(text), line);
        }
    }
}
