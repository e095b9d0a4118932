//! Runs that nobody has asked for, such as tests of saved functions whose tools have changed. They do what has no effects, and what the
//! policy allows without asking.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::denied::Denied;
use super::error::UpstreamError;
use super::questions::{Answering, Answers, ClientId, Offers, Question, Refusal};
use crate::policy::Kind;

/// Notes whether such a run was kept from something: then its end says nothing of its code.
#[derive(Debug, Default)]
pub struct Unattended(AtomicBool);

impl Unattended {
    /// Notes that the run was kept from something.
    pub fn hinder(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the run was kept from something.
    pub fn is_hindered(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Looks at how a call ended. Only a call that does not fit the tool is a mistake of the code.
    pub(super) fn look_at<T>(&self, outcome: &Result<T, UpstreamError>) {
        use UpstreamError::{Arguments, Refused, Unknown, UnknownTool};
        if let Err(error) = outcome
            && !matches!(error, Arguments { .. } | Refused { .. } | Unknown { .. } | UnknownTool { .. })
        {
            self.hinder();
        }
    }
}

/// Whether something else than a call may have effects that last.
pub(super) fn has_effects(kind: Kind) -> bool {
    matches!(kind, Kind::Package | Kind::Artifact | Kind::Server)
}

/// Returns why a call is denied, where no policy decides.
pub(super) fn denial_of_call(server: &Arc<str>, tool: &str) -> UpstreamError {
    UpstreamError::Denied {
        server: Arc::clone(server),
        tool: tool.to_owned(),
        why: Arc::new(Denied::Unattended),
    }
}

/// Nobody is there to answer.
impl Answers for Unattended {
    fn client(&self) -> ClientId {
        ClientId::default()
    }

    fn offers(&self) -> Offers {
        Offers::default()
    }

    fn answer(&self, question: Question) -> Answering<'_> {
        self.hinder();
        Box::pin(async move { Err(Refusal::not_supported(&question.method)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_no_mistake_of_the_code_hinders_a_run() {
        let run = Unattended::default();
        let (server, tool) = (Arc::<str>::from("s"), "t".to_owned());
        run.look_at(&Ok(()));
        run.look_at::<()>(&Err(UpstreamError::UnknownTool {
            server: Arc::clone(&server),
            tool,
            nearest: None,
        }));
        assert!(!run.is_hindered());
        run.look_at::<()>(&Err(denial_of_call(&server, "t")));
        assert!(run.is_hindered());
    }
}
