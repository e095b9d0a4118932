//! Finds checks that hang or fill the memory: what runs too long cannot be stopped, only reported.

use std::fs;
use std::process::abort;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::corpus;

/// How long one input may take. The machine may be busy with much else.
const LONGEST: Duration = Duration::from_secs(60);
/// Bytes of the whole process.
const MOST_MEMORY: u64 = 3 << 30;
const PAUSE: Duration = Duration::from_millis(250);

/// The input that is being checked.
type Current = Mutex<Option<(Instant, Vec<u8>)>>;

/// Watches one check, until it is dropped.
pub(crate) struct Watch(Arc<Current>);

impl Watch {
    pub(crate) fn start(name: &str) -> Self {
        let current = Arc::new(Current::default());
        let (name, watched) = (name.to_owned(), Arc::downgrade(&current));
        thread::spawn(move || watch(&name, &watched));
        Self(current)
    }

    pub(crate) fn begin(&self, input: &[u8]) {
        *lock(&self.0) = Some((Instant::now(), input.to_vec()));
    }

    pub(crate) fn end(&self) {
        *lock(&self.0) = None;
    }
}

fn lock(current: &Current) -> MutexGuard<'_, Option<(Instant, Vec<u8>)>> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(name: &str, current: &Weak<Current>) {
    while let Some(current) = current.upgrade() {
        if let Some((began, input)) = &*lock(&current) {
            let problem = if began.elapsed() > LONGEST {
                Some("takes more than a minute")
            } else if memory() > MOST_MEMORY {
                Some("takes more than 3 GiB of memory")
            } else {
                None
            };
            if let Some(problem) = problem {
                let path = corpus::keep_failure(name, input);
                eprintln!("fuzz: the check '{name}' {problem} for the input in {}", path.display());
                abort();
            }
        }
        drop(current);
        thread::sleep(PAUSE);
    }
}

/// Returns how much memory the process has; 0 where that is not known.
fn memory() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * 4096
}
