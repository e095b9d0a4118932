//! The example of a saved function as a run: code that raises an error if the function does not work.

use std::time::Duration;

use codebridge_runtimes::exec::visible_line;

use super::outcome::{Failure, RunOutcome, RunRequest, Status};
use crate::saved::SavedTool;

/// How an example ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExampleEnd {
    Passed,
    Broken(String),
    /// Something is missing that the function needs.
    NotTested(String),
    /// The machine is the reason, and not the function.
    Failed,
}

impl RunRequest {
    /// Returns the run of a function's example, in an interpreter of its own.
    pub fn of_example(tool: &SavedTool, timeout: Duration) -> Self {
        Self {
            code: tool.example.clone().unwrap_or_default(),
            servers: tool.details.servers.clone(),
            timeout,
            session: Self::THROW_AWAY.into(),
            clamped: None,
        }
    }
}

impl ExampleEnd {
    /// Returns what the run of an example says of the function.
    pub fn of(name: &str, outcome: &RunOutcome) -> Self {
        match outcome.status {
            Status::Success => Self::Passed,
            Status::Refused | Status::Cancelled => Self::NotTested(error_of(name, outcome)),
            Status::Timeout => Self::Broken(error_of(name, outcome)),
            _ if matches!(outcome.failure, Some(Failure::Code) | None) => {
                Self::Broken(error_of(name, outcome))
            }
            _ => Self::Failed,
        }
    }
}

fn error_of(name: &str, outcome: &RunOutcome) -> String {
    // The function could not be defined: that its name is unknown says less.
    let broken = format!("'{name}' is broken");
    let notice = outcome.notices.iter().find(|notice| notice.contains(&broken));
    let error = notice.or(outcome.error.as_ref());
    error.map_or_else(|| format!("exit code {}", outcome.exit_code.unwrap_or(1)), |text| visible_line(text))
}
