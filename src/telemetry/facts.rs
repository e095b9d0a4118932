//! What is recorded of a run or a call: words that this program chooses, and numbers.

/// How a run ended.
#[derive(Debug, Clone, Copy)]
pub struct RunEnd {
    /// `success`, `error`, `timeout`, `cancelled` or `refused`.
    pub outcome: &'static str,
    /// The number of the run; 0 when nothing ran.
    pub run: u32,
    pub exit_code: Option<i32>,
    /// Bytes that the code wrote to each stream.
    pub stdout: u64,
    pub stderr: u64,
}

impl RunEnd {
    /// The end of a run that nobody waits for any more.
    pub(super) const DROPPED: Self =
        Self { outcome: "cancelled", run: 0, exit_code: None, stdout: 0, stderr: 0 };
}

/// Why a call has no good result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// The tool says that it failed.
    Tool,
    /// The server answered with an error of JSON-RPC, which has this code.
    Protocol(i32),
    /// Anything else, as a word.
    Other(&'static str),
}

impl Failed {
    /// The end of a call that nobody waits for any more.
    pub(super) const DROPPED: Self = Self::Other("cancelled");

    /// Returns the value of `error.type`.
    pub(super) fn error_type(self) -> String {
        match self {
            // The word of the semantic conventions for MCP.
            Self::Tool => "tool_error".into(),
            Self::Protocol(code) => code.to_string(),
            Self::Other(word) => word.into(),
        }
    }
}

/// What messages travel over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Standard input and output.
    Pipe,
    /// HTTP.
    Tcp,
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Tcp => "tcp",
        }
    }
}
