//! The supervisor of a machine: a separate process that stops a machine which a bridge started, when nothing has run in it for
//! a while. It starts with the machine and ends with it, independently of bridges; each machine has one.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::FlockOperation;

use super::folder::{MachineFolder, MachineLock, Started, plain, run_of};
use super::podman::{Podman, START_LIMIT, may_be_in_a_machine};
use crate::owner::OwnerState;
use crate::runtime::RuntimeId;
use crate::state::StateDir;

/// Shutting a machine down takes a few seconds.
const STOP_LIMIT: Duration = Duration::from_secs(120);
/// The shortest and the longest time between two checks of the records of bridges.
const PACE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Supervises a machine until it is stopped, by the supervisor or others. `dir` is the folder where bridges record the machines
/// that they started.
pub async fn supervise_machine(dir: PathBuf, podman: &Path, name: &str) {
    let supervisor = Supervisor {
        podman: Podman { program: podman },
        name,
        state: StateDir::usual(),
        folder: MachineFolder::at(Some(dir)),
    };
    while let Some(lock) = supervisor.try_lock() {
        supervisor.supervise().await;
        drop(lock);
        // A supervisor that started meanwhile has ended because of this one.
        if supervisor.task().is_none() {
            return;
        }
    }
}

/// The last use of a machine that was seen. A bridge marks the use of an engine by the time of the lock file; only a change of it
/// counts, because the clock of this host may be set meanwhile.
#[derive(Debug, Clone, Copy)]
struct Use {
    seen: Instant,
    mark: Option<SystemTime>,
}

impl Use {
    fn now(mark: Option<SystemTime>) -> Self {
        Self { seen: Instant::now(), mark }
    }

    /// Returns whether the last use is that long ago, now that the mark is this one.
    fn is_over(&mut self, mark: Option<SystemTime>, idle: Duration) -> bool {
        if self.mark != mark {
            *self = Self::now(mark);
        }
        self.seen.elapsed() >= idle
    }
}

struct Supervisor<'a> {
    folder: MachineFolder,
    podman: Podman<'a>,
    name: &'a str,
    state: StateDir,
}

impl Supervisor<'_> {
    /// Takes the lock of this machine's supervisor, unless there is one.
    fn try_lock(&self) -> Option<MachineLock> {
        let name = format!("supervisor-{}.lock", plain(self.name));
        self.folder.flock(&name, FlockOperation::NonBlockingLockExclusive)
    }

    /// Returns the record of the start, and the time after which the idle machine is stopped.
    fn task(&self) -> Option<(Started, Duration)> {
        let started = self.folder.started(self.name)?;
        let idle = started.idle?;
        Some((started, idle))
    }

    async fn supervise(&self) {
        let (mut used, mut had_sandboxes) = (Use::now(self.folder.last_use()), false);
        let mut starting: Option<(Started, Instant)> = None;
        while let Some((started, idle)) = self.task() {
            tokio::time::sleep((idle / 4).clamp(PACE.0, PACE.1)).await;
            let has_sandboxes = self.has_sandboxes();
            let mark = self.folder.last_use();
            if started.run.is_none() {
                let known = starting.take().filter(|(known, _)| *known == started);
                let (known, since) = known.unwrap_or_else(|| (started.clone(), Instant::now()));
                starting = Some((known, since));
                self.settle(started, since.elapsed()).await;
                used = Use::now(mark);
            } else if has_sandboxes || had_sandboxes {
                // The last sandbox may have ended just now.
                (used, had_sandboxes) = (Use::now(mark), has_sandboxes);
            } else if used.is_over(mark, idle) {
                match self.stop_unless_in_use(used, idle).await {
                    true => self.folder.forget_started(self.name),
                    false => used = Use::now(mark),
                }
            }
        }
    }

    /// Completes the record of a machine that is being started. The bridge that starts it holds the lock and writes the result;
    /// when the bridge was killed, the machine may still start.
    async fn settle(&self, started: Started, age: Duration) {
        let Some(_lock) = self.folder.try_lock() else { return };
        if self.folder.started(self.name).as_ref() != Some(&started) {
            return;
        }
        let Some(machines) = self.podman.list().await else { return };
        match machines.into_iter().find(|machine| machine.name == self.name).as_ref().and_then(run_of) {
            Some(run) => self.folder.write_started(self.name, &Started { run: Some(run), ..started }),
            None if age >= START_LIMIT => self.folder.forget_started(self.name),
            None => {}
        }
    }

    /// Returns whether a living bridge has recorded a sandbox in the machine: each is recorded before it exists.
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

    /// Returns whether the task is over: the machine is stopped, or not ours.
    async fn stop_unless_in_use(&self, mut used: Use, idle: Duration) -> bool {
        // One lock is held by bridges that start the machine, the other by those that use it.
        let (Some(_lock), Some(_unused)) = (self.folder.try_lock(), self.folder.try_stop()) else {
            return false;
        };
        let Some(machines) = self.podman.list().await else {
            // Podman may have been removed since, and its machines with it.
            return !self.podman.program.exists();
        };
        if !machines.iter().any(|machine| machine.name == self.name && self.folder.is_ours(machine)) {
            return true;
        }
        // Its two engines: the user's, and root's, which may not be set up.
        let root = format!("{}-root", self.name);
        let busy = [self.podman.is_busy(self.name).await, self.podman.is_busy(&root).await];
        if busy[0] != Some(false)
            || busy[1] == Some(true)
            || self.has_sandboxes()
            || !used.is_over(self.folder.last_use(), idle)
        {
            return false;
        }
        self.podman.run(&["machine", "stop", self.name], STOP_LIMIT).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn the_last_use_does_not_depend_on_the_clock() {
        // Marked before the clock was set back, or forth.
        for mark in [SystemTime::now() + HOUR, SystemTime::now() - HOUR].map(Some) {
            let Some(seen) = Instant::now().checked_sub(HOUR / 2) else { return };
            let mut used = Use { seen, mark };
            assert!(used.is_over(mark, HOUR / 2) && !used.is_over(mark, HOUR));
            let again = Some(SystemTime::now());
            assert!(!used.is_over(again, HOUR / 2));
            assert_eq!(used.mark, again);
        }
    }
}
