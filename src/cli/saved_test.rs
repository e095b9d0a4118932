//! `codebridge saved test`: runs the examples of saved functions.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Form;
use super::errors::CommandError;
use super::exec::exit_code;
use super::output::write;
use super::say::say;
use super::signals::until_stopped;
use super::spinner::Spinner;
use super::terminal_answers::{Screen, TerminalAnswers};
use crate::error::Exit;
use crate::saved::{SavedTool, SavedTools};
use crate::session::{Caller, ExampleEnd, RunOutcome, RunPython, RunRequest};
use crate::workspace::Workspace;

/// How an example ended.
#[derive(Debug, Serialize)]
struct Ending {
    name: String,
    result: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Passed,
    Broken,
    /// Something is missing that the function needs.
    NotTested,
}

/// Returns the functions to test: those that are named, else all that can be tested.
pub(super) fn chosen(saved: &SavedTools, names: &[String]) -> Result<Vec<SavedTool>, CommandError> {
    if !names.is_empty() {
        return Ok(names.iter().map(|name| saved.testable(name)).collect::<Result<_, _>>()?);
    }
    let testable = |tool: SavedTool| saved.testable(&tool.name).ok();
    Ok(saved.list().into_iter().filter_map(testable).collect())
}

pub(super) async fn test(
    workspace: &Workspace,
    saved: &SavedTools,
    tools: &[SavedTool],
    form: &Form,
) -> Result<ExitCode, CommandError> {
    let stop = CancellationToken::new();
    let mut spinner = Spinner::default();
    let work = async {
        let mut results = Vec::new();
        for tool in tools {
            spinner.show(format!("testing {}", tool.name));
            let outcome = run(workspace, tool, &stop).await;
            if stop.is_cancelled() {
                break;
            }
            let Some(ending) = ending(tool, &outcome) else { return Err(outcome) };
            let is_tested = ending.result != Verdict::NotTested;
            results.push(ending);
            if !is_tested {
                continue;
            }
            let schemas = workspace.upstream.known_schemas().await;
            let error = results.last().and_then(|result| result.error.as_deref());
            if let Err(error) = saved.note_test(tool, error, schemas.digests(&tool.details.tools)) {
                say(format_args!("warning: {error}"));
            }
        }
        Ok(results)
    };
    let results = until_stopped(workspace, &stop, work).await?;
    spinner.clear();
    let results = match results {
        Ok(results) => results,
        Err(outcome) => {
            say(format_args!("error: {}", outcome.error.as_deref().unwrap_or("the sandbox failed")));
            return Ok(exit_code(&outcome, None));
        }
    };
    let exit = if results.iter().all(|ending| ending.result == Verdict::Passed) {
        Exit::Success
    } else {
        Exit::Differs
    };
    write(form, &results, results.iter().map(line).collect(), exit).await
}

async fn run(workspace: &Workspace, tool: &SavedTool, stop: &CancellationToken) -> RunOutcome {
    let request = RunRequest::of_example(tool, *workspace.bridge.settings.timeout);
    // Nobody watches the output.
    let (progress, _) = mpsc::channel(1);
    let caller = Caller::without_answers(progress, stop.clone());
    let answers =
        TerminalAnswers::open(None, Screen::default()).unwrap_or_else(|| Arc::clone(&caller.answers));
    let caller = Caller { answers, client: Some("codebridge saved test".into()), ..caller };
    workspace.sessions.run(request, caller).await
}

/// Returns what the run of an example says of a function; None if this machine is the reason of its end.
fn ending(tool: &SavedTool, outcome: &RunOutcome) -> Option<Ending> {
    let (result, error) = match ExampleEnd::of(&tool.name, outcome) {
        ExampleEnd::Passed => (Verdict::Passed, None),
        ExampleEnd::Broken(error) => (Verdict::Broken, Some(error)),
        ExampleEnd::NotTested(error) => (Verdict::NotTested, Some(error)),
        ExampleEnd::Failed => return None,
    };
    Some(Ending { name: tool.name.clone(), result, error, seconds: seconds(outcome.elapsed) })
}

fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

fn line(Ending { name, result, error, seconds }: &Ending) -> String {
    let error = error.as_deref().unwrap_or_default();
    match result {
        Verdict::Passed => format!("passed  {name} ({seconds} s)\n"),
        Verdict::Broken => format!("broken  {name}: {error}\n"),
        Verdict::NotTested => format!("not tested  {name}: {error}\n"),
    }
}
