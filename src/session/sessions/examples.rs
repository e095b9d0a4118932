//! Runs the examples of saved functions again whose tools have changed: after a run, while no other one is under way.
//!
//! Nobody has asked for it, so such a run does nothing that lasts: it calls tools that only read, or that the policy allows without
//! asking. Where that is not enough, the function stays as it is, until the user runs its example.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::{Inner, Sessions, lock};
use crate::session::{Authority, Caller, ExampleEnd, RunOutcome, RunRequest};
use crate::upstream::{ToTest, Unattended};

/// How the audit log calls such a run.
const CLIENT: &str = "codebridge saved functions";
/// After this, changes that another process has noticed are looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// What is known of the examples of a workspace.
#[derive(Debug)]
pub(super) struct Examples {
    /// How long one may run.
    timeout: Duration,
    /// Runs that somebody has asked for.
    under_way: AtomicUsize,
    is_busy: AtomicBool,
    looked: Mutex<Option<(u64, Instant)>>,
    /// What was tried, by the names of the functions.
    tried: Mutex<HashMap<String, u64>>,
    /// What the next result says.
    notices: Mutex<Vec<String>>,
}

/// A run that somebody has asked for, until it is dropped.
pub(super) struct Attended<'a>(&'a AtomicUsize);

impl Drop for Attended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Examples {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            under_way: AtomicUsize::new(0),
            is_busy: AtomicBool::new(false),
            looked: Mutex::default(),
            tried: Mutex::default(),
            notices: Mutex::default(),
        }
    }

    /// Notes that a run begins that somebody has asked for.
    pub(super) fn attend(&self) -> Attended<'_> {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Attended(&self.under_way)
    }

    /// Adds what the examples have shown to a result.
    pub(super) fn say(&self, outcome: &mut RunOutcome) {
        outcome.notices.append(&mut lock(&self.notices));
    }

    /// Whether something may have changed since the last look, which this is.
    fn is_due(&self, generation: u64) -> bool {
        let mut looked = lock(&self.looked);
        let is_due = looked.is_none_or(|(before, at)| before != generation || at.elapsed() > LOOK_AGAIN);
        if is_due {
            *looked = Some((generation, Instant::now()));
        }
        is_due
    }

    fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    /// Forgets the last look: there was no time for all that it has found.
    fn look_again(&self) {
        *lock(&self.looked) = None;
    }

    /// Notes that an example is tried; false if the same was tried before.
    fn try_once((tool, digests): &ToTest, tried: &mut HashMap<String, u64>) -> bool {
        let mut hasher = DefaultHasher::new();
        (&tool.source, &tool.example, digests).hash(&mut hasher);
        let this = hasher.finish();
        tried.insert(tool.name.clone(), this) != Some(this)
    }
}

impl Sessions {
    /// Looks in the background, after a run, whether examples are to be run.
    pub(super) fn test_functions(&self, authority: &Authority) {
        let examples = &self.0.examples;
        if self.0.one_shot
            || self.0.closing.is_cancelled()
            || !examples.is_idle()
            || !examples.is_due(self.0.upstream.generation())
            || examples.is_busy.swap(true, Ordering::AcqRel)
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
                if Examples::try_once(&to_test, &mut lock(&sessions.0.examples.tried)) {
                    sessions.test_function(to_test, authority.clone()).await;
                }
            }
            sessions.0.examples.is_busy.store(false, Ordering::Release);
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
        let request = RunRequest::of_example(&tool, self.0.examples.timeout);
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
            lock(&self.0.examples.notices).push(format!(
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
