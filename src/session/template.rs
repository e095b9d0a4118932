//! What all sandboxes of a bridge have in common.

use codebridge_runtimes::{HostFolder, Instance, Limits, RootFs, SandboxSpec, Tmpfs, User};

use crate::settings::Settings;

/// The writable folders of every sandbox, and their sizes.
const TMPFS: [(&str, u64); 3] = [("/tmp", 64 << 20), ("/workspace", 128 << 20), ("/projects", 16 << 20)];
/// The maximum number of descriptors of a process.
const DESCRIPTORS: u64 = 1024;

/// The parts of a sandbox's specification that never change.
#[derive(Debug, Clone)]
pub(super) struct Template {
    user: User,
    pub(super) limits: Limits,
    pub(super) security_options: Vec<String>,
    pub(super) shares: Vec<HostFolder>,
}

impl Template {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            user: settings.container_user.value,
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
        }
    }

    /// Returns a specification whose root has to be filled in.
    pub(super) fn spec(&self, instance: &Instance, argv: Vec<String>) -> SandboxSpec {
        let env = [("HOME", "/workspace"), ("TMPDIR", "/tmp"), ("LANG", "C.UTF-8")];
        SandboxSpec {
            name: instance.next_name(),
            root: RootFs::Host,
            argv,
            env: env.map(|(key, value)| (key.to_string(), value.to_string())).to_vec(),
            cwd: "/workspace".into(),
            hostname: "sandbox".into(),
            tmpfs: TMPFS.map(|(target, size)| Tmpfs { target: target.into(), size }).to_vec(),
            folders: Vec::new(),
            shares: self.shares.clone(),
            user: self.user,
            limits: self.limits,
            owner: instance.owner().clone(),
            security_options: self.security_options.clone(),
            volumes: Vec::new(),
        }
    }
}
