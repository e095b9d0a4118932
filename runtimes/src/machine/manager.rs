//! Starts the machine that podman needs, and makes one when there is none: once for all bridges, and within time limits.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::folder::{MachineFolder, MachineLock, Started, run_of};
use super::podman::{ASK_LIMIT, Podman, START_LIMIT, may_be_in_a_machine};
use super::share::Shares;
use crate::engine::{COMMAND_LIMIT, EngineDriver};
use crate::exec::{self, CommandLine, ExecError};
use crate::messages::engine::parse_unreachable;
use crate::messages::machine::{self as messages, Machine};
use crate::owner::Owner;
use crate::refusal::Refusal;
use crate::runtime::{RuntimeId, RuntimeKind};

/// A machine's image is downloaded and unpacked: gigabytes.
const INIT_LIMIT: Duration = Duration::from_secs(1800);
/// A supervisor starts by two starts of a program.
const BEGIN_LIMIT: Duration = Duration::from_secs(20);
/// The time that a running machine has until its engine answers.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// The time between two checks of what other processes do.
const PACE: Duration = Duration::from_millis(200);

/// What the user allows for podman's machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachinePolicy {
    /// Whether a machine may be made when there is none.
    pub init: bool,
    pub rootful: bool,
    /// How long after its last use a machine that we started is stopped; None = never.
    pub idle: Option<Duration>,
    /// The command of the supervisor, which outlives us; the folder, podman and the machine's name are added. None = no
    /// supervisor.
    pub supervisor: Option<CommandLine>,
    /// The folder that a remote engine should share with this machine.
    pub share: Option<PathBuf>,
}

impl Default for MachinePolicy {
    fn default() -> Self {
        Self { init: true, rootful: false, idle: None, supervisor: None, share: None }
    }
}

/// The machine behind an engine, for diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MachineReport {
    pub name: String,
    pub running: bool,
    /// Whether a bridge started the machine and may stop it.
    pub started_by_bridge: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Machines {
    policy: MachinePolicy,
    folder: MachineFolder,
    pub(crate) shares: Shares,
}

impl Machines {
    pub(crate) fn new(policy: MachinePolicy, dir: Option<PathBuf>) -> Self {
        let shares = Shares::new(policy.share.clone(), dir.clone());
        Self { policy, folder: MachineFolder::at(dir), shares }
    }

    /// Starts the machine that podman needs to reach its engine, when that is allowed. None when a machine would not help.
    pub(crate) async fn ensure(
        &self,
        driver: &EngineDriver,
        refusal: &Refusal,
        announce: &(dyn Fn(&str) + Sync),
    ) -> Option<Result<(), Refusal>> {
        let id = driver.id();
        let message = match refusal {
            Refusal::DaemonUnreachable { message, .. } if id.kind == RuntimeKind::Podman => message,
            _ => return None,
        };
        // An engine that a variable names is not in a machine of ours, nor is one that refuses this user.
        if parse_unreachable(message).is_none() || !id.address.variables.is_empty() {
            return None;
        }
        let podman = Podman { program: &id.program };
        let machines = podman.list().await?;
        let foreign = podman.is_of_another_system().await;
        let connection = id.address.connection.as_deref();
        match (podman.choose(&machines, connection).await, connection) {
            (None, Some(_)) => return None,
            // A remote podman on Linux: nobody asked for a machine.
            (None, None) if !foreign => return None,
            _ => {}
        }
        let _lock = match self.lock(announce, driver).await {
            Ok(Some(lock)) => lock,
            Ok(None) => return Some(Ok(())),
            Err(refusal) => return Some(Err(refusal)),
        };
        Some(self.bring_up(&podman, driver, message, announce).await)
    }

    /// Starts the machine, under the lock; others may have started it meanwhile.
    async fn bring_up(
        &self,
        podman: &Podman<'_>,
        driver: &EngineDriver,
        message: &str,
        announce: &(dyn Fn(&str) + Sync),
    ) -> Result<(), Refusal> {
        if answers(driver).await {
            return Ok(());
        }
        let connection = driver.id().address.connection.as_deref();
        let failed = |message: String| Refusal::MachineFailed { message };
        let none = || failed("podman did not list its machines".into());
        let machine = match podman.choose(&podman.list().await.ok_or_else(none)?, connection).await {
            Some(machine) => machine,
            None if !self.policy.init => return Err(Refusal::MachineMissing { message: message.into() }),
            None => {
                let text = "creating a podman machine, which downloads gigabytes once (MCP_BRIDGE_MACHINE_INIT=0 forbids it)";
                tracing::warn!("{text}");
                announce(text);
                let mut words = vec!["machine", "init"];
                words.extend(self.policy.rootful.then_some("--rootful"));
                podman.run(&words, INIT_LIMIT).await.map_err(|error| failed(words_of(error)))?;
                let made = podman.choose(&podman.list().await.ok_or_else(none)?, connection).await;
                made.ok_or_else(|| failed("podman created a machine but does not list it".into()))?
            }
        };
        let name = machine.name.clone();
        if machine.running {
            announce(&format!("waiting for the podman machine {name}"));
        } else if machine.starting {
            announce(&format!("waiting for the podman machine {name}, which another program starts"));
        }
        if !machine.running && !self.is_started_by_others(podman, machine.clone(), driver).await {
            self.start(podman, &machine, announce).await.map_err(|error| failed(words_of(error)))?;
        }
        let deadline = Instant::now() + ANSWER_LIMIT;
        while !answers(driver).await {
            if Instant::now() > deadline {
                return Err(failed(format!(
                    "the machine {name} runs but its engine does not answer; `podman machine stop` and `podman machine start` may help: {message}",
                )));
            }
            tokio::time::sleep(PACE).await;
        }
        Ok(())
    }

    /// Waits while another program starts the machine. Returns whether the machine runs.
    async fn is_started_by_others(
        &self,
        podman: &Podman<'_>,
        mut machine: Machine,
        driver: &EngineDriver,
    ) -> bool {
        let deadline = Instant::now() + START_LIMIT;
        while machine.starting && !machine.running && Instant::now() < deadline {
            if answers(driver).await {
                return true;
            }
            tokio::time::sleep(PACE).await;
            let machines = podman.list().await.unwrap_or_default();
            match machines.into_iter().find(|now| now.name == machine.name) {
                Some(now) => machine = now,
                None => return false,
            }
        }
        machine.running
    }

    async fn start(
        &self,
        podman: &Podman<'_>,
        machine: &Machine,
        announce: &(dyn Fn(&str) + Sync),
    ) -> Result<(), ExecError> {
        let name = machine.name.as_str();
        if self.policy.rootful {
            podman.run(&["machine", "set", "--rootful", name], ASK_LIMIT).await?;
        }
        self.shares.before_start(podman, machine).await;
        let text = format!("starting the podman machine {name}");
        tracing::info!("{text}");
        announce(&text);
        // Recorded and supervised before there is anything to stop.
        let started = Started { by: Owner::this_process(String::new()), run: None, idle: self.policy.idle };
        self.folder.write_started(name, &started);
        self.start_supervisor(podman.program, name).await;
        let result = match podman.start(name, START_LIMIT).await {
            Err(ExecError::Failed(failed))
                if messages::parse_already_starting(&failed.stderr_tail).is_some() =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
            Ok(_) => {
                let machines = podman.list().await.unwrap_or_default();
                Ok(machines.into_iter().find(|machine| machine.name == name).as_ref().and_then(run_of))
            }
        };
        match &result {
            Ok(Some(run)) => self.folder.write_started(name, &Started { run: Some(run.clone()), ..started }),
            Ok(None) | Err(_) => self.folder.forget_started(name),
        }
        result.map(drop)
    }

    /// Waits for the lock on machines; None when the engine answers first.
    async fn lock(
        &self,
        announce: &(dyn Fn(&str) + Sync),
        driver: &EngineDriver,
    ) -> Result<Option<MachineLock>, Refusal> {
        let mut announced = false;
        let deadline = Instant::now() + INIT_LIMIT + START_LIMIT;
        loop {
            match self.folder.try_lock() {
                Some(lock) => return Ok(Some(lock)),
                None if answers(driver).await => return Ok(None),
                None if Instant::now() > deadline => {
                    let message = "another bridge has been starting the machine for too long".into();
                    return Err(Refusal::MachineFailed { message });
                }
                None => {}
            }
            if !std::mem::replace(&mut announced, true) {
                announce("waiting for another bridge that starts the podman machine");
            }
            tokio::time::sleep(PACE).await;
        }
    }

    pub(crate) fn may_make_one(&self) -> bool {
        self.policy.init
    }

    /// Returns the same without the right to make a machine.
    pub(crate) fn without_making_any(&self) -> Self {
        Self { policy: MachinePolicy { init: false, ..self.policy.clone() }, ..self.clone() }
    }

    /// Returns the machine of podman's default connection, for diagnosis.
    pub(crate) async fn report(&self, program: &Path) -> Option<MachineReport> {
        let podman = Podman { program };
        let machine = podman.choose(&podman.list().await?, None).await?;
        let started_by_bridge = self.folder.is_ours(&machine);
        Some(MachineReport { name: machine.name, running: machine.running, started_by_bridge })
    }

    pub(crate) async fn use_engines(&self) -> MachineLock {
        self.folder.use_engines().await
    }

    /// Starts supervisors for machines that earlier bridges started and whose supervisors are gone.
    pub(crate) fn adopt(&self, id: &RuntimeId) {
        let to_be_stopped =
            |name: &String| self.folder.started(name).is_some_and(|started| started.idle.is_some());
        let names = if may_be_in_a_machine(id) { self.folder.started_names() } else { Vec::new() };
        for name in names.into_iter().filter(to_be_stopped) {
            let machines = self.clone();
            let program = id.program.clone();
            tokio::spawn(async move { machines.start_supervisor(&program, &name).await });
        }
    }

    /// Starts the supervisor of a machine; it ends at once when there is one already.
    async fn start_supervisor(&self, podman: &Path, name: &str) {
        let (Some(supervisor), Some(dir), Some(_)) =
            (&self.policy.supervisor, self.folder.path(), self.policy.idle)
        else {
            return;
        };
        let command = supervisor.clone().arg(dir).arg(podman).arg(name);
        if let Err(error) = exec::run(command, BEGIN_LIMIT).await.and_then(exec::Finished::success) {
            tracing::warn!(%error, machine = name, "could not start the supervisor: the podman machine is not stopped when it is idle");
        }
    }

    /// Marks an engine as used before a sandbox starts in it, so that its machine is not stopped until the sandbox is
    /// recorded.
    pub(crate) async fn about_to_use(&self, id: &RuntimeId) {
        if may_be_in_a_machine(id) {
            drop(self.use_engines().await);
        }
    }
}

async fn answers(driver: &EngineDriver) -> bool {
    let info = driver.info(COMMAND_LIMIT).await;
    info.is_ok_and(|done| done.status.success() && driver.parse_info(&done.stdout).is_some())
}

/// Returns the message of podman, if there is one.
fn words_of(error: ExecError) -> String {
    match error {
        ExecError::Failed(failed) if !failed.stderr_tail.is_empty() => failed.stderr_tail,
        other => other.to_string(),
    }
}
