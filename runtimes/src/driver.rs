//! One driver for whatever runtime: plan, reclaim, list, explain.

use crate::engine::EngineDriver;
use crate::exec::ExecError;
use crate::oci::OciDriver;
use crate::plan::{End, OwnedSandbox, Plan, PlanError, ReclaimError};
use crate::refusal::Refusal;
use crate::runtime::{RuntimeId, RuntimeKind};
use crate::spec::{SandboxName, SandboxSpec};
use crate::state::Instance;

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
