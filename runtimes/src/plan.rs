//! What a launch will do, what holds each limit, how a sandbox ends, and the errors on the way.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::exec::{CommandLine, ExecError};
use crate::folders::{Supplied, SupplyError};
use crate::owner::Owner;
use crate::rlimits::OwnLimits;
use crate::root::{Bind, ComposedRoot, RootError, folder_binds, place_bind};
use crate::runtime::{CgroupMode, RuntimeKind};
use crate::spec::{HostFolder, SandboxName, SandboxSpec, SpecError, User};
use crate::state::{Instance, Record, StateError};
use crate::watched_folders::WatchedFolders;

/// How a sandbox's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The process exited with this status; runtimes report a signal as 128 + its number.
    Exited(i32),
    /// The process of the runtime was killed by this signal.
    Signalled(i32),
}

/// What holds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// A control group, for all processes of the sandbox together.
    Cgroup,
    /// An rlimit: each process by itself (memory), or the sandbox's user in its namespace (pids).
    Rlimit,
    /// An rlimit for each process, and a watch from outside over all of them together.
    Watch,
    /// Nothing on this host can hold it.
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
    pub memory: Mechanism,
    /// What counts the memory of TCP and UDP sockets against the memory limit.
    pub sockets: Mechanism,
    pub pids: Mechanism,
    pub cpus: Mechanism,
}

impl HeldLimits {
    /// Returns what holds each limit; `visible` when this process sees the processes of the sandbox, `sockets_count` when
    /// control groups that count memory also count that of network sockets. Those of version 1 do so only with a limit that runc,
    /// docker and podman cannot set: <https://docs.kernel.org/admin-guide/cgroup-v1/memory.html>.
    pub(crate) fn of(cgroups: CgroupMode, cpus: Option<f64>, visible: bool, sockets_count: bool) -> Self {
        let watch_or = |other| if visible { Mechanism::Watch } else { other };
        if cgroups != CgroupMode::Unmanaged {
            let held = Mechanism::Cgroup;
            let sockets = if sockets_count { held } else { watch_or(Mechanism::Nothing) };
            return Self { memory: held, sockets, pids: held, cpus: held };
        }
        Self {
            memory: watch_or(Mechanism::Rlimit),
            sockets: watch_or(Mechanism::Nothing),
            pids: Mechanism::Rlimit,
            cpus: if cpus.is_some() { Mechanism::Nothing } else { Mechanism::Cgroup },
        }
    }
}

/// What a launch will do, computed without doing anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub command: CommandLine,
    /// The working directory of that command, if it is not ours.
    pub folder: Option<PathBuf>,
    /// The files to write first: path and content.
    pub files: Vec<(PathBuf, String)>,
    /// The symbolic links to write first: path and target. A runtime is given such a link in place of a path that its command line
    /// or configuration cannot express.
    pub aliases: Vec<(PathBuf, PathBuf)>,
    /// The folders to prepare first.
    pub supplied: Vec<Supplied>,
    /// The volumes to make and fill first, on an engine that sees no folder of this machine.
    pub volumes: Vec<Volume>,
    /// The root filesystem to compose first, if it is composed.
    pub root: Option<ComposedRoot>,
    /// The name of the image to make of that root first, for an engine that starts only images.
    pub image: Option<String>,
    /// The record to write first. A lease on its root is held until the sandbox is gone.
    pub record: Record,
    pub held: HeldLimits,
    /// The memory limit of all processes together, in bytes.
    pub memory: u64,
    /// The writable folders whose files have to be counted from outside.
    pub(crate) folders: WatchedFolders,
    pub own_limits: OwnLimits,
    /// The seccomp filter that its program has to install before it runs foreign code.
    pub own_filter: Option<Vec<u8>>,
}

/// A copy of a folder in a volume of an engine, which is removed with its sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub name: String,
    /// The image of the container that files are copied through, which is never started.
    pub image: String,
    pub folder: HostFolder,
}

impl Volume {
    /// Returns the volumes of a sandbox.
    pub(crate) fn all_of(spec: &SandboxSpec) -> Vec<Self> {
        let volume = |(number, folder): (usize, &HostFolder)| Self {
            name: format!("{}-folder-{number}", spec.name),
            image: spec.root.to_string(),
            folder: folder.clone(),
        };
        spec.host_folders().enumerate().map(volume).collect()
    }

    /// Returns the flag of podman and docker that mounts it.
    pub(crate) fn flag(&self) -> String {
        format!("--volume={}:{}:ro", self.name, self.folder.target)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Root(#[from] RootError),
    #[error("could not build the configuration of the sandbox: {0}")]
    Config(#[from] oci_spec::OciSpecError),
    #[error("the folder '{path}' does not exist, or is not a folder")]
    NoFolder { path: PathBuf },
    #[error("the folder '{path}' is no longer shared: it, or a folder above it, was replaced by a link")]
    Moved { path: PathBuf },
    #[error("the folder '{path}' cannot be shared with a pod, which may be on any node")]
    NoFolders { path: PathBuf },
    #[error("{runtime} cannot use the root filesystem '{root}': {hint}")]
    UnsupportedRoot {
        runtime: RuntimeKind,
        /// The root as the user named it.
        root: String,
        /// The reason, and what to do instead.
        hint: &'static str,
    },
}

/// A launch that failed before the process of the runtime ran.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("could not write '{path}': {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Supply(#[from] SupplyError),
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// A sandbox that was not removed, or whose removal could not be verified.
#[derive(Debug, thiserror::Error)]
pub enum ReclaimError {
    #[error("could not remove sandbox '{name}': {source}")]
    Command { name: SandboxName, source: ExecError },
    #[error("could not remove sandbox '{name}': {source}; remove the file when its sandbox is gone")]
    Record { name: SandboxName, source: StateError },
    #[error("could not remove sandbox '{name}': {what} still exists")]
    StillThere { name: SandboxName, what: String },
}

impl ReclaimError {
    pub fn name(&self) -> &SandboxName {
        match self {
            Self::Command { name, .. } | Self::Record { name, .. } | Self::StillThere { name, .. } => name,
        }
    }
}

/// A sandbox that was found by its labels, whoever owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedSandbox {
    pub name: SandboxName,
    pub owner: Owner,
}

/// Gives every bind whose source a runtime cannot be told an alias in a folder. Returns the links that this takes.
pub(crate) fn alias(
    binds: &mut [Bind],
    folder: &Path,
    can_be_told: impl Fn(&Path) -> bool,
) -> Vec<(PathBuf, PathBuf)> {
    let odd = binds.iter_mut().filter(|bind| !can_be_told(bind.told()));
    odd.enumerate()
        .map(|(number, bind)| {
            let link = folder.join(format!("source-{number}"));
            bind.alias = Some(link.clone());
            (link, bind.source.clone())
        })
        .collect()
}

/// How sandboxes get the folders that are shared with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareMechanism {
    /// Mounted; the sandbox's user is the ordinary user who runs it.
    SameUser,
    /// Mounted with the owner's ids mapped to those of the sandbox's user.
    MappedIds,
    /// Copied when the sandbox starts.
    Copy,
    /// Copied to a volume of the engine when the sandbox starts.
    Volume,
    /// Not at all: pods see no folder of this machine.
    None,
}

impl ShareMechanism {
    pub fn is_copy(self) -> bool {
        matches!(self, Self::Copy | Self::Volume)
    }
}

/// How a driver gives a sandbox its shares.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Supply {
    /// Mounted: the sandbox's user is ours.
    Mounted,
    /// Mounted with their owner's ids mapped to this user and group.
    Mapped(User),
    Copied,
}

impl Supply {
    pub(crate) fn mechanism(self) -> ShareMechanism {
        match self {
            Self::Mounted => ShareMechanism::SameUser,
            Self::Mapped(_) => ShareMechanism::MappedIds,
            Self::Copied => ShareMechanism::Copy,
        }
    }

    /// Returns the mounts of every folder that a sandbox sees, and the folders that have to be prepared.
    pub(crate) fn plan(self, spec: &SandboxSpec, instance: &Instance) -> (Vec<Bind>, Vec<Supplied>) {
        let (mounted, prepared): (&[HostFolder], &[HostFolder]) = match self {
            Self::Mounted => (&spec.shares, &[]),
            Self::Mapped(_) | Self::Copied => (&[], &spec.shares),
        };
        let reader = match self {
            Self::Mapped(User { uid, gid }) => Some((uid, gid)),
            Self::Mounted | Self::Copied => None,
        };
        let prepared = prepared.iter().map(|share| (share, reader));
        let prepared = prepared.chain(spec.copied_shares.iter().map(|share| (share, None)));
        let (mut binds, mut supplied) = (folder_binds(spec.folders.iter().chain(mounted)), Vec::new());
        for (number, (share, reader)) in prepared.enumerate() {
            let place = instance.bundle(&spec.name).join("shares").join(number.to_string());
            binds.push(place_bind(share, place.clone(), instance.path().to_path_buf()));
            supplied.push(Supplied { source: share.source.clone(), place, reader });
        }
        (binds, supplied)
    }
}
