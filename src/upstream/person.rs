//! Asks the person at the client for a decision. Everything that needs one asks here.

use std::time::Duration;

use serde_json::{Value, json};

use super::questions::{Answers, BRIDGE, Question};

/// A question that nobody answered for this long is refused.
const ANSWER_LIMIT: Duration = Duration::from_secs(600);
/// Characters and lines of a question: a person does not read more, and it could hide the important part.
const LONGEST_REQUEST: usize = 2_000;
const MOST_LINES: usize = 60;
/// The field of the form.
const FIELD: &str = "approve";

/// What a person said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Approved,
    /// The person said no.
    Refused,
    /// The form was closed, or nobody answered.
    Unanswered,
    /// The client cannot ask, or nobody could read the question.
    NotAsked,
}

impl Decision {
    /// Returns the word for it in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Refused => "refused",
            Self::Unanswered => "unanswered",
            Self::NotAsked => "not_asked",
        }
    }
}

/// What came of a form.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FormReply {
    /// What the client sent, whatever it is.
    Answer(Value),
    NoAnswer,
    /// The client cannot ask, or nobody could read the question.
    Unavailable,
}

/// Asks for an approval. Only the ticked field is one; some clients accept a form before anybody has read it.
pub(super) async fn ask_person(answers: &dyn Answers, request: &str) -> Decision {
    let schema = json!({
        "type": "object",
        "properties": { FIELD: { "type": "boolean", "title": "Approve", "default": false } },
        "required": [FIELD],
    });
    let answer = match ask_with_form(answers, request, schema).await {
        FormReply::Answer(answer) => answer,
        FormReply::NoAnswer => return Decision::Unanswered,
        FormReply::Unavailable => return Decision::NotAsked,
    };
    match answer["action"].as_str() {
        Some("accept") if answer["content"][FIELD] == true => Decision::Approved,
        Some("accept" | "decline") => Decision::Refused,
        // A form that was closed may be shown again.
        _ => Decision::Unanswered,
    }
}

/// Shows a page, which the client opens if the person wants it, and says so when the page has done its work, with this id:
/// <https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation>.
pub(super) async fn ask_with_page(answers: &dyn Answers, message: &str, url: &str, id: &str) -> Decision {
    if !answers.offers().elicitation_by_url {
        return Decision::NotAsked;
    }
    let page = json!({ "mode": "url", "message": message, "url": url, "elicitationId": id });
    let question =
        Question { server: BRIDGE.into(), method: "elicitation/create".into(), params: Some(page) };
    match tokio::time::timeout(ANSWER_LIMIT, answers.answer(question)).await {
        Ok(Ok(answer)) => match answer["action"].as_str() {
            Some("accept") => Decision::Approved,
            Some("decline") => Decision::Refused,
            _ => Decision::Unanswered,
        },
        Ok(Err(_)) | Err(_) => Decision::Unanswered,
    }
}

/// Asks with a form: <https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation>.
pub(super) async fn ask_with_form(answers: &dyn Answers, request: &str, schema: Value) -> FormReply {
    let is_short = request.chars().count() <= LONGEST_REQUEST && request.lines().count() <= MOST_LINES;
    if !answers.offers().elicitation || !is_short {
        return FormReply::Unavailable;
    }
    let form = json!({ "message": request, "requestedSchema": schema });
    let question =
        Question { server: BRIDGE.into(), method: "elicitation/create".into(), params: Some(form) };
    match tokio::time::timeout(ANSWER_LIMIT, answers.answer(question)).await {
        Ok(Ok(answer)) => FormReply::Answer(answer),
        Ok(Err(_)) | Err(_) => FormReply::NoAnswer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::questions::{Answering, ClientId, NoAnswers, Offers};

    /// Gives the same answer to every question.
    #[derive(Debug)]
    struct Always(Value);

    impl Answers for Always {
        fn client(&self) -> ClientId {
            ClientId::default()
        }

        fn offers(&self) -> Offers {
            Offers { elicitation: true, ..Offers::default() }
        }

        fn answer(&self, _: Question) -> Answering<'_> {
            Box::pin(async { Ok(self.0.clone()) })
        }
    }

    #[tokio::test]
    async fn only_the_ticked_field_is_an_approval() {
        for (answer, expected) in [
            (json!({ "action": "accept", "content": { "approve": true } }), Decision::Approved),
            (json!({ "action": "accept", "content": { "approve": false } }), Decision::Refused),
            (json!({ "action": "accept", "content": { "approve": "true" } }), Decision::Refused),
            (json!({ "action": "accept" }), Decision::Refused),
            (json!({ "action": "decline", "content": { "approve": true } }), Decision::Refused),
            (json!({ "action": "cancel" }), Decision::Unanswered),
            (json!(null), Decision::Unanswered),
        ] {
            assert_eq!(ask_person(&Always(answer.clone()), "?").await, expected, "{answer}");
        }
        assert_eq!(ask_person(&NoAnswers::default(), "?").await, Decision::NotAsked);
    }

    #[tokio::test]
    async fn a_question_that_is_too_long_to_be_read_is_not_asked() {
        let yes = Always(json!({ "action": "accept", "content": { "approve": true } }));
        for long in ["x".repeat(2_001), "\n".repeat(61)] {
            assert_eq!(ask_person(&yes, &long).await, Decision::NotAsked);
        }
    }
}
