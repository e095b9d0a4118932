//! How much a run, and how often a server may be used.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The budgets of a policy.
#[derive(Debug, Default)]
pub struct Budgets {
    pub(super) run: RunBudget,
    pub(super) servers: BTreeMap<String, ServerBudget>,
}

/// What one run may use in all its calls. None = any.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RunBudget {
    pub(super) calls: Option<u64>,
    /// Of arguments and results.
    pub(super) bytes: Option<u64>,
    /// In tools. Calls side by side count each.
    pub(super) time: Option<Duration>,
}

/// How often a server may be called by everybody together. None = any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerBudget {
    /// At once. Further calls wait.
    pub(super) concurrency: Option<usize>,
    /// Further calls are denied.
    pub(super) calls_per_minute: Option<u32>,
}

/// Why a call is over budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Spent {
    #[error("this run has made {0} calls, which is its budget")]
    Calls(u64),
    #[error("the calls of this run have moved {0} bytes, its budget is {1}")]
    Bytes(u64, u64),
    #[error("the calls of this run have taken {0:.1?}, its budget is {1:?}")]
    Time(Duration, Duration),
    #[error("server '{server}' was called {most} times within a minute, which is its budget; next call in {} s", .wait.as_secs() + 1)]
    Rate { server: String, most: u32, wait: Duration },
}

/// What the calls of one run have used so far.
#[derive(Debug, Default)]
pub struct RunUse(Mutex<Used>);

#[derive(Debug, Default, Clone, Copy)]
struct Used {
    calls: u64,
    bytes: u64,
    time: Duration,
}

impl RunUse {
    /// Counts a call, if the budget allows one more.
    ///
    /// # Errors
    /// The budget is used up.
    pub fn begin(&self, budgets: &Budgets) -> Result<(), Spent> {
        let RunBudget { calls, bytes, time } = budgets.run;
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (calls, bytes, time) {
            (Some(most), ..) if used.calls >= most => Err(Spent::Calls(most)),
            (_, Some(most), _) if used.bytes >= most => Err(Spent::Bytes(used.bytes, most)),
            (.., Some(most)) if used.time >= most => Err(Spent::Time(used.time, most)),
            _ => {
                used.calls += 1;
                Ok(())
            }
        }
    }

    /// Counts what a call has used.
    pub fn end(&self, bytes: u64, time: Duration) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.bytes = used.bytes.saturating_add(bytes);
        used.time = used.time.saturating_add(time);
    }
}

/// The calls of each server that has a budget.
#[derive(Debug, Default)]
pub(super) struct ServerUses(Mutex<HashMap<String, ServerUse>>);

#[derive(Debug)]
struct ServerUse {
    at_once: usize,
    permits: Arc<Semaphore>,
    /// The beginnings of the calls of the last minute.
    begun: VecDeque<Instant>,
}

/// One of the calls that a server may have at once, as long as it lives.
#[derive(Debug, Default)]
pub struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
}

const MINUTE: Duration = Duration::from_secs(60);

impl ServerUses {
    /// Waits until a server may be called.
    ///
    /// # Errors
    /// It was called too often within a minute.
    pub(super) async fn begin(&self, budgets: &Budgets, server: &str) -> Result<Turn, Spent> {
        let Some(budget) = budgets.servers.get(server) else { return Ok(Turn::default()) };
        let permits = self.count(server, *budget, Instant::now())?;
        match permits {
            Some(permits) => Ok(Turn { _permit: permits.acquire_owned().await.ok() }),
            None => Ok(Turn::default()),
        }
    }

    fn count(
        &self,
        server: &str,
        budget: ServerBudget,
        now: Instant,
    ) -> Result<Option<Arc<Semaphore>>, Spent> {
        let mut uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at_once = budget.concurrency.unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        let new =
            || ServerUse { at_once, permits: Arc::new(Semaphore::new(at_once)), begun: VecDeque::new() };
        let used = uses.entry(server.to_owned()).or_insert_with(new);
        // The policy may have changed: calls under way go on with what they have.
        if used.at_once != at_once {
            (used.at_once, used.permits) = (at_once, Arc::new(Semaphore::new(at_once)));
        }
        if let Some(most) = budget.calls_per_minute {
            while used.begun.front().is_some_and(|begun| now.duration_since(*begun) >= MINUTE) {
                used.begun.pop_front();
            }
            if used.begun.len() >= most as usize {
                let wait = used.begun.front().map_or(MINUTE, |first| MINUTE - now.duration_since(*first));
                return Err(Spent::Rate { server: server.to_owned(), most, wait });
            }
            used.begun.push_back(now);
        }
        Ok(budget.concurrency.map(|_| Arc::clone(&used.permits)))
    }
}
