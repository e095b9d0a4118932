//! `codebridge audit`: shows and checks the audit log.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use codebridge_runtimes::exec::visible_line;
use serde::Deserialize;

use super::audit_args::{AuditArgs, AuditCommand};
use super::errors::CommandError;
use super::output::{print, write};
use super::say::say;
use super::signals::Signals;
use crate::audit::{Follower, Found, Head, Record, folder_in, verify};
use crate::error::Exit;
use crate::settings::Settings;

/// How often the log is looked at.
const PACE: Duration = Duration::from_millis(200);
/// Problems of what was kept are shown one to a line.
const CHANGED: &str = "the log is not as it was written";

pub(super) async fn audit(settings: &Settings, args: AuditArgs) -> Result<ExitCode, CommandError> {
    let folder = folder_in(&settings.state_dir.value);
    match args.command {
        Some(AuditCommand::Verify { heads, form }) => {
            let expected = heads.as_deref().map(read_heads).transpose()?.unwrap_or_default();
            let verified = verify(&folder, &expected).map_err(failed(&folder))?;
            let mut text = String::new();
            for problem in &verified.problems {
                text.push_str(&format!("{}: {}\n", problem.place, problem.what));
            }
            verified.notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
            let (bridges, files, lines) = (verified.bridges, verified.files, verified.lines);
            let is_whole = verified.problems.is_empty();
            let result = if is_whole { "in order" } else { CHANGED };
            text.push_str(&format!("lines {lines}, bridges {bridges}, files {files}: {result}\n"));
            let exit = if is_whole { Exit::Success } else { Exit::Differs };
            write(&form, &verified, text, exit).await
        }
        None => show(&folder, &args).await,
    }
}

fn failed(folder: &Path) -> impl FnOnce(io::Error) -> CommandError {
    let file = folder.to_path_buf();
    |error| CommandError::Read { file, error }
}

fn read_heads(file: &Path) -> Result<Vec<Head>, CommandError> {
    #[derive(Deserialize)]
    struct Kept {
        heads: Vec<Head>,
    }
    let read = || -> io::Result<Kept> { Ok(serde_json::from_slice(&fs::read(file)?)?) };
    Ok(read().map_err(failed(file))?.heads)
}

async fn show(folder: &Path, args: &AuditArgs) -> Result<ExitCode, CommandError> {
    let since = args.since.map(|since| jiff::Timestamp::now().checked_sub(since));
    let since = since.map(|since| since.unwrap_or(jiff::Timestamp::MIN));
    let mut follower = Follower::new(folder, since);
    let mut signals = Signals::listen()?;
    let mut is_first = true;
    loop {
        let found = follower.poll().map_err(failed(folder))?;
        let mut text = String::new();
        for line in found.iter().filter(|line| is_of(&line.record, args.run.as_deref(), line.bridge())) {
            text.push_str(&shown(line, args.json));
            text.push('\n');
        }
        if text.is_empty() && is_first && !args.follow {
            say("nothing is recorded");
        }
        is_first = false;
        if !print_all(&text).await? || !args.follow {
            return Ok(Exit::Success.into());
        }
        tokio::select! {
            () = tokio::time::sleep(PACE) => {}
            exit = signals.next() => return Ok(exit.into()),
        }
    }
}

/// Returns false if nobody reads it any more.
async fn print_all(text: &str) -> io::Result<bool> {
    if text.is_empty() {
        return Ok(true);
    }
    print(text).await.map(|()| true)
}

fn is_of(record: &Record, run: Option<&str>, bridge: &str) -> bool {
    match run {
        None => true,
        Some(run) => record.run.as_deref() == Some(run) || bridge == run,
    }
}

/// Returns a line as people read it, or as it is in the log.
fn shown(found: &Found, json: bool) -> String {
    if json {
        return visible_line(&found.text);
    }
    let record = &found.record;
    let time = record.time.map_or_else(String::new, |time| format!("{time:.3}"));
    let run = record.run.clone().unwrap_or_else(|| "-".into());
    let mut line = format!("{time}  {run}  {}", what(record));
    if let Some(outcome) = &record.outcome {
        line.push_str(&format!("  {outcome}"));
    }
    if let Some(verdict) = record.verdict.as_deref().filter(|verdict| *verdict != "allowed") {
        line.push_str(&format!("  {verdict}"));
    }
    if let Some(rule) = &record.rule {
        line.push_str(&format!(" by {rule}"));
    }
    if let Some(milliseconds) = record.milliseconds {
        line.push_str(&format!("  {milliseconds} ms"));
    }
    if let Some(error) = &record.error {
        line.push_str(&format!("  {error}"));
    }
    visible_line(&line)
}

fn what(record: &Record) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let call = || match &record.kind {
        None => format!("{}.{}", text(&record.server), text(&record.tool)),
        Some(kind) => format!("of the {kind} {} of {}", text(&record.tool), text(&record.server)),
    };
    match record.event.as_str() {
        "call" => format!("call {}", call()),
        "call-start" => format!("begins call {}", call()),
        "run-start" => {
            format!(
                "begins run of {} in {} on {}",
                short(&record.code_sha256),
                text(&record.session),
                text(&record.runtime)
            )
        }
        "run" => format!("run of {} in {}", short(&record.code_sha256), text(&record.session)),
        "denied" => format!("{} {}", text(&record.kind), text(&record.name)),
        "approved" => match &record.server {
            Some(server) => format!("{} {server} ({})", text(&record.kind), text(&record.name)),
            None => format!("{} {}", text(&record.kind), text(&record.name)),
        },
        "answer" => {
            format!("answer to {} from {}: {}", text(&record.server), text(&record.by), text(&record.answer))
        }
        "lost" => format!("{} lines could not be written: {}", record.lines, text(&record.why)),
        "pruned" => {
            let files: Vec<&str> = record.files.iter().map(|file| file.file.as_str()).collect();
            format!("removed the oldest files: {}", files.join(", "))
        }
        "open" => "the log begins".into(),
        "close" => "the bridge ends".into(),
        other => other.to_owned(),
    }
}

/// Returns the first digits of a digest.
fn short(digest: &Option<String>) -> &str {
    digest.as_deref().map_or("-", |digest| digest.get(..12).unwrap_or(digest))
}
