//! The capacity that the sessions of a user have in common, so that none of them takes all of it: bytes of large questions, and
//! threads for work that takes longer than a moment. Of the threads each user has a part, so that no user waits for another.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

/// Bytes of a question above which it counts for all sessions of its user.
pub(super) const LARGE_QUESTION: usize = 1 << 20;
/// Bytes of all such questions: as many as the longest one has.
const LARGE_QUESTIONS: usize = 64 << 20;
/// How long a large question waits for others. A session may never give its permit back.
const PATIENCE: Duration = Duration::from_secs(10);
const ARRIVAL: Duration = Duration::from_secs(60);
/// Threads that work for the sessions of one user at once.
const WORKERS_OF_USER: usize = 2;
/// The least threads that work for all users at once. The others are for files, servers and the start of sandboxes.
const WORKERS: usize = 4;

/// The threads of a bridge that work for sessions. Users wait in turn: each waits for few pieces of work of every other.
#[derive(Debug)]
pub(super) struct Workers(Semaphore);

impl Default for Workers {
    fn default() -> Self {
        let processors = available_parallelism().map_or(WORKERS, usize::from);
        Self(Semaphore::new(processors.max(WORKERS)))
    }
}

#[derive(Debug)]
pub(super) struct Capacity {
    large: Arc<Semaphore>,
    of_user: Semaphore,
    workers: Arc<Workers>,
    patience: Duration,
    /// How long a large question may take to arrive: until then others wait for its permit.
    pub(super) arrival: Duration,
}

impl Default for Capacity {
    fn default() -> Self {
        Self::of_user(&Arc::default())
    }
}

impl Capacity {
    /// Returns the capacity of one user of a bridge.
    pub(super) fn of_user(workers: &Arc<Workers>) -> Self {
        Self::with(workers, PATIENCE, ARRIVAL)
    }

    /// With other times, for tests.
    pub(super) fn with(workers: &Arc<Workers>, patience: Duration, arrival: Duration) -> Self {
        let large = Arc::new(Semaphore::new(LARGE_QUESTIONS));
        let (of_user, workers) = (Semaphore::new(WORKERS_OF_USER), Arc::clone(workers));
        Self { large, of_user, workers, patience, arrival }
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
        let _turn_of_user = self.of_user.acquire().await.ok()?;
        let _turn = self.workers.0.acquire().await.ok()?;
        spawn_blocking(work).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_permit_that_is_never_given_back_is_not_awaited_for_ever() {
        let capacity = Capacity::with(&Arc::default(), Duration::from_millis(1), ARRIVAL);
        let all = capacity.for_large_question(LARGE_QUESTIONS.try_into().unwrap()).await;
        assert!(all.is_some());
        assert!(capacity.for_large_question(1 << 20).await.is_none());
        drop(all);
        assert!(capacity.for_large_question(1 << 20).await.is_some());
    }

    #[tokio::test]
    async fn no_user_waits_for_another() {
        let workers = Arc::<Workers>::default();
        let of_user = || Arc::new(Capacity::with(&workers, Duration::from_millis(1), ARRIVAL));
        let (first, second) = (of_user(), of_user());
        let all = u32::try_from(LARGE_QUESTIONS).unwrap();
        let held = first.for_large_question(all).await;
        assert!(held.is_some() && second.for_large_question(all).await.is_some());
        let (end, stuck) = mpsc::channel::<()>();
        let stuck = Arc::new(std::sync::Mutex::new(stuck));
        for _ in 0..100 {
            let (first, stuck) = (Arc::clone(&first), Arc::clone(&stuck));
            tokio::spawn(async move { first.work(move || stuck.lock().unwrap().recv().is_ok()).await });
        }
        while first.of_user.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(second.work(|| 7).await, Some(7));
        drop(end);
    }
}
