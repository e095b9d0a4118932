//! Logins that a call turns out to need: the person is shown the page, if the client can do that.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codebridge_runtimes::exec::visible_line;
use codebridge_runtimes::random_hex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::broadcast;

use super::Upstream;
use super::pages::MOST_CLOSED;
use crate::audit::{Approved, RunFacts};
use crate::policy::Kind;
use crate::upstream::called_by::CalledBy;
use crate::upstream::discovery::Server;
use crate::upstream::error::UpstreamError;
use crate::upstream::login::{Account, is_safe};
use crate::upstream::person::{Decision, ask_with_page};
use crate::upstream::questions::Answers;

/// How long one of many users may take to log in on a page of the console.
const PATIENCE: Duration = Duration::from_secs(600);

/// A login that the person is to make.
struct Wanted<'a> {
    message: String,
    /// The page.
    url: String,
    /// Ends when the person has logged in. What the browser brings is lost if it is dropped before.
    done: Pin<Box<dyn Future<Output = Result<(), UpstreamError>> + Send + 'a>>,
}

impl Upstream {
    /// Has the person log in, if that is what `error` says is missing. Then the call can be made again: the server has not taken it.
    ///
    /// # Errors
    /// The same error, if it says something else, the client cannot show a page, or the person did not log in. Where users log in on
    /// a page of the console, it names the page.
    pub async fn ask_to_log_in(
        &self,
        server: &Arc<Server>,
        error: UpstreamError,
        answers: &dyn Answers,
        by: &CalledBy,
    ) -> Result<(), UpstreamError> {
        if !self.wants_login(&error) {
            return Err(error);
        }
        let error = self.with_page(server, error);
        if !answers.offers().elicitation_by_url {
            return Err(error);
        }
        let asked = Instant::now();
        // One page at a time.
        let mut pages = self.0.pages.lock().await;
        let page = pages.entry(Arc::clone(&server.name)).or_default();
        // Another call may have asked meanwhile.
        if page.logged_in.is_some_and(|at| at > asked) {
            return Ok(());
        }
        if page.closed >= MOST_CLOSED {
            return Err(error);
        }
        let Some(Wanted { message, url, mut done }) = self.login_wanted(server, &error, by).await else {
            return Err(error);
        };
        let id = random_hex::<16>();
        let decision = tokio::select! {
            // Some clients answer when the page is closed.
            done = &mut done => {
                answers.page_done(&id);
                return page.end(done);
            }
            decision = ask_with_page(answers, &message, &url, &id) => decision,
        };
        self.0.telemetry.answered(decision.name());
        match decision {
            Decision::Approved => {
                let done = done.await;
                answers.page_done(&id);
                page.end(done)
            }
            Decision::Refused => {
                page.closed = MOST_CLOSED;
                Err(error)
            }
            Decision::Unanswered | Decision::NotAsked => {
                page.closed += 1;
                Err(error)
            }
        }
    }

    /// Returns the login that helps against an error; None if it cannot begin.
    async fn login_wanted<'a>(
        &'a self,
        server: &'a Server,
        error: &UpstreamError,
        by: &'a CalledBy,
    ) -> Option<Wanted<'a>> {
        let name = visible_line(&server.name);
        let wants = format!("Code uses the MCP server '{name}', which wants a login.");
        if self.0.user.operator_dir.is_some() {
            // The browser is on another machine, and whoever gets the page must log in for nobody else: it is behind a sign-in.
            let UpstreamError::LoginOnPage { page: Some(url), .. } = error else { return None };
            let message = format!(
                "{wants} Log in on this page of the console, if you want code to use it with your account."
            );
            let (logins, error) = (self.0.logged_in.subscribe(), error.clone());
            let done = async move {
                let login = wait_for_login(logins, &server.name);
                tokio::time::timeout(PATIENCE, login).await.map_err(|_| error)
            };
            return Some(Wanted { message, url: url.clone(), done: Box::pin(done) });
        }
        let launch = &server.definition.as_ref().ok()?.launch;
        let pending = self.logins().begin(&server.name, launch, Vec::new()).await.ok()?;
        let (url, issuer) = (pending.url().to_owned(), visible_line(pending.issuer()));
        let message = format!("{wants} Log in at {issuer}, if you want code to use it with your account.");
        let done = async move {
            let account = pending.wait().await.map_err(|why| UpstreamError::Login(Box::new(why)))?;
            self.record_login(&account, Arc::clone(&by.facts)).await;
            Ok(())
        };
        Some(Wanted { message, url, done: Box::pin(done) })
    }

    /// Returns the error with the page where one of many users logs in; other users have none.
    fn with_page(&self, server: &Server, error: UpstreamError) -> UpstreamError {
        if self.0.user.operator_dir.is_none() {
            return error;
        }
        let name = utf8_percent_encode(&server.name, NON_ALPHANUMERIC);
        let page = self.0.console.borrow().as_ref().map(|base| format!("{base}/console/servers/{name}"));
        UpstreamError::LoginOnPage {
            server: Arc::clone(&server.name),
            error: Box::new(error),
            page,
            principal: self.principal(),
        }
    }

    /// Notes under which address the client of this user reaches the bridge: its console is there too.
    pub fn is_reached_at(&self, base: Option<String>) {
        let base = base.filter(|base| is_safe(base));
        self.0.console.send_if_modified(|known| {
            let is_new = *known != base;
            *known = base;
            is_new
        });
    }

    /// Records that the person has logged in to a server.
    pub async fn record_login(&self, account: &Account, facts: Arc<RunFacts>) {
        let line = Approved::new(facts, &Kind::Server.to_string(), &account.issuer, "logged-in");
        // The person has it by now: a log that cannot be written stops the calls.
        let _ = self.0.audit.approved(line.of(&account.server)).await;
        // There may be no call that waits for it.
        let _ = self.0.logged_in.send(account.server.as_str().into());
    }

    /// Whether a login, or another one, helps against an error.
    fn wants_login(&self, error: &UpstreamError) -> bool {
        let lacks = |account: &Account, server: &str| account.server == server && !account.missing.is_empty();
        match error {
            UpstreamError::Http { status, has_login: false, .. }
                if *status == http::StatusCode::UNAUTHORIZED =>
            {
                true
            }
            UpstreamError::Http { server, status, has_login: false, .. }
                if *status == http::StatusCode::FORBIDDEN =>
            {
                self.logins().list().is_ok_and(|all| all.iter().any(|account| lacks(account, server)))
            }
            UpstreamError::Login(error) => error.is_expired(),
            _ => false,
        }
    }
}

/// Waits until the user has logged in to a server.
async fn wait_for_login(mut logins: broadcast::Receiver<Arc<str>>, server: &str) {
    loop {
        match logins.recv().await {
            Ok(other) if *other != *server => {}
            // One that was missed may have been it.
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
