//! Why a workflow cannot be run, or one of its steps cannot be journaled.

use std::io;
use std::path::PathBuf;

use super::line::LONGEST_RESULT;

#[derive(Debug, thiserror::Error)]
pub enum WorkflowError {
    #[error("there is no workflow '{id}'")]
    Unknown { id: String, nearest: Option<String> },
    #[error("workflow {0} is running in another process")]
    Running(String),
    #[error("workflow {0} was cancelled")]
    Cancelled(String),
    #[error("workflow {0} has finished")]
    Finished(String),
    #[error("workflow {0} was started with other arguments")]
    OtherArguments(String),
    #[error("the journal '{}' is damaged: line {line} cannot be read", .path.display())]
    Damaged { path: PathBuf, line: usize },
    #[error("could not use the journal '{}': {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the command line has {0} KiB, a workflow takes 256")]
    LongStart(usize),
    /// A step that is known by its name and number, or by its key, is called in another way than before.
    #[error(
        "step {0} finished earlier with other arguments: neither is it repeated, nor is its result taken for these"
    )]
    Changed(String),
    #[error("step {0} reports its end twice")]
    Twice(String),
    #[error("the result of step {step} has {bytes} bytes as JSON, a journal takes {LONGEST_RESULT}")]
    LongResult { step: String, bytes: usize },
    #[error("the workflow has more than {0} steps")]
    TooManySteps(usize),
    #[error("the journal of the workflow has {} MiB, which is the most", .0 >> 20)]
    Full(u64),
    /// An earlier write failed: what came after it would not be found.
    #[error("the workflow has stopped: {0}")]
    Stopped(String),
}

impl WorkflowError {
    /// Returns what to do about it.
    pub fn hint(&self) -> Option<String> {
        let fixed = match self {
            Self::Unknown { nearest: Some(nearest), .. } => return Some(format!("did you mean {nearest}?")),
            Self::Unknown { nearest: None, .. } => "`codebridge workflow ls` lists them",
            Self::Running(id) => return Some(format!("`codebridge workflow cancel {id}` ends it for good")),
            Self::Cancelled(_) => "start it again without --resume",
            Self::OtherArguments(_) => {
                "leave the arguments out: those of the first run are used; or start another workflow without --resume"
            }
            Self::Damaged { .. } => {
                "lines up to that one are whole: remove it and all after it, and the steps that they report are done again"
            }
            Self::Changed(_) => {
                "give it another name, or a key: runtime.step.options(key=…)(name, function, …)"
            }
            Self::LongResult { .. } => {
                "return less: keep the data with runtime.save_artifact, and return its name"
            }
            Self::TooManySteps(_) | Self::Full(_) => "do more in each step, or return less from it",
            _ => return None,
        };
        Some(fixed.to_owned())
    }
}
