//! `codebridge servers`: which MCP servers the user has, and what is known of them.

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use codebridge_runtimes::exec::{visible, visible_line};
use futures_util::StreamExt;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::errors::CommandError;
use super::output::{columns, print, write};
use super::say::say;
use super::signals::until_stopped;
use super::spinner::Spinner;
use super::{Form, ServersArgs, ServersCommand, add, definitions, find, login, trust};
use crate::error::Exit;
use crate::settings::Environment;
use crate::upstream::discovery::{Server, Skip, Warning, WarningKind};
use crate::upstream::{Known, LastFailure, Reason, Refreshed, UpstreamError, trust_command};
use crate::workspace::Workspace;

/// Characters of a remark in the list.
const LONGEST_REMARK: usize = 200;
/// Servers under way that are named beside the spinner.
const NAMED: usize = 3;

/// One definition, as it is shown: without arguments, environment and headers, which hold credentials.
#[derive(Debug, Serialize)]
struct ServerEntry {
    name: String,
    alias: String,
    /// `stdio`, `http` or `openapi`; None for a definition that is not used.
    transport: Option<&'static str>,
    /// What is known of its tools. Whether it runs is not known here: it runs in another bridge.
    state: &'static str,
    /// The number of tools, as far as it is known.
    tools: Option<usize>,
    /// Whether calls can use it.
    used: bool,
    /// File and line.
    source: String,
    /// What the user, else the server, says of it.
    description: Option<String>,
    /// Why it is not used.
    skipped: Option<String>,
    /// Why it failed the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// When it failed, as in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_at: Option<String>,
    #[serde(skip)]
    failed: Option<SystemTime>,
}

impl ServerEntry {
    fn of(server: &Server, known: Known) -> Self {
        let Known { docs, failure } = known;
        let state = match (&server.definition, &docs, &failure) {
            (Err(Skip::Untrusted(_)), ..) => "untrusted",
            (Err(_), ..) => "skipped",
            (Ok(_), _, Some(_)) => "failed",
            (Ok(_), Some(_), None) => "known",
            // The server is asked at the first search, or at its first use.
            (Ok(_), None, None) => "new",
        };
        let skipped = server.definition.as_ref().err();
        let skip_hint = skipped.and_then(|why| {
            UpstreamError::Skipped { server: Arc::clone(&server.name), why: why.clone() }.hint()
        });
        let (failed, Reason { error, hint }) = match failure {
            Some(LastFailure { at, why }) => (Some(at), why),
            None => (None, Reason::default()),
        };
        Self {
            name: server.name.to_string(),
            alias: server.alias.to_string(),
            transport: server.definition.as_ref().ok().map(|definition| definition.launch.transport()),
            state,
            tools: docs.as_ref().map(|docs| docs.tools().len()),
            used: server.definition.is_ok(),
            source: server.source.to_string(),
            description: server.description.clone().or_else(|| docs?.purpose()),
            skipped: skipped.map(ToString::to_string),
            error: failed.map(|_| error),
            hint: hint.or(skip_hint),
            failed_at: failed
                .and_then(|at| jiff::Timestamp::try_from(at).ok())
                .map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            failed,
        }
    }

    /// Returns the most important thing to say of it, in a line.
    fn remark(&self) -> String {
        let remark = match (self.state, self.failed, &self.error) {
            ("untrusted", ..) => format!("to use it, run `{}`", trust_command(&self.name)),
            (_, Some(at), Some(error)) => format!("{}: {}", ago(at), in_a_line(error)),
            _ => in_a_line(self.skipped.as_ref().or(self.description.as_ref()).map_or("", String::as_str)),
        };
        match remark.char_indices().nth(LONGEST_REMARK) {
            Some((end, _)) => format!("{}…", &remark[..end]),
            None => remark,
        }
    }
}

pub(super) async fn servers(
    workspace: &Workspace,
    args: ServersArgs,
    environment: &Environment,
) -> Result<ExitCode, CommandError> {
    match args.command {
        None => list(workspace, &args.form).await,
        Some(ServersCommand::Find(args)) => find::find(workspace, &args).await,
        Some(ServersCommand::Add(args)) => add::add(workspace, *args).await,
        Some(ServersCommand::Remove { name }) => definitions::remove(workspace, &name).await,
        Some(ServersCommand::Enable { name }) => definitions::enable(workspace, &name).await,
        Some(ServersCommand::Disable { name }) => definitions::disable(workspace, &name).await,
        Some(ServersCommand::Import(args)) => definitions::import(workspace, &args, environment).await,
        Some(ServersCommand::Export { names }) => definitions::export(workspace, &names).await,
        Some(ServersCommand::Trust { name }) => trust::trust(workspace, name).await,
        Some(ServersCommand::Refresh { names, form }) => refresh(workspace, &names, &form).await,
        Some(ServersCommand::Login(args)) => {
            let is_own = args.principal.is_none();
            let account = login::login(workspace, args).await?;
            // Its tools may be known for the first time. Those of another user are that user's business.
            let names = Vec::from_iter(is_own.then_some(account.server));
            if names.is_empty() {
                return Ok(Exit::Success.into());
            }
            refresh(workspace, &names, &Form { json: false }).await
        }
        Some(ServersCommand::Logout(args)) => login::logout(workspace, args).await,
        Some(ServersCommand::Whoami(args)) => login::whoami(workspace, args).await,
    }
}

/// Lists every definition, used or not. Files that cannot be read are named on standard error.
async fn list(workspace: &Workspace, form: &Form) -> Result<ExitCode, CommandError> {
    let snapshot = workspace.upstream.usable()?;
    let known = workspace.upstream.all_known_docs().await;
    let used = known.into_iter().map(|(server, known)| ServerEntry::of(&server, known));
    let skipped = snapshot.skipped.iter().map(|server| ServerEntry::of(server, Known::default()));
    let entries: Vec<ServerEntry> = used.chain(skipped).collect();
    let is_of_content = |warning: &&Warning| warning.kind == WarningKind::Content;
    for warning in snapshot.warnings_of_files().filter(is_of_content) {
        say(format_args!("warning: {warning}"));
    }
    if entries.is_empty() {
        say_none_defined(workspace);
    }
    write(form, &entries, table(&entries), Exit::Success).await
}

/// Says that there are no servers, and how to have some.
pub(super) fn say_none_defined(workspace: &Workspace) {
    let folder = workspace.bridge.settings.state_dir.value.display();
    say("no servers are defined");
    say(format_args!("hint: define one in {folder}/servers.json: `codebridge help servers` shows how"));
}

/// Asks servers for their tools, and keeps the answers for searches.
async fn refresh(workspace: &Workspace, names: &[String], form: &Form) -> Result<ExitCode, CommandError> {
    let upstream = &workspace.upstream;
    let servers = match names {
        [] => upstream.usable()?.servers.clone(),
        names => names.iter().map(|name| upstream.server(name)).collect::<Result<Vec<_>, _>>()?,
    };
    if servers.is_empty() {
        say_none_defined(workspace);
    }
    let stop = CancellationToken::new();
    let mut entries = until_stopped(workspace, &stop, ask(workspace, &servers, form, &stop)).await??;
    let place = |entry: &ServerEntry| servers.iter().position(|server| *server.name == *entry.name);
    entries.sort_by_key(place);
    let failed = entries.iter().any(|entry| entry.error.is_some());
    let exit = if failed { Exit::Server } else { Exit::Success };
    if form.json {
        return write(form, &entries, String::new(), exit).await;
    }
    Ok(exit.into())
}

/// Asks servers, and says what each answers as it comes: successes on standard output, failures on standard error.
async fn ask(
    workspace: &Workspace,
    servers: &[Arc<Server>],
    form: &Form,
    stop: &CancellationToken,
) -> Result<Vec<ServerEntry>, CommandError> {
    let width = servers.iter().map(|server| server.name.chars().count()).max().unwrap_or(0);
    let (mut entries, mut left, mut spinner) = (Vec::new(), servers.to_vec(), Spinner::default());
    let mut answers = pin!(workspace.upstream.refresh(servers.to_vec(), stop));
    loop {
        if !left.is_empty() {
            spinner.show(waiting_for(&left));
        }
        let Some(Refreshed { server, docs }) = answers.next().await else { break };
        spinner.clear();
        left.retain(|waiting| !Arc::ptr_eq(waiting, &server));
        // Whoever stopped it knows that.
        if let (Err(error), false) = (&docs, stop.is_cancelled()) {
            say(format_args!("error: {error}"));
            if let Some(hint) = error.hint() {
                say(format_args!("hint: {hint}"));
            }
        }
        let failure = docs.as_ref().err().map(LastFailure::now);
        let entry = ServerEntry::of(&server, Known { docs: docs.ok(), failure });
        if let Some(tools) = entry.tools.filter(|_| !form.json) {
            let s = if tools == 1 { "" } else { "s" };
            print(&visible(&format!("{:<width$}  {tools} tool{s}\n", entry.name))).await?;
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Returns which servers are being asked: the first ones of those that have not answered.
fn waiting_for(left: &[Arc<Server>]) -> String {
    let names: Vec<&str> = left.iter().take(NAMED).map(|server| &*server.name).collect();
    let more = match left.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("waiting for {}{more}", names.join(", "))
}

fn table(entries: &[ServerEntry]) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let rows = entries.iter().map(|entry| {
        vec![
            // The name of a skipped definition can be anything.
            visible_line(&entry.name),
            entry.transport.unwrap_or("-").to_string(),
            entry.state.to_string(),
            entry.tools.map_or_else(|| "-".into(), |tools| tools.to_string()),
            visible_line(&entry.source),
            visible_line(&entry.remark()),
        ]
    });
    columns(&["NAME", "TRANSPORT", "STATE", "TOOLS", "SOURCE", ""], rows)
}

/// Returns how long ago a time is.
fn ago(at: SystemTime) -> String {
    match at.elapsed().unwrap_or_default().as_secs() {
        seconds @ ..60 => format!("{seconds} s ago"),
        seconds @ ..3_600 => format!("{} min ago", seconds / 60),
        seconds @ ..86_400 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
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
    use std::time::Duration;

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

    #[test]
    fn the_age_of_a_failure_has_one_unit() {
        for (seconds, text) in
            [(0, "0 s ago"), (90, "1 min ago"), (7_300, "2 h ago"), (3 * 86_400, "3 d ago")]
        {
            assert_eq!(ago(SystemTime::now() - Duration::from_secs(seconds)), text);
        }
        assert_eq!(ago(SystemTime::now() + Duration::from_secs(60)), "0 s ago");
    }
}
