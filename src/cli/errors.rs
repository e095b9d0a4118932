//! Errors of commands. One function prints them, each with its hint and its exit code.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use codebridge_images::{ImageError, NameError, RecipeError, StoreError};
use codebridge_runtimes::exec::ExecError;
use codebridge_runtimes::{ReclaimError, StateError};

use super::call_result::SaveError;
use super::code::CodeError;
use super::folder::WriteError;
use super::replay_error::ReplayError;
use super::say::say;
use super::servers_error::ServersError;
use crate::artifacts::ArtifactError;
use crate::audit::AuditError;
use crate::error::Exit;
use crate::http::HttpError;
use crate::image_sources::SourceError;
use crate::image_sources::build::BuildError;
use crate::policy::{PinError, PolicyError};
use crate::requirements::RequirementError;
use crate::saved::ToolError;
use crate::server::ServeError;
use crate::settings::SettingError;
use crate::setup::SetupError;
use crate::shares::ShareError;
use crate::state_folder::StateFolderError;
use crate::tokens::{NameError as NameOfUserError, ScopeError, TokenError};
use crate::upstream::meaning::ModelError;
use crate::upstream::{RawArgumentsError, UpstreamError, WrittenError, shell_word, trust_command};
use crate::workflows::WorkflowError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Share(#[from] ShareError),
    #[error(transparent)]
    StateFolder(#[from] StateFolderError),
    #[error(transparent)]
    Code(#[from] CodeError),
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    #[error("a workflow needs a file: standard input cannot be read again when it is resumed")]
    WorkflowInput,
    #[error("exec has no sessions: nothing is left when it ends")]
    Session,
    #[error("could not read {}, the file of --servers-config: {source}", path.display())]
    ServersConfig { path: PathBuf, source: io::Error },
    #[error("invalid arguments: expected a JSON object: {0}")]
    Arguments(#[source] RawArgumentsError),
    #[error("could not call '{tool}': {error}")]
    Written { tool: String, error: WrittenError },
    #[error("could not save the result: {0}")]
    Save(#[source] SaveError),
    #[error("could not write '{}': {error}", .file.display())]
    Write { file: PathBuf, error: io::Error },
    #[error("could not read '{}': {error}", .file.display())]
    Read { file: PathBuf, error: io::Error },
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("invalid tool '{0}': expected SERVER.TOOL")]
    ToolName(String),
    #[error("could not ask which definitions to trust: standard input is not a terminal")]
    NobodyToAsk { names: Vec<String> },
    #[error(transparent)]
    Servers(#[from] ServersError),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("unknown client '{name}'")]
    UnknownClient { name: String, nearest: Option<&'static str> },
    #[error("could not ask whether to change '{0}': standard input is not a terminal")]
    Unconfirmed(String),
    #[error("could not find the files of clients: HOME is not set")]
    NoHome,
    #[error("could not name this program in a configuration: {0}")]
    OwnPath(#[source] io::Error),
    #[error("unknown help topic or command '{name}'")]
    HelpTopic { name: String, nearest: Option<String> },
    #[error("invalid output '{0}': expected oci-archive:FILE[:TAG]")]
    BuildOutput(String),
    #[error("{0}")]
    Policy(PolicyError),
    #[error("there is no policy: '{}' does not exist", .0.display())]
    NoPolicy(PathBuf),
    #[error("there is no run '{name}'")]
    UnknownRun { name: String, nearest: Option<String> },
    #[error("'{}' exists already", .0.display())]
    PolicyExists(PathBuf),
    #[error("could not ask whether to accept the tools of '{0}': standard input is not a terminal")]
    Unaccepted(String),
    #[error("could not ask whether to remove this: standard input is not a terminal")]
    UnconfirmedRemoval,
    #[error(transparent)]
    Pins(PinError),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error(transparent)]
    Saved(#[from] ToolError),
    #[error("could not ask whether to import '{0}': standard input is not a terminal")]
    UnapprovedImport(String),
    #[error(transparent)]
    Output(WriteError),
    #[error("could not print '{0}': standard output is a terminal, and it is not a short text")]
    Terminal(String),
    #[error(transparent)]
    ImageName(#[from] NameError),
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    #[error("invalid package: {0}")]
    Requirement(#[from] RequirementError),
    #[error(transparent)]
    SearchModel(#[from] ModelError),
    #[error("{why}")]
    Packages { why: String, hint: Option<String> },
    #[error("'{}' exists, and is not a lock file", .0.display())]
    NoLockFile(PathBuf),
    #[error("no set of packages is or has '{0}'")]
    UnknownSet(String),
    #[error("standard input or output failed: {0}")]
    Io(#[from] io::Error),
    #[error("could not start a thread: {0}")]
    Thread(#[source] io::Error),
    /// A process that a bridge starts beside itself could not be set up.
    #[error("{0}")]
    Process(#[source] io::Error),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    TokenName(NameOfUserError),
    #[error("there is no user '{0}' of `serve --http`")]
    UnknownUser(String),
    #[error(transparent)]
    TokenScope(ScopeError),
    /// What was approved does not hold.
    #[error("nothing was changed: {0}")]
    Unrecorded(Arc<AuditError>),
    #[error("'{0}' has a policy already")]
    HasPolicy(String),
    #[error("could not write the policy of '{name}': {source}")]
    WritePolicy { name: String, source: io::Error },
    #[error(transparent)]
    Server(#[from] UpstreamError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Reclaim(Box<ReclaimError>),
    /// The engine of the sandbox does not answer.
    #[error(transparent)]
    OutOfReach(Box<ReclaimError>),
    #[error("could not list the sandboxes of {runtime}: {error}")]
    Unlisted { runtime: String, error: Box<ExecError> },
    #[error("could not remove the network policy of sandboxes: {0}")]
    NetworkPolicy(Box<ExecError>),
    #[error(transparent)]
    Image(#[from] SourceError),
    #[error(transparent)]
    Build(BuildError),
    #[error("the build was stopped; nothing was written")]
    BuildStopped(Exit),
    #[error("the pull was stopped; fetched layers are kept")]
    PullStopped(Exit),
    /// The user stopped the command, and knows it.
    #[error("stopped")]
    Stopped(Exit),
}

impl CommandError {
    /// Prints the error and its hint, and returns the exit code.
    pub(super) fn report(&self) -> ExitCode {
        if !matches!(self, Self::Stopped(_)) {
            say(format_args!("error: {self}"));
            if let Some(hint) = self.hint() {
                say(format_args!("hint: {hint}"));
            }
        }
        self.exit().into()
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Setting(error) => error.hint(),
            Self::Share(error) => error.hint(),
            Self::StateFolder(error) => Some(error.hint()),
            Self::Recipe(RecipeError::PackageName(_)) => Some("write NAME or NAME==VERSION".into()),
            Self::Code(error) => error.hint(),
            Self::Workflow(error) => error.hint(),
            Self::Http(error) => error.hint(),
            Self::Token(TokenError::Unknown(_) | TokenError::NotRefused(_)) => Some("`codebridge token ls` lists them".into()),
            Self::HasPolicy(name) => Some(format!("edit principals/{name}/policy.toml in the state folder, or replace it with --force")),

            Self::Thread(_) => Some("end some processes, or raise their limit (`ulimit -u`)".into()),
            Self::Session => Some(
                "give exec all of the code at once; only clients of `codebridge serve` have sessions".into(),
            ),
            Self::NobodyToAsk { names } => {
                let commands: Vec<String> = names.iter().map(|name| format!("`{}`", trust_command(name))).collect();
                Some(format!("approve one of them: {}", commands.join(", ")))
            }
            Self::Servers(error) => error.hint(),
            Self::Setup(SetupError::Problem { .. }) => {
                Some("correct the file, or print the entry with `--print` and add it by hand".into())
            }
            Self::UnknownClient { nearest: Some(name), .. } => Some(format!("try `codebridge setup {name}`")),
            Self::UnknownClient { nearest: None, .. } => Some("`codebridge setup --list` lists all clients".into()),
            Self::Unconfirmed(_) => Some("add `--yes`, or print the entry with `--print`".into()),
            Self::UnconfirmedRemoval => Some("add `--yes` to remove it, or `--dry-run` to only look".into()),
            Self::NoHome => Some("set HOME to your home folder".into()),
            Self::Written { tool, .. } => {
                Some(format!("see its arguments with `codebridge tools show {}`", shell_word(tool)))
            }
            Self::ToolName(name) => Some(format!("list the tools of a server with `codebridge tools show {}`", shell_word(name))),
            Self::Save(SaveError::Several(_)) => Some("without -o and in a pipe, the result is JSON with all parts".into()),
            Self::HelpTopic { nearest: Some(name), .. } => {
                Some(format!("try `codebridge help {name}`; `codebridge help` lists all topics"))
            }
            Self::Packages { hint, .. } => hint.clone(),
            Self::SearchModel(error) => Some(error.hint().into()),
            Self::NoLockFile(_) => Some("replace it with --force, or write elsewhere".into()),
            Self::Requirement(RequirementError::File(_)) => {
                Some("name the packages, such as pandas httpx".into())
            }
            Self::UnknownSet(_) => Some("list them with `codebridge packages ls`".into()),
            Self::HelpTopic { nearest: None, .. } => Some("`codebridge help` lists all topics".into()),
            Self::Server(error) => error.hint(),
            Self::Replay(error) => error.hint(),
            Self::NoPolicy(_) => Some("write one with `codebridge policy init`; without one, every call is allowed".into()),
            Self::UnknownRun { nearest: Some(nearest), .. } => Some(format!("did you mean '{nearest}'?")),
            Self::UnknownRun { .. } => Some("`codebridge runs` lists them".into()),
            Self::PolicyExists(_) => Some("change it with an editor, or replace it with --force".into()),
            Self::Unaccepted(_) => Some("add --yes if you have seen the changes".into()),
            Self::Artifact(error) => error.hint(),
            Self::Saved(error) => error.hint(),
            Self::Unrecorded(error) => Some(error.hint()),
            Self::UnknownUser(_) => Some("`codebridge token ls` lists users; the first call of a user makes their folder".into()),
            Self::UnapprovedImport(_) => Some("add --yes if you have read the source".into()),
            Self::Output(error) => error.hint(),
            Self::Terminal(_) => Some("write it to a file with -o FILE".into()),
            Self::ImageName(error) => Some(error.hint()),
            Self::Image(error) => error.hint(),
            Self::Build(error) => error.hint(),
            Self::OutOfReach(_) => Some(
                "its engine does not answer: run `codebridge reap` again when it does; after a week the sandbox is forgotten"
                    .into(),
            ),
            Self::Unlisted { runtime, .. } => Some(format!("`codebridge doctor --runtime {}` says why", shell_word(runtime))),
            _ => None,
        }
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Setting(_)
            | Self::Share(_)
            | Self::Code(_)
            | Self::WorkflowInput
            | Self::Session
            | Self::ServersConfig { .. }
            | Self::Arguments(_)
            | Self::Written { .. }
            | Self::Save(_)
            | Self::ToolName(_)
            | Self::NobodyToAsk { .. }
            | Self::Setup(SetupError::Problem { .. })
            | Self::UnknownClient { .. }
            | Self::Unconfirmed(_)
            | Self::UnconfirmedRemoval
            | Self::NoHome
            | Self::OwnPath(_)
            | Self::HelpTopic { .. }
            | Self::Requirement(_)
            | Self::UnknownSet(_)
            | Self::NoLockFile(_)
            | Self::BuildOutput(_)
            | Self::ImageName(_)
            | Self::Terminal(_)
            | Self::Policy(_)
            | Self::NoPolicy(_)
            | Self::PolicyExists(_)
            | Self::UnknownRun { .. }
            | Self::Unaccepted(_)
            | Self::UnapprovedImport(_)
            | Self::Replay(_)
            | Self::TokenName(_)
            | Self::UnknownUser(_)
            | Self::TokenScope(_)
            | Self::Token(TokenError::Unknown(_) | TokenError::NotRefused(_))
            | Self::HasPolicy(_)
            | Self::Http(HttpError::Address(_) | HttpError::Issuer(_))
            | Self::Recipe(_) => Exit::Usage,
            Self::StateFolder(_) => Exit::StateFolder,
            Self::Workflow(WorkflowError::Io { .. } | WorkflowError::Stopped(_)) => Exit::Io,
            Self::Workflow(_) => Exit::Usage,
            Self::Pins(_) | Self::Http(_) | Self::Token(_) | Self::WritePolicy { .. } => Exit::Io,
            Self::Artifact(ArtifactError::Io { .. }) | Self::Output(_) => Exit::Io,
            Self::Artifact(_) => Exit::Usage,
            Self::Saved(ToolError::Io { .. }) => Exit::Io,
            Self::Saved(_) => Exit::Usage,
            Self::Io(_)
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::Serve(_)
            | Self::Unrecorded(_)
            | Self::Setup(SetupError::File(_)) => Exit::Io,
            Self::Servers(error) => error.exit(),
            Self::Server(error) => exit_of(error),
            Self::Thread(_)
            | Self::Process(_)
            | Self::State(_)
            | Self::Reclaim(_)
            | Self::OutOfReach(_)
            | Self::Unlisted { .. }
            | Self::NetworkPolicy(_) => Exit::Sandbox,
            Self::Image(_) | Self::Build(_) => Exit::NoImage,
            Self::Packages { .. } => Exit::Sandbox,
            Self::SearchModel(_) => Exit::Io,
            Self::BuildStopped(exit) | Self::PullStopped(exit) | Self::Stopped(exit) => *exit,
        }
    }
}

/// Tells errors of the command line from errors of a server.
fn exit_of(error: &UpstreamError) -> Exit {
    match error {
        UpstreamError::Unknown { .. }
        | UpstreamError::Skipped { .. }
        | UpstreamError::Distrusted { .. }
        | UpstreamError::Profile(_)
        | UpstreamError::UnknownTool { .. }
        | UpstreamError::Arguments { .. } => Exit::Usage,
        UpstreamError::Denied { .. }
        | UpstreamError::DeniedOffer { .. }
        | UpstreamError::NotAllowed { .. } => Exit::Denied,
        UpstreamError::Start { .. }
        | UpstreamError::Http { .. }
        | UpstreamError::Login(_)
        | UpstreamError::LoginOnPage { .. }
        | UpstreamError::BackingOff { .. }
        | UpstreamError::Ended { .. }
        | UpstreamError::TimedOut { .. }
        | UpstreamError::Cancelled { .. }
        | UpstreamError::Refused { .. }
        | UpstreamError::Malformed { .. }
        | UpstreamError::Unread { .. }
        | UpstreamError::Unreachable { .. }
        | UpstreamError::Replayed { .. }
        | UpstreamError::ShuttingDown => Exit::Server,
        UpstreamError::Trust(_) | UpstreamError::Unrecorded { .. } => Exit::Io,
    }
}

impl From<ImageError> for CommandError {
    fn from(error: ImageError) -> Self {
        Self::Image(error.into())
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        Self::Image(error.into())
    }
}
