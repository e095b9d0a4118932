//! Questions of servers to clients that take no requests. Since 2026-07-28 a call that needs an answer ends with the
//! question, and its client repeats it with the answer: the multi round-trip requests of SEP-2322. The code does not notice
//! and runs on, within its own timeout.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use codebridge_runtimes::random_hex;
use rmcp::model::{InputRequest, InputRequests, InputResponses};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::offers::supports;
use crate::session::{Authority, Caller, Progress, RunOutcome, RunRequest};
use crate::telemetry::TraceContext;
use crate::upstream::{Answering, Answers, ClientId, Offers, Question, Refusal};

/// Calls that wait for the next round of their client; one more cancels the oldest.
const MOST_PAUSED: usize = 16;
/// Questions that wait for the next round; further ones wait for their turn.
const MOST_ASKED: usize = 64;
/// The JSON-RPC code for a malformed question.
const INVALID_PARAMS: i32 = -32602;

type Reply = oneshot::Sender<Result<Value, Refusal>>;

/// Asks the client of one call by the result of the call.
#[derive(Debug)]
struct RoundAnswers {
    client: ClientId,
    offers: Offers,
    questions: mpsc::Sender<PendingQuestion>,
}

impl Answers for RoundAnswers {
    fn client(&self) -> ClientId {
        self.client
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    fn answer(&self, question: Question) -> Answering<'_> {
        Box::pin(async move {
            supports(&self.offers, &question)?;
            tracing::debug!(server = %question.server, method = question.method, "a server asks the client through the result of a call");
            let (reply, answer) = oneshot::channel();
            let ended = || Refusal::unanswered("the call ended before the answer");
            // Kept here, so that nothing of a question is left when its server takes it back.
            let question = Arc::new(question);
            let pending = PendingQuestion { question: Arc::downgrade(&question), reply };
            self.questions.send(pending).await.map_err(|_| ended())?;
            answer.await.unwrap_or_else(|_| Err(ended()))
        })
    }
}

/// A question, and where its answer goes.
#[derive(Debug)]
struct PendingQuestion {
    question: Weak<Question>,
    reply: Reply,
}

/// The calls that wait for the next round of their client.
#[derive(Debug, Default)]
pub(super) struct Rounds(Mutex<VecDeque<(String, Round)>>);

impl Rounds {
    fn paused(&self) -> MutexGuard<'_, VecDeque<(String, Round)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a call for the next round of its client; returns the name that the client repeats it with.
    pub(super) fn pause(&self, mut round: Round) -> String {
        // Progress is not read between rounds, and the code must not wait for that.
        round.events.close();
        let name = random_hex::<16>();
        let mut paused = self.paused();
        if paused.len() >= MOST_PAUSED {
            paused.pop_front();
        }
        paused.push_back((name.clone(), round));
        name
    }

    /// Takes the call that a client repeats, and passes the answers on; None when no call waits for them.
    pub(super) fn resume(&self, name: &str, mut answers: InputResponses) -> Option<Round> {
        let mut paused = self.paused();
        let index = paused.iter().position(|(other, _)| other == name)?;
        let (_, mut round) = paused.remove(index)?;
        for (key, reply) in round.running.replies.drain() {
            let answer =
                answers.remove(&key).ok_or_else(|| Refusal::unanswered("it did not answer this question"));
            // The question may have been withdrawn.
            let _ = reply.send(answer);
        }
        Some(round)
    }
}

/// A call from one round to the next. Dropping it cancels the code.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) request: RunRequest,
    pub(super) running: Running,
    pub(super) events: mpsc::Receiver<Progress>,
    _cancel: DropGuard,
}

impl Round {
    /// Begins a call whose client can be asked by its result.
    pub(super) fn begin(
        request: RunRequest,
        client: ClientId,
        offers: Offers,
        (trace, name): (TraceContext, Option<Arc<str>>),
        authority: Authority,
        run: impl FnOnce(Caller) -> JoinHandle<RunOutcome>,
    ) -> Self {
        let (questions, asked) = mpsc::channel(MOST_ASKED);
        let (progress, events) = mpsc::channel(super::progress::QUEUE);
        let cancel = authority.child_token();
        let answers = Arc::new(RoundAnswers { client, offers, questions });
        let caller = Caller {
            progress,
            answers,
            cancel: cancel.clone(),
            script: None,
            trace,
            client: name,
            authority,
            unattended: None,
            until_end: false,
        };
        let run = run(caller);
        let running = Running { run, asked, replies: HashMap::new(), cancel: cancel.clone() };
        Self { request, running, events, _cancel: cancel.drop_guard() }
    }
}

/// The code of a call, and what its servers ask.
#[derive(Debug)]
pub(super) struct Running {
    run: JoinHandle<RunOutcome>,
    asked: mpsc::Receiver<PendingQuestion>,
    replies: HashMap<String, Reply>,
    cancel: CancellationToken,
}

pub(super) enum Step {
    Done(Box<RunOutcome>),
    /// The client has to answer first.
    Asks(InputRequests),
}

impl Running {
    /// Waits for the end of the code or for a question.
    pub(super) async fn step(&mut self, cancelled: &CancellationToken) -> Step {
        loop {
            tokio::select! {
                biased;
                outcome = &mut self.run => return Step::Done(Box::new(done(outcome).await)),
                () = cancelled.cancelled(), if !self.cancel.is_cancelled() => self.cancel.cancel(),
                Some(question) = self.asked.recv() => {
                    let requests = self.requests(question);
                    if !requests.is_empty() {
                        return Step::Asks(requests);
                    }
                }
            }
        }
    }

    /// Returns this question and those that came with it, by the keys under which they are answered.
    fn requests(&mut self, first: PendingQuestion) -> InputRequests {
        let mut requests = InputRequests::new();
        let mut next = Some(first);
        while let Some(PendingQuestion { question, reply }) = next {
            next = self.asked.try_recv().ok();
            let Some(question) = question.upgrade() else { continue };
            let Question { method, params, .. } = &*question;
            match serde_json::from_value::<InputRequest>(json!({ "method": method, "params": params })) {
                Ok(request) => {
                    let key = format!("question-{}", requests.len() + 1);
                    requests.insert(key.clone(), request);
                    self.replies.insert(key, reply);
                }
                Err(error) => {
                    let message = format!("'{method}' is malformed: {error}");
                    let _ = reply.send(Err(Refusal { code: INVALID_PARAMS, message, data: None }));
                }
            }
        }
        requests
    }
}

async fn done(outcome: Result<RunOutcome, JoinError>) -> RunOutcome {
    match outcome.map_err(JoinError::try_into_panic) {
        Ok(outcome) => outcome,
        // The guard around the handler answers the client.
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime is shutting down.
        Err(Err(_)) => std::future::pending().await,
    }
}
