//! Who makes a call, as the host knows it.

use std::sync::Arc;

use super::unattended::Unattended;
use crate::audit::RunFacts;
use crate::policy::{Approvals, Caller, LOCAL, RunUse};
use crate::telemetry::TraceContext;

/// Who makes a call. Nothing of it comes from the sandbox, except the number of the line.
#[derive(Debug, Clone)]
pub struct CalledBy {
    /// None for a call from the command line.
    pub session: Option<Arc<str>>,
    /// The number of the run.
    pub run: u32,
    pub principal: Arc<str>,
    /// What the person approved in this session.
    pub approvals: Arc<Approvals>,
    /// What the calls of this run have used.
    pub used: Arc<RunUse>,
    pub line: Option<CodeLine>,
    /// The trace that the call belongs to.
    pub trace: TraceContext,
    /// What the audit log says of the run.
    pub facts: Arc<RunFacts>,
    /// Set in runs that nobody has asked for.
    pub unattended: Option<Arc<Unattended>>,
}

/// The line of code that makes a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeLine {
    /// Counted from 1.
    pub number: usize,
    pub text: String,
}

impl Default for CalledBy {
    /// The user of the command line.
    fn default() -> Self {
        Self {
            session: None,
            run: 0,
            principal: LOCAL.into(),
            approvals: Arc::default(),
            used: Arc::default(),
            line: None,
            trace: TraceContext::default(),
            facts: Arc::new(RunFacts { principal: LOCAL.into(), ..RunFacts::default() }),
            unattended: None,
        }
    }
}

impl CalledBy {
    /// Returns what rules look at.
    pub fn caller(&self) -> Caller<'_> {
        Caller { session: self.session.as_deref(), principal: &self.principal }
    }
}
