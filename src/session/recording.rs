//! What the audit log says of a run.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::{Caller, Failure, RunOutcome, RunRequest, Status};
use crate::audit::{Audit, AuditError, Content, Contents, RunEnd, RunFacts, RunStart};
use crate::upstream::Upstream;

/// What a sandbox is made of.
#[derive(Debug, Clone)]
pub(super) struct MadeOf {
    pub(super) runtime: Arc<str>,
    /// As the user names it.
    pub(super) image: Arc<str>,
    /// Its digest, once it is known.
    pub(super) digest: Arc<OnceLock<String>>,
}

/// The record of one run.
#[derive(Debug)]
pub(super) struct RunRecord {
    audit: Audit,
    /// For whom it runs.
    principal: Arc<str>,
    code_sha256: Option<String>,
    session: Arc<str>,
    client: Option<Arc<str>>,
    /// Set when it begins.
    facts: Option<Arc<RunFacts>>,
    /// Its number, and when its code began to run.
    begun: Option<(u32, Instant)>,
}

impl RunRecord {
    pub(super) fn new(audit: &Audit, principal: Arc<str>, request: &RunRequest, caller: &Caller) -> Self {
        Self {
            audit: audit.clone(),
            principal,
            code_sha256: audit.digest_of(&request.code),
            session: request.session.as_str().into(),
            client: caller.client.clone(),
            facts: None,
            begun: None,
        }
    }

    /// Returns what is known before it begins.
    pub(super) fn early_facts(&self) -> Arc<RunFacts> {
        Arc::new(RunFacts {
            session: Some(Arc::clone(&self.session)),
            client: self.client.clone(),
            principal: Arc::clone(&self.principal),
            code_sha256: self.code_sha256.clone(),
            ..RunFacts::default()
        })
    }

    /// Returns what holds for it and its calls.
    pub(super) fn facts(&mut self, number: u32, made_of: &MadeOf) -> Arc<RunFacts> {
        let MadeOf { runtime, image, digest } = made_of;
        let facts = Arc::new(RunFacts {
            run: self.audit.run_name(number),
            session: Some(Arc::clone(&self.session)),
            client: self.client.clone(),
            principal: Arc::clone(&self.principal),
            runtime: Some(Arc::clone(runtime)),
            image: Some(Arc::clone(image)),
            image_digest: Arc::clone(digest),
            code_sha256: self.code_sha256.clone(),
            ..RunFacts::default()
        });
        self.facts = Some(Arc::clone(&facts));
        facts
    }

    /// Records that it begins.
    ///
    /// # Errors
    /// It cannot be written. Where the log is required, there must be no run.
    pub(super) async fn starts(
        &self,
        start: RunStart,
        code: &str,
        upstream: &Upstream,
    ) -> Result<(), Arc<AuditError>> {
        self.audit.run_starts(start, code, || upstream.mask_of_all()).await
    }

    /// Notes that its code runs.
    pub(super) fn begins(&mut self, number: u32) {
        self.begun = Some((number, Instant::now()));
    }

    /// Says in the outcome which run it is, also if its end was not waited for.
    pub(super) fn complete(&self, outcome: &mut RunOutcome) {
        if let Some((number, at)) = self.begun
            && outcome.run_id == 0
        {
            (outcome.run_id, outcome.elapsed) = (number, at.elapsed());
        }
    }

    /// Returns the outcome of a run that must not be; None if it goes on with a notice.
    pub(super) fn refusal(&self, error: &AuditError) -> Option<RunOutcome> {
        let text = format!("the code did not run: {error}\nhint: {}", error.hint());
        self.audit.is_required().then(|| RunOutcome::not_started(Failure::Preparation, text))
    }

    /// Records the end, and says in the outcome if nothing can be recorded.
    pub(super) async fn ended(self, outcome: &mut RunOutcome, upstream: &Upstream) {
        if !self.audit.is_on() {
            return;
        }
        let contents = match self.audit.is_full() && outcome.run_id != 0 {
            true => {
                let stdout = Content::text("stdout", outcome.stdout.text.clone());
                let stderr = Content::text("stderr", outcome.stderr.text.clone());
                Contents { texts: vec![stdout, stderr], mask: Some(upstream.mask_of_all()) }
            }
            false => Contents::default(),
        };
        let end = RunEnd {
            facts: self.facts.clone().unwrap_or_else(|| self.early_facts()),
            outcome: outcome_name(outcome),
            exit_code: outcome.exit_code,
            error: error_of(outcome),
            milliseconds: (outcome.elapsed.as_micros() as f64) / 1000.0,
            stdout_bytes: outcome.stdout.total_bytes,
            stderr_bytes: outcome.stderr.total_bytes,
            calls: 0,
            refused: 0,
            refused_without_line: 0,
        };
        self.audit.run_ended(end, contents).await;
        if let Some(trouble) = self.audit.trouble().filter(|_| outcome.run_id != 0) {
            outcome.notices.push(notice(&trouble));
        }
    }
}

/// Returns what a result says about a log that cannot be written.
fn notice(trouble: &AuditError) -> String {
    format!("{trouble}; this run is not recorded, or only in part")
}

/// Returns the error without words of the code: of an exception, only its name.
fn error_of(outcome: &RunOutcome) -> Option<String> {
    let error = outcome.error.as_ref()?;
    if outcome.failure != Some(Failure::Code) || outcome.status != Status::Error {
        return Some(error.clone());
    }
    let name = error.split(':').next().unwrap_or_default();
    let is_name = name.len() <= 100 && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '_'));
    Some(if is_name { name.to_owned() } else { "an error of the code".into() })
}

/// Returns the word of the audit log for an outcome.
pub fn outcome_name(outcome: &RunOutcome) -> &'static str {
    match (outcome.status, outcome.run_id) {
        (Status::Success, _) => "ok",
        (Status::Running, _) => "running",
        (Status::Refused, _) => "refused",
        (Status::Cancelled, 0) => "not-started",
        (Status::Cancelled, _) => "cancelled",
        (Status::Timeout, _) => "timeout",
        (Status::Error, 0) => "not-started",
        (Status::Error, _) => match outcome.failure {
            Some(Failure::Preparation) => "not-prepared",
            Some(Failure::Sandbox) => "sandbox-failed",
            _ => "error",
        },
    }
}
