//! Pages as answers.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;

/// A page that says why there is no other one.
#[derive(Debug, Template)]
#[template(path = "problem.html")]
struct Problem<'a> {
    title: &'a str,
    text: &'a str,
}

/// Returns a page.
pub(super) fn page(template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => Html(text).into_response(),
        Err(error) => {
            tracing::error!(%error, "could not write a page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Returns a page that says why there is no other one.
pub(super) fn problem(status: StatusCode, title: &str, text: &str) -> Response {
    let mut response = page(&Problem { title, text });
    *response.status_mut() = status;
    response
}
