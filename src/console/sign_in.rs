//! Signing in with a token, and out.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::header::SET_COOKIE;
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::cookie;
use super::form::{self, Fields};
use super::page::page;
use super::visitor::{Console, Sent, next_path, refused};

#[derive(Debug, Template)]
#[template(path = "sign_in.html")]
struct SignIn<'a> {
    next: &'a str,
    has_issuer: bool,
    problem: Option<&'a str>,
}

/// Shows the form. A link that works once signs its browser in.
pub(super) async fn form(State(console): State<Arc<Console>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let fields = Fields::parse(parts.uri.query().unwrap_or_default().as_bytes());
    match fields.get("token") {
        token if !token.is_empty() && console.site.admits_once() => {
            admit(&console, &parts, token, next_path(fields.get("next"))).await
        }
        _ => {
            let (next, has_issuer) = (next_path(fields.get("next")), console.site.has_issuer());
            page(&SignIn { next, has_issuer, problem: None })
        }
    }
}

/// Turns a token into a cookie. The cookie is another secret, which this process alone knows.
pub(super) async fn sign_in(State(console): State<Arc<Console>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let fields = match form::read(&parts.headers, body).await {
        Ok(fields) => fields,
        Err(refusal) => return refused(&console, refusal, &parts),
    };
    admit(&console, &parts, fields.get("token"), next_path(fields.get("next"))).await
}

async fn admit(console: &Console, parts: &Parts, token: &str, next: &str) -> Response {
    let admitted = match console.site.admit(token).await {
        Ok(admitted) => admitted,
        Err(refusal) => {
            let _ = console.site.refuse(refusal, &parts.headers, &parts.extensions);
            let text = match refusal.status {
                StatusCode::FORBIDDEN if refusal.lacks_scope() && token.contains('.') => {
                    "This token has no scope `console`: ask its issuer for one that has it."
                }
                StatusCode::FORBIDDEN if refusal.lacks_scope() => {
                    "This token has no scope `console`: make one with `codebridge token add NAME --scope console`."
                }
                StatusCode::UNAUTHORIZED => "This token is unknown, expired or revoked.",
                _ => refusal.text,
            };
            let mut response =
                page(&SignIn { next, has_issuer: console.site.has_issuer(), problem: Some(text) });
            *response.status_mut() = refusal.status;
            return response;
        }
    };
    if let Err(refusal) = console.site.enter(&admitted, &parts.extensions) {
        return refused(console, refusal, parts);
    }
    // Another cookie that this browser had ends.
    if let Some(old) = cookie::read(&parts.headers, &console.cookie()) {
        console.visits.end(old);
    }
    tracing::info!(principal = %admitted.principal(), "signed in to the console");
    let secret = console.visits.begin(admitted);
    with_cookie(console, &parts.headers, Some(&secret), next)
}

pub(super) async fn sign_out(State(console): State<Arc<Console>>, headers: HeaderMap, _: Sent) -> Response {
    if let Some(secret) = cookie::read(&headers, &console.cookie()) {
        console.visits.end(secret);
    }
    with_cookie(&console, &headers, None, "/console/login")
}

fn with_cookie(console: &Console, headers: &HeaderMap, secret: Option<&str>, next: &str) -> Response {
    let cookie = cookie::written(&console.cookie(), secret, console.site.is_https(headers));
    ([(SET_COOKIE, cookie)], Redirect::to(next)).into_response()
}
