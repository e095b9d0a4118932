//! What the requests of one user hold at once: bodies until they are answered, results until they are read.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::Extensions;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that one permit stands for.
const UNIT: usize = 1 << 10;
/// Bytes of a result that needs no space: the number of requests bounds those.
const SMALL: usize = 16 << 10;
/// How long a result waits until others are read, and how many wait.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_WAITING: usize = 8;

/// The bytes that one user may hold.
#[derive(Debug)]
pub struct Budget {
    permits: Arc<Semaphore>,
    waiting: Semaphore,
}

/// What one request holds, until the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Held(Arc<Holding>);

#[derive(Debug)]
struct Holding {
    budget: Arc<Budget>,
    permit: Mutex<OwnedSemaphorePermit>,
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT)
}

impl Budget {
    pub fn new(bytes: usize) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(units(bytes)));
        Arc::new(Self { permits, waiting: Semaphore::new(MOST_WAITING) })
    }

    /// Returns so many bytes as held; None if that is more than the user may hold.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let permit = Mutex::new(self.try_acquire(units(bytes))?);
        Some(Held(Arc::new(Holding { budget: Arc::clone(self), permit })))
    }

    fn try_acquire(&self, units: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_many_owned(u32::try_from(units).ok()?).ok()
    }

    /// Waits a moment for space.
    async fn acquire(&self, units: usize) -> Option<OwnedSemaphorePermit> {
        if let Some(permit) = self.try_acquire(units) {
            return Some(permit);
        }
        let _waiting = self.waiting.try_acquire().ok()?;
        let permit = Arc::clone(&self.permits).acquire_many_owned(u32::try_from(units).ok()?);
        tokio::time::timeout(PATIENCE, permit).await.ok()?.ok()
    }
}

impl Held {
    /// Returns what a request holds, where that is counted: over HTTP.
    pub(super) fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get::<http::request::Parts>()?.extensions.get::<Self>().cloned()
    }

    /// Holds exactly so many bytes from now on; false if that is more than the user may hold.
    pub fn resize(&self, bytes: usize) -> bool {
        let (mut permit, wanted) = (self.lock(), units(bytes));
        let now = permit.num_permits();
        if wanted <= now {
            drop(permit.split(now - wanted));
            return true;
        }
        let more = self.0.budget.try_acquire(wanted - now);
        more.map(|more| permit.merge(more)).is_some()
    }

    /// Holds a result as well; false if the user does not read the others. Few may wait, because each is in memory already.
    pub(super) async fn add_result(&self, result: &impl Serialize) -> bool {
        let bytes = size_of(result);
        if bytes <= SMALL {
            return true;
        }
        let more = self.0.budget.acquire(units(bytes)).await;
        more.map(|more| self.lock().merge(more)).is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OwnedSemaphorePermit> {
        self.0.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the bytes of a value as JSON.
fn size_of(value: &impl Serialize) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // What cannot be written will be no answer either.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_user_holds_so_much_until_it_is_read() {
        let budget = Budget::new(100 << 10);
        let first = budget.hold(90 << 10).unwrap();
        assert!(budget.hold(11 << 10).is_none());
        assert!(first.resize(10 << 10) && !first.resize(101 << 10));
        let call = first.clone();
        assert!(call.add_result(&"x".repeat(80 << 10)).await);
        drop(first);
        let other = budget.hold(0).unwrap();
        assert!(other.add_result(&"x".repeat(SMALL - 2)).await, "small ones need no space");
        let large = "x".repeat(SMALL);
        let waits = other.add_result(&large);
        let reads = async {
            tokio::task::yield_now().await;
            drop(call);
        };
        assert!(tokio::join!(waits, reads).0, "the first one was read");
        assert!(budget.hold(83 << 10).is_some() && budget.hold(84 << 10).is_none());
    }

    #[tokio::test]
    async fn few_results_wait_for_space() {
        let budget = Budget::new(1 << 10);
        let full = budget.hold(1 << 10).unwrap();
        let _waiting: Vec<_> = (0..MOST_WAITING).map(|_| budget.waiting.try_acquire().unwrap()).collect();
        assert!(!full.add_result(&"x".repeat(SMALL)).await);
    }
}
