//! What a launch will do, who holds which limit, how a sandbox ends, and what can go wrong on the way.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::exec::{CommandLine, ExecError};
use crate::owner::Owner;
use crate::rlimits::OwnLimits;
use crate::root::{ComposedRoot, RootError};
use crate::runtime::RuntimeKind;
use crate::spec::{RootLease, SandboxName, SpecError};
use crate::state::{Record, StateError};

/// How a sandbox's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With an exit status; runtimes report a signal as 128 + its number.
    Exited(i32),
    /// The runtime's own process was ended by a signal.
    Signalled(i32),
}

/// What keeps a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// A control group: the sandbox's processes together.
    Cgroup,
    /// An rlimit: each process by itself (memory), or the sandbox's user in its namespace (pids).
    Rlimit,
    /// An rlimit for each process, and all of them together watched from outside, as they grow.
    Watch,
    /// Nothing on this host can.
    Nothing,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroup => "cgroup",
            Self::Rlimit => "rlimit",
            Self::Watch => "rlimit and watch",
            Self::Nothing => "not enforced",
        })
    }
}

/// Which mechanism holds each limit of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLimits {
    /// Bytes of memory.
    pub memory: Mechanism,
    /// Processes and threads.
    pub pids: Mechanism,
    /// Processor time.
    pub cpus: Mechanism,
}

/// What a launch will do, computed without doing anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The sandbox's name.
    pub name: SandboxName,
    /// What will be run.
    pub command: CommandLine,
    /// Files written before: path and content.
    pub files: Vec<(PathBuf, String)>,
    /// The root to compose before, if it is composed.
    pub root: Option<ComposedRoot>,
    /// The lease on the folder behind that root, which is held until the sandbox is gone.
    pub lease: Option<Arc<dyn RootLease>>,
    /// The name of the image to make of that root before, for an engine that starts images only.
    pub image: Option<String>,
    /// What is written down before.
    pub record: Record,
    /// Who keeps which limit.
    pub held: HeldLimits,
    /// How much memory its processes may have together, in bytes.
    pub memory: u64,
    /// What the sandbox's program has to do itself.
    pub own_limits: OwnLimits,
}

/// A sandbox that cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The specification is not valid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The root cannot be composed.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The bundle's `config.json` cannot be built.
    #[error("failed to build the sandbox's configuration: {0}")]
    Config(#[from] oci_spec::OciSpecError),
    /// The driver cannot start a root of this form.
    #[error("{runtime} cannot take its root filesystem from '{root}': {hint}")]
    UnsupportedRoot {
        /// Which runtime.
        runtime: RuntimeKind,
        /// What it was asked for.
        root: String,
        /// What to do instead.
        hint: &'static str,
    },
}

/// A launch that did not come as far as a running process.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// It could not be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Something could not be written down.
    #[error(transparent)]
    State(#[from] StateError),
    /// A file of the plan could not be written.
    #[error("failed to write '{path}': {source}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The runtime's program did not start, or a step before it failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// A sandbox that could not be removed, or whose removal could not be verified.
#[derive(Debug, thiserror::Error)]
pub enum ReclaimError {
    /// The runtime's command failed.
    #[error("failed to remove sandbox '{name}': {source}")]
    Command {
        /// Which sandbox.
        name: SandboxName,
        /// Why.
        source: ExecError,
    },
    /// It is still there after the command.
    #[error("sandbox '{name}' is still there after its removal: {what}")]
    StillThere {
        /// Which sandbox.
        name: SandboxName,
        /// What was found.
        what: String,
    },
}

impl ReclaimError {
    /// Which sandbox.
    pub fn name(&self) -> &SandboxName {
        match self {
            Self::Command { name, .. } | Self::StillThere { name, .. } => name,
        }
    }
}

/// A sandbox found by its labels or records, whoever owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedSandbox {
    /// Its name.
    pub name: SandboxName,
    /// Who answers for it.
    pub owner: Owner,
    /// The runtime's word for its state.
    pub state: String,
}
