//! Everything that is needed to drive a runtime.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::exec;

use super::address::Address;
use super::target::{RuntimeKind, Target};

/// Who manages the control group of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupMode {
    /// The runtime makes it below `/sys/fs/cgroup`, or the engine does it in its own way.
    Direct,
    /// The user's systemd makes a delegated scope on request.
    Systemd,
    /// Nobody: there is no writable control group, and rlimits replace it.
    Unmanaged,
}

/// Everything that is needed to drive a runtime, and to find its sandboxes from another process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RuntimeId {
    pub kind: RuntimeKind,
    /// The absolute path of the program.
    pub program: PathBuf,
    pub cgroups: CgroupMode,
    /// The low-level runtime for the engine, in place of its default.
    pub oci_runtime: Option<PathBuf>,
    /// Whether the engine is on another machine, which has none of this host's files.
    pub remote: bool,
    /// The engine that the client talks to.
    #[serde(default)]
    pub address: Address,
    /// A folder of this host that a remote engine sees under the same path.
    #[serde(default)]
    pub shared: Option<PathBuf>,
    /// How many user and group ids the engine has, when each sandbox gets a user namespace of its own with the same ids:
    /// RLIMIT_NPROC counts by namespace, and all sandboxes of a rootless podman would share one.
    #[serde(default)]
    pub ids: Option<(u32, u32)>,
}

impl RuntimeId {
    /// Returns a runtime of this machine, or the default engine of its client.
    pub fn local(kind: RuntimeKind, program: impl Into<PathBuf>, cgroups: CgroupMode) -> Self {
        Self::at(&Target::from(kind), program, cgroups)
    }

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

    /// Returns the runtime of a target when its program is in `PATH`.
    pub fn installed(target: &Target) -> Option<Self> {
        let program = exec::find_program(Path::new(target.kind.program_name()))?;
        Some(Self::at(target, program, CgroupMode::Direct))
    }

    /// Returns the engines whose clients are in `PATH`, each with the client's default connection.
    pub fn installed_engines() -> Vec<Self> {
        let engines = [RuntimeKind::Podman, RuntimeKind::Docker];
        engines.into_iter().filter_map(|kind| Self::installed(&kind.into())).collect()
    }

    /// Returns which engine runs the sandboxes, for messages, when it is not the local default.
    pub(crate) fn place(&self) -> Option<String> {
        let at = self.address.elsewhere().map(|url| format!(" at {url}")).unwrap_or_default();
        match (self.address.name(), self.remote) {
            (Some(name), _) => Some(format!("its engine is {}:{name}{at}", self.kind)),
            (None, remote) => remote.then(|| format!("its engine is {}{at}", self.kind)),
        }
    }

    /// Returns the connection or context of its engine, whether it was named or is the client's current one.
    pub fn connection(&self) -> Option<&str> {
        self.address.name()
    }

    /// Returns whether the client's default is still the same engine.
    pub(crate) fn is_current(&self) -> bool {
        self.address == Address::of(&self.target())
    }

    /// Returns the target that stands for it.
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
