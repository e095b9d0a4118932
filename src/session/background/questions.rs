//! Questions to the person from a run that nobody waits for: they wait for the next look.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::upstream::{Answering, Answers, ClientId, Offers, Question, Refusal};

/// Questions of one run that wait; further ones are refused.
const MOST: usize = 64;

type Reply = oneshot::Sender<Result<Value, Refusal>>;

/// The questions of one run.
#[derive(Debug)]
pub(super) struct Questions {
    client: ClientId,
    offers: Offers,
    waiting: Mutex<VecDeque<Arc<Waiting>>>,
    changed: Notify,
}

/// A question without an answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) question: Question,
    /// Cancelled when nobody needs the answer any more.
    pub(super) withdrawn: CancellationToken,
    reply: Mutex<Option<Reply>>,
}

impl Questions {
    /// Returns those of a run that a client has begun.
    pub(super) fn of(answers: &dyn Answers) -> Self {
        let (client, offers) = (answers.client(), answers.offers());
        Self { client, offers, waiting: Mutex::default(), changed: Notify::new() }
    }

    /// Waits for a question; it stays the first until it is answered.
    pub(super) async fn first(&self) -> Arc<Waiting> {
        loop {
            let changed = self.changed.notified();
            if let Some(first) = self.lock().front() {
                return Arc::clone(first);
            }
            changed.await;
        }
    }

    /// Whether the run needs an answer.
    pub(super) fn is_waiting(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Passes an answer on.
    pub(super) fn answer(&self, waiting: &Arc<Waiting>, answer: Result<Value, Refusal>) {
        self.remove(waiting);
        let reply = waiting.reply.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reply) = reply {
            // The question may have been withdrawn.
            let _ = reply.send(answer);
        }
    }

    fn remove(&self, waiting: &Arc<Waiting>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, waiting));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that is taken back when nobody needs its answer any more.
struct Asked<'a>(&'a Questions, Arc<Waiting>);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.1.withdrawn.cancel();
        self.0.remove(&self.1);
    }
}

impl Answers for Questions {
    fn client(&self) -> ClientId {
        self.client
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    fn answer(&self, question: Question) -> Answering<'_> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let withdrawn = CancellationToken::new();
            let waiting = Arc::new(Waiting { question, withdrawn, reply: Mutex::new(Some(reply)) });
            {
                let mut all = self.lock();
                if all.len() >= MOST {
                    return Err(Refusal::unanswered("too many questions of this run wait for an answer"));
                }
                all.push_back(Arc::clone(&waiting));
            }
            let _asked = Asked(self, waiting);
            self.changed.notify_waiters();
            answer.await.unwrap_or_else(|_| Err(Refusal::unanswered("the run has ended")))
        })
    }
}
