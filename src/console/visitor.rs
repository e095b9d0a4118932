//! Who sends a request, and what they may see.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Redirect, Response};
use http::request::Parts;
use http::{Method, StatusCode};

use super::cookie;
use super::form::{self, Fields, query};
use super::history::Histories;
use super::logins::Logins;
use super::page::problem;
use super::visits::Visits;
use crate::feed::Feed;
use crate::http::{Admitted, Presence, Refusal, Site};
use crate::workspace::Workspace;

/// What all requests have in common.
#[derive(Debug)]
pub(super) struct Console {
    pub(super) site: Site,
    pub(super) visits: Visits,
    pub(super) histories: Histories,
    pub(super) logins: Logins,
    /// Returns what happens in a workspace.
    pub(super) feed_of: fn(&Workspace) -> Feed,
}

/// Somebody who is signed in, during a request.
#[derive(Debug)]
pub(super) struct Visitor {
    pub(super) admitted: Admitted,
    pub(super) form_token: String,
    presence: Presence,
}

/// A form that one of our pages has sent.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) visitor: Visitor,
    pub(super) fields: Fields,
}

const OTHER_FORM: Refusal = Refusal {
    status: StatusCode::FORBIDDEN,
    reason: "form",
    text: "the form is not from a page of this console, or you have signed in again since: reload the page",
};

impl Console {
    /// Returns what happens in the workspace of a user.
    pub(super) fn feed(&self, visitor: &Visitor) -> Feed {
        (self.feed_of)(visitor.workspace())
    }

    pub(super) fn cookie(&self) -> String {
        cookie::name(self.site.port())
    }
}

impl Visitor {
    pub(super) fn workspace(&self) -> &Workspace {
        self.presence.workspace()
    }

    /// Whether it is still signed in, and what it sees is what belongs to the user.
    pub(super) fn still_sees(&self, console: &Console) -> bool {
        console.site.still(&self.admitted).is_some() && self.goes_on(console)
    }

    /// Whether what it sees is still what belongs to the user.
    pub(super) fn goes_on(&self, console: &Console) -> bool {
        console.site.goes_on(&self.presence)
    }
}

/// Returns the page of a refusal, which is counted and logged.
pub(super) fn refused(console: &Console, refusal: Refusal, parts: &Parts) -> Response {
    let counted = console.site.refuse(refusal, &parts.headers, &parts.extensions);
    let mut response = problem(refusal.status, "This is not possible", refusal.text);
    let more =
        counted.headers().iter().filter(|(name, _)| ["retry-after", "connection"].contains(&name.as_str()));
    response.headers_mut().extend(more.map(|(name, value)| (name.clone(), value.clone())));
    response
}

impl FromRequestParts<Arc<Console>> for Visitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Response> {
        let secret = cookie::read(&parts.headers, &console.cookie());
        let visit =
            secret.and_then(|secret| console.visits.get(secret, |admitted| console.site.still(admitted)));
        let Some(visit) = visit else {
            // A page leads to where its user signs in; what a script asks for does not.
            let is_page = parts.method == Method::GET
                && parts.headers.get("accept").is_none_or(|accept| accept != "text/event-stream");
            return Err(match is_page {
                true => {
                    Redirect::to(&sign_in_path(parts.uri.path_and_query().map_or("", |path| path.as_str())))
                        .into_response()
                }
                false => problem(StatusCode::UNAUTHORIZED, "You are signed out", "Sign in again to go on."),
            });
        };
        let presence = console.site.enter(&visit.admitted, &parts.extensions);
        let presence = presence.map_err(|refusal| refused(console, refusal, parts))?;
        Ok(Self { admitted: visit.admitted, form_token: visit.form_token, presence })
    }
}

impl FromRequest<Arc<Console>> for Sent {
    type Rejection = Response;

    async fn from_request(request: Request<Body>, console: &Arc<Console>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let visitor = Visitor::from_request_parts(&mut parts, console).await?;
        let secret = cookie::read(&parts.headers, &console.cookie()).unwrap_or_default();
        let fields =
            form::read(&parts.headers, body).await.map_err(|refusal| refused(console, refusal, &parts))?;
        let visit = console.visits.get(secret, |admitted| Some(admitted.clone()));
        if !visit.is_some_and(|visit| visit.has_sent(fields.get("form"))) {
            return Err(refused(console, OTHER_FORM, &parts));
        }
        Ok(Self { visitor, fields })
    }
}

/// Returns where to sign in to see a path.
fn sign_in_path(wanted: &str) -> String {
    match next_path(wanted) {
        "/console" => "/console/login".into(),
        next => format!("/console/login?{}", query(&[("next", next)])),
    }
}

/// Returns a path of the console: a link must not lead elsewhere.
pub(super) fn next_path(wanted: &str) -> &str {
    let is_plain = wanted.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_inside = wanted.strip_prefix("/console").is_some_and(|rest| rest.starts_with(['/', '?']));
    if is_plain && is_inside && !wanted.starts_with("/console/login") { wanted } else { "/console" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_sign_in_the_browser_stays_here() {
        for good in ["/console/runs?q=a%20b", "/console?x", "/console/sessions"] {
            assert_eq!(next_path(good), good);
        }
        for bad in [
            "", "/", "//evil.example", "/consoles", "/console\\x", "https://evil.example", "/console/\r\nx",
            "/console/login?next=x",
        ] {
            assert_eq!(next_path(bad), "/console", "{bad}");
        }
        assert_eq!(sign_in_path("/console/runs?q=1"), "/console/login?next=%2Fconsole%2Fruns%3Fq%3D1");
    }
}
