//! What people see of sessions who are not their client, and how they end them.

use std::time::Duration;

use super::Sessions;
use crate::activity::Activity;
use crate::session::ListedSession;

/// How long code that was stopped may go on before its session is not ended.
const END_LIMIT: Duration = Duration::from_secs(10);

impl Sessions {
    /// Returns what happens in them.
    pub fn activity(&self) -> &Activity {
        &self.0.activity
    }

    /// Returns the live sessions, by name.
    pub fn list(&self) -> Vec<ListedSession> {
        self.0.listed.list(|session| {
            let slot = self.0.slots.get(session)?;
            let state = slot.try_lock().ok()?;
            state.last_used.map(|used| used.elapsed())
        })
    }

    /// Ends a session when the code in it has ended; false if there is none, or the code goes on.
    pub async fn end_session(&self, session: &str, why: &str) -> bool {
        let Some(slot) = self.0.slots.get(session) else { return false };
        let Ok(mut state) = tokio::time::timeout(END_LIMIT, slot.lock()).await else { return false };
        let is_live = state.live.is_some();
        self.0.end(state.take(why));
        is_live
    }
}
