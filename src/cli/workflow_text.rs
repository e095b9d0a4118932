//! Workflows as text and as JSON.

use std::ffi::OsString;

use codebridge_runtimes::exec::visible_line;
use serde_json::{Value, json};

use super::output::columns;
use super::runs::time;
use crate::upstream::shell_word;
use crate::workflows::{RecordedStep, State, StepState, Workflow};

/// Characters of a file, of arguments, of an error or of a result in a table.
const SHOWN: usize = 60;

pub(super) fn table(workflows: &[Workflow]) -> String {
    if workflows.is_empty() {
        return "no workflows\n".into();
    }
    let row = |workflow: &Workflow| {
        let steps = format!("{}/{}", workflow.finished(), workflow.steps.len());
        vec![workflow.id.clone(), state(workflow), steps, time(workflow.began), what(workflow)]
    };
    columns(&["ID", "STATUS", "STEPS", "BEGAN", "FILE"], workflows.iter().map(row))
}

/// Returns the file of a workflow and its arguments.
fn what(workflow: &Workflow) -> String {
    let name = workflow.start.file.rsplit('/').next().unwrap_or_default();
    let words: Vec<String> = std::iter::once(name)
        .chain(workflow.start.arguments.iter().map(String::as_str))
        .map(shell_word)
        .collect();
    short(&words.join(" "))
}

fn short(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN).collect();
    let end = if shown.len() < text.len() { "…" } else { "" };
    visible_line(&shown) + end
}

fn state(workflow: &Workflow) -> String {
    match &workflow.state {
        State::Running => "running".into(),
        State::Finished => "finished".into(),
        State::Cancelled => "cancelled".into(),
        State::Stopped { status, .. } => visible_line(status),
        State::Lost => "interrupted".into(),
    }
}

fn error(workflow: &Workflow) -> Option<&str> {
    match &workflow.state {
        State::Stopped { error, .. } => error.as_deref(),
        State::Lost => Some("its process ended before it did"),
        _ => None,
    }
}

/// Returns a workflow without its steps.
pub(super) fn summary(workflow: &Workflow) -> Value {
    json!({
        "id": workflow.id,
        "status": state(workflow),
        "error": error(workflow),
        "file": workflow.start.file,
        "arguments": workflow.start.arguments,
        "began": time(workflow.began),
        "last": time(workflow.last),
        "steps": workflow.steps.len(),
        "finished": workflow.finished(),
    })
}

/// Returns a workflow with its steps and their results.
pub(super) fn fields(workflow: &Workflow) -> Value {
    let step = |step: &RecordedStep| {
        let result = step.result.as_deref().and_then(|json| serde_json::from_str::<Value>(json.get()).ok());
        json!({
            "name": step.id.name,
            "key": step.id.key,
            "number": step.id.number,
            "status": step_state(step),
            "attempts": step.attempts,
            "error": step.error,
            "result": result,
            "began": time(step.began),
            "ended": step.ended.map(time),
        })
    };
    let mut fields = summary(workflow);
    fields["steps"] = workflow.steps.iter().map(step).collect();
    fields
}

fn step_state(step: &RecordedStep) -> &'static str {
    match step.state {
        StepState::Begun => "begun",
        StepState::Failed => "failed",
        StepState::Finished => "finished",
    }
}

pub(super) fn steps_text(workflow: &Workflow) -> String {
    let row = |step: &RecordedStep| {
        let last = match (step.state == StepState::Finished, &step.result, &step.error) {
            (true, Some(result), _) => short(result.get()),
            (false, _, Some(error)) => short(error),
            _ => String::new(),
        };
        vec![step.id.to_string(), step_state(step).into(), step.attempts.to_string(), last]
    };
    let mut text = format!("workflow {} ({}): {}\n", workflow.id, state(workflow), what(workflow));
    if let Some(error) = error(workflow) {
        text.push_str(&format!("error: {}\n", visible_line(&error.replace("\nhint: ", "; hint: "))));
    }
    if !workflow.steps.is_empty() {
        text.push_str(&columns(&["STEP", "STATUS", "ATTEMPTS", "RESULT"], workflow.steps.iter().map(row)));
    }
    text
}

/// Returns the command that resumes a workflow: the words of this one, with its id.
pub(super) fn resume_command(words: impl Iterator<Item = OsString>, id: &str) -> String {
    let mut command = vec!["codebridge".to_owned()];
    let (mut has_command, mut is_resumed, mut is_flag) = (false, false, true);
    let mut words = words.map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--resume" if is_flag => drop(words.next()),
            old if is_flag && old.starts_with("--resume=") => {}
            _ => {
                is_flag &= word != "--";
                let is_run = has_command && !is_resumed && word == "run";
                has_command |= word == "workflow";
                command.push(shell_word(&word));
                if is_run {
                    command.push(format!("--resume {id}"));
                    is_resumed = true;
                }
            }
        }
    }
    command.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_to_resume_is_this_one_with_the_id() {
        let of = |line: &str| resume_command(line.split(' ').map(OsString::from), "0a1b2c3d");
        assert_eq!(
            of("--runtime crun workflow run a.py x --server s -- --resume y"),
            "codebridge --runtime crun workflow run --resume 0a1b2c3d a.py x --server s -- --resume y"
        );
        for old in ["--resume ffffffff", "--resume=ffffffff"] {
            assert_eq!(
                of(&format!("workflow run run {old} $x")),
                "codebridge workflow run --resume 0a1b2c3d run '$x'"
            );
        }
    }
}
