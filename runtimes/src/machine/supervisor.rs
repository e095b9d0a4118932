//! The supervisor of a machine: a process of its own that stops a machine which a bridge started, when nothing has run in it
//! for a while. It begins with the machine and ends with it, whatever becomes of bridges; each machine has one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::FlockOperation;

use super::manager::{Lock, MachinePolicy, Machines, START_LIMIT, USE_LOCK};
use super::podman::Podman;
use super::record::{Started, plain, run_of};
use crate::exec;
use crate::owner::OwnerState;
use crate::runtime::{RuntimeId, RuntimeKind};
use crate::state::StateDir;

/// Shutting a machine down takes a few seconds.
const STOP_LIMIT: Duration = Duration::from_secs(120);
/// Starting a supervisor takes two starts of a program.
const BEGIN_LIMIT: Duration = Duration::from_secs(20);
/// The shortest and the longest time between two looks at what bridges have written down.
const PACE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

impl Machines {
    /// An engine that is there may be in a machine that an earlier bridge started and whose supervisor is gone.
    pub(crate) fn adopt(&self, id: &RuntimeId) {
        let to_be_stopped = |name: &String| self.started(name).is_some_and(|started| started.idle.is_some());
        let names = if may_be_in_a_machine(id) { self.started_names() } else { Vec::new() };
        for name in names.into_iter().filter(to_be_stopped) {
            let machines = Self::new(self.policy.clone(), self.dir.clone());
            let program = id.program.clone();
            tokio::spawn(async move { machines.start_supervisor(&program, &name).await });
        }
    }

    /// Starts the supervisor of a machine; one that finds another there ends at once.
    pub(super) async fn start_supervisor(&self, podman: &Path, name: &str) {
        let (Some(supervisor), Some(dir), Some(_)) = (&self.policy.supervisor, &self.dir, self.policy.idle)
        else {
            return;
        };
        let command = supervisor.clone().arg(dir).arg(podman).arg(name);
        if let Err(error) = exec::run(command, BEGIN_LIMIT).await.and_then(exec::Finished::success) {
            tracing::warn!(%error, machine = name, "nobody will stop the podman machine when it is idle");
        }
    }

    /// To be called before a sandbox is started in an engine that was chosen earlier: its machine is not stopped from now
    /// on until the sandbox is written down.
    pub(crate) async fn about_to_use(&self, id: &RuntimeId) {
        if may_be_in_a_machine(id) {
            drop(self.use_engines().await);
        }
    }
}

fn may_be_in_a_machine(id: &RuntimeId) -> bool {
    id.kind == RuntimeKind::Podman && id.remote && id.address.variables.is_empty()
}

/// What a supervisor does: looks after a machine until it is stopped, by it or others. `dir` is the folder where bridges write
/// down which machines they started.
pub async fn supervise_machine(dir: PathBuf, podman: &Path, name: &str) {
    let machines = Machines::new(MachinePolicy::default(), Some(dir));
    let supervisor =
        Supervisor { podman: Podman { program: podman }, name, state: StateDir::usual(), machines };
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
    machines: Machines,
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
    fn alone(&self) -> Option<Lock> {
        let name = format!("supervisor-{}.lock", plain(self.name));
        self.machines.flock(&name, FlockOperation::NonBlockingLockExclusive)
    }

    /// The start that is written down, and when the machine is to be stopped.
    fn task(&self) -> Option<(Started, Duration)> {
        let started = self.machines.started(self.name)?;
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
                    Attempt::Over => self.machines.forget_started(self.name),
                    Attempt::InUse => used = SystemTime::now(),
                }
            }
        }
    }

    /// The machine is being started. The bridge that does it has the lock, and says how it went; when it gave up in the
    /// middle, or was killed, what it had begun may still come to be.
    async fn settle(&self, started: Started) {
        let Some(_lock) = self.machines.try_lock() else { return };
        if self.machines.started(self.name).as_ref() != Some(&started) {
            return;
        }
        let Some(machines) = self.podman.list().await else { return };
        let since = self.machines.started_at(self.name);
        let age = since.and_then(|since| since.elapsed().ok()).unwrap_or(START_LIMIT);
        match machines.into_iter().find(|machine| machine.name == self.name).as_ref().and_then(run_of) {
            Some(run) => self.machines.write_started(self.name, &Started { run: Some(run), ..started }),
            None if age >= START_LIMIT => self.machines.forget_started(self.name),
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
        let lock = self.machines.dir.as_ref().map(|dir| dir.join(USE_LOCK));
        let marked = lock.and_then(|lock| fs::metadata(lock).ok()?.modified().ok());
        let last = marked.map_or(used, |marked| marked.max(used));
        last.elapsed().is_ok_and(|quiet| quiet >= idle)
    }

    async fn stop_unless_in_use(&self, used: SystemTime, idle: Duration) -> Attempt {
        // Whoever has the one lock is about to bring the machine up, whoever has the other to use it.
        let (Some(_lock), Some(_nobody_tries)) = (self.machines.try_lock(), self.machines.try_stop()) else {
            return Attempt::InUse;
        };
        let Some(machines) = self.podman.list().await else {
            // Podman may have been removed since, and its machines with it.
            return if self.podman.program.exists() { Attempt::InUse } else { Attempt::Over };
        };
        let Some(machine) = machines.into_iter().find(|machine| machine.name == self.name) else {
            return Attempt::Over;
        };
        if !self.machines.is_ours(&machine) {
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
