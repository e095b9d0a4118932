//! Runs and questions as plain data. Their texts come from code, servers and clients, as they are.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A run in a list. Times are in milliseconds, those of the clock since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// BRIDGE-NUMBER; before its code runs BRIDGE-starting-NUMBER. Both find it.
    pub name: String,
    /// 0 before its code runs.
    pub number: u32,
    pub session: String,
    pub client: Option<String>,
    pub is_background: bool,
    pub state: RunState,
    pub began: u64,
    pub elapsed_ms: u64,
    /// The first line of its code that is not empty, without the rest of a long one.
    pub first_line: String,
    /// The latest progress.
    pub doing: Option<String>,
    /// Questions of it that wait for an answer.
    pub questions: usize,
    pub calls: u64,
    pub displays: usize,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub error: Option<String>,
}

/// How a run stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Starting,
    Running,
    /// In the words of the audit log.
    Ended {
        outcome: String,
    },
}

impl RunState {
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }

    /// Returns the word for it.
    pub fn word(&self) -> &str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Ended { outcome } => outcome,
        }
    }
}

/// All that is known of a run, except its output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunDetail {
    pub row: RunRow,
    pub code: String,
    /// Bytes of the code that are not kept.
    pub code_left_out: u64,
    /// The servers that it may call, as its call names them.
    pub servers: Vec<String>,
    pub timeout_ms: u64,
    pub calls: Vec<CallRow>,
    /// Calls that are only counted.
    pub calls_left_out: u64,
    /// The MIME types of each displayed object.
    pub displays: Vec<Vec<String>>,
    pub files: Vec<FileRow>,
    pub artifacts: Vec<ArtifactRow>,
    pub notices: Vec<String>,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRow {
    pub server: String,
    pub tool: String,
    /// The line of the code that makes it.
    pub line: Option<u32>,
    /// Since the run was called.
    pub began_ms: u64,
    /// None as long as it is under way.
    pub elapsed_ms: Option<u64>,
    pub outcome: Option<CallOutcome>,
    pub error: Option<String>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    Ok,
    /// The tool failed, or could not be called.
    Error,
    /// A rule, a budget or the person said no.
    Denied,
    /// Nobody waited for its end.
    Cancelled,
}

/// A file of the session that a run made or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRow {
    /// As people see it.
    pub path: String,
    pub bytes: u64,
    /// Where it is while its session lives; None for a session that ends with its run.
    #[serde(default)]
    pub uri: Option<String>,
}

/// A version of an artifact that a run saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRow {
    pub name: String,
    pub version: u32,
    pub bytes: u64,
    pub mime: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamName {
    Stdout,
    /// With tracebacks.
    Stderr,
}

/// Output from an offset on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPart {
    pub pieces: Vec<Piece>,
    /// The offset of what comes next.
    pub next: u64,
    /// Whether nothing comes next.
    pub is_end: bool,
}

/// Output, or the number of bytes that are not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    Text(String),
    LeftOut(u64),
}

/// A question that waits for an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuestionRow {
    pub id: String,
    pub run: String,
    pub session: String,
    /// The server that asks, or `codebridge`.
    pub asker: String,
    /// Whether the bridge itself asks: it is about an approval then.
    pub is_of_bridge: bool,
    pub message: String,
    pub form: QuestionForm,
    /// When it was asked.
    pub asked: u64,
    /// Whether the client of the run shows it too.
    pub client_is_asked: bool,
}

/// What the person is shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionForm {
    /// The schema is an object with fields of simple types.
    Fields { schema: Value },
    /// A page to visit.
    Page { url: String },
}

/// What a person says who is not at the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GivenAnswer {
    Accept(Map<String, Value>),
    Decline,
}

/// Why an answer counts for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum AnswerError {
    #[error("the question is no longer open: it was answered elsewhere, or its run has ended")]
    Gone,
}
