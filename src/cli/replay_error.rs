//! Why a run cannot be replayed.

/// Why a run cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplayError {
    #[error("'{0}' is no run: expected BRIDGE-NUMBER")]
    Name(String),
    #[error("run {0} is not in the audit log")]
    Unknown(String),
    #[error("run {0} was not recorded in full")]
    NotFull(String),
    #[error("the session of run {0} began before the audit log, or its beginning was removed")]
    NoBeginning(String),
    #[error("the recorded text '{field}' of run {run} is lost: {why}")]
    Lost { run: String, field: &'static str, why: String },
    #[error("run {run} needs the image {image}: {why}")]
    Image { run: String, image: String, why: String },
    #[error("could not prepare the replay: {0}")]
    Folder(#[source] std::io::Error),
}

impl ReplayError {
    pub(super) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Name(_) | Self::Unknown(_) => "`codebridge audit` lists runs".into(),
            Self::NotFull(_) => "runs can be replayed that were made with MCP_BRIDGE_AUDIT=full".into(),
            Self::Lost { .. } => "`codebridge audit verify` shows what was changed".into(),
            Self::NoBeginning(_) | Self::Image { .. } | Self::Folder(_) => return None,
        })
    }
}
