//! `codebridge runs`: what runs in the background of bridges of this user, and what they printed.

use std::process::ExitCode;

use codebridge_runtimes::exec::{visible, visible_line};
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use super::args::RunsArgs;
use super::errors::CommandError;
use super::output::{columns, write};
use crate::error::Exit;
use crate::nearest::nearest;
use crate::session::{RecordedRun, RecordedState, Records};
use crate::settings::Settings;

pub(super) async fn runs(settings: &Settings, args: RunsArgs) -> Result<ExitCode, CommandError> {
    let records = Records::at(&settings.state_dir.value);
    let Some(name) = args.run else {
        let runs = records.list();
        let values: Vec<Value> = runs.iter().map(fields).collect();
        return write(&args.form, &values, table(&runs), Exit::Success).await;
    };
    match records.get(&name) {
        Some(run) => {
            let mut value = fields(&run);
            value["output"] = run.output.as_str().into();
            write(&args.form, &value, text(&run), Exit::Success).await
        }
        None => {
            let runs = records.list();
            let nearest = nearest(&name, runs.iter().map(|run| &*run.name)).map(str::to_owned);
            Err(CommandError::UnknownRun { name, nearest })
        }
    }
}

fn fields(run: &RecordedRun) -> Value {
    json!({
        "run": run.name,
        "session": run.session,
        "status": status(run),
        "error": error(run),
        "began": time(run.began),
        "ended": run.ended.map(time),
        "progress": run.progress,
    })
}

fn status(run: &RecordedRun) -> &str {
    match &run.state {
        RecordedState::Running => "running",
        RecordedState::Ended { status, .. } => status,
        RecordedState::Lost => "lost",
    }
}

fn error(run: &RecordedRun) -> Option<&str> {
    match &run.state {
        RecordedState::Ended { error, .. } => error.as_deref(),
        RecordedState::Lost => Some("its bridge ended before it did"),
        RecordedState::Running => None,
    }
}

/// Returns a time as it is written, of seconds since 1970.
pub(super) fn time(seconds: u64) -> String {
    let since = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::UNIX_EPOCH.checked_add(since.min(253_402_207_200).seconds()).unwrap_or_default().to_string()
}

fn table(runs: &[RecordedRun]) -> String {
    if runs.is_empty() {
        return "no runs in the background\n".into();
    }
    let row = |run: &RecordedRun| {
        let last = run.progress.as_deref().or_else(|| run.output.lines().last()).unwrap_or_default();
        let last: String = visible_line(last).chars().take(60).collect();
        vec![run.name.clone(), visible_line(&run.session), visible_line(status(run)), time(run.began), last]
    };
    columns(&["RUN", "SESSION", "STATUS", "BEGAN", "LAST"], runs.iter().map(row))
}

/// Returns what a run printed, and how it stands.
fn text(run: &RecordedRun) -> String {
    let mut text = visible(&run.output);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    if run.is_cut {
        text.push_str("[further output is not kept]\n");
    }
    text.push_str(&format!("status: {}\n", visible_line(status(run))));
    if let Some(error) = error(run) {
        text.push_str(&format!("error: {}\n", visible_line(error)));
    }
    text
}
