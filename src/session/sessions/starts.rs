//! The interpreters of sessions: limited in number, started when a call needs one, ended when idle or when what they were
//! started with holds no longer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_util::task::AbortOnDropHandle;

use super::{CANCELLED_EARLY, Inner, Sessions};
use crate::audit::RunFacts;
use crate::policy::Kind;
use crate::session::answers::{ServerAccess, Transfers};
use crate::session::interpreter::{Interpreter, StartError};
use crate::session::processor_time::Idle;
use crate::session::slots::{Live, Slot};
use crate::session::{Authority, Caller, Failure, Progress, RunOutcome};
use crate::upstream::CalledBy;

impl Sessions {
    /// Returns the processor time that code has taken between runs since the last call of this, where it can be measured.
    pub fn take_idle_time(&self) -> Duration {
        for slot in self.0.slots.all() {
            if let Ok(mut state) = slot.try_lock()
                && let Some(live) = &mut state.live
            {
                self.0.add_idle_time(live.idle.count());
            }
        }
        Duration::from_micros(self.0.idle_time.swap(0, Ordering::Relaxed))
    }

    /// Ends the sessions in which something runs that no call waits for.
    pub fn end_working(&self, why: &str) {
        for slot in self.0.slots.all() {
            if let Ok(mut state) = slot.try_lock()
                && state.live.as_ref().is_some_and(|live| live.idle.is_working())
            {
                self.0.end(state.take(format!("the previous one was ended: {why}")));
            }
        }
    }
}

impl Inner {
    pub(super) async fn end_all(self: &Arc<Self>) {
        for slot in self.slots.drain() {
            self.end(slot.lock().await.live.take());
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Starts an interpreter for a call, unless the call is cancelled meanwhile.
    pub(super) async fn start_for(
        self: &Arc<Self>,
        caller: &Caller,
        session: &str,
        facts: &Arc<RunFacts>,
    ) -> Result<(Live, Vec<String>), Box<RunOutcome>> {
        let start = async {
            let (denied, told) = self.denied_shares(caller, session, facts).await;
            let (live, notices) = self.start(&caller.progress, denied).await?;
            Ok((live, told.into_iter().chain(notices).collect()))
        };
        let started = tokio::select! {
            started = start => started,
            () = caller.cancel.cancelled() => {
                return Err(Box::new(RunOutcome::cancelled(Failure::Code, CANCELLED_EARLY.into())));
            }
        };
        started.map_err(|error: StartError| {
            let (failure, text) = (error.failure(), error.to_string());
            Box::new(match caller.cancel.is_cancelled() {
                true => RunOutcome::cancelled(failure, text),
                false => RunOutcome::not_started(failure, text),
            })
        })
    }

    pub(super) fn by(&self, session: &str, facts: &Arc<RunFacts>) -> CalledBy {
        let (facts, principal) = (Arc::clone(facts), self.upstream.principal());
        CalledBy { session: Some(session.into()), principal, facts, ..CalledBy::default() }
    }

    /// Returns why an interpreter must not go on: the policy by now denies a shared folder that it has.
    pub(super) fn lost_share(
        &self,
        interpreter: &Interpreter,
        session: &str,
        facts: &Arc<RunFacts>,
    ) -> Option<String> {
        let mut shares = self.shares.iter().filter(|share| interpreter.has_share(&share.target()));
        shares.find_map(|share| {
            let error = self.upstream.denial(Kind::Share, &share.name, &self.by(session, facts))?;
            Some(format!("the previous one was ended: {error}"))
        })
    }

    /// Returns the shared folders that the policy denies to a session, by their paths in the sandbox, and what to say about it.
    async fn denied_shares(
        &self,
        caller: &Caller,
        session: &str,
        facts: &Arc<RunFacts>,
    ) -> (Vec<String>, Vec<String>) {
        let by = self.by(session, facts);
        let (mut denied, mut notices) = (Vec::new(), Vec::new());
        for share in &self.shares {
            let allowed =
                self.upstream.allow(Kind::Share, &share.name, &by, &*caller.answers, &caller.cancel).await;
            if let Err(error) = allowed {
                denied.push(share.target());
                notices.push(error.to_string());
            }
        }
        (denied, notices)
    }

    /// Starts an interpreter in a task of its own: when the caller stops waiting, the task is told to stop and removes what
    /// it has started.
    async fn start(
        self: &Arc<Self>,
        progress: &mpsc::Sender<Progress>,
        denied_shares: Vec<String>,
    ) -> Result<(Live, Vec<String>), StartError> {
        let permit = self.reserve().await;
        let (inner, progress) = (Arc::clone(self), progress.clone());
        let stop = self.closing.child_token();
        let stop_guard = stop.clone().drop_guard();
        let (sender, receiver) = oneshot::channel();
        self.tasks.spawn(async move {
            let (upstream, capacity) = (inner.upstream.clone(), Arc::clone(&inner.common));
            let transfers = Arc::new(Transfers::new(inner.artifacts.clone()));
            let access = Arc::new(
                ServerAccess::new(upstream, capacity, transfers, inner.one_shot)
                    .without_shares(denied_shares),
            );
            let started = inner.launcher.start(&inner.answerer, &access, &progress, &stop).await;
            let started = started.map(|(interpreter, notices)| (inner.live(interpreter, permit), notices));
            if let Err(Ok((live, _))) = sender.send(started) {
                inner.end(Some(live));
            }
        });
        let started = receiver.await;
        stop_guard.disarm();
        started.unwrap_or_else(|_| Err(StartError::Stopped))
    }

    /// Returns a permit for one more interpreter: a free one, or that of the idle session that was not used for longest, or
    /// of the next that becomes idle.
    async fn reserve(self: &Arc<Self>) -> OwnedSemaphorePermit {
        loop {
            let idle = self.became_idle.notified();
            if let Ok(permit) = Arc::clone(&self.capacity).try_acquire_owned() {
                return permit;
            }
            if self.end_least_recently_used() {
                continue;
            }
            tokio::select! {
                () = idle => {}
                permit = Arc::clone(&self.capacity).acquire_owned() => {
                    if let Ok(permit) = permit {
                        return permit;
                    }
                }
            }
        }
    }

    /// Ends an idle session to start another one; false when none is idle.
    fn end_least_recently_used(self: &Arc<Self>) -> bool {
        let slots = self.slots.all();
        let idle = slots.iter().filter_map(|slot| slot.try_lock().ok());
        let oldest = idle.filter(|state| state.live.is_some()).min_by_key(|state| state.last_used);
        let Some(mut state) = oldest else { return false };
        self.end(state.take("the previous one was ended to start another session"));
        true
    }

    fn live(&self, interpreter: Interpreter, permit: OwnedSemaphorePermit) -> Live {
        let idle = match self.counts_idle {
            true => Idle::of(interpreter.meter()),
            false => Idle::default(),
        };
        let (watches, open) = (HashMap::new(), self.telemetry.open_session());
        Live { interpreter, idle, watches, _permit: permit, _open: open }
    }

    /// Removes the sandbox of an interpreter; its permit is free at once.
    pub(super) fn end(self: &Arc<Self>, live: Option<Live>) {
        let Some(Live { interpreter, _permit, _open, .. }) = live else { return };
        self.tasks.spawn(async move {
            if let Err(error) = interpreter.end().await {
                tracing::error!(%error, "a sandbox was left behind");
            }
        });
    }

    /// Ends an interpreter when what a call was made with that ran code in it holds no longer: the code may have left threads,
    /// which still have access to servers.
    pub(super) fn end_with(self: &Arc<Self>, authority: &Authority, slot: &Arc<Slot>, live: &mut Live) {
        let Some(id) = authority.id().filter(|id| !live.watches.contains_key(id)) else { return };
        let (inner, slot, authority) = (Arc::clone(self), Arc::clone(slot), authority.clone());
        let watch = tokio::spawn(async move {
            authority.ended().await;
            let mut state = slot.lock().await;
            if state.live.as_ref().is_some_and(|live| live.watches.contains_key(&id)) {
                inner.end(
                    state.take("the previous one was ended: a token that ran code in it holds no longer"),
                );
            }
        });
        live.watches.insert(id, AbortOnDropHandle::new(watch));
    }

    pub(super) fn start_idle_timer(self: &Arc<Self>, slot: &Arc<Slot>) -> Option<AbortHandle> {
        let limit = self.idle_limit?;
        let (inner, slot) = (Arc::clone(self), Arc::clone(slot));
        // Not tracked: nothing waits for a timer.
        let timer = tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            let mut state = slot.lock().await;
            let unused = state.last_used.is_some_and(|used| used.elapsed() >= limit);
            if unused && state.live.is_some() {
                let why = format!("the previous one was ended after {} s without a call", limit.as_secs());
                inner.end(state.take(why));
            }
        });
        Some(timer.abort_handle())
    }
}
