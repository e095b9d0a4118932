//! The supervisor of a machine: a process of its own that stops a machine which a bridge started, when nothing has run in it
//! for a while. It begins with the machine and ends with it, whatever becomes of bridges; each machine has one.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::FlockOperation;

use super::folder::{MachineFolder, MachineLock, Started, plain, run_of};
use super::podman::{Podman, START_LIMIT, may_be_in_a_machine};
use crate::owner::OwnerState;
use crate::runtime::RuntimeId;
use crate::state::StateDir;

/// Shutting a machine down takes a few seconds.
const STOP_LIMIT: Duration = Duration::from_secs(120);
/// The shortest and the longest time between two looks at what bridges have written down.
const PACE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// What a supervisor does: looks after a machine until it is stopped, by it or others. `dir` is the folder where bridges write
/// down which machines they started.
pub async fn supervise_machine(dir: PathBuf, podman: &Path, name: &str) {
    let supervisor = Supervisor {
        podman: Podman { program: podman },
        name,
        state: StateDir::usual(),
        folder: MachineFolder::at(Some(dir)),
    };
    while let Some(alone) = supervisor.alone() {
        supervisor.until_nothing_is_to_be_done().await;
        drop(alone);
        // A supervisor that came meanwhile has left this one to it.
        if supervisor.task().is_none() {
            return;
        }
    }
}

struct Supervisor<'a> {
    folder: MachineFolder,
    podman: Podman<'a>,
    name: &'a str,
    state: StateDir,
}

/// What became of an attempt to stop a machine.
enum Attempt {
    /// It is stopped, or not ours.
    Over,
    /// Somebody uses it, or it does not stop.
    InUse,
}

impl Supervisor<'_> {
    /// The right to be this machine's supervisor, unless there is one.
    fn alone(&self) -> Option<MachineLock> {
        let name = format!("supervisor-{}.lock", plain(self.name));
        self.folder.flock(&name, FlockOperation::NonBlockingLockExclusive)
    }

    /// The start that is written down, and when the machine is to be stopped.
    fn task(&self) -> Option<(Started, Duration)> {
        let started = self.folder.started(self.name)?;
        let idle = started.idle?;
        Some((started, idle))
    }

    async fn until_nothing_is_to_be_done(&self) {
        let (mut used, mut had_sandboxes) = (SystemTime::now(), false);
        while let Some((started, idle)) = self.task() {
            tokio::time::sleep((idle / 4).clamp(PACE.0, PACE.1)).await;
            let has_sandboxes = self.has_sandboxes();
            if started.run.is_none() {
                self.settle(started).await;
                used = SystemTime::now();
            } else if has_sandboxes || std::mem::replace(&mut had_sandboxes, has_sandboxes) {
                // The last one may have ended just now.
                (used, had_sandboxes) = (SystemTime::now(), has_sandboxes);
            } else if self.is_unused_since(used, idle) {
                match self.stop_unless_in_use(used, idle).await {
                    Attempt::Over => self.folder.forget_started(self.name),
                    Attempt::InUse => used = SystemTime::now(),
                }
            }
        }
    }

    /// The machine is being started. The bridge that does it has the lock, and says how it went; when it gave up in the
    /// middle, or was killed, what it had begun may still come to be.
    async fn settle(&self, started: Started) {
        let Some(_lock) = self.folder.try_lock() else { return };
        if self.folder.started(self.name).as_ref() != Some(&started) {
            return;
        }
        let Some(machines) = self.podman.list().await else { return };
        let since = self.folder.started_at(self.name);
        let age = since.and_then(|since| since.elapsed().ok()).unwrap_or(START_LIMIT);
        match machines.into_iter().find(|machine| machine.name == self.name).as_ref().and_then(run_of) {
            Some(run) => self.folder.write_started(self.name, &Started { run: Some(run), ..started }),
            None if age >= START_LIMIT => self.folder.forget_started(self.name),
            None => {}
        }
    }

    /// Whether a bridge that lives has written down a sandbox in the machine: each is, before anything of it exists.
    fn has_sandboxes(&self) -> bool {
        let connections = [self.name.to_string(), format!("{}-root", self.name)];
        let is_in_it = |id: &RuntimeId| {
            let connection = &id.address.connection;
            may_be_in_a_machine(id) && connection.as_ref().is_none_or(|it| connections.contains(it))
        };
        let instances = self.state.instances();
        let mut living =
            instances.into_iter().filter(|instance| instance.owner().state() == OwnerState::Alive);
        living.any(|instance| instance.records().iter().any(|record| is_in_it(&record.runtime)))
    }

    /// Whether its last use is that long ago. A bridge that is about to use an engine says so by the lock.
    fn is_unused_since(&self, used: SystemTime, idle: Duration) -> bool {
        let marked = self.folder.last_use();
        let last = marked.map_or(used, |marked| marked.max(used));
        last.elapsed().is_ok_and(|quiet| quiet >= idle)
    }

    async fn stop_unless_in_use(&self, used: SystemTime, idle: Duration) -> Attempt {
        // Whoever has the one lock is about to bring the machine up, whoever has the other to use it.
        let (Some(_lock), Some(_nobody_tries)) = (self.folder.try_lock(), self.folder.try_stop()) else {
            return Attempt::InUse;
        };
        let Some(machines) = self.podman.list().await else {
            // Podman may have been removed since, and its machines with it.
            return if self.podman.program.exists() { Attempt::InUse } else { Attempt::Over };
        };
        let Some(machine) = machines.into_iter().find(|machine| machine.name == self.name) else {
            return Attempt::Over;
        };
        if !self.folder.is_ours(&machine) {
            return Attempt::Over;
        }
        // Its two engines: the user's, and root's, which may not be known.
        let root = format!("{}-root", self.name);
        let busy = [self.podman.is_busy(self.name).await, self.podman.is_busy(&root).await];
        if busy[0] != Some(false)
            || busy[1] == Some(true)
            || self.has_sandboxes()
            || !self.is_unused_since(used, idle)
        {
            return Attempt::InUse;
        }
        match self.podman.run(&["machine", "stop", self.name], STOP_LIMIT).await {
            Ok(_) => Attempt::Over,
            Err(_) => Attempt::InUse,
        }
    }
}
