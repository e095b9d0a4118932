//! Stops a machine that a bridge started, when nothing has run in it for a while.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::manager::{Machines, Podman, Started};
use crate::driver::{RuntimeId, RuntimeKind};
use crate::state::Instance;

/// Shutting a machine down takes a few seconds.
const STOP_LIMIT: Duration = Duration::from_secs(120);
/// The shortest and the longest time between two looks at our own sandboxes.
const PACE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(15));

impl Machines {
    /// An engine that is there may be in a machine that an earlier bridge started: then it is ours to stop as well.
    pub(crate) fn adopt(&self, id: &RuntimeId, instance: &Arc<Instance>) {
        let folder = self.dir.as_ref().and_then(|dir| std::fs::read_dir(dir).ok());
        let may_be = id.kind == RuntimeKind::Podman && id.remote && id.address.variables.is_empty();
        if may_be && folder.is_some_and(|entries| entries.flatten().any(is_record)) {
            self.watch(id, instance);
        }
    }

    /// Watches over the machine behind a runtime as long as this process lives: one watch for each.
    pub(super) fn watch(&self, id: &RuntimeId, instance: &Arc<Instance>) {
        let Some(idle) = self.policy.idle else { return };
        if !self.watched.lock().unwrap_or_else(PoisonError::into_inner).insert(id.target()) {
            return;
        }
        let watch = Watch {
            machines: Self {
                watched: Arc::clone(&self.watched),
                ..Self::new(self.policy.clone(), self.dir.clone())
            },
            id: id.clone(),
            instance: Arc::clone(instance),
            idle,
        };
        tokio::spawn(async move { watch.until_stopped().await });
    }
}

/// Whether a file says that a bridge has started a machine.
fn is_record(entry: std::fs::DirEntry) -> bool {
    entry.file_name().to_str().is_some_and(|name| name.starts_with("machine-") && name.ends_with(".json"))
}

struct Watch {
    machines: Machines,
    id: RuntimeId,
    instance: Arc<Instance>,
    idle: Duration,
}

impl Watch {
    async fn until_stopped(self) {
        let pace = (self.idle / 4).clamp(PACE.0, PACE.1);
        let mut quiet_since = Instant::now();
        loop {
            tokio::time::sleep(pace).await;
            // What is written down is all that runs of ours, and what is about to.
            if !self.instance.records().is_empty() {
                quiet_since = Instant::now();
            } else if quiet_since.elapsed() >= self.idle {
                if self.stop_unless_in_use().await {
                    break;
                }
                quiet_since = Instant::now();
            }
        }
        self.machines.watched.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id.target());
    }

    /// True when the watch is over: the machine was stopped, by us or others.
    async fn stop_unless_in_use(&self) -> bool {
        // Whoever has the lock is about to use the machine.
        let Some(_lock) = self.machines.try_lock() else { return false };
        let Some(_nobody_tries) = self.machines.try_stop() else { return false };
        let podman = Podman { program: &self.id.program };
        let machines = podman.list().await.unwrap_or_default();
        let connection = self.id.address.connection.as_deref();
        let Some(machine) = podman.choose(&machines, connection).await else { return true };
        if !self.machines.is_ours(&machine) {
            return true;
        }
        let name = machine.name.as_str();
        // Its two engines: the user's, and root's, which may not be known.
        let busy = [podman.is_busy(name).await, podman.is_busy(&format!("{name}-root")).await];
        if busy[0] != Some(false) || busy[1] == Some(true) || !self.instance.records().is_empty() {
            return false;
        }
        tracing::info!(
            machine = name,
            "nothing runs in the podman machine that was started for this; stopping it"
        );
        match podman.run(&["machine", "stop", name], STOP_LIMIT).await {
            Ok(_) => {
                self.machines.write_started(name, &Started::default());
                true
            }
            Err(error) => {
                tracing::warn!(%error, "a podman machine does not stop");
                false
            }
        }
    }
}
