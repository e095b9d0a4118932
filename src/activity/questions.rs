//! The questions that wait for an answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::oneshot;

use super::changes::{Changed, now};
use super::rows::{AnswerError, GivenAnswer, QuestionForm, QuestionRow};
use super::run::RunActivity;
use crate::upstream::Question;

/// Questions that wait at once; further ones are for clients only.
const MOST: usize = 64;
/// Characters of a question, and bytes of what describes its form.
const LONGEST_MESSAGE: usize = 4_000;
const LARGEST_FORM: usize = 16 << 10;

/// The questions of a workspace that wait, oldest first.
#[derive(Debug)]
pub(super) struct Questions {
    waiting: Mutex<Waiting>,
    changed: Changed,
}

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    questions: Vec<WaitingQuestion>,
}

#[derive(Debug)]
struct WaitingQuestion {
    number: u64,
    run: Arc<RunActivity>,
    asker: Arc<str>,
    is_of_bridge: bool,
    message: String,
    form: QuestionForm,
    asked: u64,
    client_is_asked: bool,
    reply: oneshot::Sender<(GivenAnswer, String)>,
}

/// A question that waits until it is answered or nobody needs the answer any more.
#[derive(Debug)]
pub(super) struct Pending {
    questions: Arc<Questions>,
    number: u64,
    reply: oneshot::Receiver<(GivenAnswer, String)>,
}

impl Pending {
    /// Waits for an answer, and returns it with who gave it.
    pub(super) async fn answer(&mut self) -> (GivenAnswer, String) {
        match (&mut self.reply).await {
            Ok(given) => given,
            // It is only removed when this is dropped.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.questions.lock().questions.retain(|question| question.number != self.number);
        self.questions.changed.note();
    }
}

/// Returns what a question shows to a person; None for one that is for a program, or too long to be read.
fn form_of(question: &Question) -> Option<(String, QuestionForm)> {
    if question.method != "elicitation/create" {
        return None;
    }
    let params = question.params.as_ref()?;
    let message = params["message"].as_str()?.to_owned();
    let form = match params["mode"].as_str() {
        None | Some("form") => {
            let schema = params.get("requestedSchema").filter(|schema| schema.is_object())?.clone();
            QuestionForm::Fields { schema }
        }
        Some("url") => QuestionForm::Page { url: params["url"].as_str()?.to_owned() },
        Some(_) => return None,
    };
    let bytes = match &form {
        QuestionForm::Fields { schema } => Value::to_string(schema).len(),
        QuestionForm::Page { url } => url.len(),
    };
    let is_short = message.chars().count() <= LONGEST_MESSAGE && bytes <= LARGEST_FORM;
    is_short.then_some((message, form))
}

impl Questions {
    pub(super) fn new(changed: Changed) -> Self {
        Self { waiting: Mutex::default(), changed }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a question; None if nobody but the client can answer it.
    pub(super) fn add(
        self: &Arc<Self>,
        run: &Arc<RunActivity>,
        question: &Question,
        client_is_asked: bool,
    ) -> Option<Pending> {
        let (message, form) = form_of(question)?;
        let (sender, reply) = oneshot::channel();
        let number = {
            let mut waiting = self.lock();
            if waiting.questions.len() >= MOST {
                return None;
            }
            waiting.last += 1;
            let number = waiting.last;
            waiting.questions.push(WaitingQuestion {
                number,
                run: Arc::clone(run),
                asker: Arc::clone(&question.server),
                is_of_bridge: question.is_of_bridge(),
                message,
                form,
                asked: now(),
                client_is_asked,
                reply: sender,
            });
            number
        };
        self.changed.note();
        Some(Pending { questions: Arc::clone(self), number, reply })
    }

    /// Returns how many of a run wait.
    pub(super) fn of(&self, run: &Arc<RunActivity>) -> usize {
        self.lock().questions.iter().filter(|question| Arc::ptr_eq(&question.run, run)).count()
    }

    pub(super) fn rows(&self, bridge: &str) -> Vec<QuestionRow> {
        let row = |question: &WaitingQuestion| QuestionRow {
            id: format!("{bridge}-{}", question.number),
            run: question.run.name(),
            session: question.run.session().to_owned(),
            asker: question.asker.to_string(),
            is_of_bridge: question.is_of_bridge,
            message: question.message.clone(),
            form: question.form.clone(),
            asked: question.asked,
            client_is_asked: question.client_is_asked,
        };
        self.lock().questions.iter().map(row).collect()
    }

    /// Passes an answer on to what waits for it.
    ///
    /// # Errors
    /// It does not wait any more.
    pub(super) fn answer(
        &self,
        bridge: &str,
        id: &str,
        answer: GivenAnswer,
        by: &str,
    ) -> Result<(), AnswerError> {
        let number = id.strip_prefix(bridge).and_then(|rest| rest.strip_prefix('-'));
        let number: u64 = number.and_then(|number| number.parse().ok()).ok_or(AnswerError::Gone)?;
        let question = {
            let mut waiting = self.lock();
            let index = waiting.questions.iter().position(|question| question.number == number);
            waiting.questions.remove(index.ok_or(AnswerError::Gone)?)
        };
        question.reply.send((answer, by.to_owned())).map_err(|_| AnswerError::Gone)
    }
}
