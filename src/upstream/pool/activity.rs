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
    is_closed: bool,
}

impl Default for State {
    fn default() -> Self {
        Self { users: 0, last_used: Instant::now(), is_closed: false }
    }
}

/// Keeps a connection from being stopped for idleness.
#[derive(Debug)]
pub(super) struct InUse(Arc<Activity>);

impl Activity {
    /// Uses it; None when it is closed, or about to be.
    pub(super) fn enter(self: &Arc<Self>) -> Option<InUse> {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        state.users += 1;
        Some(InUse(Arc::clone(self)))
    }

    /// Lets nobody in any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Waits until nobody has used it for so long, and closes it.
    pub(super) async fn idle(&self, limit: Duration) {
        loop {
            let changed = self.changed.notified();
            let left = {
                let mut state = self.lock();
                let left = limit.saturating_sub(state.last_used.elapsed());
                if state.users == 0 && left.is_zero() {
                    state.is_closed = true;
                    return;
                }
                (state.users == 0).then_some(left)
            };
            match left {
                Some(left) => tokio::time::sleep(left).await,
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

    #[tokio::test]
    async fn what_is_in_use_is_not_idle() {
        let activity = Arc::<Activity>::default();
        let user = activity.enter().unwrap();
        let idle = activity.idle(Duration::from_millis(30));
        tokio::pin!(idle);
        assert!(tokio::time::timeout(Duration::from_millis(90), &mut idle).await.is_err());
        let let_go = Instant::now();
        drop(user);
        idle.await;
        assert!(let_go.elapsed() >= Duration::from_millis(30));
        assert!(activity.enter().is_none(), "somebody came in after the end");
    }
}
