//! The user's logins to remote servers: a button begins one at the provider, and the browser comes back here.

use std::sync::Arc;

use askama::Template;
use axum::extract::{self, State};
use axum::response::{IntoResponse, Redirect, Response};
use codebridge_runtimes::exec::visible_line;
use http::{HeaderMap, StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::form::Fields;
use super::logins::Begun;
use super::page::{page, problem};
use super::text::in_a_line;
use super::visitor::{Console, Sent, Visitor};
use crate::audit::RunFacts;
use crate::upstream::discovery::{Launch, Server};
use crate::upstream::{Account, LoginError, Upstream};

/// Where providers send the browser.
pub(super) const CALLBACK: &str = "/console/login/callback";
/// What the callback adds to its own address.
const AGAIN: &str = "&again=1";
/// As the audit log names the console.
const CLIENT: &str = "codebridge console";

/// What the page of a server says of the login.
#[derive(Debug, Default)]
pub(super) struct LoginPart {
    /// The address of the page.
    pub(super) path: String,
    /// None without a login.
    pub(super) account: Option<AccountPart>,
}

#[derive(Debug)]
pub(super) struct AccountPart {
    pub(super) name: String,
    pub(super) provider: String,
    pub(super) scopes: String,
    pub(super) missing: String,
    pub(super) is_expired: bool,
}

/// A page that leads elsewhere.
#[derive(Debug, Template)]
#[template(path = "leads.html")]
struct Leads<'a> {
    title: &'a str,
    url: &'a str,
}

impl LoginPart {
    /// Returns None for a server to which nobody can log in.
    pub(super) fn of(upstream: &Upstream, server: &Server) -> Option<Self> {
        let launch = &server.definition.as_ref().ok()?.launch;
        let account = upstream.logins().account(&server.name, launch).ok()?;
        Some(Self { path: path_of(&server.name), account: account.map(AccountPart::of) })
    }
}

impl AccountPart {
    fn of(account: Account) -> Self {
        Self {
            is_expired: !account.is_valid(),
            name: account.name.as_deref().map(in_a_line).unwrap_or_default(),
            provider: in_a_line(&account.issuer),
            scopes: in_a_line(&account.scopes.join(" ")),
            missing: in_a_line(&account.missing.join(" ")),
        }
    }
}

fn path_of(server: &str) -> String {
    format!("/console/servers/{}", utf8_percent_encode(server, NON_ALPHANUMERIC))
}

fn launch_of(upstream: &Upstream, name: &str) -> Option<(Arc<str>, Launch)> {
    let snapshot = upstream.snapshot();
    let server = snapshot.get(name)?;
    Some((Arc::clone(&server.name), server.definition.as_ref().ok()?.launch.clone()))
}

/// Begins a login of the user who is signed in, and of nobody else.
pub(super) async fn begin(
    State(console): State<Arc<Console>>,
    extract::Path(name): extract::Path<String>,
    headers: HeaderMap,
    Sent { visitor, .. }: Sent,
) -> Response {
    let upstream = &visitor.workspace().upstream;
    let (Some((server, launch)), Some(base)) = (launch_of(upstream, &name), console.site.base(&headers))
    else {
        return no_server();
    };
    let begun = upstream.logins().begin_on_page(&server, &launch, format!("{base}{CALLBACK}")).await;
    let pending = match begun {
        Ok(pending) => pending,
        Err(error) => return failed(&error),
    };
    let (url, issuer) = (pending.url().to_owned(), in_a_line(pending.issuer()));
    console.logins.add(pending, server, upstream.principal(), &visitor.form_token);
    // Not a redirect: browsers hold what forms may do against it.
    page(&Leads { title: &format!("Log in at {issuer}"), url: &url })
}

/// Ends the login that the browser comes back from.
pub(super) async fn come_back(
    State(console): State<Arc<Console>>,
    uri: Uri,
    visitor: Result<Visitor, Response>,
) -> Response {
    let query = uri.query().unwrap_or_default();
    let visitor = match visitor {
        Ok(visitor) => visitor,
        // Browsers send the cookie only where a page of this origin leads them.
        Err(refusal) if refusal.status().is_redirection() && !query.ends_with(AGAIN) => {
            return page(&Leads { title: "Back from the login", url: &format!("{CALLBACK}?{query}{AGAIN}") });
        }
        Err(refusal) if refusal.status().is_redirection() => {
            return problem(
                StatusCode::UNAUTHORIZED,
                "You are signed out",
                "Sign in to the console, and log in to the server again.",
            );
        }
        Err(refusal) => return refusal,
    };
    let query = query.strip_suffix(AGAIN).unwrap_or(query);
    let state = Fields::parse(query.as_bytes());
    let Some(Begun { pending, server, .. }) = console.logins.take(state.get("state"), &visitor.form_token)
    else {
        return problem(
            StatusCode::BAD_REQUEST,
            "This login is not awaited",
            "It was begun in another browser or too long ago, or has ended already.",
        );
    };
    let (upstream, query) = (visitor.workspace().upstream.clone(), query.to_owned());
    // It goes on when the browser does not wait for it: its code is used up.
    let ending = tokio::spawn(async move {
        let account = pending.finish(&query).await?;
        let facts = RunFacts::of_command(CLIENT, upstream.principal());
        upstream.record_login(&account, Arc::new(facts)).await;
        Ok(())
    });
    match ending.await {
        Ok(Ok(())) => Redirect::to(&path_of(&server)).into_response(),
        Ok(Err(error)) => failed(&error),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Ends the user's login to a server, at the provider too.
pub(super) async fn end(
    State(_): State<Arc<Console>>,
    extract::Path(name): extract::Path<String>,
    Sent { visitor, .. }: Sent,
) -> Response {
    let upstream = &visitor.workspace().upstream;
    let Some((server, launch)) = launch_of(upstream, &name) else { return no_server() };
    match upstream.logins().forget(&server, Some((&server, &launch))).await {
        Ok(_) => Redirect::to(&path_of(&server)).into_response(),
        Err(error) => failed(&error),
    }
}

fn no_server() -> Response {
    problem(StatusCode::NOT_FOUND, "There is no such server", "Its definition may be gone, or is not used.")
}

fn failed(error: &LoginError) -> Response {
    let hint = error.hint().map_or_else(String::new, |hint| format!(" Hint: {hint}."));
    let text = format!("{}.{hint}", visible_line(&error.to_string()));
    problem(StatusCode::BAD_GATEWAY, "There is no login", &text)
}
