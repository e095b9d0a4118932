//! Decides about resources and prompts of servers, as calls are decided.

use std::sync::Arc;

use super::question;
use super::wanted::WantedOffer;
use super::{Admitted, Asking};
use crate::policy::{Policy, RuleName, Rules, Subject, Verdict};
use crate::upstream::denied::Denied;
use crate::upstream::error::UpstreamError;

/// Admits the use of a resource or a prompt; None without a policy.
///
/// # Errors
/// It is denied, or was cancelled while the person was asked.
pub(in crate::upstream) async fn admit_offer(
    policy: &Policy,
    wanted: WantedOffer<'_>,
) -> Result<Option<Admitted>, UpstreamError> {
    let rules = || policy.rules().map_err(|error| wanted.denied(Denied::Policy(error)));
    let Some(mut deciding) = rules()? else { return Ok(None) };
    let (mut rule, was_asked) = wanted.decide(&deciding)?;
    if was_asked {
        wanted.ask(&rule).await?;
        // The operator may have changed the policy while the person was thinking.
        if let Some(now) = rules()? {
            deciding = now;
            (rule, _) = wanted.decide(&deciding)?;
        }
    }
    tokio::select! {
        turn = Admitted::begin(policy, &deciding, &wanted.server.name, wanted.by) => {
            let turn = turn.map_err(|spent| wanted.denied(Denied::Budget(spent)))?;
            Ok(Some(Admitted { _turn: turn, by: wanted.by.clone(), rule, was_asked }))
        }
        () = wanted.cancel.cancelled() => Err(wanted.cancelled()),
    }
}

impl WantedOffer<'_> {
    /// Returns the rule that decides, and whether it asks the person.
    fn decide(&self, rules: &Rules) -> Result<(RuleName, bool), UpstreamError> {
        let (kind, name) = (self.request.kind(), self.request.name());
        match rules.of_offer(kind, &self.server.name, name, &self.by.caller()) {
            Verdict::Deny(denial) => Err(self.denied(Denied::Rule(denial))),
            Verdict::Allow(rule) => Ok((rule, false)),
            Verdict::Ask(rule) => Ok((rule, true)),
        }
    }

    async fn ask(&self, rule: &RuleName) -> Result<(), UpstreamError> {
        let (kind, name, server) = (self.request.kind(), self.request.name(), &*self.server.name);
        let subject = Subject { kind, server: server.to_owned(), name: name.to_owned() };
        let (by, answers, telemetry) = (self.by, self.answers, self.telemetry);
        let asking = Asking { rule, subject, by, answers, telemetry };
        let text = |asked, _| Some(question::text_of_other(kind, name, Some(server), by, rule, asked));
        tokio::select! {
            done = asking.ask(text) => done.map_err(|why| self.denied(why)),
            () = self.cancel.cancelled() => Err(self.cancelled()),
        }
    }

    fn denied(&self, why: Denied) -> UpstreamError {
        UpstreamError::DeniedOffer {
            kind: self.request.kind(),
            server: Arc::clone(&self.server.name),
            name: self.request.name().to_owned(),
            why: Arc::new(why),
        }
    }

    fn cancelled(&self) -> UpstreamError {
        let (server, method) = (Arc::clone(&self.server.name), self.request.method().to_owned());
        UpstreamError::Cancelled { server, method }
    }
}
