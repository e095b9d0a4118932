//! Logins that a call turns out to need: the person is shown the page, if the client can do that.

use std::sync::Arc;
use std::time::Instant;

use codebridge_runtimes::exec::visible_line;
use codebridge_runtimes::random_hex;

use super::Upstream;
use super::pages::MOST_CLOSED;
use crate::audit::{Approved, RunFacts};
use crate::policy::Kind;
use crate::upstream::called_by::CalledBy;
use crate::upstream::discovery::Server;
use crate::upstream::error::UpstreamError;
use crate::upstream::login::{Account, LoginError};
use crate::upstream::person::{Decision, ask_with_page};
use crate::upstream::questions::Answers;

impl Upstream {
    /// Has the person log in, if that is what `error` says is missing. Then the call can be made again: the server has not taken it.
    ///
    /// # Errors
    /// The same error, if it says something else, the client cannot show a page, or the person did not log in.
    pub async fn ask_to_log_in(
        &self,
        server: &Arc<Server>,
        error: UpstreamError,
        answers: &dyn Answers,
        by: &CalledBy,
    ) -> Result<(), UpstreamError> {
        // The browser of one of many users is on another machine, where nobody waits for it.
        if !self.wants_login(&error)
            || self.0.user.operator_dir.is_some()
            || !answers.offers().elicitation_by_url
        {
            return Err(error);
        }
        let Ok(definition) = &server.definition else { return Err(error) };
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
        let begun = self.logins().begin(&server.name, &definition.launch, Vec::new()).await;
        let Ok(mut pending) = begun else { return Err(error) };
        let (url, issuer) = (pending.url().to_owned(), visible_line(pending.issuer()));
        let message = format!(
            "Code uses the MCP server '{}', which wants a login. Log in at {issuer}, if you want code to use it with your account.",
            visible_line(&server.name)
        );
        let id = random_hex::<16>();
        let decision = tokio::select! {
            // Some clients answer when the page is closed.
            account = pending.wait() => {
                let account = self.logged_in(account, by).await;
                answers.page_done(&id);
                return page.end(account);
            }
            decision = ask_with_page(answers, &message, &url, &id) => decision,
        };
        self.0.telemetry.answered(decision.name());
        match decision {
            Decision::Approved => {
                let account = self.logged_in(pending.wait().await, by).await;
                answers.page_done(&id);
                page.end(account)
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

    /// Records a login.
    async fn logged_in(
        &self,
        account: Result<Account, LoginError>,
        by: &CalledBy,
    ) -> Result<Account, UpstreamError> {
        let account = account.map_err(|why| UpstreamError::Login(Box::new(why)))?;
        self.record_login(&account, Arc::clone(&by.facts)).await;
        Ok(account)
    }

    /// Records that the person has logged in to a server.
    pub async fn record_login(&self, account: &Account, facts: Arc<RunFacts>) {
        let line = Approved::new(facts, &Kind::Server.to_string(), &account.issuer, "logged-in");
        // The person has it by now: a log that cannot be written stops the calls.
        let _ = self.0.audit.approved(line.of(&account.server)).await;
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
