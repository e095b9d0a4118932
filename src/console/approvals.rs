//! Questions that wait for an answer.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::Map;

use super::fields::{self, Field, Kind};
use super::frame::Frame;
use super::page::{page, problem};
use super::text::{When, in_a_line, plain};
use super::visitor::{Console, Sent, Visitor};
use crate::feed::{AnswerError, Feed, GivenAnswer, QuestionForm, QuestionRow};

#[derive(Debug, Template)]
#[template(path = "approvals.html")]
struct Approvals {
    frame: Frame,
    live: Live,
}

/// What changes while the page is open.
#[derive(Debug, Template)]
#[template(path = "approvals_live.html")]
pub(super) struct Live {
    form_token: String,
    may_approve: bool,
    questions: Vec<Asked>,
}

/// A question.
#[derive(Debug)]
struct Asked {
    id: String,
    run: String,
    session: String,
    asker: String,
    is_of_bridge: bool,
    message: String,
    asked: Option<When>,
    client_is_asked: bool,
    fields: Vec<Field>,
    /// A page to visit, as it is written.
    page: Option<String>,
    /// Whether it can be a link.
    is_link: bool,
}

impl Asked {
    fn of(question: QuestionRow) -> Self {
        let (fields, page) = match question.form {
            QuestionForm::Fields { schema } => (fields::of_schema(&schema), None),
            QuestionForm::Page { url } => (Vec::new(), Some(url)),
        };
        let asked =
            i64::try_from(question.asked).ok().and_then(|asked| Timestamp::from_millisecond(asked).ok());
        Self {
            id: question.id,
            run: question.run,
            session: in_a_line(&question.session),
            asker: in_a_line(&question.asker),
            is_of_bridge: question.is_of_bridge,
            message: plain(&question.message),
            asked: asked.map(When),
            client_is_asked: question.client_is_asked,
            fields,
            is_link: page
                .as_ref()
                .is_some_and(|page| page.starts_with("https://") || page.starts_with("http://")),
            page: page.map(|page| plain(&page)),
        }
    }
}

impl Live {
    pub(super) async fn of(feed: &Feed, form_token: &str, may_approve: bool) -> Self {
        let questions = feed.questions().await.into_iter().map(Asked::of).collect();
        Self { form_token: form_token.to_owned(), may_approve, questions }
    }
}

pub(super) async fn page_of_approvals(State(console): State<Arc<Console>>, visitor: Visitor) -> Response {
    let feed = console.feed(&visitor);
    let live = Live::of(&feed, &visitor.form_token, visitor.admitted.may_approve()).await;
    page(&Approvals { frame: Frame::new(&console, &visitor, "approvals", "Approvals").await, live })
}

/// Answers a question.
pub(super) async fn answer(
    State(console): State<Arc<Console>>,
    Sent { visitor, fields: sent }: Sent,
) -> Response {
    if !visitor.admitted.may_approve() {
        tracing::info!(principal = %visitor.admitted.principal(), "refused an answer: the token is not for approvals");
        return problem(
            StatusCode::FORBIDDEN,
            "Your token is not for approvals",
            "Sign in with one that is: codebridge token add NAME --scope console,approve",
        );
    }
    let feed = console.feed(&visitor);
    let id = sent.get("question");
    let gone =
        || problem(StatusCode::CONFLICT, "The question is no longer open", &AnswerError::Gone.to_string());
    let Some(question) = feed.questions().await.into_iter().find(|question| question.id == id) else {
        return gone();
    };
    let given = match (sent.get("action"), &question.form) {
        ("accept", QuestionForm::Page { .. }) => GivenAnswer::Accept(Map::new()),
        ("accept", QuestionForm::Fields { schema }) => match fields::answer(schema, &sent) {
            Ok(answer) => GivenAnswer::Accept(answer),
            Err(why) => return problem(StatusCode::BAD_REQUEST, "The answer is not complete", &why),
        },
        ("decline", _) => GivenAnswer::Decline,
        _ => {
            return problem(
                StatusCode::BAD_REQUEST,
                "The answer is not complete",
                "Accept or decline the question.",
            );
        }
    };
    match feed.answer(id, given, visitor.admitted.principal().as_str()).await {
        Ok(()) => Redirect::to("/console/approvals").into_response(),
        Err(AnswerError::Gone) => gone(),
    }
}
