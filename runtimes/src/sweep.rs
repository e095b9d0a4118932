//! Removes the sandboxes of dead bridges, by records and by labels. The sandboxes of living bridges are never touched.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;

use crate::driver::AnyDriver;
use crate::exec::{self, ExecError};
use crate::owner::OwnerState;
use crate::plan::{End, ReclaimError};
use crate::refusal::Refusal;
use crate::runtime::RuntimeId;
use crate::spec::SandboxName;
use crate::state::{Instance, Record, StateDir};
use crate::stragglers;

/// The age in seconds after which a sandbox on an engine that does not answer is given up: a week.
const ABSENT_AGE: u64 = 7 * 24 * 3600;

#[derive(Debug, Default)]
pub struct Swept {
    /// The sandboxes that were removed or are gone.
    pub removed: Vec<SandboxName>,
    pub failed: Vec<ReclaimError>,
    /// The sandboxes whose engine does not answer now. They are given up a week after their start.
    pub absent: Vec<ReclaimError>,
    /// The engines that did not list their sandboxes.
    pub unlisted: Vec<(RuntimeId, ExecError)>,
}

impl Swept {
    fn add(&mut self, name: SandboxName, result: Result<(), ReclaimError>) {
        match result {
            Ok(()) => self.removed.push(name),
            Err(error) => self.failed.push(error),
        }
    }
}

/// Returns the driver that removes a sandbox: of the runtime that started it, or of the same kind when its program is gone.
fn remover(maker: &RuntimeId) -> AnyDriver {
    let mut runtime = maker.clone();
    if !runtime.program.exists()
        && let Some(program) = exec::find_program(Path::new(runtime.kind.program_name()))
    {
        runtime.program = program;
    }
    AnyDriver::new(runtime)
}

/// Removes every sandbox of an instance and, when that worked, its folder. For the end of the owner, and for its reaper.
pub async fn reclaim_instance(instance: &Instance) -> Swept {
    let mut swept = Swept::default();
    let records = instance.records();
    let runs = !records.is_empty() && stragglers::are_there(instance);
    let mut results = reclaim(&records, instance).await;
    stragglers::end(instance).await;
    if runs {
        // Runtimes that were starting may have created sandboxes after the first look at them.
        results = reclaim(&records, instance).await;
    }
    for (name, result) in results {
        if result.is_ok() {
            instance.forget(&name);
        }
        swept.add(name, result);
    }
    let unreadable = instance.unreadable_records().into_iter();
    swept.failed.extend(unreadable.map(|(name, source)| ReclaimError::Record { name, source }));
    if swept.failed.is_empty() {
        remove_folder(instance);
    }
    swept
}

/// Removes these sandboxes, all at the same time.
async fn reclaim(records: &[Record], instance: &Instance) -> Vec<(SandboxName, Result<(), ReclaimError>)> {
    let mut running = tokio::task::JoinSet::new();
    for record in records.iter().cloned() {
        let instance = instance.clone();
        running.spawn(async move {
            let result = remover(&record.runtime).reclaim(&record.name, &instance).await;
            (record.name, result)
        });
    }
    running.join_all().await
}

fn remove_folder(instance: &Instance) {
    if let Err(error) = instance.remove() {
        tracing::warn!(%error, "could not remove the folder of an instance");
    }
}

/// Whether the engine that did not remove a sandbox can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The engine answers, and could not remove the sandbox.
    Here,
    /// The engine does not answer now.
    Absent,
    /// The engine's name is gone, or the engine has not answered for long: it is not asked again. If it ever comes back, the
    /// sandbox is found by its labels.
    Lost,
}

impl Reach {
    fn of(error: &ReclaimError, instance: &Instance) -> Self {
        let Some(record) = instance.records().into_iter().find(|record| record.name == *error.name()) else {
            return Self::Here;
        };
        let absent = if record.age() > ABSENT_AGE { Self::Lost } else { Self::Absent };
        let driver = AnyDriver::new(record.runtime);
        if matches!(driver, AnyDriver::Oci(_)) {
            return Self::Here;
        }
        let ReclaimError::Command { source, .. } = error else { return Self::Here };
        let failed = match source {
            ExecError::Failed(failed) => failed,
            // An engine behind a network that drops everything does not answer at all.
            ExecError::TimedOut { .. } => return absent,
            ExecError::Start { source, .. } if source.kind() == ErrorKind::NotFound => return absent,
            _ => return Self::Here,
        };
        match driver.explain(End::Exited(failed.status.code().unwrap_or(-1)), &failed.stderr_tail) {
            Refusal::UnknownConnection { .. } => Self::Lost,
            refusal if refusal.is_out_of_reach() => absent,
            _ => Self::Here,
        }
    }
}

/// Removes the sandboxes of dead bridges: those in their records, and those that the given engines have by label alone.
pub async fn sweep(state: &StateDir, engines: &[RuntimeId]) -> Swept {
    let mut swept = Swept::default();
    state.remove_unfinished();
    for instance in state.instances() {
        if instance.owner().state() == OwnerState::Dead {
            let done = reclaim_instance(&instance).await;
            swept.removed.extend(done.removed);
            for error in done.failed {
                match Reach::of(&error, &instance) {
                    Reach::Here => swept.failed.push(error),
                    Reach::Absent => swept.absent.push(error),
                    Reach::Lost => {
                        tracing::info!(%error, "an engine is unreachable; a sandbox left on it can be found by its labels");
                        instance.forget(error.name());
                    }
                }
            }
            if instance.records().is_empty() && instance.unreadable_records().is_empty() {
                remove_folder(&instance);
            }
        }
    }
    let done: HashSet<_> = swept.removed.iter().cloned().collect();
    for engine in engines {
        let driver = AnyDriver::new(engine.clone());
        let owned = match driver.list_owned().await {
            Ok(owned) => owned,
            Err(error) => {
                tracing::debug!(%engine, %error, "could not list the containers of an engine");
                swept.unlisted.push((engine.clone(), error));
                continue;
            }
        };
        for sandbox in owned {
            if sandbox.owner.state() == OwnerState::Dead && !done.contains(&sandbox.name) {
                let result = match &driver {
                    AnyDriver::Engine(driver) => driver.reclaim(&sandbox.name).await,
                    AnyDriver::Kube(driver) => driver.reclaim(&sandbox.name).await,
                    // These list none.
                    AnyDriver::Oci(_) => Ok(()),
                };
                swept.add(sandbox.name, result);
            }
        }
    }
    swept
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;
    use crate::exec::CommandLine;
    use crate::owner::Owner;
    use crate::runtime::{CgroupMode, RuntimeKind};
    use crate::spec::RootFs;

    fn of_a_dead_bridge(name: &str) -> (TempDir, StateDir, Instance) {
        let base = tempfile::tempdir().unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let state = StateDir::at(base.path());
        // No process has this id.
        let owner = Owner { pid: u32::MAX >> 1, ..Owner::this_process(name.into()) };
        let instance = state.create_instance(&owner).unwrap();
        (base, state, instance)
    }

    #[tokio::test]
    async fn an_instance_with_a_record_that_cannot_be_read_is_kept_and_reported() {
        let (_base, state, instance) = of_a_dead_bridge("lost");
        let record = instance.path().join("sandboxes/codebridge-lost-1.json");
        fs::write(&record, "{").unwrap();
        let swept = sweep(&state, &[]).await;
        assert!(record.exists());
        let [error] = &swept.failed[..] else { panic!("{swept:?}") };
        assert!(error.to_string().contains(&record.display().to_string()), "{error}");
        // Once somebody has looked after it, the rest goes as well.
        fs::remove_file(&record).unwrap();
        assert!(sweep(&state, &[]).await.failed.is_empty());
        assert!(!instance.path().exists());
    }

    #[tokio::test]
    async fn what_a_runtime_creates_after_the_first_look_is_removed_too() {
        let (base, state, instance) = of_a_dead_bridge("late");
        let program = base.path().join("crun");
        let removed = base.path().join("removed");
        // `crun --root ROOT run NAME`, `crun --root ROOT delete --force NAME`
        let script = format!(
            "#!/bin/sh\ncase $3 in\nrun) echo >$2.runs; sleep 0.3; mkdir -p $2/$4 ;;\ndelete) rmdir $2/$5 && echo $5 >>{} ;;\n*) exit 1 ;;\nesac\n",
            removed.display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let name = instance.next_name();
        let runtime = RuntimeId::local(RuntimeKind::Crun, &program, CgroupMode::Direct);
        instance.record(&Record::now(&name, &runtime, RootFs::Host)).unwrap();
        let root = instance.runtime_root("crun");
        let late = [root.as_os_str(), "run".as_ref(), name.as_str().as_ref()];
        let late = exec::run(CommandLine::new(&program).arg("--root").args(late), Duration::from_secs(60));
        let swept = async {
            while !root.with_extension("runs").exists() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            sweep(&state, &[]).await
        };
        let (late, swept) = tokio::join!(late, swept);
        assert!(late.unwrap().status.success());
        assert_eq!((&swept.removed[..], swept.failed.len()), (&[name.clone()][..], 0));
        assert_eq!(fs::read_to_string(&removed).unwrap().trim(), name.as_str());
        assert!(!instance.path().exists());
    }
}
