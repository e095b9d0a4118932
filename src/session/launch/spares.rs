//! Spare sandboxes: guests that start after a call has ended, for the sessions that come next. A spare belongs to the bridge
//! and knows nothing of any user; a session that takes it keeps it, and nobody gets it again.

use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use codebridge_runtimes::{Choice, Instance, RuntimeId, SandboxSpec};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::free_memory;
use super::roots::Digest;
use crate::session::answers::SessionPackages;
use crate::session::interpreter::Guest;

/// How long after a call nothing starts: its result is on its way, and the next call may follow at once.
const PAUSE: Duration = Duration::from_millis(50);
/// How often the memory is looked at while there are spares.
const PACE: Duration = Duration::from_secs(5);

/// A guest, and what its sandbox has of the bridge.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) guest: Guest,
    pub(super) packages: SessionPackages,
    pub(super) digest: Digest,
}

/// What a sandbox was started for: a session gets a spare only if it would start exactly the same.
#[derive(Debug, Clone)]
pub(super) struct Purpose {
    runtime: RuntimeId,
    spec: SandboxSpec,
    /// The shared folders themselves, which may be replaced by others of the same name.
    folders: Vec<Option<(u64, u64)>>,
}

impl Purpose {
    pub(super) fn of(choice: &Choice, spec: &SandboxSpec) -> Self {
        let identity = |path: &_| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
        let folders = spec.shares.iter().map(|share| identity(&share.source)).collect();
        Self { runtime: choice.runtime.clone(), spec: spec.clone(), folders }
    }

    fn is(&self, other: &Self) -> bool {
        let named_alike = SandboxSpec { name: self.spec.name.clone(), ..other.spec.clone() };
        self.runtime == other.runtime && self.folders == other.folders && self.spec == named_alike
    }
}

/// A spare that is ready.
#[derive(Debug)]
pub(super) struct Spare {
    purpose: Purpose,
    started: Started,
    instance: Arc<Instance>,
}

#[derive(Debug)]
pub(super) struct Spares {
    /// How many are kept.
    wanted: usize,
    /// How long they are kept without any call.
    idle_limit: Option<Duration>,
    /// Whether sessions are spread over several runtimes.
    is_spread: bool,
    state: Mutex<State>,
    /// Notified when a call has ended.
    call_ended: Notify,
    stop: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct State {
    ready: Vec<Spare>,
    /// What the one is for that is being started, and who waits for it.
    starting: Option<Purpose>,
    waiting: Option<oneshot::Sender<Spare>>,
    /// What the last session was started with.
    last: Option<Choice>,
    calls: usize,
    last_call: Option<Instant>,
    /// Whether spares may be missing: a call has ended since they were looked at.
    is_due: bool,
    is_watched: bool,
}

/// A call that goes on.
#[derive(Debug)]
pub(in crate::session) struct Call(Option<Arc<Spares>>);

impl Drop for Call {
    fn drop(&mut self) {
        let Some(spares) = &self.0 else { return };
        let mut state = spares.lock();
        state.calls -= 1;
        state.last_call = Some(Instant::now());
        state.is_due = state.last.is_some();
        drop(state);
        spares.call_ended.notify_one();
    }
}

impl Spare {
    pub(super) fn new(purpose: Purpose, started: Started, instance: Arc<Instance>) -> Self {
        Self { purpose, started, instance }
    }

    /// Returns its guest if that is still there.
    async fn into_started(mut self) -> Result<Started, Self> {
        match self.started.guest.is_alive().await {
            true => {
                self.instance.mark_spare(self.started.guest.sandbox().name(), false);
                Ok(self.started)
            }
            false => Err(self),
        }
    }
}

impl Spares {
    pub(super) fn new(wanted: usize, idle_limit: Option<Duration>, is_spread: bool) -> Arc<Self> {
        Arc::new(Self {
            wanted,
            idle_limit,
            is_spread,
            state: Mutex::default(),
            call_ended: Notify::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are any, ever.
    pub(super) fn are_wanted(&self) -> bool {
        self.wanted > 0
    }

    /// Is cancelled when the bridge ends.
    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Begins a call that somebody waits for. No spare starts beside it, until it is dropped.
    pub(super) fn begin_call(self: &Arc<Self>) -> Call {
        if !self.are_wanted() {
            return Call(None);
        }
        self.lock().calls += 1;
        Call(Some(Arc::clone(self)))
    }

    /// Notes what a session was started with: spares are for the next of its kind. Returns whether nobody keeps them yet.
    pub(super) fn used(&self, choice: &Choice) -> bool {
        let mut state = self.lock();
        state.last = Some(choice.clone());
        !std::mem::replace(&mut state.is_watched, true)
    }

    /// Returns a spare for this purpose, if one is ready or will be soon.
    pub(super) async fn claim(&self, purpose: &Purpose, cancel: &CancellationToken) -> Option<Started> {
        loop {
            let spare = match self.take(purpose) {
                Ok(spare) => spare,
                Err(None) => return None,
                Err(Some(mut soon)) => tokio::select! {
                    spare = &mut soon => spare.ok()?,
                    () = cancel.cancelled() => {
                        // It may have been sent just before.
                        soon.close();
                        if let Ok(spare) = soon.try_recv() {
                            self.end(spare);
                        }
                        return None;
                    }
                },
            };
            match spare.into_started().await {
                Ok(started) => {
                    let name = started.guest.sandbox().name();
                    tracing::debug!(sandbox = %name, "a session gets a spare sandbox");
                    return Some(started);
                }
                Err(spare) => {
                    let name = spare.started.guest.sandbox().name();
                    tracing::info!(sandbox = %name, "a spare sandbox is gone");
                    self.end(spare);
                }
            }
        }
    }

    /// Takes a spare; an error is where one will be, if it is being started.
    fn take(&self, purpose: &Purpose) -> Result<Spare, Option<oneshot::Receiver<Spare>>> {
        let mut state = self.lock();
        if !self.is_spread {
            // What they were started for is no longer in use.
            let (ready, stale) =
                std::mem::take(&mut state.ready).into_iter().partition(|spare| spare.purpose.is(purpose));
            state.ready = ready;
            let stale: Vec<Spare> = stale;
            stale.into_iter().for_each(|spare| self.end(spare));
        }
        if let Some(at) = state.ready.iter().position(|spare| spare.purpose.is(purpose)) {
            return Ok(state.ready.remove(at));
        }
        let is_soon = state.starting.as_ref().is_some_and(|starting| starting.is(purpose));
        if !is_soon || state.waiting.is_some() {
            return Err(None);
        }
        let (sender, soon) = oneshot::channel();
        state.waiting = Some(sender);
        Err(Some(soon))
    }

    /// Keeps spares ready until the bridge ends. `start` starts one, and says by [`Spares::begins`] what for.
    pub(super) fn keep<F>(self: &Arc<Self>, start: impl Fn(Choice) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Option<Spare>> + Send,
    {
        let spares = Arc::clone(self);
        self.tasks.spawn(async move {
            let mut look = Instant::now() + PACE;
            loop {
                let idle = spares.idle_from();
                let next = idle.map_or(look, |idle| idle.min(look));
                let has_any = !spares.lock().ready.is_empty();
                let due = spares.due_from();
                tokio::select! {
                    () = spares.stop.cancelled() => return,
                    () = spares.call_ended.notified() => {}
                    () = sleep_until(next), if has_any => {}
                    () = sleep_until(due.unwrap_or(next)), if due.is_some() => {}
                }
                let now = Instant::now();
                let is_short = now >= look && free_memory::is_short();
                if now >= look {
                    look = now + PACE;
                }
                if is_short || spares.idle_from().is_some_and(|idle| now >= idle) {
                    spares.end_all();
                    continue;
                }
                if let Some(choice) = spares.next_choice(now) {
                    let spare = start(choice).await;
                    spares.add(spare);
                }
            }
        });
    }

    /// Returns when spares are no longer needed unless there is another call: all sessions have ended by then.
    fn idle_from(&self) -> Option<Instant> {
        let (state, limit) = (self.lock(), self.idle_limit?);
        state.last_call.filter(|_| state.calls == 0).map(|last| last + limit)
    }

    /// Returns when the next spare is started unless a call begins; None if there are enough, or a call goes on.
    fn due_from(&self) -> Option<Instant> {
        let state = self.lock();
        let lacks_any = state.is_due && state.ready.len() < self.wanted && !self.stop.is_cancelled();
        state.last_call.filter(|_| lacks_any && state.calls == 0).map(|last| last + PAUSE)
    }

    /// Returns what a spare is started with that is due; None if it may not be.
    fn next_choice(&self, now: Instant) -> Option<Choice> {
        self.due_from().filter(|due| *due <= now)?;
        let mut state = self.lock();
        if free_memory::is_short() {
            state.is_due = false;
        }
        if state.is_due { state.last.clone() } else { None }
    }

    /// Says what the spare is for that is being started.
    pub(super) fn begins(&self, purpose: &Purpose) {
        self.lock().starting = Some(purpose.clone());
    }

    /// Takes one that was started; None if it did not start, which is tried again after the next call.
    fn add(&self, spare: Option<Spare>) {
        let mut state = self.lock();
        let waiting = state.waiting.take();
        state.starting = None;
        let Some(spare) = spare else {
            state.is_due = false;
            return;
        };
        let unwanted = match waiting {
            Some(waiting) => waiting.send(spare).err(),
            None => Some(spare),
        };
        match unwanted {
            Some(spare) if self.stop.is_cancelled() => self.end(spare),
            Some(spare) => {
                spare.instance.mark_spare(spare.started.guest.sandbox().name(), true);
                state.ready.push(spare);
            }
            None => {}
        }
    }

    /// Ends all that are ready: something else needs what they take.
    pub(super) fn end_all(&self) {
        let mut state = self.lock();
        state.is_due = false;
        state.ready.drain(..).for_each(|spare| self.end(spare));
    }

    fn end(&self, spare: Spare) {
        self.tasks.spawn(async move {
            if let Err(error) = spare.started.guest.end().await {
                tracing::error!(%error, "a sandbox was left behind");
            }
        });
    }

    /// Ends all, and waits until they are removed. No spare starts afterwards.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.end_all();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn none_starts_while_a_call_goes_on_however_long() {
        let choice = json!({
            "runtime": { "kind": "crun", "program": "/crun", "cgroups": "direct", "oci_runtime": null, "remote": false },
            "root": "Host", "asked": "host:", "env": [], "fallback": false,
            "held": { "memory": "cgroup", "sockets": "cgroup", "pids": "cgroup", "cpus": "cgroup" },
        });
        let choice: Choice = serde_json::from_value(choice).unwrap();
        let spares = Spares::new(1, None, false);
        let goes_on = Arc::new(AtomicBool::new(true));
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        let long = spares.begin_call();
        assert!(spares.used(&choice));
        let is_beside = Arc::clone(&goes_on);
        spares.keep(move |_| {
            let _ = started.send(is_beside.load(Ordering::Relaxed));
            std::future::ready(None)
        });
        drop(spares.begin_call());
        tokio::time::sleep(20 * PAUSE).await;
        goes_on.store(false, Ordering::Relaxed);
        drop(long);
        assert_eq!(starts.recv().await, Some(false), "one was started beside a call");
        spares.close().await;
    }
}
