//! `codebridge workflow`: runs of code whose steps are journaled.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::errors::CommandError;
use super::exec::{self, Ended};
use super::output::write;
use super::say::say;
use super::workflow_text::{fields, resume_command, steps_text, summary, table};
use super::{ExecArgs, WorkflowCommand, WorkflowRunArgs, code};
use crate::error::Exit;
use crate::session::Status;
use crate::settings::{Environment, Settings};
use crate::workflows::{Ending, Journal, Start, WorkflowError, Workflows};
use crate::workspace::Workspace;

/// How often a running workflow looks whether another process has cancelled it.
const PACE: Duration = Duration::from_millis(300);

/// As for `exec`. A workflow may run as long as code in the background.
pub(super) fn prepare(args: &WorkflowRunArgs, settings: &mut Settings) {
    exec::prepare(&args.flags, settings);
    if !settings.timeout.is_explicit() {
        settings.timeout.value = settings.max_background.value;
    }
}

pub(super) async fn workflow(
    command: WorkflowCommand,
    open: impl FnOnce() -> Workspace,
    settings: &Settings,
    environment: &Environment,
) -> Result<ExitCode, CommandError> {
    let workflows = Workflows::at(&settings.state_dir.value);
    match command {
        WorkflowCommand::Run(args) => run(&workflows, args, &open(), environment).await,
        WorkflowCommand::Ls(form) => {
            let (list, errors) = workflows.list();
            for error in &errors {
                say(format_args!("warning: {error}"));
            }
            let value: Vec<_> = list.iter().map(summary).collect();
            write(&form, &value, table(&list), Exit::Success).await
        }
        WorkflowCommand::Show { id, form } => {
            let workflow = workflows.get(&id)?;
            write(&form, &fields(&workflow), steps_text(&workflow), Exit::Success).await
        }
        WorkflowCommand::Cancel { id } => {
            let runs = workflows.cancel(&id)?;
            say(format_args!("cancelled workflow {id}{}", if runs { "; its process stops it" } else { "" }));
            Ok(Exit::Success.into())
        }
    }
}

async fn run(
    workflows: &Workflows,
    args: WorkflowRunArgs,
    workspace: &Workspace,
    environment: &Environment,
) -> Result<ExitCode, CommandError> {
    let WorkflowRunArgs { words, resume, flags } = args;
    if words.first().is_some_and(|word| word == OsStr::new("-")) {
        return Err(CommandError::WorkflowInput);
    }
    let args = ExecArgs { code: None, words, session: None, flags };
    let mut source = exec::read(&args)?;
    let journal = match resume {
        None => start(workflows, &source)?,
        Some(id) => match resumed(workflows, &id, &mut source) {
            Err(WorkflowError::Finished(id)) => {
                say(format_args!("note: workflow {id} has finished: nothing is left to do"));
                return Ok(Exit::Success.into());
            }
            journal => journal?,
        },
    };
    let journal = Arc::new(journal);
    source.script.workflow = Some(Arc::clone(&journal));
    let stop = CancellationToken::new();
    let running = exec::run_source(workspace, args.flags, environment, source, "codebridge workflow", &stop);
    let ended = {
        let mut running = std::pin::pin!(running);
        tokio::select! {
            ended = &mut running => ended,
            () = cancelled(&journal) => {
                stop.cancel();
                running.await
            }
        }
    };
    end(&journal, ended)
}

fn start(workflows: &Workflows, source: &code::Source) -> Result<Journal, WorkflowError> {
    let (file, arguments) = (file_of(source), source.script.argv[1..].to_vec());
    let journal = workflows.begin(Start::new(file, &source.code, arguments))?;
    say(format_args!("note: this is workflow {}", journal.id()));
    Ok(journal)
}

/// Opens the journal of a workflow, gives the script the arguments of its first run, and says what is different.
fn resumed(workflows: &Workflows, id: &str, source: &mut code::Source) -> Result<Journal, WorkflowError> {
    let journal = workflows.resume(id)?;
    let arguments = &mut source.script.argv;
    let before = &journal.start().arguments;
    if arguments.len() > 1 && arguments[1..] != before[..] {
        return Err(WorkflowError::OtherArguments(id.to_owned()));
    }
    arguments.truncate(1);
    arguments.extend_from_slice(before);
    let now = Start::new(file_of(source), &source.code, Vec::new());
    let steps = match journal.finished() {
        0 => "no step has finished".to_owned(),
        1 => "1 finished step is not repeated".to_owned(),
        finished => format!("{finished} finished steps are not repeated"),
    };
    say(format_args!("note: workflow {id} continues: {steps}"));
    if now.code != journal.start().code {
        say(format_args!(
            "note: {} has changed since then: the results of those steps stay as they are",
            now.file
        ));
    }
    journal.resume(&now.code)?;
    Ok(journal)
}

/// Returns the file of a workflow with its folder, so that a list says which one it is.
fn file_of(source: &code::Source) -> String {
    let file = source.script.file.as_deref().unwrap_or(Path::new(""));
    std::path::absolute(file).unwrap_or_else(|_| file.to_owned()).to_string_lossy().into_owned()
}

/// Waits until another process has cancelled the workflow.
async fn cancelled(journal: &Journal) {
    while !journal.is_cancelled() {
        tokio::time::sleep(PACE).await;
    }
}

/// Journals how a run ended, and says how to continue.
fn end(journal: &Journal, ended: Result<Ended, CommandError>) -> Result<ExitCode, CommandError> {
    let stopped = |status: &'static str, error| Ending::Stopped { status, error };
    let (exit, ending) = match ended {
        Ok(Ended { exit, .. }) if exit == Exit::Success.into() => (exit, Ending::Completed),
        Ok(Ended { exit, status: Status::Cancelled, .. }) => (exit, stopped("interrupted", None)),
        Ok(Ended { exit, status: Status::Timeout, .. }) => (exit, stopped("timeout", None)),
        Ok(Ended { exit, error, .. }) => (exit, stopped("error", error)),
        Err(error @ CommandError::Stopped(_)) => (error.report(), stopped("interrupted", None)),
        Err(error) => (error.report(), stopped("error", Some(error.to_string()))),
    };
    let (id, is_complete) = (journal.id(), ending == Ending::Completed);
    let command = || resume_command(std::env::args_os().skip(1), id);
    // Code may have gone on after the error.
    let failure = journal.failure().or_else(|| journal.end(ending).err().map(|error| error.to_string()));
    if let Some(failure) = failure {
        say(format_args!("error: workflow {id} has stopped: {failure}"));
        say(format_args!("hint: when that is fixed, continue with `{}`", command()));
        return Ok(Exit::Io.into());
    }
    if journal.is_cancelled() {
        say(format_args!("note: workflow {id} was cancelled"));
    } else if !is_complete {
        say(format_args!("hint: continue after the last finished step with `{}`", command()));
    }
    Ok(exit)
}
