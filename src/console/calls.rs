//! The calls of a run: when each began, how long it took, and how it ended.

use std::path::Path;

use codebridge_runtimes::exec::visible_line;
use jiff::Timestamp;

use super::history::LoggedRun;
use super::text::{Shown, in_a_line, milliseconds};
use crate::audit::Found;
use crate::feed::{CallOutcome, CallRow, RunDetail};

/// The width of the whole run in a waterfall.
pub(super) const WIDTH: f64 = 1000.0;
/// Calls that are shown.
const MOST: usize = 500;
/// The least width of a call.
const LEAST: f64 = 3.0;

/// A call, as the page of its run shows it.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) server: String,
    pub(super) tool: String,
    /// Since the run began.
    pub(super) began: String,
    pub(super) lasted: String,
    /// Its place in the waterfall.
    pub(super) left: String,
    pub(super) width: String,
    pub(super) outcome: String,
    pub(super) error: String,
    /// Which rule decided what, if one did.
    pub(super) rule: String,
    pub(super) arguments: Shown,
    pub(super) result: Shown,
}

impl Call {
    /// Sets when it was, all in milliseconds.
    pub(super) fn at(mut self, began: f64, lasted: Option<f64>, whole: f64) -> Self {
        let scale = WIDTH / whole.max(1.0);
        let left = (began.max(0.0) * scale).min(WIDTH - LEAST);
        let width = lasted.map_or(WIDTH, |lasted| lasted * scale).clamp(LEAST, WIDTH - left);
        (self.left, self.width) = (format!("{left:.1}"), format!("{width:.1}"));
        self.began = milliseconds(began);
        self.lasted = lasted.map(milliseconds).unwrap_or_default();
        self
    }
}

/// Returns the calls that lines of a run tell of, the first ones, and how many there are beside.
pub(super) fn logged_calls(folder: &Path, lines: &[Found], run: &LoggedRun) -> (Vec<Call>, usize) {
    let calls: Vec<&Found> = lines.iter().filter(|line| line.record.event == "call").collect();
    let since = |time: Option<Timestamp>| match (run.began, time) {
        (Some(began), Some(time)) => time.duration_since(began).as_secs_f64() * 1000.0,
        _ => 0.0,
    };
    let end = |call: &&Found| since(call.record.time) + call.record.milliseconds.unwrap_or_default();
    let of_run = run.end.as_ref().map_or(0.0, |end| end.milliseconds);
    let whole = calls.iter().map(end).fold(of_run, f64::max);
    let mut shown: Vec<(f64, Call)> = calls
        .iter()
        .take(MOST)
        .map(|call| {
            let began = since(call.record.time);
            (began, logged_call(folder, call).at(began, call.record.milliseconds, whole))
        })
        .collect();
    shown.sort_by(|a, b| a.0.total_cmp(&b.0));
    (shown.into_iter().map(|(_, call)| call).collect(), calls.len().saturating_sub(MOST))
}

fn logged_call(folder: &Path, line: &Found) -> Call {
    let record = &line.record;
    let name = |name: &Option<String>| visible_line(name.as_deref().unwrap_or("-"));
    let text = |field| Shown::of(&line.text_of(folder, field).ok().flatten().unwrap_or_default());
    let verdict = record.verdict.as_deref().filter(|verdict| *verdict != "allowed");
    let rule = match (verdict, &record.rule) {
        (Some(verdict), Some(rule)) => format!("{verdict} by {}", place(rule)),
        (Some(verdict), None) => verdict.to_owned(),
        (None, _) => String::new(),
    };
    let error = record.message.as_ref().or(record.error.as_ref());
    Call {
        server: name(&record.server),
        tool: match &record.kind {
            Some(kind) => format!("{kind} {}", name(&record.tool)),
            None => name(&record.tool),
        },
        outcome: record.outcome.clone().unwrap_or_default(),
        error: error.map(|error| in_a_line(error)).unwrap_or_default(),
        rule: visible_line(&rule),
        arguments: text("arguments"),
        result: text("result"),
        ..Call::default()
    }
}

/// Returns the file and the line of a rule, without the folder.
fn place(rule: &str) -> &str {
    rule.rsplit('/').next().unwrap_or(rule)
}

/// Returns the calls that the bridge itself knows of.
pub(super) fn calls_of(run: &RunDetail) -> Vec<Call> {
    let end = |call: &CallRow| call.began_ms + call.elapsed_ms.unwrap_or_default();
    let whole = run.calls.iter().map(end).fold(run.row.elapsed_ms, u64::max) as f64;
    let call = |call: &CallRow| {
        let shown = Call {
            server: visible_line(&call.server),
            tool: visible_line(&call.tool),
            outcome: match call.outcome {
                None => "running",
                Some(CallOutcome::Ok) => "ok",
                Some(CallOutcome::Error) => "error",
                Some(CallOutcome::Denied) => "denied",
                Some(CallOutcome::Cancelled) => "cancelled",
            }
            .into(),
            error: call.error.as_deref().map(in_a_line).unwrap_or_default(),
            rule: call.line.map(|line| format!("line {line}")).unwrap_or_default(),
            ..Call::default()
        };
        shown.at(call.began_ms as f64, call.elapsed_ms.map(|elapsed| elapsed as f64), whole)
    };
    run.calls.iter().take(MOST).map(call).collect()
}

/// Returns what lines of a run say of packages, files and folders that were denied.
pub(super) fn denied(lines: &[Found]) -> Vec<String> {
    let denied = lines.iter().filter(|line| line.record.event == "denied");
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    denied
        .map(|line| {
            let record = &line.record;
            in_a_line(&format!("{} {}: {}", text(&record.kind), text(&record.name), text(&record.error)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_their_place_in_the_run() {
        let call = |began, lasted| {
            let call = Call::default().at(began, lasted, 2000.0);
            (call.left.parse::<f64>().unwrap(), call.width.parse::<f64>().unwrap())
        };
        assert_eq!(call(500.0, Some(1000.0)), (250.0, 500.0));
        assert_eq!(call(0.0, Some(0.001)), (0.0, LEAST));
        assert_eq!(call(1999.9, Some(500.0)), (WIDTH - LEAST, LEAST));
        assert_eq!(call(1000.0, None), (500.0, 500.0), "one that has not ended goes on");
        assert_eq!(call(-5.0, Some(f64::MAX)), (0.0, WIDTH));
    }
}
