//! Questions of servers to clients that cannot be asked. Since 2026-07-28 a call that needs an answer ends with the
//! question, and its client makes it once more with the answer: the multi round-trip requests of SEP-2322. The code knows
//! nothing of it and runs on, within its own time.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::{InputRequest, InputRequests, InputResponses};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::offers::supports;
use crate::session::{Progress, RunOutcome, RunRequest};
use crate::upstream::{Offers, Question, Refusal, alias};

/// Calls that wait for their client's next round; the oldest is given up for one more.
const MOST_PAUSED: usize = 16;
/// The code of JSON-RPC for a question that is none.
const INVALID_PARAMS: i32 = -32602;

type Reply = oneshot::Sender<Result<Value, Refusal>>;

/// The calls whose clients can be asked in this way.
#[derive(Debug, Default)]
pub(super) struct Rounds(Mutex<RoundsState>);

#[derive(Debug, Default)]
struct RoundsState {
    open: Vec<Open>,
    paused: VecDeque<(String, Round)>,
    /// What the last client could answer: servers are told it when they start, also between calls.
    offers: Offers,
}

/// A call that runs.
#[derive(Debug)]
struct Open {
    offers: Offers,
    servers: Vec<String>,
    questions: mpsc::UnboundedSender<QuestionForClient>,
}

impl Open {
    fn lends(&self, server: &str) -> bool {
        self.servers.iter().any(|name| name == "*" || alias(name) == alias(server))
    }
}

/// A question, and where its answer goes.
#[derive(Debug)]
struct QuestionForClient {
    method: String,
    params: Option<Value>,
    reply: Reply,
}

impl Rounds {
    fn state(&self) -> MutexGuard<'_, RoundsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the last client of this kind could answer.
    pub(super) fn offers(&self) -> Offers {
        self.state().offers
    }

    /// Begins a call whose client can answer this.
    pub(super) fn begin(
        &self,
        request: RunRequest,
        offers: Offers,
        run: impl FnOnce(mpsc::Sender<Progress>, CancellationToken) -> JoinHandle<RunOutcome>,
    ) -> Round {
        let (questions, asked) = mpsc::unbounded_channel();
        let (progress, events) = mpsc::channel(super::progress::QUEUE);
        let cancel = CancellationToken::new();
        let mut state = self.state();
        state.open.retain(|open| !open.questions.is_closed());
        state.open.push(Open { offers, servers: request.servers.clone(), questions });
        state.offers = offers;
        drop(state);
        let run = run(progress, cancel.clone());
        let running = Running { run, asked, replies: HashMap::new(), cancel: cancel.clone() };
        Round { request, running, events, _ends_with_us: cancel.drop_guard() }
    }

    /// Asks the client of the call that lends this server, the latest when there are several.
    pub(super) async fn ask(&self, question: Question) -> Result<Value, Refusal> {
        let (reply, answer) = oneshot::channel();
        let sent = {
            let state = self.state();
            let mut open = state.open.iter().rev().filter(|open| open.lends(&question.server));
            let Some(open) = open.find(|open| !open.questions.is_closed()) else {
                return Err(Refusal::no_way(&question.method));
            };
            supports(&open.offers, &question)?;
            tracing::debug!(server = %question.server, method = question.method, "a server asks the client by the result of a call");
            open.questions.send(QuestionForClient { method: question.method, params: question.params, reply })
        };
        let lost = || Refusal::unanswered("the call ended before that");
        sent.map_err(|_| lost())?;
        answer.await.unwrap_or_else(|_| Err(lost()))
    }

    /// Keeps a call for its client's next round; returns what names it.
    pub(super) fn pause(&self, mut round: Round) -> String {
        // Nobody looks meanwhile, and the code is not to wait for that.
        round.events.close();
        let random = || RandomState::new().build_hasher().finish();
        let name = format!("{:016x}{:016x}", random(), random());
        let mut state = self.state();
        if state.paused.len() >= MOST_PAUSED {
            state.paused.pop_front();
        }
        state.paused.push_back((name.clone(), round));
        name
    }

    /// The call that a client makes once more, with its answers; None when nothing waits for them.
    pub(super) fn resume(&self, name: &str, mut answers: InputResponses) -> Option<Round> {
        let mut state = self.state();
        let place = state.paused.iter().position(|(paused, _)| paused == name)?;
        let (_, mut round) = state.paused.remove(place)?;
        for (key, reply) in round.running.replies.drain() {
            let answer = answers.remove(&key).ok_or_else(|| Refusal::unanswered("it left this one out"));
            // A question that was taken back meanwhile has nobody to hear its answer.
            let _ = reply.send(answer);
        }
        Some(round)
    }
}

/// A call from one round to the next. Code whose call is dropped is cancelled.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) request: RunRequest,
    pub(super) running: Running,
    pub(super) events: mpsc::Receiver<Progress>,
    _ends_with_us: DropGuard,
}

/// What goes on in a call.
#[derive(Debug)]
pub(super) struct Running {
    run: JoinHandle<RunOutcome>,
    asked: mpsc::UnboundedReceiver<QuestionForClient>,
    replies: HashMap<String, Reply>,
    cancel: CancellationToken,
}

/// How a round ends.
pub(super) enum Step {
    /// The code has ended.
    Done(RunOutcome),
    /// The client is to answer first.
    Asks(InputRequests),
}

impl Running {
    /// Waits for the end of the code or a question.
    pub(super) async fn step(&mut self, cancelled: &CancellationToken) -> Step {
        loop {
            tokio::select! {
                biased;
                outcome = &mut self.run => return Step::Done(done(outcome).await),
                () = cancelled.cancelled(), if !self.cancel.is_cancelled() => self.cancel.cancel(),
                Some(asked) = self.asked.recv() => {
                    let requests = self.requests(asked);
                    if !requests.is_empty() {
                        return Step::Asks(requests);
                    }
                }
            }
        }
    }

    /// This question and those that came with it, by the keys under which they are answered.
    fn requests(&mut self, first: QuestionForClient) -> InputRequests {
        let mut requests = InputRequests::new();
        let mut next = Some(first);
        while let Some(QuestionForClient { method, params, reply }) = next {
            match serde_json::from_value::<InputRequest>(json!({ "method": method, "params": params })) {
                _ if reply.is_closed() => {}
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
            next = self.asked.try_recv().ok();
        }
        requests
    }
}

async fn done(outcome: Result<RunOutcome, JoinError>) -> RunOutcome {
    match outcome.map_err(JoinError::try_into_panic) {
        Ok(outcome) => outcome,
        // The handler's guard knows what to tell the client.
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // This process ends.
        Err(Err(_)) => std::future::pending().await,
    }
}
