//! The capacity that the sessions of a bridge have in common, so that none of them takes all of it: bytes of large questions, and
//! threads for work that takes longer than a moment.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

/// Bytes of a question above which it counts for the whole bridge.
pub(super) const LARGE_QUESTION: usize = 1 << 20;
/// Bytes of all such questions: as many as the longest one has.
const LARGE_QUESTIONS: usize = 64 << 20;
/// How long a large question waits for others. A session may never give its permit back.
const PATIENCE: Duration = Duration::from_secs(10);
const ARRIVAL: Duration = Duration::from_secs(60);
/// Threads that work for sessions at once. The others are for files, servers and the start of sandboxes.
const WORKERS: usize = 2;

#[derive(Debug)]
pub(super) struct Capacity {
    large: Arc<Semaphore>,
    workers: Semaphore,
    patience: Duration,
    /// How long a large question may take to arrive: until then others wait for its permit.
    pub(super) arrival: Duration,
}

impl Default for Capacity {
    fn default() -> Self {
        Self::with(PATIENCE, ARRIVAL)
    }
}

impl Capacity {
    /// With other times, for tests.
    pub(super) fn with(patience: Duration, arrival: Duration) -> Self {
        let large = Arc::new(Semaphore::new(LARGE_QUESTIONS));
        Self { large, workers: Semaphore::new(WORKERS), patience, arrival }
    }

    /// Returns the permit of a large question; None when others have kept theirs for too long.
    pub(super) async fn for_large_question(&self, bytes: u32) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.large).acquire_many_owned(bytes);
        tokio::time::timeout(self.patience, permit).await.ok()?.ok()
    }

    /// Does work on a thread for that, in turn; None if it failed.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let _turn = self.workers.acquire().await.ok()?;
        spawn_blocking(work).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_permit_that_is_never_given_back_is_not_awaited_for_ever() {
        let capacity = Capacity::with(Duration::from_millis(1), ARRIVAL);
        let all = capacity.for_large_question(LARGE_QUESTIONS.try_into().unwrap()).await;
        assert!(all.is_some());
        assert!(capacity.for_large_question(1 << 20).await.is_none());
        drop(all);
        assert!(capacity.for_large_question(1 << 20).await.is_some());
    }
}
