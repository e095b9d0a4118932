//! The outcome of a call, in the fields that users see.

use serde::{Serialize, Serializer};
use serde_json::json;

use super::outputs::{artifact_fields, file_fields};
use crate::artifacts::Artifact;
use crate::session::{ChangedFiles, Display, Failure, RunOutcome, RunRequest, Status, Stream};

/// The fields of a result, empty ones dropped. The order is the order in which they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Payload {
    /// `success`, `error`, `timeout`, `cancelled`, `validation_error` or `running`.
    pub status: &'static str,
    /// The outcome in one line.
    pub summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The MCP servers that the call may use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stdout: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
    /// The exception, or what failed and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The timeout, when the code ran longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Notices for the caller, such as that the session is new.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// What the code displayed beside its text.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "display_fields")]
    pub displays: Vec<Display>,
    /// The files of `/workspace` that the code made or changed; None when there are none.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "file_fields")]
    pub files: Option<ChangedFiles>,
    /// The artifacts that it saved.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "artifact_fields")]
    pub artifacts: Vec<Artifact>,
    /// The number of the run, when it goes on, or its output was cut and the rest can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u32>,
}

impl Payload {
    pub(super) const SUCCESS: &str = "success";
    pub(super) const RUNNING: &str = "running";

    /// Returns the payload of a call that ran or failed to start.
    pub fn new(request: &RunRequest, outcome: RunOutcome) -> Self {
        let cut = outcome.stdout.truncated || outcome.stderr.truncated;
        let files = Some(outcome.files).filter(|changed| !changed.files.is_empty());
        let silent = outcome.stdout.text.is_empty()
            && outcome.stderr.text.is_empty()
            && outcome.displays.is_empty()
            && files.is_none()
            && outcome.artifacts.is_empty();
        let seconds = request.timeout.as_secs();
        // A timeout says it itself.
        let clamped = request.clamped.filter(|_| outcome.status != Status::Timeout);
        let notices = clamped
            .map(|clamped| format!("timeout is shorter: {}", clamped.describe(request.timeout)))
            .into_iter()
            .chain(outcome.notices)
            .collect();
        let (status, summary, error) = match outcome.status {
            Status::Success if silent => (Self::SUCCESS, "Success (no output)".to_owned(), outcome.error),
            Status::Success => (Self::SUCCESS, "Success".to_owned(), outcome.error),
            Status::Error => ("error", failed(outcome.failure, outcome.exit_code), outcome.error),
            // How long the code may run is not known to a look.
            Status::Timeout if request.timeout.is_zero() => ("timeout", "Timeout".to_owned(), outcome.error),
            Status::Timeout => (
                "timeout",
                format!("Timeout: execution exceeded {seconds}s"),
                outcome.error.or_else(|| Some(format!("Execution timed out after {seconds} seconds"))),
            ),
            Status::Cancelled => ("cancelled", "Cancelled".to_owned(), outcome.error),
            Status::Running => {
                (Self::RUNNING, outcome.running.map(|now| now.describe()).unwrap_or_default(), None)
            }
            Status::Refused => {
                let refused = Self::validation_error(outcome.error.unwrap_or_default());
                return Self { notices, ..refused };
            }
        };
        Self {
            status,
            summary,
            exit_code: outcome.exit_code,
            servers: request.servers.clone(),
            stdout: lines(outcome.stdout),
            stderr: lines(outcome.stderr),
            error,
            timeout_seconds: (outcome.status == Status::Timeout && seconds > 0).then_some(seconds),
            notices,
            displays: outcome.displays,
            files,
            artifacts: outcome.artifacts,
            run_id: (cut || outcome.status == Status::Running).then_some(outcome.run_id),
        }
    }

    /// Returns the payload of a call with wrong arguments; nothing was started.
    pub fn validation_error(message: String) -> Self {
        Self { status: "validation_error", summary: message.clone(), error: Some(message), ..Self::default() }
    }

    /// Whether the result is an error for the client.
    pub fn is_error(&self) -> bool {
        !matches!(self.status, Self::SUCCESS | Self::RUNNING)
    }
}

/// Writes what a client needs to read the displayed objects.
fn display_fields<S: Serializer>(displays: &[Display], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(displays.iter().map(|display| {
        let types: Vec<&str> = display.forms.iter().map(|form| &*form.mime).collect();
        json!({ "mimeTypes": types, "uri": display.uri })
    }))
}

fn failed(failure: Option<Failure>, exit_code: Option<i32>) -> String {
    match (failure, exit_code) {
        (Some(Failure::NoRuntime), _) => "Error: no container runtime".to_owned(),
        (Some(Failure::NoImage), _) => "Error: no image".to_owned(),
        (Some(Failure::Preparation), _) => "Error: the code did not run".to_owned(),
        (Some(Failure::Sandbox), None) => "Error: the sandbox failed".to_owned(),
        (_, Some(code)) => format!("Error: exit code {code}"),
        (_, None) => "Error".to_owned(),
    }
}

/// Returns the lines as they were written, blank ones included. A newline at the end starts no further line.
fn lines(stream: Stream) -> Vec<String> {
    let text = stream.text.strip_suffix('\n').unwrap_or(&stream.text);
    if stream.text.is_empty() { Vec::new() } else { text.split('\n').map(str::to_owned).collect() }
}
