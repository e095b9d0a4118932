//! What all sandboxes of a bridge have in common.

use codebridge_runtimes::{HostFolder, Instance, Limits, PodSettings, RootFs, SandboxSpec, Tmpfs, User};

use crate::settings::Settings;

/// The sizes of the writable folders that have no setting.
const TMP: u64 = 64 << 20;
const PROJECTS: u64 = 16 << 20;
/// The maximum number of descriptors of a process.
const DESCRIPTORS: u64 = 1024;

/// The parts of a sandbox's specification that never change.
#[derive(Debug, Clone)]
pub(super) struct Template {
    user: User,
    workspace_size: u64,
    pub(super) limits: Limits,
    pub(super) security_options: Vec<String>,
    pub(super) shares: Vec<HostFolder>,
    pod: PodSettings,
}

impl Template {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            user: settings.container_user.value,
            workspace_size: settings.workspace_size.value,
            limits: Limits {
                memory: settings.memory.value,
                pids: settings.pids.value,
                cpus: settings.cpus.value,
                descriptors: DESCRIPTORS,
            },
            security_options: settings.security_opt.value.clone(),
            shares: settings
                .share
                .iter()
                .map(|share| HostFolder { source: share.path.clone(), target: share.target() })
                .collect(),
            pod: settings.pod.value.clone(),
        }
    }

    /// Returns a specification whose root has to be filled in.
    pub(super) fn spec(&self, instance: &Instance, argv: Vec<String>) -> SandboxSpec {
        let env = [("HOME", "/workspace"), ("TMPDIR", "/tmp"), ("LANG", "C.UTF-8")];
        let folders = [("/tmp", TMP), ("/workspace", self.workspace_size), ("/projects", PROJECTS)];
        SandboxSpec {
            name: instance.next_name(),
            root: RootFs::Host,
            argv,
            env: env.map(|(key, value)| (key.to_string(), value.to_string())).to_vec(),
            cwd: "/workspace".into(),
            hostname: "sandbox".into(),
            tmpfs: folders.map(|(target, size)| Tmpfs { target: target.into(), size }).to_vec(),
            folders: Vec::new(),
            shares: self.shares.clone(),
            copied_shares: Vec::new(),
            user: self.user,
            limits: self.limits,
            owner: instance.owner().clone(),
            security_options: self.security_options.clone(),
            volumes: Vec::new(),
            pod: self.pod.clone(),
            knows_addresses: false,
        }
    }
}
