//! Why an artifact cannot be saved or read.

use std::io;
use std::path::PathBuf;

use crate::reason::reason;
use crate::sizes::bytes_text;

#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The name is not quoted in full: it may have megabytes.
    #[error("invalid artifact name '{name}': {why}")]
    Name { name: String, why: &'static str },
    #[error("there is no artifact '{name}'")]
    Unknown { name: String, nearest: Option<String> },
    #[error("the artifact '{name}' has no version {version}")]
    UnknownVersion { name: String, version: u32 },
    #[error(
        "the artifact '{name}' does not fit: {} of {} are in use",
        bytes_text(*used),
        bytes_text(*limit)
    )]
    Full { name: String, used: u64, limit: u64 },
    #[error("{0} artifacts are being saved at the same time, and a bridge saves no more at once")]
    Busy(usize),
    #[error("the artifact '{name}' does not fit: there are {most} versions of artifacts")]
    Many { name: String, most: usize },
    #[error("the description of an artifact has at most {0} bytes")]
    Description(usize),
    #[error("the artifact '{0}' has too many versions")]
    Versions(String),
    /// The path is for the user, not for the sandbox.
    #[error("could not {action} '{}': {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl ArtifactError {
    /// Returns what to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { nearest: Some(name), .. } => {
                Some(format!("did you mean {name}? `codebridge artifact ls` lists all"))
            }
            Self::Unknown { .. } | Self::UnknownVersion { .. } => {
                Some("`codebridge artifact ls --all` lists all versions".into())
            }
            Self::Many { .. } => Some("remove some with `codebridge artifact rm` or `prune`".into()),
            Self::Full { .. } => Some(
                "remove some with `codebridge artifact rm` or `prune`, or raise MCP_BRIDGE_ARTIFACTS_LIMIT"
                    .into(),
            ),
            _ => None,
        }
    }

    /// Returns the error in the words that code in the sandbox gets: without a path of the host.
    pub fn for_sandbox(&self) -> String {
        let text = match self {
            Self::Io { action, source, .. } => {
                format!("the bridge could not {action} the artifact: {}", reason(source))
            }
            other => other.to_string(),
        };
        match self {
            Self::Unknown { nearest: Some(name), .. } => format!("{text}; did you mean '{name}'?"),
            Self::Unknown { .. } | Self::UnknownVersion { .. } => {
                format!("{text}; runtime.artifacts() lists what is kept")
            }
            _ => match self.hint() {
                Some(hint) => format!("{text}; hint: {hint}"),
                None => text,
            },
        }
    }
}
