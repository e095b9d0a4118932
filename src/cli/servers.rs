//! `codebridge servers`: which MCP servers the user has, and what is known of them.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::host::write;
use super::table::columns;
use super::tools::until_told;
use super::{Form, ServersArgs, ServersCommand, complain};
use crate::error::Exit;
use crate::upstream::UpstreamError;
use crate::upstream::catalog::ServerDocs;
use crate::upstream::discovery::Server;
use crate::workspace::Workspace;

/// One definition, as it is shown. Nothing of its arguments, environment or headers: they hold credentials.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    alias: String,
    /// `stdio` or `http`; none for a definition that is not used.
    transport: Option<&'static str>,
    state: State,
    /// How many tools it has, as far as that is known.
    tools: Option<usize>,
    /// Whether calls may use it.
    used: bool,
    /// File and line.
    source: String,
    description: Option<String>,
    /// Why it is not used.
    skipped: Option<String>,
    /// Why it could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What is known of a server. Those that run belong to other bridges, which do not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// What it offers.
    Known,
    /// Nothing yet: it is asked at the first search, or its first use.
    New,
    /// That it could not be asked just now.
    Failed,
    /// That it is not used.
    Skipped,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::New => "new",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

impl Shown {
    fn of(server: &Server, docs: Option<&ServerDocs>, failure: Option<&UpstreamError>) -> Self {
        let state = match (&server.definition, docs, failure) {
            (Err(_), ..) => State::Skipped,
            (Ok(_), _, Some(_)) => State::Failed,
            (Ok(_), Some(_), None) => State::Known,
            (Ok(_), None, None) => State::New,
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

    /// What is to be said of it in a line.
    fn remark(&self) -> String {
        let remark = self.skipped.as_ref().or(self.error.as_ref()).or(self.description.as_ref());
        remark.map(|remark| in_a_line(remark)).unwrap_or_default()
    }
}

pub(super) async fn servers(workspace: &Workspace, args: ServersArgs) -> ExitCode {
    match args.command {
        None => list(workspace, &args.form).await,
        Some(ServersCommand::Refresh { names, form }) => refresh(workspace, &names, &form).await,
    }
}

/// Lists every definition that was found, used or not; what is wrong with files goes to standard error.
async fn list(workspace: &Workspace, form: &Form) -> ExitCode {
    let mut docs: HashMap<_, _> = workspace
        .upstream
        .all_known_docs()
        .await
        .into_iter()
        .filter_map(|(server, docs)| docs.map(|docs| (Arc::clone(&server.name), docs)))
        .collect();
    let snapshot = workspace.upstream.snapshot();
    let used =
        snapshot.servers.iter().map(|server| Shown::of(server, docs.remove(&server.name).as_deref(), None));
    let skipped = snapshot.skipped.iter().map(|server| Shown::of(server, None, None));
    let shown: Vec<Shown> = used.chain(skipped).collect();
    for warning in &snapshot.warnings {
        eprintln!("codebridge: {warning}");
    }
    write(form, &shown, table(&shown), Exit::Success).await
}

/// Asks servers what they offer, and keeps that for searches to come.
async fn refresh(workspace: &Workspace, names: &[String], form: &Form) -> ExitCode {
    for name in names {
        if let Err(error) = workspace.upstream.server(name) {
            return complain(&error, error.hint().as_deref(), exit_of(&error));
        }
    }
    let stop = CancellationToken::new();
    let refreshed = match until_told(workspace, &stop, workspace.upstream.refresh(names, &stop)).await {
        Ok(refreshed) => refreshed,
        Err(exit) => return exit,
    };
    let shown: Vec<Shown> = refreshed
        .iter()
        .filter_map(|one| Some((workspace.upstream.server(&one.name).ok()?, &one.docs)))
        .map(|(server, docs)| Shown::of(&server, docs.as_deref().ok(), docs.as_ref().err()))
        .collect();
    let has_failed = refreshed.iter().any(|one| one.docs.is_err());
    for error in refreshed.iter().filter_map(|one| one.docs.as_ref().err()) {
        eprintln!("codebridge: {error}");
    }
    write(form, &shown, table(&shown), if has_failed { Exit::Server } else { Exit::Success }).await
}

fn table(shown: &[Shown]) -> String {
    if shown.is_empty() {
        return "no servers are defined\n".into();
    }
    let rows = shown.iter().map(|one| {
        vec![
            // One that is skipped may be called anything.
            one.name.replace(char::is_control, "\u{fffd}"),
            one.transport.unwrap_or("-").to_string(),
            one.state.name().to_string(),
            one.tools.map_or_else(|| "-".into(), |tools| tools.to_string()),
            one.source.clone(),
            one.remark(),
        ]
    });
    columns(&["NAME", "TRANSPORT", "STATE", "TOOLS", "SOURCE", ""], rows)
}

/// The first line, and the last one with words in it: what a server says before it ends can be long.
pub(super) fn in_a_line(text: &str) -> String {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    match lines.rfind(|line| line.contains(char::is_alphabetic)) {
        Some(last) => format!("{first} {}", last.trim_start_matches(|c: char| !c.is_alphanumeric())),
        None => first.to_owned(),
    }
}

/// Whether it was the command line that went wrong, or the server.
pub(super) fn exit_of(error: &UpstreamError) -> Exit {
    match error {
        UpstreamError::Unknown { .. }
        | UpstreamError::Skipped { .. }
        | UpstreamError::UnknownTool { .. }
        | UpstreamError::Arguments { .. } => Exit::Usage,
        UpstreamError::Start { .. }
        | UpstreamError::Resting { .. }
        | UpstreamError::Ended { .. }
        | UpstreamError::TimedOut { .. }
        | UpstreamError::Cancelled { .. }
        | UpstreamError::Refused { .. }
        | UpstreamError::Malformed { .. }
        | UpstreamError::Unreachable { .. }
        | UpstreamError::ShuttingDown => Exit::Server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_story_is_told_in_a_line() {
        for (text, line) in [
            ("", ""),
            ("it ended", "it ended"),
            (
                "its last words were:\nTraceback\n  | Error: no luck\n  +----\n",
                "its last words were: Error: no luck",
            ),
        ] {
            assert_eq!(in_a_line(text), line);
        }
    }
}
