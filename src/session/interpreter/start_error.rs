//! Why a sandbox or its interpreter did not start.

use std::path::PathBuf;

use codebridge_runtimes::{
    ArchiveError, LaunchError, LeftOut, NothingWorks, Oddities, Refusal, RuntimeId, StateError, SupplyError,
};

use crate::session::Failure;

/// Why there is no interpreter.
#[derive(Debug, thiserror::Error)]
pub(in crate::session) enum StartError {
    #[error(transparent)]
    NothingWorks(#[from] NothingWorks),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Launch(LaunchError),
    /// The image is in a file or folder that is not there: no runtime needs to be asked.
    #[error("{image} does not exist\nhint: check the path, or use --image host:")]
    NoSuchPath { image: String },
    /// Another runtime may not refuse.
    #[error("{0}")]
    Refused(Refusal),
    /// A share that has to be copied cannot be.
    #[error(
        "{error}\nhint: it is copied because of its named pipes ({pipes}): remove them, or share a folder without them"
    )]
    Pipes { error: Box<LaunchError>, pipes: LeftOut },
    #[error("{runtime} did not start a sandbox: {refusal}\nhint: {}", refusal.hint(runtime.kind))]
    LastRefused { runtime: Box<RuntimeId>, refusal: Refusal },
    #[error("the sandbox speaks version {0} of the protocol, and the bridge another one")]
    Protocol(u32),
    #[error("the sandbox was stopped before it had started")]
    Stopped,
}

impl From<LaunchError> for StartError {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::Exec(error) => Self::Refused(Refusal::Other { message: error.to_string() }),
            other => Self::Launch(other),
        }
    }
}

impl StartError {
    /// Returns the error of a launch, where `found` is in the shares.
    pub(in crate::session) fn with_pipes(error: LaunchError, found: &[(PathBuf, Oddities)]) -> Self {
        let LaunchError::Supply(SupplyError::Archive(
            ArchiveError::TooLarge { path, .. } | ArchiveError::TooMany { path },
        )) = &error
        else {
            return error.into();
        };
        let share = found.iter().find(|(share, odd)| share == path && !odd.pipes.is_empty());
        match share.map(|(_, odd)| odd.pipes.clone()) {
            Some(pipes) => Self::Pipes { error: Box::new(error), pipes },
            None => error.into(),
        }
    }

    /// Returns the word for it in metrics.
    pub(in crate::session) fn kind(&self) -> &'static str {
        match self {
            Self::NothingWorks(_) => "no_runtime",
            Self::NoSuchPath { .. } => "no_image",
            Self::State(_) => "state_folder",
            Self::Launch(_) | Self::Pipes { .. } | Self::Protocol(_) => "launch_failed",
            Self::Refused(_) | Self::LastRefused { .. } => "refused",
            Self::Stopped => "cancelled",
        }
    }

    pub(in crate::session) fn failure(&self) -> Failure {
        match self {
            Self::NothingWorks(error) if error.lacks_image() => Failure::NoImage,
            Self::NoSuchPath { .. } => Failure::NoImage,
            Self::NothingWorks(_) => Failure::NoRuntime,
            _ => Failure::Sandbox,
        }
    }
}
