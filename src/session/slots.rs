//! The sessions of a workspace by name: each has a queue, and an interpreter while it is used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Mutex, OwnedSemaphorePermit};
use tokio::task::AbortHandle;
use tokio_util::task::AbortOnDropHandle;

use super::interpreter::Interpreter;
use super::processor_time::Idle;
use crate::telemetry::Opened;

/// Names that are remembered without an interpreter: their next result says what became of the previous one.
const MOST_NAMES: usize = 256;

/// One named session. Calls queue at its lock, in order.
pub(super) type Slot = Mutex<SlotState>;

#[derive(Debug, Default)]
pub(super) struct SlotState {
    pub(super) live: Option<Live>,
    /// Why the previous interpreter is gone, until a result has said so.
    pub(super) lost: Option<String>,
    pub(super) last_used: Option<Instant>,
    idle_timer: Option<AbortHandle>,
}

#[derive(Debug)]
pub(super) struct Live {
    pub(super) interpreter: Interpreter,
    /// The processor time that it takes between runs.
    pub(super) idle: Idle,
    /// Ends it with what its calls were made with, by the ids of that.
    pub(super) watches: HashMap<u64, AbortOnDropHandle<()>>,
    pub(super) _permit: OwnedSemaphorePermit,
    pub(super) _open: Opened,
}

impl SlotState {
    /// Takes the interpreter away, for a reason that the next result says.
    pub(super) fn take(&mut self, why: impl Into<String>) -> Option<Live> {
        self.stop_timer();
        self.lost = Some(why.into());
        self.live.take()
    }

    pub(super) fn set_timer(&mut self, timer: Option<AbortHandle>) {
        self.stop_timer();
        self.idle_timer = timer;
    }

    /// Stops the timer that would end an idle session.
    pub(super) fn stop_timer(&mut self) {
        if let Some(timer) = self.idle_timer.take() {
            timer.abort();
        }
    }
}

/// The sessions of a workspace.
#[derive(Debug, Default)]
pub(super) struct Slots(StdMutex<HashMap<String, Arc<Slot>>>);

impl Slots {
    pub(super) fn get(&self, name: &str) -> Option<Arc<Slot>> {
        self.lock().get(name).cloned()
    }

    pub(super) fn get_or_add(&self, name: &str) -> Arc<Slot> {
        Arc::clone(self.lock().entry(name.to_owned()).or_default())
    }

    pub(super) fn all(&self) -> Vec<Arc<Slot>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn drain(&self) -> Vec<Arc<Slot>> {
        self.lock().drain().map(|(_, slot)| slot).collect()
    }

    /// Forgets names without an interpreter, those that were used last excepted: a client can invent as many as it likes.
    pub(super) fn forget_names(&self) {
        let mut slots = self.lock();
        if slots.len() <= MOST_NAMES {
            return;
        }
        // Nobody else can get one meanwhile.
        let unused = slots.iter().filter(|(_, slot)| Arc::strong_count(slot) == 1);
        let mut unused: Vec<(Option<Instant>, String)> = unused
            .filter_map(|(name, slot)| {
                let state = slot.try_lock().ok()?;
                state.live.is_none().then(|| (state.last_used, name.clone()))
            })
            .collect();
        unused.sort();
        // Half of them, so that this is seldom done.
        let surplus = slots.len() - MOST_NAMES / 2;
        for (_, name) in unused.into_iter().take(surplus) {
            slots.remove(&name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_without_an_interpreter_are_forgotten_and_used_ones_are_not() {
        let slots = Slots::default();
        let used = slots.get_or_add("used");
        for number in 0..10_000 {
            let slot = slots.get_or_add(&number.to_string());
            let mut state = slot.lock().await;
            drop(state.take("it was lost"));
            state.last_used = Some(Instant::now());
            drop(state);
            slots.forget_names();
        }
        assert!(slots.lock().len() <= MOST_NAMES + 1, "{}", slots.lock().len());
        assert!(slots.get("9999").unwrap().lock().await.lost.is_some());
        assert!(slots.get("0").is_none());
        assert!(Arc::ptr_eq(&slots.get("used").unwrap(), &used));
    }
}
