//! The paths of the console, and the headers of all its answers.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{Redirect, Response};
use axum::routing::{get, post};
use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_FRAME_OPTIONS};
use http::{HeaderName, HeaderValue, StatusCode};

use super::page::problem;
use super::visitor::Console;
use super::{
    approvals, artifacts, assets, live, login, now, numbers, run, runs, servers, session_files, sessions,
    sign_in,
};
use crate::feed::Feed;
use crate::http::Site;
use crate::workspace::Workspace;

/// What pages may load and do. Nothing is inline, and nothing comes from elsewhere.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");

/// Returns the pages of a listener. What happens in the workspace of a user is what `feed_of` says.
pub fn routes(site: Site, feed_of: fn(&Workspace) -> Feed) -> Router {
    let (visits, histories, logins) = Default::default();
    let console = Arc::new(Console { site, visits, histories, logins, feed_of });
    Router::new()
        .route("/console", get(now::page_of_now))
        .route("/console/live", get(live::live))
        .route("/console/approvals", get(approvals::page_of_approvals).post(approvals::answer))
        .route("/console/", get(async || Redirect::permanent("/console")))
        .route("/console/login", get(sign_in::form).post(sign_in::sign_in))
        .route("/console/logout", post(sign_in::sign_out))
        .route("/console/runs", get(runs::page_of_runs))
        .route("/console/runs/{run}", get(run::page_of_run))
        .route("/console/runs/{run}/stop", post(now::stop))
        .route("/console/runs/{run}/displays/{number}/{form}", get(run::display))
        .route("/console/runs/{run}/files/{number}", get(session_files::content))
        .route("/console/runs/{run}/{text}", get(run::whole_text))
        .route("/console/sessions", get(sessions::page_of_sessions).post(sessions::end))
        .route("/console/servers", get(servers::page_of_servers))
        .route("/console/servers/{name}", get(servers::page_of_server))
        .route("/console/servers/{name}/login", post(login::begin))
        .route("/console/servers/{name}/logout", post(login::end))
        .route(login::CALLBACK, get(login::come_back))
        .route("/console/artifacts", get(artifacts::gallery))
        .route("/console/artifacts/content", get(artifacts::content))
        .route("/console/numbers", get(numbers::numbers))
        .route("/console/style.css", get(assets::style))
        .route("/console/script.js", get(assets::script))
        .route("/console/icon.svg", get(assets::icon))
        .route("/console/{*other}", get(unknown))
        .layer(middleware::from_fn(with_headers))
        .with_state(console)
}

async fn unknown() -> Response {
    problem(
        StatusCode::NOT_FOUND,
        "There is no such page",
        "The address may be wrong, or what it showed is gone.",
    )
}

async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(POLICY);
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    // Not `no-referrer`: forms would come from the origin `null`.
    headers.insert(REFERRER_POLICY, SAME_ORIGIN);
    for name in ["cross-origin-opener-policy", "cross-origin-resource-policy"] {
        headers.insert(HeaderName::from_static(name), SAME_ORIGIN);
    }
    response
}
