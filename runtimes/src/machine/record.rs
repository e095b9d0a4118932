//! What is written down of a machine that a bridge started, so that bridges may stop it again.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::manager::Machines;
use super::words::Machine;
use crate::owner::Owner;
use crate::state::{read_json, write_json};

/// A start of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Started {
    /// The bridge that started it, and in which boot of this host.
    pub(super) by: Owner,
    /// The run of the machine that came of it; None as long as it is being started.
    pub(super) run: Option<Run>,
    /// When it is stopped after its last use; None = never.
    pub(super) idle: Option<Duration>,
}

/// What tells one run of a machine from another: when it was last up, as podman writes it down with every stop, and when
/// it was made.
pub(super) type Run = (String, String);

/// The run that a machine is in; None where podman does not say enough to tell it from the next one.
pub(super) fn run_of(machine: &Machine) -> Option<Run> {
    let run = (machine.last_up.clone(), machine.created.clone());
    (machine.running && !run.0.is_empty()).then_some(run)
}

impl Machines {
    fn record_path(&self, name: &str) -> Option<PathBuf> {
        Some(self.dir.as_ref()?.join(format!("machine-{}.json", plain(name))))
    }

    /// What is written down of a machine.
    pub(super) fn started(&self, name: &str) -> Option<Started> {
        read_json(&self.record_path(name)?)
    }

    /// When that was written.
    pub(super) fn started_at(&self, name: &str) -> Option<SystemTime> {
        fs::metadata(self.record_path(name)?).and_then(|meta| meta.modified()).ok()
    }

    /// The machines of which something is written down.
    pub(super) fn started_names(&self) -> Vec<String> {
        let entries = self.dir.as_ref().and_then(|dir| fs::read_dir(dir).ok());
        let name = |entry: fs::DirEntry| {
            let name = entry.file_name();
            Some(name.to_str()?.strip_prefix("machine-")?.strip_suffix(".json")?.to_string())
        };
        entries.into_iter().flatten().flatten().filter_map(name).collect()
    }

    pub(super) fn write_started(&self, name: &str, started: &Started) {
        if let Some(path) = self.record_path(name)
            && let Err(error) = write_json(&path, started)
        {
            tracing::debug!(%error, "a machine's start is not written down");
        }
    }

    /// It was stopped, or is not ours to stop.
    pub(super) fn forget_started(&self, name: &str) {
        if let Some(path) = self.record_path(name) {
            let _ = fs::remove_file(path);
        }
    }

    /// Whether this run of a machine is one that a bridge started. Without a stop that podman knows of, as when the host
    /// was switched off, the next run looks like the one before.
    pub(super) fn is_ours(&self, machine: &Machine) -> bool {
        let (Some(started), Some(written)) = (self.started(&machine.name), self.started_at(&machine.name))
        else {
            return false;
        };
        started.by.is_of_this_boot(written) && started.run.is_some() && started.run == run_of(machine)
    }
}

/// Podman allows letters, digits and `_.-` in names.
pub(super) fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric() || "_.-".contains(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::MachinePolicy;
    use super::*;

    #[test]
    fn a_run_is_ours_until_somebody_else_starts_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let machines = Machines::new(MachinePolicy::default(), Some(dir.path().into()));
        let up = "2026-01-01T00:00:00Z".to_string();
        let ours = Machine {
            name: "m".into(),
            is_default: true,
            running: true,
            starting: false,
            last_up: up.clone(),
            created: up,
        };
        assert!(!machines.is_ours(&ours) && machines.started_names().is_empty());
        let by = Owner::this_process("a".into());
        let started = Started { by: by.clone(), run: run_of(&ours), idle: None };
        machines.write_started("m", &started);
        assert!(machines.is_ours(&ours));
        assert_eq!(machines.started_names(), ["m"]);
        assert!(!machines.is_ours(&Machine { running: false, ..ours.clone() }));
        assert!(!machines.is_ours(&Machine { last_up: "later".into(), ..ours.clone() }));
        // Podman 3.4 does not say when it was last up.
        machines.write_started("m", &Started { run: Some(Run::default()), ..started.clone() });
        assert!(!machines.is_ours(&Machine {
            last_up: String::new(),
            created: String::new(),
            ..ours.clone()
        }));
        // Switched off together with this host, and started by somebody since.
        let before = Owner { boot: "another".into(), ..by };
        machines.write_started("m", &Started { by: before, ..started.clone() });
        assert!(!machines.is_ours(&ours));
        machines.write_started("m", &started);
        assert!(machines.is_ours(&ours));
        let file = fs::File::open(dir.path().join("machine-m.json")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(!machines.is_ours(&ours));
        machines.forget_started("m");
        assert_eq!(machines.started("m"), None);
    }
}
