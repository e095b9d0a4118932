//! `codebridge replay`: runs recorded code again, with the recorded results of its calls.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use codebridge_runtimes::exec::visible_line;
use serde::Serialize;
use serde_json::{Map, json};
use similar::TextDiff;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::audit_args::ReplayArgs;
use super::errors::CommandError;
use super::output::write;
use super::replay_error::ReplayError;
use super::signals::until_stopped;
use crate::audit::{Audit, Found, folder_in, read_run};
use crate::error::Exit;
use crate::session::{Caller, RunOutcome, RunPython, RunRequest, outcome_name};
use crate::settings::{AuditLevel, AuditMode, Environment, Origin, Settings};
use crate::upstream::{Recorded, RecordedCall};
use crate::workspace::{Bridge, Workspace};

/// Lines of a difference that are the same, around those that are not.
const CONTEXT: usize = 3;
/// What recorded servers are started with: nothing is.
const NO_PROGRAM: &str = "/recorded";

/// A run as it was recorded.
#[derive(Debug)]
struct OldRun {
    name: String,
    number: u32,
    session: String,
    code: String,
    servers: Vec<String>,
    timeout: Duration,
    image: Option<String>,
    image_digest: Option<String>,
    is_of_exec: bool,
    calls: Vec<RecordedCall>,
    /// None for a run that did not end.
    end: Option<OldEnd>,
}

#[derive(Debug)]
struct OldEnd {
    outcome: String,
    stdout: String,
    stderr: String,
}

/// What a replay has shown of one run.
#[derive(Debug, Serialize)]
struct Compared {
    run: String,
    same: bool,
    /// What is not the same: a line each, or the difference of a text.
    differences: Vec<String>,
    stdout: String,
    stderr: String,
}

pub(super) async fn replay(
    settings: Settings,
    environment: &Environment,
    args: ReplayArgs,
) -> Result<ExitCode, CommandError> {
    let folder = folder_in(&settings.state_dir.value);
    let failed = |error| CommandError::Read { file: folder.clone(), error };
    let lines = read_run(&folder, &args.run).map_err(failed)?;
    let lines = lines.ok_or_else(|| ReplayError::Name(args.run.clone()))?;
    let runs = runs_until(&folder, &lines, &args.run)?;
    let place = tempfile::tempdir().map_err(ReplayError::Folder)?;
    define(place.path(), &runs).map_err(ReplayError::Folder)?;
    let mode = settings.audit.value;
    let settings = settings_for(settings, &runs, place.path())?;
    let audit = match mode.level {
        AuditLevel::Off => {
            let mode = AuditMode { level: AuditLevel::On, required: false };
            Audit::at(place.path().join("audit"), mode)
        }
        // Code runs: that is recorded as any other run.
        _ => Audit::at(folder.clone(), mode),
    };
    let recorded = Recorded::default();
    let bridge = Arc::new(Bridge::new(settings, environment.clone()));
    let workspace = Workspace::replaying(bridge, place.path(), recorded.clone(), audit);
    let stop = CancellationToken::new();
    let work = async {
        let mut all = Vec::new();
        for run in &runs {
            all.push(again(&workspace, &recorded, run, &stop).await?);
        }
        Ok::<_, ReplayError>(all)
    };
    let all = until_stopped(&workspace, &stop, work).await??;
    let is_same = all.last().is_some_and(|last| last.same);
    let exit = if is_same { Exit::Success } else { Exit::Differs };
    write(&args.form, &json!({ "run": args.run, "same": is_same, "runs": all }), text_of(&all), exit).await
}

/// Returns the runs of a session from its beginning to the wanted one.
fn runs_until(folder: &Path, lines: &[Found], wanted: &str) -> Result<Vec<OldRun>, ReplayError> {
    let starts: Vec<&Found> = lines.iter().filter(|line| line.record.event == "run-start").collect();
    let is_wanted = |line: &&&Found| line.record.run.as_deref() == Some(wanted);
    let last = starts.iter().find(is_wanted).ok_or_else(|| ReplayError::Unknown(wanted.to_owned()))?;
    let session = &last.record.session;
    let mut chosen: Vec<&Found> = Vec::new();
    for start in starts.iter().filter(|start| start.record.session == *session) {
        if start.record.new_session {
            chosen.clear();
        }
        chosen.push(start);
        if start.record.run == last.record.run {
            break;
        }
    }
    if !chosen.first().is_some_and(|first| first.record.new_session) {
        return Err(ReplayError::NoBeginning(wanted.to_owned()));
    }
    chosen.into_iter().map(|start| old_run(folder, lines, start)).collect()
}

fn old_run(folder: &Path, lines: &[Found], start: &Found) -> Result<OldRun, ReplayError> {
    let record = &start.record;
    let name = record.run.clone().unwrap_or_default();
    let of_run = |event: &'static str| {
        lines.iter().filter(move |line| line.record.event == event && line.record.run == record.run)
    };
    let code = text(folder, start, "code")?.ok_or_else(|| ReplayError::NotFull(name.clone()))?;
    let calls = of_run("call").map(|call| old_call(folder, call)).collect::<Result<Vec<_>, _>>()?;
    let end = of_run("run").next().map(|end| {
        let stream = |field| Ok::<_, ReplayError>(text(folder, end, field)?.unwrap_or_default());
        let outcome = end.record.outcome.clone().unwrap_or_default();
        Ok::<_, ReplayError>(OldEnd { outcome, stdout: stream("stdout")?, stderr: stream("stderr")? })
    });
    Ok(OldRun {
        number: name.split_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(1),
        session: record.session.clone().unwrap_or_default(),
        code,
        servers: record.servers.clone(),
        timeout: Duration::try_from_secs_f64(record.timeout_seconds).unwrap_or(Duration::from_secs(30)),
        image: record.image.clone(),
        image_digest: digest_in(lines, &record.run),
        is_of_exec: matches!(record.client.as_deref(), Some("codebridge exec" | "codebridge workflow")),
        calls: calls.into_iter().flatten().collect(),
        end: end.transpose()?,
        name,
    })
}

/// Returns the digest of the image of a run: its first lines may lack it.
fn digest_in(lines: &[Found], run: &Option<String>) -> Option<String> {
    let of_run = lines.iter().filter(|line| line.record.run == *run);
    of_run.filter_map(|line| line.record.image_digest.clone()).next_back()
}

/// Returns None for a call that the grant of the run refuses again.
fn old_call(folder: &Path, call: &Found) -> Result<Option<RecordedCall>, ReplayError> {
    let record = &call.record;
    if matches!(record.verdict.as_deref(), Some("not-granted" | "not-found")) {
        return Ok(None);
    }
    let message = text(folder, call, "message")?.or_else(|| record.error.clone());
    let outcome = match text(folder, call, "result")? {
        Some(result) => Ok(result),
        None => {
            let kind = match record.outcome.as_deref() {
                Some("denied" | "not-recorded") => Some("denied"),
                _ => None,
            };
            Err((message.unwrap_or_else(|| "the result was not recorded".into()), kind))
        }
    };
    Ok(Some(RecordedCall {
        server: record.server.clone().unwrap_or_default(),
        kind: record.kind.clone(),
        tool: record.tool.clone().unwrap_or_default(),
        called_as: record.called_as.clone(),
        arguments: text(folder, call, "arguments")?.unwrap_or_default(),
        outcome,
        doc: text(folder, call, "tool_doc")?,
    }))
}

fn text(folder: &Path, line: &Found, field: &'static str) -> Result<Option<String>, ReplayError> {
    line.text_of(folder, field).map_err(|why| {
        let run = line.record.run.clone().unwrap_or_default();
        ReplayError::Lost { run, field, why }
    })
}

/// Writes definitions of the servers that were called, none of which can be started.
fn define(folder: &Path, runs: &[OldRun]) -> std::io::Result<()> {
    let named = runs.iter().flat_map(|run| run.servers.iter()).filter(|name| *name != "*");
    let called = runs.iter().flat_map(|run| run.calls.iter().map(|call| &call.server));
    let names: BTreeSet<&String> = named.chain(called).collect();
    let servers: Map<_, _> =
        names.into_iter().map(|name| (name.clone(), json!({ "command": NO_PROGRAM }))).collect();
    std::fs::write(folder.join("recorded.json"), json!({ "mcpServers": servers }).to_string())
}

/// Returns the settings of the replay: the image of the runs, and a state folder without anything of the user.
fn settings_for(settings: Settings, runs: &[OldRun], folder: &Path) -> Result<Settings, ReplayError> {
    let mut settings = settings;
    let Some(last) = runs.last() else { return Ok(settings) };
    if let Some(image) = &last.image {
        let parsed = image.parse().map_err(|error: codebridge_images::NameError| ReplayError::Image {
            run: last.name.clone(),
            image: image.clone(),
            why: error.to_string(),
        })?;
        settings.image.value = parsed;
        settings.image.origin = Origin::Flag("image");
    }
    settings.state_dir.value = folder.to_path_buf();
    settings.session_persist.value = true;
    settings.one_shot = last.is_of_exec;
    Ok(settings)
}

/// Makes a run again and compares it with what was recorded.
async fn again(
    workspace: &Workspace,
    recorded: &Recorded,
    old: &OldRun,
    stop: &CancellationToken,
) -> Result<Compared, ReplayError> {
    recorded.next_run(old.calls.clone());
    workspace.sessions.set_next_run(old.number);
    let request = RunRequest {
        code: old.code.clone(),
        servers: old.servers.clone(),
        timeout: old.timeout,
        session: old.session.clone(),
        clamped: None,
    };
    let (progress, _) = mpsc::channel(1);
    let caller = Caller::without_answers(progress, stop.clone());
    let caller = Caller { client: Some("codebridge replay".into()), ..caller };
    let new = workspace.sessions.run(request, caller).await;
    workspace.audit.flush().await;
    check_image(workspace, old)?;
    let mut differences = differences(old, &new);
    let (left, unexpected) = recorded.differences();
    differences.extend(left.iter().map(|name| format!("the call of {name} was not made")));
    differences.extend(unexpected.iter().map(|name| format!("the call of {name} was not recorded")));
    Ok(Compared {
        run: old.name.clone(),
        same: differences.is_empty(),
        differences,
        stdout: new.stdout.text,
        stderr: new.stderr.text,
    })
}

/// Compares the digests of the images, where both are known.
fn check_image(workspace: &Workspace, old: &OldRun) -> Result<(), ReplayError> {
    let (Some(wanted), Some(folder)) = (&old.image_digest, workspace.audit.folder()) else { return Ok(()) };
    let Some(name) = workspace.audit.run_name(old.number) else { return Ok(()) };
    let lines = read_run(folder, &name).ok().flatten().unwrap_or_default();
    match digest_in(&lines, &Some(name)) {
        Some(used) if used != *wanted => Err(ReplayError::Image {
            run: old.name.clone(),
            image: wanted.clone(),
            why: format!("{} is {used} by now", old.image.as_deref().unwrap_or("it")),
        }),
        _ => Ok(()),
    }
}

fn differences(old: &OldRun, new: &RunOutcome) -> Vec<String> {
    let Some(end) = &old.end else {
        return vec!["the recorded run did not end: there is nothing to compare with".into()];
    };
    let mut found = Vec::new();
    let outcome = outcome_name(new);
    if outcome != end.outcome {
        let error = new.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
        found.push(format!("outcome: it was {}, and is {outcome}{error}", end.outcome));
    }
    for (name, was, is) in
        [("stdout", &end.stdout, &new.stdout.text), ("stderr", &end.stderr, &new.stderr.text)]
    {
        if was != is {
            let diff = TextDiff::from_lines(was.as_str(), is.as_str());
            let mut diff = diff.unified_diff();
            found.push(
                diff.context_radius(CONTEXT)
                    .header(&format!("{name}, recorded"), &format!("{name}, now"))
                    .to_string(),
            );
        }
    }
    found
}

fn text_of(all: &[Compared]) -> String {
    let mut text = String::new();
    for Compared { run, same, differences, .. } in all {
        match same {
            true => text.push_str(&format!("{run}: the same\n")),
            false => text.push_str(&format!("{run}: it differs\n")),
        }
        for difference in differences {
            difference.lines().for_each(|line| text.push_str(&format!("  {}\n", visible_line(line))));
        }
    }
    text
}
