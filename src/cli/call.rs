//! `codebridge call`: one call of a tool.

use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use codebridge_runtimes::exec::visible;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::call_result::{CallResult, SaveError, saved};
use super::errors::CommandError;
use super::output::{print, print_now, write};
use super::say::say;
use super::signals::until_stopped;
use super::spinner::Spinner;
use super::terminal_answers::{Screen, TerminalAnswers};
use super::tools::split;
use super::{CallArgs, Form};
use crate::audit::RunFacts;
use crate::error::Exit;
use crate::policy::LOCAL;
use crate::upstream::{CallOptions, CallOutcome, RawArguments, UpstreamError, written_arguments};
use crate::workspace::Workspace;

/// Calls a tool and prints its result: as JSON for programs, else for people. Ctrl-C cancels the call.
pub(super) async fn call(workspace: &Workspace, args: CallArgs) -> Result<ExitCode, CommandError> {
    workspace.upstream.usable()?;
    let (server, Some(tool)) = split(workspace, &args.tool) else {
        return Err(CommandError::ToolName(args.tool));
    };
    // Before signals are listened for: one that comes while this waits for input ends the program.
    let whole = whole(&args.arguments)?;
    let stop = CancellationToken::new();
    let mut spinner = Spinner::default();
    spinner.show(format!("calling {server}.{tool}"));
    let bar = spinner.bar();
    let work = async {
        let arguments = match whole {
            Some(json) => json,
            None => {
                let schema = schema_of(workspace, server, tool, &stop).await?;
                written_arguments(&schema, &args.arguments).map_err(|error| {
                    let tool = args.tool.clone();
                    CommandError::Written { tool, error }
                })?
            }
        };
        let arguments = RawArguments::new(arguments).map_err(CommandError::Arguments)?;
        let mut options = CallOptions::new(&stop);
        if let Some(answers) = TerminalAnswers::open(bar, Screen::default()) {
            options.answers = answers;
        }
        let client = Some("codebridge call".into());
        options.by.facts = Arc::new(RunFacts { client, principal: LOCAL.into(), ..RunFacts::default() });
        let call = workspace.upstream.call(server, tool, arguments, options);
        Ok(call.await?)
    };
    let done: Result<CallOutcome, CommandError> = until_stopped(workspace, &stop, work).await?;
    spinner.clear();
    let outcome = done?;
    let exit = if outcome.is_error { Exit::Tool } else { Exit::Success };
    let json = outcome.json.get();
    match args.output.filter(|_| !outcome.is_error) {
        Some(file) => save(json, &file)?,
        // Programs get what the server wrote.
        None if !io::stdout().is_terminal() => print(&format!("{json}\n")).await?,
        None if args.json => {
            let value: Value = serde_json::from_str(json).map_err(io::Error::from)?;
            return write(&Form { json: true }, &value, String::new(), exit).await;
        }
        None => print(&visible(&CallResult::read(json).shown())).await?,
    }
    Ok(exit.into())
}

/// Returns arguments that are one JSON object, on the command line or on standard input; None for others.
fn whole(arguments: &[String]) -> Result<Option<String>, CommandError> {
    match arguments {
        [dash] if dash == "-" => {
            let mut text = String::new();
            io::stdin().lock().read_to_string(&mut text)?;
            Ok(Some(text))
        }
        // `[1]` and `7` are JSON too, and wrong: the error for that is clearer than one about pairs.
        [one] if one.trim_start().starts_with(['{', '[']) || is_json(one) => Ok(Some(one.clone())),
        _ => Ok(None),
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Returns the schema of the arguments of a tool. A server that lists no tools may still have the tool.
async fn schema_of(
    workspace: &Workspace,
    server: &str,
    tool: &str,
    stop: &CancellationToken,
) -> Result<Value, UpstreamError> {
    let (server, docs) = match workspace.upstream.docs_of(server, stop).await {
        Ok(known) => known,
        Err(UpstreamError::Refused { .. } | UpstreamError::Malformed { .. }) => return Ok(Value::Null),
        Err(error) => return Err(error),
    };
    if let Some(doc) = docs.position(tool).and_then(|at| docs.doc(at)) {
        return Ok(doc.input_schema);
    }
    if docs.tools().is_empty() {
        return Ok(Value::Null);
    }
    // It may be newer than what is known.
    Ok(workspace.upstream.tool(&server, tool, stop).await?.input_schema)
}

/// Writes the content of a result to a file.
fn save(json: &str, file: &Path) -> Result<(), CommandError> {
    let (bytes, what) = saved(json).map_err(CommandError::Save)?;
    if file == Path::new("-") {
        return match io::stdout().is_terminal() {
            true => Err(CommandError::Save(SaveError::Terminal)),
            false => Ok(print_now(&bytes)?),
        };
    }
    std::fs::write(file, &bytes).map_err(|error| CommandError::Write { file: file.to_path_buf(), error })?;
    say(format_args!("wrote {what} to {}", file.display()));
    Ok(())
}
