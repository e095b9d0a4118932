//! The tasks of one user.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::ErrorData;
use tokio_util::sync::CancellationToken;

use super::task::Task;

/// Tasks that have ended and whose results can still be fetched.
const MOST_ENDED: usize = 16;
/// How long a task is kept, from its beginning; one that still runs is kept longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The tasks of one user, oldest first. Nobody else finds them.
#[derive(Debug, Default)]
pub(in crate::server) struct Tasks(Mutex<VecDeque<Arc<Task>>>);

impl Tasks {
    /// Adds a task, which is kept for so many milliseconds at most. It is interrupted by `cancel`.
    pub(in crate::server) fn add(&self, ttl: Option<u64>, cancel: CancellationToken) -> Arc<Task> {
        let ttl = ttl.map_or(LONGEST, |ttl| Duration::from_millis(ttl).min(LONGEST));
        let task = Arc::new(Task::new(ttl, cancel));
        self.trim_to(MOST_ENDED - 1);
        self.lock().push_back(Arc::clone(&task));
        task
    }

    /// Forgets tasks that are over, and the oldest of too many that have ended.
    pub(in crate::server) fn trim(&self) {
        self.trim_to(MOST_ENDED);
    }

    fn trim_to(&self, most: usize) {
        let mut tasks = self.lock();
        tasks.retain(|task| !task.is_over());
        let mut surplus = tasks.iter().filter(|task| task.has_ended()).count().saturating_sub(most);
        tasks.retain(|task| {
            let is_surplus = surplus > 0 && task.has_ended();
            surplus -= usize::from(is_surplus);
            !is_surplus
        });
    }

    /// # Errors
    /// There is no such task.
    pub(super) fn get(&self, id: &str) -> Result<Arc<Task>, ErrorData> {
        let tasks = self.lock();
        let task = tasks.iter().find(|task| task.id == id && !task.is_over());
        task.cloned().ok_or_else(|| {
            ErrorData::invalid_params("no such task: it never existed, or it is no longer kept", None)
        })
    }

    pub(super) fn list(&self) -> Vec<Arc<Task>> {
        self.lock().iter().filter(|task| !task.is_over()).cloned().collect()
    }

    /// Forgets a task whose result the client has already.
    pub(super) fn remove(&self, task: &Arc<Task>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, task));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Task>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::CallToolResult;

    use super::*;

    #[test]
    fn so_many_ended_tasks_are_kept_and_each_for_its_time() {
        let tasks = Tasks::default();
        let running = tasks.add(None, CancellationToken::new());
        let first = tasks.add(None, CancellationToken::new());
        first.end("Success".into(), CallToolResult::success(Vec::new()));
        for _ in 0..MOST_ENDED {
            let task = tasks.add(None, CancellationToken::new());
            task.end("Success".into(), CallToolResult::success(Vec::new()));
        }
        assert!(tasks.get(&first.id).is_err() && tasks.get(&running.id).is_ok());
        assert_eq!(tasks.list().len(), MOST_ENDED + 1);

        let at_once: Vec<_> = (0..MOST_ENDED).map(|_| tasks.add(None, CancellationToken::new())).collect();
        for task in &at_once {
            task.end("Success".into(), CallToolResult::success(Vec::new()));
            tasks.trim();
        }
        assert_eq!(tasks.list().len(), MOST_ENDED + 1, "many that end after the last has begun");

        let short = tasks.add(Some(0), CancellationToken::new());
        assert!(tasks.get(&short.id).is_ok(), "it still runs");
        short.end("Success".into(), CallToolResult::success(Vec::new()));
        assert!(tasks.get(&short.id).is_err());
        assert_eq!(short.ttl, Duration::ZERO);
        assert_eq!(tasks.add(Some(u64::MAX), CancellationToken::new()).ttl, LONGEST);
    }
}
