//! Whether a connection is in use, and how long it has been idle.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The uses of one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    state: Mutex<ActivityState>,
    changed: Notify,
}

#[derive(Debug)]
struct ActivityState {
    users: usize,
    last_used: Instant,
    /// Whether a tool was called.
    was_called: bool,
    /// Whether nobody is going to list the tools again soon.
    is_unwanted: bool,
    is_closed: bool,
}

impl Default for ActivityState {
    fn default() -> Self {
        Self { users: 0, last_used: Instant::now(), was_called: false, is_unwanted: false, is_closed: false }
    }
}

/// What a connection is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Purpose {
    /// To call tools: more calls are likely to follow.
    Call,
    /// To list the tools: nothing is likely to follow.
    Docs,
}

/// How long a connection may be idle before it is closed.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleLimits {
    /// If a tool was called; None = for ever.
    pub(super) called: Option<Duration>,
    /// If the tools were only listed.
    pub(super) listed: Duration,
}

/// Keeps a connection from being stopped as idle.
#[derive(Debug)]
pub(super) struct InUse(Arc<Activity>);

impl Activity {
    /// Marks it as used; None if it is closed or about to be.
    pub(super) fn enter(self: &Arc<Self>, purpose: Purpose) -> Option<InUse> {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        state.users += 1;
        state.was_called |= purpose == Purpose::Call;
        Some(InUse(Arc::clone(self)))
    }

    /// Closes it as soon as it is unused, unless a tool was called.
    pub(super) fn stop_when_unused(&self) {
        self.lock().is_unwanted = true;
        self.changed.notify_one();
    }

    /// Refuses further uses.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Waits until it has been idle for the limit, and closes it.
    pub(super) async fn idle(&self, limits: IdleLimits) {
        loop {
            let changed = self.changed.notified();
            let left = {
                let mut state = self.lock();
                let limit = match (state.was_called, state.is_unwanted) {
                    (true, _) => limits.called,
                    (false, false) => Some(limits.listed),
                    (false, true) => Some(Duration::ZERO),
                };
                let left = limit.map(|limit| limit.saturating_sub(state.last_used.elapsed()));
                if state.users == 0 && left.is_some_and(|left| left.is_zero()) {
                    state.is_closed = true;
                    return;
                }
                left.filter(|_| state.users == 0)
            };
            match left {
                Some(left) => tokio::select! {
                    () = tokio::time::sleep(left) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ActivityState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.users -= 1;
        state.last_used = Instant::now();
        drop(state);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(called: Option<u64>, listed: u64) -> IdleLimits {
        IdleLimits { called: called.map(Duration::from_millis), listed: Duration::from_millis(listed) }
    }

    #[tokio::test]
    async fn a_connection_in_use_is_not_idle() {
        let activity = Arc::<Activity>::default();
        let user = activity.enter(Purpose::Call).unwrap();
        let idle = activity.idle(limits(Some(30), 1));
        tokio::pin!(idle);
        assert!(tokio::time::timeout(Duration::from_millis(90), &mut idle).await.is_err());
        let let_go = Instant::now();
        drop(user);
        idle.await;
        assert!(let_go.elapsed() >= Duration::from_millis(30));
        assert!(activity.enter(Purpose::Call).is_none(), "it was used after it was closed");
    }

    #[tokio::test]
    async fn a_connection_that_only_listed_tools_is_closed_sooner() {
        let activity = Arc::<Activity>::default();
        drop(activity.enter(Purpose::Docs).unwrap());
        let began = Instant::now();
        activity.idle(limits(None, 30)).await;
        assert!(began.elapsed() < Duration::from_secs(10));

        let activity = Arc::<Activity>::default();
        drop(activity.enter(Purpose::Docs).unwrap());
        let idle = activity.idle(limits(None, 30));
        tokio::pin!(idle);
        drop(activity.enter(Purpose::Call).unwrap());
        activity.stop_when_unused();
        assert!(tokio::time::timeout(Duration::from_millis(90), &mut idle).await.is_err(), "it was called");

        let activity = Arc::<Activity>::default();
        let user = activity.enter(Purpose::Docs).unwrap();
        let idle = activity.idle(limits(None, 1_000_000));
        tokio::pin!(idle);
        activity.stop_when_unused();
        assert!(tokio::time::timeout(Duration::from_millis(30), &mut idle).await.is_err(), "it is in use");
        drop(user);
        tokio::time::timeout(Duration::from_secs(10), idle).await.expect("it is closed at once");
    }
}
