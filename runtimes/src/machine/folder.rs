//! What bridges share about machines: locks, and records of the machines that a bridge started, so that bridges may stop
//! them again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::messages::machine::Machine;
use crate::owner::Owner;
use crate::state::{read_json_or_warn, write_json};

/// Held by bridges that use engines, or by a process that stops a machine. Its modification time is that of the last use.
const USE_LOCK: &str = "machine-use.lock";
/// The time between two attempts to take a lock.
const PACE: Duration = Duration::from_millis(200);

/// The folder that all bridges of this user share. Without one there are no locks and no records.
#[derive(Debug, Clone)]
pub(super) struct MachineFolder {
    dir: Option<PathBuf>,
}

/// Held while a machine or an engine is in use.
#[derive(Debug)]
pub(crate) struct MachineLock(Option<File>);

/// A record of a machine's start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Started {
    /// The bridge that started it, and in which boot of this host.
    pub(super) by: Owner,
    /// The run of the machine; None while it is being started.
    pub(super) run: Option<Run>,
    /// How long after its last use the machine is stopped; None = never.
    pub(super) idle: Option<Duration>,
}

/// What tells one run of a machine from another: when the machine was last up, which podman records at every stop, and when it
/// was created.
pub(super) type Run = (String, String);

/// Returns the current run of a machine; None where podman does not report enough to tell it from the next one.
pub(super) fn run_of(machine: &Machine) -> Option<Run> {
    let run = (machine.last_up.clone(), machine.created.clone());
    (machine.running && !run.0.is_empty()).then_some(run)
}

impl MachineFolder {
    pub(super) fn at(dir: Option<PathBuf>) -> Self {
        Self { dir }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Takes the lock on machines unless somebody has it. Without a folder there is no lock, and at worst work is done twice.
    pub(super) fn try_lock(&self) -> Option<MachineLock> {
        self.flock("machine.lock", FlockOperation::NonBlockingLockExclusive)
    }

    /// Takes the lock to hold while an engine is tried: a pull shows in no list of containers, and the machine must not be
    /// stopped meanwhile.
    pub(super) async fn use_engines(&self) -> MachineLock {
        loop {
            match self.flock(USE_LOCK, FlockOperation::NonBlockingLockShared) {
                Some(lock) => {
                    let _ = lock.0.as_ref().map(|file| file.set_modified(SystemTime::now()));
                    return lock;
                }
                // A supervisor is stopping the machine.
                None => tokio::time::sleep(PACE).await,
            }
        }
    }

    /// Takes the lock to stop a machine, unless a bridge tries its engine.
    pub(super) fn try_stop(&self) -> Option<MachineLock> {
        self.flock(USE_LOCK, FlockOperation::NonBlockingLockExclusive)
    }

    pub(super) fn flock(&self, name: &str, operation: FlockOperation) -> Option<MachineLock> {
        let Some(dir) = &self.dir else { return Some(MachineLock(None)) };
        let open = || {
            fs::create_dir_all(dir)?;
            File::options().create(true).truncate(false).write(true).open(dir.join(name))
        };
        match open() {
            Ok(file) => flock(&file, operation).ok().map(|()| MachineLock(Some(file))),
            Err(error) => {
                tracing::debug!(%error, "could not open the lock file of machines");
                Some(MachineLock(None))
            }
        }
    }

    pub(super) fn last_use(&self) -> Option<SystemTime> {
        fs::metadata(self.dir.as_ref()?.join(USE_LOCK)).ok()?.modified().ok()
    }

    fn record_path(&self, name: &str) -> Option<PathBuf> {
        Some(self.dir.as_ref()?.join(format!("machine-{}.json", plain(name))))
    }

    pub(super) fn started(&self, name: &str) -> Option<Started> {
        read_json_or_warn(&self.record_path(name)?)
    }

    /// Returns when that record was written.
    pub(super) fn started_at(&self, name: &str) -> Option<SystemTime> {
        fs::metadata(self.record_path(name)?).and_then(|meta| meta.modified()).ok()
    }

    /// Returns the machines that have a record.
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
            tracing::debug!(%error, "could not record the start of a machine");
        }
    }

    /// Removes the record of a machine that is stopped or not ours.
    pub(super) fn forget_started(&self, name: &str) {
        if let Some(path) = self.record_path(name) {
            let _ = fs::remove_file(path);
        }
    }

    /// Returns whether a bridge started this run of a machine. After a stop that podman did not see, as when the host was
    /// switched off, the next run looks like the one before.
    pub(super) fn is_ours(&self, machine: &Machine) -> bool {
        let (Some(started), Some(written)) = (self.started(&machine.name), self.started_at(&machine.name))
        else {
            return false;
        };
        started.by.is_of_this_boot(written) && started.run.is_some() && started.run == run_of(machine)
    }
}

/// Returns a machine's name as part of a file name: podman allows letters, digits and `_.-`.
pub(super) fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric() || "_.-".contains(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_ours_until_somebody_else_starts_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let machines = MachineFolder::at(Some(dir.path().into()));
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
        let file = File::open(dir.path().join("machine-m.json")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(!machines.is_ours(&ours));
        machines.forget_started("m");
        assert_eq!(machines.started("m"), None);
    }

    #[test]
    fn the_lock_is_held_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let machines = || MachineFolder::at(Some(dir.path().into()));
        let lock = machines().try_lock();
        assert!(lock.is_some() && machines().try_lock().is_none());
        drop(lock);
        assert!(machines().try_lock().is_some());
    }
}
