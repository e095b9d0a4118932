//! Answers the questions of a run: its client or somebody who attends, whoever is first. The other one's question is withdrawn.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::questions::Pending;
use super::record::Activity;
use super::rows::GivenAnswer;
use super::run::RunActivity;
use crate::audit::Given;
use crate::upstream::{Answering, Answers, ClientId, Offers, Question, Refusal};

/// How long a question waits that the client of its run cannot answer.
const LIMIT: Duration = Duration::from_secs(600);
/// Characters of an answer in the audit log.
const LONGEST_ANSWER: usize = 200;

/// The client of a run, and whoever attends.
#[derive(Debug)]
pub(super) struct SharedAnswers {
    client: Arc<dyn Answers>,
    activity: Activity,
    run: Arc<RunActivity>,
    /// How long a question waits that the client cannot answer.
    limit: Duration,
}

impl SharedAnswers {
    pub(super) fn new(client: Arc<dyn Answers>, activity: Activity, run: Arc<RunActivity>) -> Self {
        Self { client, activity, run, limit: LIMIT }
    }

    /// Whether the client of the run can be asked this.
    fn client_can(&self, question: &Question) -> bool {
        let offers = self.client.offers();
        let by_url = question.params.as_ref().is_some_and(|params| params["mode"] == "url");
        if by_url { offers.elicitation_by_url } else { offers.elicitation }
    }

    /// Waits for the client; for ever if it cannot be asked. Where it fails, somebody else may still answer.
    async fn of_client(&self, question: Question, can: bool) -> Result<Value, Refusal> {
        if can {
            let answer = self.client.answer(question).await;
            if answer.is_err() && self.activity.is_attended() {
                tokio::time::sleep(self.limit).await;
            }
            return answer;
        }
        std::future::pending().await
    }

    /// Waits for somebody who attends, as long as the client may take, or else a limited time. Returns who has answered, too.
    async fn of_others(&self, pending: &mut Pending, can: bool) -> Result<(GivenAnswer, String), Refusal> {
        let too_late = async {
            match can {
                true => std::future::pending().await,
                false => tokio::time::sleep(self.limit).await,
            }
        };
        tokio::select! {
            given = pending.answer() => Ok(given),
            () = too_late => Err(Refusal::unanswered("nobody answered it")),
        }
    }

    /// Returns an answer of somebody who attends, when it is in the audit log.
    async fn recorded(
        &self,
        (answer, by): (GivenAnswer, String),
        question: &Question,
    ) -> Result<Value, Refusal> {
        let (word, value) = match answer {
            GivenAnswer::Accept(content) => {
                // What a server asks for may be a secret.
                let shown = if question.is_of_bridge() { json!(content).to_string() } else { String::new() };
                (format!("accept {shown}"), json!({ "action": "accept", "content": content }))
            }
            GivenAnswer::Decline => ("decline".to_owned(), json!({ "action": "decline" })),
        };
        let given = Given {
            facts: self.run.facts(),
            server: Arc::clone(&question.server),
            answer: word.trim_end().chars().take(LONGEST_ANSWER).collect(),
            by,
        };
        match self.activity.audit().answered(given).await {
            Ok(()) => Ok(value),
            Err(error) => Err(Refusal::unanswered(&error.to_string())),
        }
    }
}

impl Answers for SharedAnswers {
    fn client(&self) -> ClientId {
        self.client.client()
    }

    fn offers(&self) -> Offers {
        let offers = self.client.offers();
        Offers { elicitation: offers.elicitation || self.activity.is_attended(), ..offers }
    }

    fn answer(&self, question: Question) -> Answering<'_> {
        Box::pin(async move {
            let can = self.client_can(&question);
            let is_shown = can || self.activity.is_attended();
            let pending = is_shown.then(|| self.activity.asked().add(&self.run, &question, can)).flatten();
            let Some(mut pending) = pending else { return self.client.answer(question).await };
            // Whoever attends has been told that the answer counts: the client cannot change it while it is recorded.
            let given = tokio::select! {
                biased;
                given = self.of_others(&mut pending, can) => given?,
                answer = self.of_client(question.clone(), can) => return answer,
            };
            self.recorded(given, &question).await
        })
    }

    fn page_done(&self, id: &str) {
        self.client.page_done(id);
    }
}

#[cfg(test)]
mod tests;
