//! All that has to be known of a runtime to drive it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::exec;

use super::address::Address;
use super::target::{RuntimeKind, Target};

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

    /// A runtime whose program is in `PATH`.
    pub fn installed(target: &Target) -> Option<Self> {
        let program = exec::find_program(Path::new(target.kind.program_name()))?;
        Some(Self::at(target, program, CgroupMode::Direct))
    }

    /// The engines whose clients are in `PATH`, each as the client is set up.
    pub fn installed_engines() -> Vec<Self> {
        let engines = [RuntimeKind::Podman, RuntimeKind::Docker];
        engines.into_iter().filter_map(|kind| Self::installed(&kind.into())).collect()
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
