//! A run that is a task of its client, who waits for its end.

use super::BackgroundRun;
use crate::session::{Caller, RunOutcome};

impl BackgroundRun {
    /// Waits as the caller who began the run wants: until its end, or until the code runs and a moment longer.
    pub(in crate::session) async fn wait_for(&self, caller: &Caller) -> RunOutcome {
        match caller.until_end {
            true => self.follow(caller).await,
            false => self.first_look(caller).await,
        }
    }

    /// Returns the whole result, beside all looks.
    async fn follow(&self, caller: &Caller) -> RunOutcome {
        loop {
            let changed = self.changed.notified();
            let whole = self.lock().whole.take();
            if let Some(outcome) = whole {
                return *outcome;
            }
            self.forward(caller, self.number().map(|_| self.now().describe()));
            tokio::select! {
                () = changed => {}
                waiting = self.questions.first(), if !self.cancel.is_cancelled() => {
                    self.ask(&waiting, caller).await;
                }
                () = caller.cancel.cancelled(), if !self.cancel.is_cancelled() => self.cancel.cancel(),
            }
        }
    }
}
