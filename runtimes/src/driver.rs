//! One driver for any runtime: plan, reclaim, list, explain.

use std::time::Duration;

use crate::engine::EngineDriver;
use crate::exec::ExecError;
use crate::kube::{KubeDriver, Look};
use crate::oci::OciDriver;
use crate::plan::{End, OwnedSandbox, Plan, PlanError, ReclaimError, ShareMechanism};
use crate::refusal::Refusal;
use crate::runtime::{RuntimeId, RuntimeKind};
use crate::spec::{HostFolder, SandboxName, SandboxSpec, User};
use crate::state::Instance;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnyDriver {
    Engine(EngineDriver),
    Oci(OciDriver),
    Kube(KubeDriver),
}

impl AnyDriver {
    pub fn new(id: RuntimeId) -> Self {
        match id.kind {
            RuntimeKind::Podman | RuntimeKind::Docker => Self::Engine(EngineDriver::new(id)),
            RuntimeKind::Crun | RuntimeKind::Runc => Self::Oci(OciDriver::new(id)),
            RuntimeKind::Kubernetes => Self::Kube(KubeDriver::new(id)),
        }
    }

    pub fn id(&self) -> &RuntimeId {
        match self {
            Self::Engine(driver) => driver.id(),
            Self::Oci(driver) => driver.id(),
            Self::Kube(driver) => driver.id(),
        }
    }

    /// Returns how a sandbox of this user gets shares.
    pub fn share_mechanism(&self, user: User) -> ShareMechanism {
        match self {
            Self::Engine(driver) => driver.share_mechanism(user),
            Self::Oci(driver) => driver.share_mechanism(user),
            Self::Kube(driver) => driver.share_mechanism(),
        }
    }

    pub fn has_own_profile(&self) -> bool {
        match self {
            Self::Engine(driver) => driver.profile_arrives(),
            // In a pod the program installs it itself.
            Self::Oci(_) | Self::Kube(_) => true,
        }
    }

    /// Returns what launching this sandbox would do. Reads the host (folders, limits) and changes nothing.
    pub fn plan(&self, spec: &SandboxSpec, instance: &Instance) -> Result<Plan, PlanError> {
        spec.validate()?;
        if let Some(missing) = spec.host_folders().find(|folder| !folder.source.is_dir()) {
            return Err(PlanError::NoFolder { path: missing.source.clone() });
        }
        // Whoever checked that a folder may be shared did so without links in its path.
        let is_moved =
            |share: &HostFolder| share.source.canonicalize().is_ok_and(|real| real != share.source);
        if let Some(share) = spec.shares.iter().chain(&spec.copied_shares).find(|share| is_moved(share)) {
            return Err(PlanError::Moved { path: share.source.clone() });
        }
        match self {
            Self::Engine(driver) => driver.plan(spec, instance),
            Self::Oci(driver) => driver.plan(spec, instance),
            Self::Kube(driver) => driver.plan(spec, instance),
        }
    }

    /// Returns the digest of an image of the engine; None if it does not say.
    pub async fn image_digest(&self, reference: &str) -> Option<String> {
        match self {
            Self::Engine(driver) => driver.image_digest(reference).await,
            Self::Oci(_) | Self::Kube(_) => None,
        }
    }

    /// Kills and removes a sandbox and verifies that it is gone. A sandbox that is gone already is no error.
    pub async fn reclaim(&self, name: &SandboxName, instance: &Instance) -> Result<(), ReclaimError> {
        match self {
            Self::Engine(driver) => driver.reclaim(name).await,
            Self::Oci(driver) => driver.reclaim(name, instance).await,
            Self::Kube(driver) => driver.reclaim(name).await,
        }
    }

    /// Returns whether the runtime has nothing left of a sandbox.
    pub async fn is_gone(&self, name: &SandboxName, instance: &Instance) -> Result<bool, ExecError> {
        match self {
            Self::Engine(driver) => driver.is_gone(name).await,
            Self::Oci(driver) => Ok(driver.leftovers(name, instance).is_none()),
            Self::Kube(driver) => driver.is_gone(name).await,
        }
    }

    /// Returns every sandbox that the runtime lists by our labels. crun and runc have no labels: their sandboxes are recorded in
    /// the instance folders.
    pub async fn list_owned(&self) -> Result<Vec<OwnedSandbox>, ExecError> {
        match self {
            Self::Engine(driver) => driver.list_owned().await,
            Self::Oci(_) => Ok(Vec::new()),
            Self::Kube(driver) => driver.list_owned().await,
        }
    }

    /// Returns the process whose descendants are those of a sandbox: the runtime's own, or the engine's monitor.
    pub(crate) async fn parent_of_first(&self, name: &SandboxName, own: Option<u32>) -> Option<u32> {
        match self {
            Self::Oci(_) => own,
            Self::Engine(driver) => driver.monitor(name).await,
            Self::Kube(_) => None,
        }
    }

    /// Returns why a runtime ended before its sandbox said anything, from the messages of the runtime.
    pub(crate) fn explain(&self, end: End, messages: &str) -> Refusal {
        match self {
            Self::Engine(driver) => driver.explain(end, messages),
            Self::Oci(driver) => driver.explain(end, messages),
            Self::Kube(driver) => driver.explain(end, messages),
        }
    }

    /// Returns why a sandbox that ran does not run, where something else than its own process knows that.
    pub(crate) async fn trouble(&self, name: &SandboxName) -> Option<Refusal> {
        let Self::Kube(driver) = self else { return None };
        match driver.look(name.as_str(), false).await {
            Look::Trouble(refusal) => Some(refusal),
            Look::Missing => Some(driver.why_deleted(name.as_str()).await),
            // Its client says that it has ended.
            Look::Fine(_) | Look::Ended(_) | Look::Untaken(_) | Look::Unknown(_) => None,
        }
    }

    /// Removes what stays when all sandboxes are gone: the network policy of a cluster.
    ///
    /// # Errors
    /// The cluster refused it, or does not answer.
    pub async fn remove_policy(&self) -> Result<(), ExecError> {
        match self {
            Self::Engine(_) | Self::Oci(_) => Ok(()),
            Self::Kube(driver) => driver.remove_policy().await,
        }
    }

    /// Returns how long a start may take that would take `limit` at most where the image is there: nodes pull images, and a
    /// cluster may start a node.
    pub fn start_limit(&self, limit: Duration) -> Duration {
        match self {
            Self::Engine(_) | Self::Oci(_) => limit,
            Self::Kube(_) => limit * 5,
        }
    }
}
