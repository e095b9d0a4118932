//! `codebridge servers` and `codebridge call`: the user's MCP servers from the command line.

use std::io;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::host::{print, write};
use super::signals::Signals;
use super::{CallArgs, Form, complain};
use crate::error::Exit;
use crate::housekeeping::columns;
use crate::settings::{Environment, Settings};
use crate::upstream::discovery::Launch;
use crate::upstream::{Listed, Upstream};

/// One definition, as it is shown. Nothing of its arguments, environment or headers: they hold credentials.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    alias: String,
    /// `stdio` or `http`; none for a definition that is not used.
    transport: Option<&'static str>,
    /// Whether calls may use it.
    used: bool,
    /// File and line.
    source: String,
    description: Option<String>,
    /// Why it is not used.
    skipped: Option<String>,
}

impl From<Listed> for Shown {
    fn from(Listed { server, .. }: Listed) -> Self {
        let transport = server.definition.as_ref().ok().map(|definition| match definition.launch {
            Launch::Stdio { .. } => "stdio",
            Launch::Http { .. } => "http",
        });
        Self {
            name: server.name.to_string(),
            alias: server.alias.to_string(),
            transport,
            used: transport.is_some(),
            source: server.source.to_string(),
            description: server.description.clone(),
            skipped: server.definition.as_ref().err().map(ToString::to_string),
        }
    }
}

/// Lists every definition that was found, used or not; what is wrong with files goes to standard error.
pub(super) async fn servers(settings: &Settings, environment: &Environment, form: Form) -> ExitCode {
    let upstream = Upstream::without_answers(settings, environment.clone());
    let shown: Vec<Shown> = upstream.list().into_iter().map(Shown::from).collect();
    for warning in &upstream.snapshot().warnings {
        eprintln!("codebridge: {warning}");
    }
    write(&form, &shown, table(&shown), Exit::Fine).await
}

fn table(shown: &[Shown]) -> String {
    if shown.is_empty() {
        return "no servers are defined\n".into();
    }
    let rows = shown.iter().map(|one| {
        let state = match &one.skipped {
            Some(why) => format!("skipped: {why}"),
            None => one.description.clone().unwrap_or_default(),
        };
        vec![one.name.clone(), one.transport.unwrap_or("-").to_string(), one.source.clone(), state]
    });
    columns(&["NAME", "TRANSPORT", "SOURCE", ""], rows)
}

/// Calls one tool and prints its MCP result as JSON. Ctrl-C cancels the call.
pub(super) async fn call(settings: &Settings, environment: &Environment, args: CallArgs) -> ExitCode {
    let arguments = match serde_json::from_str::<Map<String, Value>>(&args.arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let error = io::Error::other(format!("the arguments are no JSON object: {error}"));
            return complain(&error, None, Exit::Usage);
        }
    };
    let Some((server, tool)) = args.tool.split_once('.') else {
        let error = io::Error::other(format!("'{}' is not of the form SERVER.TOOL", args.tool));
        return complain(&error, None, Exit::Usage);
    };
    let signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => return complain(&error, None, Exit::Io),
    };
    let upstream = Upstream::without_answers(settings, environment.clone());
    let stop = CancellationToken::new();
    let work = async {
        let result = upstream.call(server, tool, arguments, None, &stop).await;
        upstream.shutdown().await;
        result
    };
    match signals.until_told_twice(&stop, work).await {
        (Some(Ok(outcome)), _) => {
            let exit = if outcome.is_error { Exit::Server } else { Exit::Fine };
            match print(&format!("{}\n", outcome.json.get())).await {
                Ok(()) => exit.into(),
                Err(error) => complain(&error, None, Exit::Io),
            }
        }
        (Some(Err(error)), None) => complain(&error, None, Exit::Server),
        (_, told) => told.unwrap_or(Exit::Interrupted).into(),
    }
}
