//! Runs the examples of saved functions again whose tools have changed: after a run, while no other one is under way.
//!
//! Nobody has asked for it, so such a run does nothing that lasts: it calls tools that only read, or that the policy allows without
//! asking. Where that is not enough, the function stays as it is, until the user runs its example.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Inner, Sessions};
use crate::session::{Authority, Caller, ExampleEnd, RunRequest};
use crate::upstream::{ToTest, Unattended};

/// How the audit log calls such a run.
const CLIENT: &str = "codebridge saved functions";

impl Sessions {
    /// Looks in the background, after a run, whether examples are to be run.
    pub(super) fn test_functions(&self, authority: &Authority) {
        let examples = &self.0.examples;
        if self.0.one_shot
            || self.0.closing.is_cancelled()
            || !examples.is_idle()
            || !examples.is_due(self.0.upstream.generation())
            || !examples.begin_look()
        {
            return;
        }
        let (sessions, authority) = (self.clone(), authority.clone());
        self.0.tasks.spawn(async move {
            for to_test in sessions.0.upstream.functions_to_test().await {
                if !sessions.0.has_time() {
                    sessions.0.examples.look_again();
                    break;
                }
                if sessions.0.examples.try_once(&to_test) {
                    sessions.test_function(to_test, authority.clone()).await;
                }
            }
            sessions.0.examples.end_look();
        });
    }

    async fn test_function(&self, (tool, digests): ToTest, authority: Authority) {
        let unattended = Arc::<Unattended>::default();
        // Nobody watches the output.
        let (progress, _) = mpsc::channel(1);
        let caller = Caller::without_answers(progress, self.0.closing.child_token());
        let caller = Caller {
            answers: Arc::clone(&unattended) as _,
            client: Some(CLIENT.into()),
            authority,
            unattended: Some(Arc::clone(&unattended)),
            ..caller
        };
        let request = RunRequest::of_example(&tool, self.0.examples.timeout());
        // Boxed, because runs have this in them.
        let outcome = Box::pin(self.run_as(request, caller, None)).await;
        if self.0.counts_idle {
            self.0.add_idle_time(outcome.elapsed);
        }
        let error = match ExampleEnd::of(&tool.name, &outcome) {
            _ if unattended.is_hindered() || self.0.closing.is_cancelled() => return,
            ExampleEnd::Passed => None,
            ExampleEnd::Broken(error) => Some(error),
            ExampleEnd::NotTested(_) | ExampleEnd::Failed => return,
        };
        if let Err(failed) = self.0.answerer.tools().note_test(&tool, error.as_deref(), digests) {
            tracing::warn!(name = %tool.name, error = %failed, "could not note how the example of a saved function ended");
            return;
        }
        tracing::info!(name = %tool.name, passed = error.is_none(), "ran the example of a saved function: a tool has changed");
        if let Some(error) = error {
            self.0.examples.note(format!(
                "the saved function '{}' is broken: a tool that it uses has changed, and its example fails: {error}",
                tool.name
            ));
        }
    }
}

impl Inner {
    /// Whether an example takes nothing from a run.
    fn has_time(&self) -> bool {
        self.examples.is_idle() && self.capacity.available_permits() > 0 && !self.closing.is_cancelled()
    }
}
