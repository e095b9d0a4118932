//! The time in which a run waits for the host, and its clock stands still.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::upstream::{Answering, Answers, ClientId, Offers, Question};

/// The longest time of one run: code must not go on for ever beside something that it waits for.
const MOST: Duration = Duration::from_secs(3600);

/// How long something was waited for. What is waited for side by side counts once.
#[derive(Debug, Default)]
pub(super) struct PausedTime(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    since: Option<Instant>,
    before: Duration,
}

/// A wait, as long as it lives.
pub(super) struct Pause<'a>(&'a PausedTime);

impl PausedTime {
    /// Begins another run, which what is being waited for counts for as well.
    pub(super) fn reset(&self) {
        let mut state = self.lock();
        state.before = Duration::ZERO;
        state.since = state.since.map(|_| Instant::now());
    }

    pub(super) fn pause(&self) -> Pause<'_> {
        let mut state = self.lock();
        state.waiting += 1;
        state.since.get_or_insert_with(Instant::now);
        Pause(self)
    }

    pub(super) fn total(&self) -> Duration {
        let state = self.lock();
        MOST.min(state.before + state.since.map_or(Duration::ZERO, |since| since.elapsed()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.waiting -= 1;
        if state.waiting == 0
            && let Some(since) = state.since.take()
        {
            state.before += since.elapsed();
        }
    }
}

/// Answers as somebody else does, while the clock of the run stands still for questions of the bridge itself.
#[derive(Debug)]
pub(super) struct PausingAnswers {
    answers: Arc<dyn Answers>,
    waits: Arc<PausedTime>,
}

impl PausingAnswers {
    pub(super) fn new(answers: Arc<dyn Answers>, waits: Arc<PausedTime>) -> Self {
        Self { answers, waits }
    }
}

impl Answers for PausingAnswers {
    fn client(&self) -> ClientId {
        self.answers.client()
    }

    fn offers(&self) -> Offers {
        self.answers.offers()
    }

    fn answer(&self, question: Question) -> Answering<'_> {
        let waits = question.is_of_bridge();
        Box::pin(async move {
            let _pause = waits.then(|| self.waits.pause());
            self.answers.answer(question).await
        })
    }

    fn page_done(&self, id: &str) {
        self.answers.page_done(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_side_by_side_count_once_and_only_for_their_run() {
        let time = PausedTime::default();
        let (one, two) = (time.pause(), time.pause());
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(3) {}
        drop(one);
        drop(two);
        let total = time.total();
        assert!(total >= Duration::from_millis(3) && total <= 2 * began.elapsed());
        assert_eq!(time.total(), total);
        time.reset();
        assert_eq!(time.total(), Duration::ZERO);
    }
}
