//! What is known of the examples of saved functions: which were run, whether there is time for one, and what they have shown.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::session::RunOutcome;
use crate::upstream::ToTest;

/// After this, changes that another process has noticed are looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// What is known of the examples of a workspace.
#[derive(Debug)]
pub(super) struct Examples {
    /// How long one may run.
    timeout: Duration,
    /// Runs that somebody has asked for.
    under_way: AtomicUsize,
    is_busy: AtomicBool,
    looked: Mutex<Option<(u64, Instant)>>,
    /// What was tried, by the names of the functions.
    tried: Mutex<HashMap<String, u64>>,
    /// What the next result says.
    notices: Mutex<Vec<String>>,
}

/// A run that somebody has asked for, until it is dropped.
pub(super) struct Attended<'a>(&'a AtomicUsize);

impl Drop for Attended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Examples {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            under_way: AtomicUsize::new(0),
            is_busy: AtomicBool::new(false),
            looked: Mutex::default(),
            tried: Mutex::default(),
            notices: Mutex::default(),
        }
    }

    /// Notes that a run begins that somebody has asked for.
    pub(super) fn attend(&self) -> Attended<'_> {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Attended(&self.under_way)
    }

    /// Adds what the examples have shown to a result.
    pub(super) fn say(&self, outcome: &mut RunOutcome) {
        outcome.notices.append(&mut lock(&self.notices));
    }

    /// Notes what the next result says.
    pub(super) fn note(&self, notice: String) {
        lock(&self.notices).push(notice);
    }

    /// Begins a look; false while another one goes on.
    pub(super) fn begin_look(&self) -> bool {
        !self.is_busy.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_look(&self) {
        self.is_busy.store(false, Ordering::Release);
    }

    /// Returns how long an example may run.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether something may have changed since the last look, which this is.
    pub(super) fn is_due(&self, generation: u64) -> bool {
        let mut looked = lock(&self.looked);
        let is_due = looked.is_none_or(|(before, at)| before != generation || at.elapsed() > LOOK_AGAIN);
        if is_due {
            *looked = Some((generation, Instant::now()));
        }
        is_due
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    /// Forgets the last look: there was no time for all that it has found.
    pub(super) fn look_again(&self) {
        *lock(&self.looked) = None;
    }

    /// Notes that an example is tried; false if the same was tried before.
    pub(super) fn try_once(&self, (tool, digests): &ToTest) -> bool {
        let mut hasher = DefaultHasher::new();
        (&tool.source, &tool.example, digests).hash(&mut hasher);
        let this = hasher.finish();
        lock(&self.tried).insert(tool.name.clone(), this) != Some(this)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
