//! What the audit log says of a call: it passes here at the one place where calls are decided.

use std::sync::Arc;

use super::called_by::CalledBy;
use super::denied::Denied;
use super::discovery::{Server, Snapshot};
use super::error::UpstreamError;
use super::govern::Admitted;
use super::offer::OfferRequest;
use super::pool::{CallOutcome, Secrets, Tool};
use super::raw_arguments::RawArguments;
use crate::audit::{Audit, CallEnd, CallRecord, Content, Contents, Denied as DeniedLine, Mask};
use crate::policy::{Denial, Kind};

/// The record of one call, as it is made.
pub(super) struct Recording {
    record: Option<CallRecord>,
    /// Kept where they are recorded.
    arguments: Option<RawArguments>,
    /// The documentation of the tool, where arguments are recorded.
    doc: Option<String>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The server and its tools are looked up.
    LookedUp,
    Deciding,
    /// The server may have got it.
    Admitted,
}

impl Recording {
    pub(super) fn begin(
        audit: &Audit,
        server: &Arc<Server>,
        tool: &str,
        arguments: &RawArguments,
        by: &CalledBy,
    ) -> Self {
        let record = audit.call(&by.facts, &server.name, tool, arguments.as_bytes().len());
        let arguments = audit.is_full().then(|| arguments.clone());
        Self { record, arguments, doc: None, stage: Stage::LookedUp }
    }

    /// Begins the record of the use of a resource or a prompt.
    pub(super) fn of_offer(
        audit: &Audit,
        server: &Arc<Server>,
        request: &OfferRequest,
        arguments: &RawArguments,
        by: &CalledBy,
    ) -> Self {
        let mut recording = Self::begin(audit, server, request.name(), arguments, by);
        if let Some(record) = &mut recording.record {
            record.is_about(&request.kind().to_string());
        }
        recording
    }

    /// Notes the name of the tool at its server.
    pub(super) fn is_of(&mut self, tool: &str, listed: Option<&Tool>) {
        if self.arguments.is_some() {
            self.doc = listed.and_then(|tool| serde_json::to_string(&tool.doc()).ok());
        }
        if let Some(record) = &mut self.record {
            record.is_of(tool);
        }
    }

    /// Notes that policy and person decide from here on.
    pub(super) fn is_deciding(&mut self) {
        self.stage = Stage::Deciding;
    }

    /// Notes that the call may be made; None without a policy. It is in the log before it is made, where that is required.
    ///
    /// # Errors
    /// It cannot be written: the call must not be made.
    pub(super) async fn admitted(
        &mut self,
        server: &Server,
        tool: &str,
        admitted: Option<&Admitted>,
    ) -> Result<(), UpstreamError> {
        let Some(record) = &mut self.record else { return Ok(()) };
        match admitted {
            None => record.decided("allowed", None),
            Some(admitted) => {
                let verdict = if admitted.was_asked { "approved" } else { "allowed" };
                record.decided(verdict, Some(admitted.rule.to_string()));
            }
        }
        record.begins().await.map_err(|why| UpstreamError::Unrecorded {
            server: Arc::clone(&server.name),
            tool: tool.to_owned(),
            why,
        })?;
        self.stage = Stage::Admitted;
        Ok(())
    }

    /// Records the end.
    pub(super) async fn end(self, server: &Server, outcome: &Result<CallOutcome, UpstreamError>) {
        let Self { record: Some(mut record), arguments, doc, stage } = self else { return };
        let is_refused = stage != Stage::Admitted;
        let (mut received, mut error) = (None, None);
        let outcome_name = match outcome {
            Ok(outcome) => {
                received = Some(outcome.json.get().len() as u64);
                if outcome.is_error { "tool-error" } else { "ok" }
            }
            Err(failed) => {
                error = Some(failed.to_string());
                match (failed, stage) {
                    (UpstreamError::Denied { why, .. } | UpstreamError::DeniedOffer { why, .. }, _) => {
                        let (verdict, rule) = verdict_of(why);
                        record.decided(verdict, rule);
                        "denied"
                    }
                    (UpstreamError::Cancelled { .. }, Stage::Deciding) => {
                        record.decided("withdrawn", None);
                        "cancelled"
                    }
                    (UpstreamError::Cancelled { .. }, _) => "cancelled",
                    (UpstreamError::Unrecorded { .. }, _) => "not-recorded",
                    (UpstreamError::TimedOut { .. }, Stage::Admitted) => "timeout",
                    (_, Stage::Admitted) => "error",
                    _ => "not-called",
                }
            }
        };
        let mut contents = Contents::default();
        if let Some(arguments) = arguments {
            contents.texts.push(Content::json("arguments", text(&arguments)));
            contents.texts.extend(doc.map(|doc| Content::shared("tool_doc", doc)));
            match outcome {
                Ok(outcome) => contents.texts.push(Content::json("result", outcome.json.get().to_owned())),
                // As code sees it.
                Err(error) => contents.texts.push(Content::text("message", in_one_line(error))),
            }
            contents.mask = mask_of(server);
        }
        record.ended(CallEnd { outcome: outcome_name, is_refused, received, error }, contents).await;
    }
}

fn in_one_line(error: &UpstreamError) -> String {
    error.hint().map_or_else(|| error.to_string(), |hint| format!("{error}; hint: {hint}"))
}

fn text(arguments: &RawArguments) -> String {
    String::from_utf8_lossy(arguments.as_bytes()).into_owned()
}

/// Returns what removes the credentials of a server's definition. It takes its time, on the thread that writes.
fn mask_of(server: &Server) -> Option<Mask> {
    let definition = server.definition.as_ref().ok()?.clone();
    let secrets = std::sync::OnceLock::new();
    Some(Arc::new(move |text: &str| secrets.get_or_init(|| Secrets::of(&definition)).redact(text)))
}

/// Returns the word for a refusal, and the rule behind it.
fn verdict_of(why: &Denied) -> (&'static str, Option<String>) {
    match why {
        Denied::Policy(_) => ("policy-error", None),
        Denied::Rule(Denial::Rule { rule } | Denial::Arguments { rule, .. }) => {
            ("denied", Some(rule.to_string()))
        }
        Denied::Rule(Denial::NoRule(_)) => ("no-rule", None),
        Denied::Budget(_) => ("budget", None),
        Denied::NewTool { .. } => ("new-tool", None),
        Denied::ChangedTool { .. } => ("changed-tool", None),
        Denied::Pins(_) => ("pins-error", None),
        Denied::Refused { rule } => ("refused", Some(rule.to_string())),
        Denied::AskedTooOften { rule } => ("asked-too-often", Some(rule.to_string())),
        Denied::Unanswered { rule } => ("unanswered", Some(rule.to_string())),
        Denied::NobodyToAsk { rule } => ("nobody-to-ask", Some(rule.to_string())),
        Denied::TooLarge { rule } => ("too-large", Some(rule.to_string())),
        Denied::Unattended => ("unattended", None),
    }
}

/// Records a call of a server that the code may not use; `kind` says what it is about, if not about a tool.
pub(super) async fn record_refusal(
    audit: &Audit,
    server: &str,
    (kind, tool): (Option<Kind>, &str),
    by: &CalledBy,
    verdict: &'static str,
    why: &str,
) {
    let Some(mut record) = audit.call(&by.facts, &server.into(), tool, 0) else { return };
    if let Some(kind) = kind {
        record.is_about(&kind.to_string());
    }
    record.decided(verdict, None);
    let error = Some(why.to_owned());
    let end = CallEnd { outcome: "denied", is_refused: true, received: None, error };
    record.ended(end, Contents::default()).await;
}

/// Records that a package, an artifact or a share is denied.
pub(super) async fn record_denial(
    audit: &Audit,
    kind: Kind,
    name: &str,
    by: &CalledBy,
    error: &UpstreamError,
) {
    let (verdict, rule) = match error {
        UpstreamError::NotAllowed { why, .. } => verdict_of(why),
        _ => ("cancelled", None),
    };
    let (kind, name, error) = (kind.to_string(), name.to_owned(), error.to_string());
    let facts = Arc::clone(&by.facts);
    audit.denied(DeniedLine { facts, kind, name, verdict, rule, error }).await;
}

/// Returns what removes the credentials of all definitions.
pub(super) fn mask_of_all(snapshot: Arc<Snapshot>) -> Mask {
    let all = std::sync::OnceLock::new();
    let read = move || -> Vec<Secrets> {
        let definitions = snapshot.servers.iter().filter_map(|server| server.definition.as_ref().ok());
        definitions.map(|definition| Secrets::of(definition)).collect()
    };
    Arc::new(move |text: &str| {
        let secrets: &Vec<Secrets> = all.get_or_init(&read);
        secrets.iter().fold(text.to_owned(), |text, secrets| secrets.redact(&text))
    })
}
