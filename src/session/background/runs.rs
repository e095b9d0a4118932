//! All runs in the background of a workspace.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::bounds::Bounds;
use super::run::BackgroundRun;
use crate::session::{Caller, ListedRun};

/// Runs that have ended and can still be looked at.
const MOST_ENDED: usize = 16;

/// All runs in the background of a workspace, oldest first.
#[derive(Debug, Default)]
pub(in crate::session) struct BackgroundRuns(Mutex<Vec<Arc<BackgroundRun>>>);

impl BackgroundRuns {
    /// Adds a run that begins in a session.
    ///
    /// # Errors
    /// The session has one already; the text says which.
    pub(in crate::session) fn add(
        &self,
        session: &str,
        is_alone: bool,
        caller: &Caller,
        bounds: Bounds,
    ) -> Result<Arc<BackgroundRun>, String> {
        let mut runs = self.lock();
        if !is_alone && let Some(busy) = busy_in(&runs, session) {
            return Err(busy.busy());
        }
        if let Some(all_busy) = all_busy(&runs, bounds.runs) {
            return Err(all_busy);
        }
        let run = Arc::new(BackgroundRun::new(session.to_owned(), caller, bounds));
        runs.push(Arc::clone(&run));
        let ended = runs.iter().filter(|run| run.has_ended()).count();
        if ended > MOST_ENDED
            && let Some(oldest) = runs.iter().position(|run| run.has_ended())
        {
            runs.remove(oldest);
        }
        Ok(run)
    }

    /// Removes one whose code never ran.
    pub(in crate::session) fn remove(&self, run: &Arc<BackgroundRun>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, run));
    }

    /// Returns why a session takes no other call; None if it does. Of all sessions there may be so many.
    pub(in crate::session) fn busy(&self, session: &str, is_alone: bool, most: usize) -> Option<String> {
        let runs = self.lock();
        match busy_in(&runs, session) {
            Some(run) if !is_alone => Some(run.busy()),
            _ => all_busy(&runs, most),
        }
    }

    /// Returns the run of a number.
    ///
    /// # Errors
    /// There is none; the text names those that there are.
    pub(in crate::session) fn get(&self, number: u32) -> Result<Arc<BackgroundRun>, String> {
        let runs = self.lock();
        if let Some(run) = runs.iter().find(|run| run.number() == Some(number)) {
            return Ok(Arc::clone(run));
        }
        let known: Vec<String> =
            runs.iter().filter_map(|run| run.number()).map(|run| run.to_string()).collect();
        Err(match known.is_empty() {
            true => format!(
                "there is no run {number} in the background; hint: run_python(code=…, background=true) starts one"
            ),
            false => format!("there is no run {number} in the background; there are {}", known.join(", ")),
        })
    }

    pub(in crate::session) fn list(&self) -> Vec<ListedRun> {
        self.lock().iter().filter_map(|run| run.listed()).collect()
    }

    /// Whether one has not ended, or has ended not longer ago than this.
    pub(in crate::session) fn has_run_within(&self, time: Duration) -> bool {
        self.lock().iter().any(|run| run.ended_before().is_none_or(|before| before <= time))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<BackgroundRun>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns why no session can begin: a call would wait for an hour without a word.
fn all_busy(runs: &[Arc<BackgroundRun>], most: usize) -> Option<String> {
    let running: Vec<String> = runs
        .iter()
        .filter(|run| !run.has_ended())
        .map(|run| run.number().map_or_else(|| "one that starts".into(), |number| number.to_string()))
        .collect();
    let who = if most == 1 { "the only session is".to_owned() } else { format!("all {most} sessions are") };
    (running.len() >= most).then(|| {
        format!(
            "{who} busy with runs in the background ({}); hint: run_python(run=N, stop=true) stops one, MCP_BRIDGE_MAX_SESSIONS allows more",
            running.join(", ")
        )
    })
}

fn busy_in<'a>(runs: &'a [Arc<BackgroundRun>], session: &str) -> Option<&'a Arc<BackgroundRun>> {
    runs.iter().find(|run| run.session == session && !run.has_ended())
}
