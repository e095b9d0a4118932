//! Drives crun and runc by their `run`, `delete` and state folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use crate::cgroup;
use crate::exec::{self, CommandLine};
use crate::messages::oci::parse_refusal;
use crate::messages::unknown_refusal;
use crate::plan::{self, End, HeldLimits, Plan, PlanError, ReclaimError, ShareMechanism};
use crate::process::Process;
use crate::refusal::Refusal;
use crate::rlimits::{self, OwnLimits};
use crate::root::ComposedRoot;
use crate::runtime::{CgroupMode, RuntimeId, RuntimeKind};
use crate::spec::{SandboxName, SandboxSpec, User};
use crate::state::{Instance, Record};
use crate::watched_folders::WatchedFolders;

use super::bundle;
use super::idmap::IdMaps;

/// A removal that takes longer is stuck.
const DELETE_LIMIT: Duration = Duration::from_secs(10);

/// The differences between the two runtimes.
#[derive(Debug, Clone, Copy)]
struct Dialect {
    /// The flag that turns control groups off (<https://github.com/containers/crun/blob/main/crun.1.md>, `--cgroup-manager`), or
    /// lets them fail also as root (<https://github.com/opencontainers/runc/blob/main/man/runc.8.md>, `--rootless`).
    unmanaged_cgroups: &'static str,
    /// The flag to ask systemd for a scope.
    systemd_cgroups: &'static str,
    /// Whether an ordinary user can have another id inside than 0: runc sets up a bundle as that user, and needs 0 for it
    /// (<https://github.com/opencontainers/runc/blob/main/libcontainer/specconv/example.go>, `ToRootless`).
    maps_any_id: bool,
    /// Whether it starts within the memory limit of a small sandbox.
    fits_in_sandbox: bool,
}

impl Dialect {
    fn of(kind: RuntimeKind) -> Self {
        match kind {
            RuntimeKind::Crun => Self {
                unmanaged_cgroups: "--cgroup-manager=disabled",
                systemd_cgroups: "--cgroup-manager=systemd",
                maps_any_id: true,
                fits_in_sandbox: true,
            },
            _ => Self {
                unmanaged_cgroups: "--rootless=true",
                systemd_cgroups: "--systemd-cgroup",
                maps_any_id: false,
                fits_in_sandbox: false,
            },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OciDriver {
    id: RuntimeId,
}

impl OciDriver {
    pub(crate) fn new(id: RuntimeId) -> Self {
        Self { id }
    }

    pub(crate) fn id(&self) -> &RuntimeId {
        &self.id
    }

    /// Returns the program with its global options.
    fn runtime(&self, state_root: &Path) -> CommandLine {
        let dialect = Dialect::of(self.id.kind);
        let mut command = CommandLine::new(&self.id.program).arg("--root").arg(state_root);
        match self.id.cgroups {
            CgroupMode::Direct => {}
            CgroupMode::Systemd => command = command.arg(dialect.systemd_cgroups),
            CgroupMode::Unmanaged => command = command.arg(dialect.unmanaged_cgroups),
        }
        command
    }

    pub(crate) fn share_mechanism(&self, user: User) -> ShareMechanism {
        IdMaps::of_this_user(user, Dialect::of(self.id.kind).maps_any_id).1.mechanism()
    }

    fn state_root(&self, instance: &Instance) -> PathBuf {
        instance.runtime_root(self.id.kind.program_name())
    }

    pub(crate) fn plan(&self, spec: &SandboxSpec, instance: &Instance) -> Result<Plan, PlanError> {
        let dialect = Dialect::of(self.id.kind);
        // The sandbox of an ordinary user then has that user's own id, so that it reads the shares.
        let as_owner = !spec.shares.is_empty() && dialect.maps_any_id;
        let (maps, supply) = IdMaps::of_this_user(spec.user, as_owner);
        let (binds, supplied) = supply.plan(spec, instance);
        let Some(mut root) = ComposedRoot::of(spec, binds)? else {
            return Err(PlanError::UnsupportedRoot {
                runtime: self.id.kind,
                root: spec.root.to_string(),
                hint: "it starts only folders; the image has to be unpacked first",
            });
        };
        let bundle = instance.bundle(&spec.name);
        let aliases = plan::alias(&mut root.binds, &bundle, |path| path.to_str().is_some());
        let skeleton = instance.skeleton_path(&root);
        let unmanaged = self.id.cgroups == CgroupMode::Unmanaged;
        let (mut rlimits, mut own_limits) = (rlimits::of(spec, unmanaged), OwnLimits::of(spec, unmanaged));
        if !Dialect::of(self.id.kind).fits_in_sandbox {
            own_limits.data = rlimits.data.take();
        }
        let config = bundle::config(spec, &root, &skeleton, &maps, self.id.cgroups, &rlimits)?;
        let text = serde_json::to_string(&config).map_err(|error| PlanError::Config(error.into()))?;
        let command = self
            .runtime(&self.state_root(instance))
            .arg("run")
            .arg("--bundle")
            .arg(&bundle)
            .arg(spec.name.as_str());
        Ok(Plan {
            command,
            folder: None,
            files: vec![(bundle.join("config.json"), text)],
            aliases,
            supplied,
            volumes: Vec::new(),
            root: Some(root),
            image: None,
            record: Record::now(&spec.name, &self.id, spec.root.clone()),
            held: HeldLimits::of(self.id.cgroups, spec.limits.cpus, true, !cgroup::is_v1()),
            memory: spec.limits.memory,
            folders: WatchedFolders::default(),
            own_limits,
            own_filter: None,
        })
    }

    pub(crate) async fn reclaim(&self, name: &SandboxName, instance: &Instance) -> Result<(), ReclaimError> {
        let root = self.state_root(instance);
        if root.join(name.as_str()).exists() {
            let first = self.first_process(&root, name).await;
            let command = self.runtime(&root).args(["delete", "--force", name.as_str()]);
            exec::run(command, DELETE_LIMIT)
                .await
                .map_err(|source| ReclaimError::Command { name: name.clone(), source })?;
            // The runtimes kill the first process without waiting; all others end with it.
            if let Some(first) = first
                && !has_ended(first).await
            {
                return Err(ReclaimError::StillThere {
                    name: name.clone(),
                    what: "its first process".into(),
                });
            }
        }
        cgroup::remove(name).await;
        match self.leftovers(name, instance) {
            None => Ok(()),
            Some(what) => Err(ReclaimError::StillThere { name: name.clone(), what }),
        }
    }

    /// Returns the first process of a container that still runs.
    async fn first_process(&self, root: &Path, name: &SandboxName) -> Option<Process> {
        #[derive(serde::Deserialize)]
        struct ContainerState {
            pid: i32,
        }
        let command = self.runtime(root).args(["state", name.as_str()]);
        let done = exec::run(command, DELETE_LIMIT).await.ok()?.success().ok()?;
        let ContainerState { pid } = serde_json::from_slice(&done.stdout).ok()?;
        Process::open(Pid::from_raw(pid)?)
    }

    /// Returns what is left of a sandbox: its state folder, or a control group.
    pub(crate) fn leftovers(&self, name: &SandboxName, instance: &Instance) -> Option<String> {
        let state = self.state_root(instance).join(name.as_str());
        if state.exists() {
            return Some(format!("the state folder '{}'", state.display()));
        }
        cgroup::paths(name).into_iter().next().map(|path| format!("the control group '{}'", path.display()))
    }

    pub(crate) fn explain(&self, end: End, messages: &str) -> Refusal {
        parse_refusal(messages).unwrap_or_else(|| unknown_refusal(self.id.kind, end, messages))
    }
}

/// Waits for the end of a process that was killed. Returns whether it has ended.
async fn has_ended(process: Process) -> bool {
    tokio::task::spawn_blocking(move || process.ends_within(DELETE_LIMIT)).await.unwrap_or(false)
}
