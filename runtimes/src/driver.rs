//! The drivers' common face: plan (pure), launch, reclaim, list.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::address::{Address, Target};
use crate::engine::EngineDriver;
use crate::exec::{self, CommandLine, ExecError};
use crate::oci::OciDriver;
use crate::owner::Owner;
use crate::refusal::Refusal;
use crate::rlimits::OwnLimits;
use crate::root::{ComposedRoot, RootError};
use crate::sandbox::{End, Sandbox};
use crate::spec::{RootFs, SandboxName, SandboxSpec, SpecError};
use crate::state::{Instance, Record, StateError};

/// The runtimes that there is a driver for, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeKind {
    /// <https://podman.io>, rootful or rootless.
    Podman,
    /// The docker CLI, with whatever engine answers it.
    Docker,
    /// <https://github.com/containers/crun>.
    Crun,
    /// <https://github.com/opencontainers/runc>.
    Runc,
}

impl RuntimeKind {
    /// Every kind, in the order of the automatic choice.
    pub const ALL: [Self; 4] = [Self::Podman, Self::Docker, Self::Crun, Self::Runc];

    /// The program's usual name.
    pub fn program_name(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
            Self::Crun => "crun",
            Self::Runc => "runc",
        }
    }

    /// Which kind a program is, by its file name: `/opt/podman-5/bin/podman-remote` is a podman.
    pub fn of_program(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| name.starts_with(kind.program_name()))
    }
}

impl fmt::Display for RuntimeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program_name())
    }
}

/// Who keeps the sandbox's control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupMode {
    /// The runtime makes it below `/sys/fs/cgroup`, or the engine does in its own way.
    Direct,
    /// The user's systemd makes a delegated scope on request.
    Systemd,
    /// Nobody: there is none that we may write to, and rlimits stand in.
    Unmanaged,
}

/// Everything that has to be known of a runtime to drive it, and to find its sandboxes again from another process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RuntimeId {
    /// Which dialect it speaks.
    pub kind: RuntimeKind,
    /// Absolute path of the program.
    pub program: PathBuf,
    /// How control groups are made here.
    pub cgroups: CgroupMode,
    /// The low-level runtime that the engine is told to use in place of its default.
    pub oci_runtime: Option<PathBuf>,
    /// Whether the engine is on another machine: no file of this host is there.
    pub remote: bool,
    /// Which engine the client is told to talk to.
    #[serde(default)]
    pub address: Address,
    /// A folder of this host that a remote engine sees under the same path.
    #[serde(default)]
    pub shared: Option<PathBuf>,
    /// How many user and group ids the engine has, when a sandbox gets a user namespace of its own with the same ids:
    /// RLIMIT_NPROC counts by namespace, and the sandboxes of a rootless podman would all be in one.
    #[serde(default)]
    pub ids: Option<(u32, u32)>,
}

impl RuntimeId {
    /// A runtime of this machine, or whatever engine its client takes by itself.
    pub fn local(kind: RuntimeKind, program: impl Into<PathBuf>, cgroups: CgroupMode) -> Self {
        Self::at(&Target::from(kind), program, cgroups)
    }

    /// A runtime by the user's name for it.
    pub fn at(target: &Target, program: impl Into<PathBuf>, cgroups: CgroupMode) -> Self {
        Self {
            kind: target.kind,
            program: program.into(),
            cgroups,
            oci_runtime: None,
            remote: false,
            address: Address::of(target),
            shared: None,
            ids: None,
        }
    }

    /// Where its sandboxes are, when it is not simply here.
    pub(crate) fn place(&self) -> Option<String> {
        let at = self.address.elsewhere().map(|url| format!(" at {url}")).unwrap_or_default();
        match (self.address.name(), self.remote) {
            (Some(name), _) => Some(format!("its engine is {}:{name}{at}", self.kind)),
            (None, remote) => remote.then(|| format!("its engine is {}{at}", self.kind)),
        }
    }

    /// The connection or context of its engine, whether it was asked for or is the client's current one.
    pub fn connection(&self) -> Option<&str> {
        self.address.name()
    }

    /// Whether its client, told as little as when this was made, still means the same engine.
    pub(crate) fn is_current(&self) -> bool {
        self.address == Address::of(&self.target())
    }

    /// The user's name for it.
    pub fn target(&self) -> Target {
        Target { kind: self.kind, connection: self.address.connection.clone() }
    }
}

impl fmt::Display for RuntimeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.target())?;
        match &self.oci_runtime {
            Some(path) => write!(f, " with {}", path.display()),
            None => Ok(()),
        }
    }
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
        root: RootFs,
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

/// One driver of the closed set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnyDriver {
    /// podman or docker.
    Engine(EngineDriver),
    /// crun or runc.
    Oci(OciDriver),
}

impl AnyDriver {
    /// The driver for a runtime.
    pub fn new(id: RuntimeId) -> Self {
        match id.kind {
            RuntimeKind::Podman | RuntimeKind::Docker => Self::Engine(EngineDriver::new(id)),
            RuntimeKind::Crun | RuntimeKind::Runc => Self::Oci(OciDriver::new(id)),
        }
    }

    /// What it drives.
    pub fn id(&self) -> &RuntimeId {
        match self {
            Self::Engine(driver) => driver.id(),
            Self::Oci(driver) => driver.id(),
        }
    }

    /// Whether the driver can start image references by itself.
    pub fn takes_images(&self) -> bool {
        matches!(self, Self::Engine(_))
    }

    /// Whether sandboxes get our own seccomp profile.
    pub fn has_own_profile(&self) -> bool {
        match self {
            Self::Engine(driver) => driver.profile_arrives(),
            Self::Oci(_) => true,
        }
    }

    /// What launching this sandbox would do. Reads the host (folders, limits), changes nothing.
    pub fn plan(&self, spec: &SandboxSpec, instance: &Instance) -> Result<Plan, PlanError> {
        spec.validate()?;
        match self {
            Self::Engine(driver) => driver.plan(spec, instance),
            Self::Oci(driver) => driver.plan(spec, instance),
        }
    }

    /// Carries a plan out as far as a running runtime process. Whether the sandbox's own program runs shows on its
    /// standard output, or in the process's end: see [`Sandbox::wait`] and [`AnyDriver::explain`].
    pub async fn launch(
        self: &Arc<Self>,
        plan: Plan,
        instance: &Arc<Instance>,
    ) -> Result<Sandbox, LaunchError> {
        instance.record(&plan.record)?;
        let undo = |error| {
            instance.forget(&plan.name);
            error
        };
        if let Some(root) = &plan.root {
            instance.ensure_skeleton(root).map_err(|error| undo(error.into()))?;
        }
        for (path, content) in &plan.files {
            write_plan_file(path, content)
                .map_err(|source| undo(LaunchError::Write { path: path.clone(), source }))?;
        }
        if let Self::Engine(driver) = &**self {
            driver.prepare(&plan).await.map_err(|error| undo(error.into()))?;
        }
        let child = exec::spawn_piped(&plan.command).map_err(|error| undo(error.into()))?;
        Ok(Sandbox::around(child, &plan, Arc::clone(self), Arc::clone(instance)))
    }

    /// Kills and removes a sandbox and verifies that it is gone. Nothing to remove is fine.
    pub async fn reclaim(&self, name: &SandboxName, instance: &Instance) -> Result<(), ReclaimError> {
        match self {
            Self::Engine(driver) => driver.reclaim(name).await,
            Self::Oci(driver) => driver.reclaim(name, instance).await,
        }
    }

    /// Whether nothing of a sandbox is left, by the runtime's own word.
    pub async fn is_gone(&self, name: &SandboxName, instance: &Instance) -> Result<bool, ExecError> {
        match self {
            Self::Engine(driver) => driver.is_gone(name).await,
            Self::Oci(driver) => Ok(driver.leftovers(name, instance).is_none()),
        }
    }

    /// Every sandbox that the runtime itself knows by our labels. crun and runc keep none: their records are the
    /// instance folders.
    pub async fn list_owned(&self) -> Result<Vec<OwnedSandbox>, ExecError> {
        match self {
            Self::Engine(driver) => driver.list_owned().await,
            Self::Oci(_) => Ok(Vec::new()),
        }
    }

    /// The process whose descendants are those of a sandbox: the runtime's own, or the engine's monitor of it.
    pub(crate) async fn parent_of_first(&self, name: &SandboxName, own: Option<u32>) -> Option<u32> {
        match self {
            Self::Oci(_) => own,
            Self::Engine(driver) => driver.monitor(name).await,
        }
    }

    /// Why a runtime that ended before its sandbox said anything did so, from its own words.
    pub fn explain(&self, end: End, messages: &str) -> Refusal {
        let place = self.id().place().map(|place| format!("({place})")).unwrap_or_default();
        let messages = messages.strip_suffix(&place).unwrap_or(messages).trim_end();
        match self {
            Self::Engine(driver) => driver.explain(end, messages),
            Self::Oci(driver) => driver.explain(end, messages),
        }
    }
}

/// Files may be shared by sandboxes that start at the same time: nobody ever sees half of one.
fn write_plan_file(path: &Path, content: &str) -> io::Result<()> {
    if std::fs::read(path).is_ok_and(|there| there == content.as_bytes()) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder)?;
    let mut staging = tempfile::NamedTempFile::new_in(folder)?;
    staging.write_all(content.as_bytes())?;
    // The mode of a temporary file is 0600; the profile is read by engines that may run as another user.
    staging.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    staging.persist(path)?;
    Ok(())
}
