//! Definitions in the working directory, which the person has to approve.

use std::sync::Arc;

use super::Upstream;
use crate::upstream::discovery::{Proposal, Skip};
use crate::upstream::error::UpstreamError;
use crate::upstream::person::{Decision, ask_person};
use crate::upstream::questions::Answers;

/// A form that was closed so often counts as refused: code could show it again and again.
const MOST_UNANSWERED: u32 = 3;

impl Upstream {
    /// Has the person approve a definition, if that is what `error` says is missing. Then the server can be looked up again.
    ///
    /// # Errors
    /// The same error, if it says something else or nobody answered; or the person has refused.
    pub async fn ask_for_approval(
        &self,
        error: UpstreamError,
        answers: &dyn Answers,
    ) -> Result<(), UpstreamError> {
        let UpstreamError::Skipped { server, why: Skip::Untrusted(proposal) } = &error else {
            return Err(error);
        };
        // What the operator approves starts programs for everybody.
        if self.0.user.operator_dir.is_some() {
            return Err(error);
        }
        let mut asked = self.0.asked.lock().await;
        // Another call may have asked meanwhile.
        if self.0.discovery.is_trusted(proposal) {
            return Ok(());
        }
        let distrusted = || UpstreamError::Distrusted { server: Arc::clone(server) };
        let unanswered = asked.entry(Arc::clone(proposal)).or_default();
        if *unanswered >= MOST_UNANSWERED {
            return Err(distrusted());
        }
        let decision = ask_person(answers, &proposal.request(server)).await;
        self.0.telemetry.answered(decision.name());
        match decision {
            Decision::Approved => self.trust(server, proposal),
            Decision::Refused => {
                *unanswered = MOST_UNANSWERED;
                Err(distrusted())
            }
            Decision::Unanswered => {
                *unanswered += 1;
                Err(error)
            }
            Decision::NotAsked => Err(error),
        }
    }

    /// Records the person's approval of a definition in the working directory.
    ///
    /// # Errors
    /// The approval could not be written.
    pub fn trust(&self, server: &str, proposal: &Proposal) -> Result<(), UpstreamError> {
        Ok(self.0.discovery.trust(server, proposal).map_err(Arc::new)?)
    }
}
