//! The processor time that sandboxes take between runs: for threads and processes that code has left running.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use codebridge_runtimes::Meter;

/// More than an interpreter takes that only waits.
const WORKING: Duration = Duration::from_millis(50);

/// The time of one interpreter between runs.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// Set once it is known how the time is read, where it can be.
    meter: Arc<OnceLock<Meter>>,
    /// The time when it was counted last; None while code runs.
    counted: Option<Duration>,
    /// What was counted last.
    last: Duration,
}

impl Idle {
    /// Returns that of an interpreter; to find out how it is read takes a moment.
    pub(super) fn of(finding: impl Future<Output = Option<Meter>> + Send + 'static) -> Self {
        let meter = Arc::<OnceLock<_>>::default();
        let found = Arc::clone(&meter);
        tokio::spawn(async move {
            if let Some(time) = finding.await {
                let _ = found.set(time);
            }
        });
        Self { meter, ..Self::default() }
    }

    /// Counts the time since it was counted last.
    pub(super) fn count(&mut self) -> Duration {
        let read = self.read();
        self.count_until(read)
    }

    fn count_until(&mut self, now: Option<Duration>) -> Duration {
        let before = std::mem::replace(&mut self.counted, now);
        self.last = before.zip(now).map_or(Duration::ZERO, |(before, now)| now.saturating_sub(before));
        self.last
    }

    /// Counts the time since the last run.
    pub(super) fn begin_run(&mut self) -> Duration {
        let taken = self.count();
        self.counted = None;
        taken
    }

    /// Notes that a run has ended, whose time was counted by the clock.
    pub(super) fn end_run(&mut self) {
        self.counted = self.read();
    }

    /// Whether something ran when it was counted last.
    pub(super) fn is_working(&self) -> bool {
        self.last > WORKING
    }

    fn read(&self) -> Option<Duration> {
        self.meter.get()?.processor_time()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_between_runs_counts() {
        let mut idle = Idle::default();
        let at = |milliseconds| Some(Duration::from_millis(milliseconds));
        assert_eq!(idle.count_until(at(700)), Duration::ZERO, "what came before is not known");
        assert_eq!(idle.count_until(at(1000)), Duration::from_millis(300));
        assert!(idle.is_working());
        assert_eq!(idle.count_until(at(1010)), Duration::from_millis(10));
        assert!(!idle.is_working());
        assert_eq!((idle.count_until(None), idle.count_until(at(9000))), (Duration::ZERO, Duration::ZERO));
    }
}
