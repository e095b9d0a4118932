//! Whether a connection is in use, and since when it is not.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Uses of one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    users: usize,
    last_used: Instant,
    /// Whether anybody ever called it.
    was_called: bool,
    /// Whether whoever asked for its tools has no more questions.
    was_dismissed: bool,
    is_closed: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            users: 0,
            last_used: Instant::now(),
            was_called: false,
            was_dismissed: false,
            is_closed: false,
        }
    }
}

/// What a connection is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Purpose {
    /// Calls: more of them are likely to come.
    Call,
    /// To know its tools: that is soon done.
    Docs,
}

/// After how long without use a connection is closed; None = never.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// One that was called.
    pub(super) called: Option<Duration>,
    /// One that was only asked for its tools.
    pub(super) asked: Duration,
}

/// Keeps a connection from being stopped for idleness.
#[derive(Debug)]
pub(super) struct InUse(Arc<Activity>);

impl Activity {
    /// Uses it; None when it is closed, or about to be.
    pub(super) fn enter(self: &Arc<Self>, purpose: Purpose) -> Option<InUse> {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        state.users += 1;
        state.was_called |= purpose == Purpose::Call;
        Some(InUse(Arc::clone(self)))
    }

    /// One that was only asked for its tools need not wait for another question.
    pub(super) fn dismiss(&self) {
        self.lock().was_dismissed = true;
        self.changed.notify_one();
    }

    /// Lets nobody in any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Waits until nobody has used it for so long, and closes it.
    pub(super) async fn idle(&self, patience: Patience) {
        loop {
            let changed = self.changed.notified();
            let left = {
                let mut state = self.lock();
                let limit = match (state.was_called, state.was_dismissed) {
                    (true, _) => patience.called,
                    (false, false) => Some(patience.asked),
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

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
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

    fn patience(called: Option<u64>, asked: u64) -> Patience {
        Patience { called: called.map(Duration::from_millis), asked: Duration::from_millis(asked) }
    }

    #[tokio::test]
    async fn what_is_in_use_is_not_idle() {
        let activity = Arc::<Activity>::default();
        let user = activity.enter(Purpose::Call).unwrap();
        let idle = activity.idle(patience(Some(30), 1));
        tokio::pin!(idle);
        assert!(tokio::time::timeout(Duration::from_millis(90), &mut idle).await.is_err());
        let let_go = Instant::now();
        drop(user);
        idle.await;
        assert!(let_go.elapsed() >= Duration::from_millis(30));
        assert!(activity.enter(Purpose::Call).is_none(), "somebody came in after the end");
    }

    #[tokio::test]
    async fn what_was_only_asked_for_its_tools_goes_sooner() {
        let activity = Arc::<Activity>::default();
        drop(activity.enter(Purpose::Docs).unwrap());
        let began = Instant::now();
        activity.idle(patience(None, 30)).await;
        assert!(began.elapsed() < Duration::from_secs(10));

        let activity = Arc::<Activity>::default();
        drop(activity.enter(Purpose::Docs).unwrap());
        let idle = activity.idle(patience(None, 30));
        tokio::pin!(idle);
        drop(activity.enter(Purpose::Call).unwrap());
        activity.dismiss();
        assert!(tokio::time::timeout(Duration::from_millis(90), &mut idle).await.is_err(), "it was called");

        let activity = Arc::<Activity>::default();
        let user = activity.enter(Purpose::Docs).unwrap();
        let idle = activity.idle(patience(None, 1_000_000));
        tokio::pin!(idle);
        activity.dismiss();
        assert!(tokio::time::timeout(Duration::from_millis(30), &mut idle).await.is_err(), "it is in use");
        drop(user);
        tokio::time::timeout(Duration::from_secs(10), idle).await.expect("it goes at once");
    }
}
