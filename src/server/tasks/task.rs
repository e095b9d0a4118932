//! One task.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use codebridge_runtimes::random_hex;
use futures_util::FutureExt;
use jiff::Timestamp;
use rmcp::model::{CallToolResult, ContentBlock, TaskStatus};
use serde_json::Value;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::server::offers::supports;
use crate::server::progress::Latest;
use crate::session::{Progress, RunOutcome};
use crate::upstream::{Answering, Answers, ClientId, Offers, Question, Refusal};

/// Questions of one task that wait; further ones are refused.
const MOST_ASKED: usize = 64;

type Reply = oneshot::Sender<Result<Value, Refusal>>;

/// A call that its client does not wait for.
#[derive(Debug)]
pub(in crate::server) struct Task {
    pub(super) id: String,
    pub(super) created: Timestamp,
    pub(super) ttl: Duration,
    began: Instant,
    cancel: CancellationToken,
    state: Mutex<State>,
    changed: Notify,
    /// Held by the request through which the client is asked: one at a time.
    pub(super) asking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    status: TaskStatus,
    message: Option<String>,
    updated: Timestamp,
    /// What waits for an answer, by the numbers of the questions.
    questions: BTreeMap<u32, (Arc<Question>, Reply)>,
    asked: u32,
    result: Option<Arc<CallToolResult>>,
}

/// A task as clients see it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    pub(super) status: TaskStatus,
    pub(super) message: Option<String>,
    pub(super) updated: Timestamp,
    /// Whether the result is an error.
    pub(super) is_error: bool,
}

impl Task {
    pub(super) fn new(ttl: Duration, cancel: CancellationToken) -> Self {
        let created = Timestamp::now();
        let state = State {
            status: TaskStatus::Working,
            message: None,
            updated: created,
            questions: BTreeMap::new(),
            asked: 0,
            result: None,
        };
        Self {
            id: random_hex::<16>(),
            created,
            ttl,
            began: Instant::now(),
            cancel,
            state: Mutex::new(state),
            changed: Notify::new(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// Follows the call until its end; a bug is an end as well.
    pub(in crate::server) async fn follow(
        &self,
        run: impl Future<Output = RunOutcome>,
        mut events: mpsc::Receiver<Progress>,
        render: impl FnOnce(RunOutcome) -> (String, CallToolResult),
    ) {
        let mut latest = Latest::default();
        let following = async {
            let mut run = std::pin::pin!(run);
            loop {
                tokio::select! {
                    biased;
                    outcome = &mut run => return outcome,
                    Some(event) = events.recv() => {
                        latest.take_in(event);
                        if let Some(message) = latest.take_change() {
                            self.change(|state| state.message = Some(message));
                        }
                    }
                }
            }
        };
        let ended = AssertUnwindSafe(following).catch_unwind().await;
        let (summary, result) = ended.map(render).unwrap_or_else(|_| {
            let message = "the call failed because of a bug in codebridge; see its log";
            (message.into(), CallToolResult::error(vec![ContentBlock::text(format!("error: {message}"))]))
        });
        self.end(summary, result);
    }

    pub(super) fn end(&self, summary: String, result: CallToolResult) {
        self.change(|state| {
            if state.status != TaskStatus::Cancelled {
                state.status = TaskStatus::Completed;
            }
            (state.message, state.result) = (Some(summary), Some(Arc::new(result)));
            state.questions.clear();
        });
    }

    /// Interrupts the code. The task counts as cancelled from now on; false if it has ended already.
    pub(super) fn cancel(&self) -> bool {
        let is_ended = self.lock().status.is_terminal();
        if !is_ended {
            self.change(|state| state.status = TaskStatus::Cancelled);
            self.cancel.cancel();
        }
        !is_ended
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        state.updated = Timestamp::now();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits for the next change from now on.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub(super) fn seen(&self) -> Seen {
        let state = self.lock();
        let status = match state.status {
            TaskStatus::Working if !state.questions.is_empty() => TaskStatus::InputRequired,
            status => status,
        };
        let is_error = state.result.as_ref().is_some_and(|result| result.is_error == Some(true));
        Seen { status, message: state.message.clone(), updated: state.updated, is_error }
    }

    /// Returns the result, once the code has ended.
    pub(super) fn result(&self) -> Option<Arc<CallToolResult>> {
        self.lock().result.clone()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().result.is_some()
    }

    /// Whether it has ended, and its time is over.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended() && self.began.elapsed() >= self.ttl
    }

    /// Returns the questions that wait for an answer, with their keys.
    pub(super) fn questions(&self) -> Vec<(u32, Arc<Question>)> {
        self.lock().questions.iter().map(|(key, (question, _))| (*key, Arc::clone(question))).collect()
    }

    /// Passes the answer to a question on, if it still waits for one.
    pub(super) fn answer(&self, key: u32, answer: Result<Value, Refusal>) {
        let mut waiting = None;
        self.change(|state| waiting = state.questions.remove(&key));
        if let Some((_, reply)) = waiting {
            // The question may have been withdrawn.
            let _ = reply.send(answer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps what servers ask until the client of a task answers.
#[derive(Debug)]
pub(in crate::server) struct TaskAnswers {
    pub(in crate::server) client: ClientId,
    pub(in crate::server) offers: Offers,
    pub(in crate::server) task: Arc<Task>,
}

/// A question that is taken back when nobody needs its answer any more.
struct Waiting<'a>(&'a Task, u32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut questions = self.0.lock();
        if questions.questions.remove(&self.1).is_some() {
            drop(questions);
            self.0.changed.notify_waiters();
        }
    }
}

impl Answers for TaskAnswers {
    fn client(&self) -> ClientId {
        self.client
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    fn answer(&self, question: Question) -> Answering<'_> {
        Box::pin(async move {
            supports(&self.offers, &question)?;
            let (reply, answer) = oneshot::channel();
            let mut added = None;
            self.task.change(|state| {
                if state.questions.len() < MOST_ASKED {
                    state.asked += 1;
                    state.questions.insert(state.asked, (Arc::new(question), reply));
                    added = Some(state.asked);
                }
            });
            let too_many = || Refusal::unanswered("too many questions of this task wait for an answer");
            let _waiting = Waiting(&self.task, added.ok_or_else(too_many)?);
            answer.await.unwrap_or_else(|_| Err(Refusal::unanswered("the task has ended")))
        })
    }
}
