//! Decides each call before it is made. All calls pass here, whoever makes them and however they are written.

mod credentials;
mod offers;
mod question;
mod wanted;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;

pub(super) use offers::admit_offer;
pub(super) use wanted::{Wanted, WantedCall, WantedOffer};

use super::called_by::CalledBy;
use super::denied::Denied;
use super::discovery::Server;
use super::error::UpstreamError;
use super::person::{FormReply, ask_with_form};
use super::pool::{Secrets, Tool};
use super::questions::Answers;
use super::unattended::has_effects;
use crate::policy::{
    Annotations, Answer, Denial, Kind, Policy, RuleName, Rules, Shapes, Spent, Standing, Subject, ToolCall,
    Turn, Unaccepted, Verdict, schema,
};
use crate::telemetry::Telemetry;

/// A call that may be made, until it ends.
#[derive(Debug)]
pub(super) struct Admitted {
    _turn: Turn,
    by: CalledBy,
    pub(super) rule: RuleName,
    /// Whether the person had to approve it.
    pub(super) was_asked: bool,
}

impl Admitted {
    /// Counts a call, and waits for its turn.
    async fn begin(policy: &Policy, rules: &Rules, server: &str, by: &CalledBy) -> Result<Turn, Spent> {
        by.used.begin(rules.budgets())?;
        policy.turn(rules, server).await
    }

    /// Counts what the call has used.
    pub(super) fn end(self, bytes: usize, time: Duration) {
        self.by.used.end(bytes as u64, time);
    }
}

/// Returns the rules that decide a call; None without a policy.
///
/// # Errors
/// The policy cannot be used, or denies all calls of the server: then it need not be started. Only the server knows its tools: code
/// may call one by its alias.
pub(super) fn rules_for(
    policy: &Policy,
    server: &Server,
    tool: &str,
    by: &CalledBy,
) -> Result<Option<Arc<Rules>>, UpstreamError> {
    let denied = |why| denied(server, tool, why);
    let Some(rules) = policy.rules().map_err(|error| denied(Denied::Policy(error)))? else { return Ok(None) };
    match rules.denies_server(&server.name, &by.caller()) {
        Some(denial) => Err(denied(Denied::Rule(denial))),
        None => Ok(Some(rules)),
    }
}

/// Admits a call under a policy: decides it, asks the person if a rule says so, and waits for its turn.
///
/// # Errors
/// It is denied, or was cancelled while the person was asked.
pub(super) async fn admit(
    policy: &Policy,
    rules: &Arc<Rules>,
    call: WantedCall<'_>,
) -> Result<Admitted, UpstreamError> {
    let denied = |why| denied(call.server, call.tool, why);
    let mut rules = Arc::clone(rules);
    let (mut rule, was_asked) = deciding_rule(policy, &rules, &call).await?;
    if was_asked {
        ask(&rule, &call).await?;
        // The operator may have changed the policy while the person was thinking.
        if let Some(now) = policy.rules().map_err(|error| denied(Denied::Policy(error)))? {
            rules = now;
            (rule, _) = deciding_rule(policy, &rules, &call).await?;
        }
    }
    tokio::select! {
        admitted = Admitted::begin(policy, &rules, &call.server.name, call.by) => {
            let turn = admitted.map_err(|spent| denied(Denied::Budget(spent)))?;
            Ok(Admitted { _turn: turn, by: call.by.clone(), rule, was_asked })
        }
        () = call.cancel.cancelled() => Err(cancelled(&call)),
    }
}

/// Returns the rule that decides, and whether it asks the person.
///
/// # Errors
/// A rule or the state of the tool denies the call.
async fn deciding_rule(
    policy: &Policy,
    rules: &Arc<Rules>,
    call: &WantedCall<'_>,
) -> Result<(RuleName, bool), UpstreamError> {
    let denied = |why| denied(call.server, call.tool, why);
    let deciding = match decide(rules, call).await {
        Verdict::Deny(denial) => return Err(denied(Denied::Rule(denial))),
        Verdict::Allow(rule) => (rule, false),
        Verdict::Ask(rule) => (rule, true),
    };
    check_pin(policy, call).map_err(denied)?;
    Ok(deciding)
}

fn denied(server: &Server, tool: &str, why: Denied) -> UpstreamError {
    UpstreamError::Denied { server: Arc::clone(&server.name), tool: tool.to_owned(), why: Arc::new(why) }
}

fn cancelled(call: &WantedCall<'_>) -> UpstreamError {
    UpstreamError::Cancelled { server: Arc::clone(&call.server.name), method: call.tool.to_owned() }
}

/// Finds the rule; large arguments are read on a thread that may take its time.
async fn decide(rules: &Arc<Rules>, call: &WantedCall<'_>) -> Verdict {
    let annotations = call.listed.map_or_else(|| Annotations::of(None), Tool::annotations);
    if !call.arguments.are_large() {
        let (server, tool, arguments) = (&*call.server.name, call.tool, call.arguments.as_bytes());
        return rules.of_call(&ToolCall { server, tool, annotations, arguments }, &call.by.caller());
    }
    let (rules, by, arguments) = (Arc::clone(rules), call.by.clone(), call.arguments.clone());
    let (server, tool, file) = (Arc::clone(&call.server.name), call.tool.to_owned(), rules.file());
    let work = move || {
        let call = ToolCall { server: &server, tool: &tool, annotations, arguments: arguments.as_bytes() };
        rules.of_call(&call, &by.caller())
    };
    // A thread that failed has allowed nothing.
    spawn_blocking(work).await.unwrap_or(Verdict::Deny(Denial::NoRule(file)))
}

/// Refuses a tool that is not as it was when it was accepted.
fn check_pin(policy: &Policy, call: &WantedCall<'_>) -> Result<(), Denied> {
    let Some(tool) = call.listed else { return Ok(()) };
    let digest = *tool.digest.get_or_init(|| tool.shape().digest());
    let all = || call.tools.tools.iter().map(|tool| (tool.name.clone(), tool.shape())).collect::<Shapes>();
    match policy.pins().check(&call.server.name, &tool.name, digest, all) {
        Ok(None) => Ok(()),
        Ok(Some(Unaccepted::New)) => Err(Denied::NewTool { server: Arc::clone(&call.server.name) }),
        Ok(Some(Unaccepted::Changed)) => Err(Denied::ChangedTool { server: Arc::clone(&call.server.name) }),
        Err(error) => Err(Denied::Pins(error)),
    }
}

/// Decides about something else than a call of a tool, and asks the person if a rule says so.
///
/// # Errors
/// It is denied, or nobody needs it any more.
pub(super) async fn allow(policy: &Policy, wanted: Wanted<'_>) -> Result<(), UpstreamError> {
    let Wanted { kind, name, by, .. } = wanted;
    let denied = |why| UpstreamError::NotAllowed { kind, name: name.to_owned(), why: Arc::new(why) };
    let Some(rules) = policy.rules().map_err(|error| denied(Denied::Policy(error)))? else {
        let is_denied = by.unattended.is_some() && has_effects(kind);
        return if is_denied { Err(denied(Denied::Unattended)) } else { Ok(()) };
    };
    let rule = match rules.of(kind, name, &by.caller()) {
        Verdict::Allow(_) => return Ok(()),
        Verdict::Deny(denial) => return Err(denied(Denied::Rule(denial))),
        Verdict::Ask(rule) => rule,
    };
    let subject = Subject { kind, server: String::new(), name: name.to_owned() };
    let Wanted { answers, telemetry, .. } = wanted;
    let asking = Asking { rule: &rule, subject, by, answers, telemetry };
    let text = |asked: u32, _| Some(question::text_of_other(kind, name, None, by, &rule, asked));
    tokio::select! {
        done = asking.ask(text) => done.map_err(denied)?,
        () = wanted.cancel.cancelled() => return Err(denied(Denied::Unanswered { rule: rule.clone() })),
    }
    // The answer may have come after minutes: what the rules deny by now stays denied.
    denial(policy, kind, name, by).map_or(Ok(()), Err)
}

/// Returns why something else than a call of a tool is denied, whatever the person would say.
pub(super) fn denial(policy: &Policy, kind: Kind, name: &str, by: &CalledBy) -> Option<UpstreamError> {
    let why = match policy.rules() {
        Err(error) => Denied::Policy(error),
        Ok(None) => return None,
        Ok(Some(rules)) => match rules.of(kind, name, &by.caller()) {
            Verdict::Deny(denial) => Denied::Rule(denial),
            Verdict::Allow(_) | Verdict::Ask(_) => return None,
        },
    };
    Some(UpstreamError::NotAllowed { kind, name: name.to_owned(), why: Arc::new(why) })
}

/// Asks the person whether a call may be made.
async fn ask(rule: &RuleName, call: &WantedCall<'_>) -> Result<(), UpstreamError> {
    let WantedCall { tool, by, answers, telemetry, .. } = *call;
    let subject = Subject { kind: Kind::Tool, server: call.server.name.to_string(), name: tool.to_owned() };
    let asking = Asking { rule, subject, by, answers, telemetry };
    let text = |asked, approved| {
        let secrets =
            call.server.definition.as_ref().map(|definition| Secrets::of(definition)).unwrap_or_default();
        question::Question { call, rule, asked, approved, secrets: &secrets }.text()
    };
    tokio::select! {
        done = asking.ask(text) => done.map_err(|why| denied(call.server, call.tool, why)),
        () = call.cancel.cancelled() => Err(cancelled(call)),
    }
}

/// What the person is asked for.
struct Asking<'a> {
    rule: &'a RuleName,
    /// Answers are kept by this.
    subject: Subject,
    by: &'a CalledBy,
    answers: &'a dyn Answers,
    telemetry: &'a Telemetry,
}

impl Asking<'_> {
    /// Asks with the text that is made of how often the person was asked before, and how often it was approved; not if an earlier
    /// answer covers it.
    async fn ask(&self, text: impl Fn(u32, u64) -> Option<String> + Send) -> Result<(), Denied> {
        if self.stand()?.is_none() {
            return Ok(());
        }
        let (rule, approvals, run) = (self.rule.clone(), &self.by.approvals, self.by.run);
        let _turn = approvals.turn().await;
        // An answer to another question may cover this one by now.
        let Some((asked, approved)) = self.stand()? else { return Ok(()) };
        let Some(text) = text(asked, approved) else { return Err(Denied::TooLarge { rule }) };
        match ask_with_form(self.answers, &text, schema(asked, self.by.session.is_some())).await {
            FormReply::Answer(answer) => {
                let approved = approvals.keep(run, &self.subject, Answer::read(&answer));
                self.telemetry.answered(if approved { "approved" } else { "refused" });
                if approved { Ok(()) } else { Err(Denied::Refused { rule }) }
            }
            FormReply::NoAnswer => {
                approvals.keep(run, &self.subject, Answer::No);
                self.telemetry.answered("unanswered");
                Err(Denied::Unanswered { rule })
            }
            FormReply::Unavailable => {
                self.telemetry.answered("not_asked");
                Err(Denied::NobodyToAsk { rule })
            }
        }
    }

    /// Returns how often the person was asked and has approved; None if an earlier answer covers it.
    fn stand(&self) -> Result<Option<(u32, u64)>, Denied> {
        match self.by.approvals.stand(self.by.run, &self.subject) {
            Standing::Approved => Ok(None),
            Standing::AskedTooOften => Err(Denied::AskedTooOften { rule: self.rule.clone() }),
            Standing::Refused => Err(Denied::Refused { rule: self.rule.clone() }),
            Standing::Unknown { asked, approved } => Ok(Some((asked, approved))),
        }
    }
}
