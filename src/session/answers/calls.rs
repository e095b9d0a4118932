//! What code does with the servers that its run may use: calls of tools, and the use of resources and prompts.

use std::fmt::Display;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::access::{Granted, ServerAccess, UnderWay};
use crate::activity;
use crate::policy::Kind;
use crate::session::Progress;
use crate::session::questions::{Answer, Call, OfferUse, OffersWanted, QuestionError, ok, within_limit};
use crate::upstream::discovery::Server;
use crate::upstream::{CallOptions, CallOutcome, CalledBy, CodeLine, OfferPages, resource_contents};

/// Characters of a line of code that a question shows.
const LONGEST_LINE: usize = 400;
/// Progress messages of a call that wait to be forwarded.
const WAITING_PROGRESS: usize = 16;

/// One of the lists in which servers name what they offer beside tools.
#[derive(Serialize)]
struct Offers<'a> {
    items: &'a [Box<serde_json::value::RawValue>],
    cut: bool,
}

impl ServerAccess {
    /// Calls a tool, if the current run may.
    pub(in crate::session) async fn call(
        &self,
        call: Call,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let Call { server, tool, arguments, line } = call;
        let reported = self.calls(&server, &tool, line);
        let outcome = self.outcome_of(Call { server, tool, arguments, line }, cancel).await;
        if let Some(reported) = reported {
            match &outcome {
                Ok(outcome) if outcome.is_error => reported.ended(activity::CallOutcome::Error, None),
                Ok(_) => reported.ended(activity::CallOutcome::Ok, None),
                Err(error) => reported.ended(shown_outcome(error, cancel), Some(&error.message)),
            }
        }
        Answer::result(outcome?)
    }

    async fn outcome_of(&self, call: Call, cancel: &CancellationToken) -> Result<CallOutcome, QuestionError> {
        let Call { server, tool, arguments, line } = call;
        let granted = self.granted_for(&server, (None, &tool), cancel).await?;
        let server = Arc::clone(&granted.server);
        let options = self.options(granted, &tool, line, cancel);
        let _under_way = UnderWay::new(self, &server, Some(&tool));
        match self.upstream.call_of(&server, &tool, arguments.clone(), options.clone()).await {
            Ok(outcome) => Ok(outcome),
            Err(error) => {
                self.log_in_for(&server, error, cancel).await?;
                Ok(self.upstream.call_of(&server, &tool, arguments, options).await?)
            }
        }
    }

    /// Reads a resource, if the current run may.
    pub(in crate::session) async fn read_resource(
        &self,
        wanted: OfferUse,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let outcome = self.use_offer(wanted, cancel).await?;
        Answer::work(move || {
            let contents = resource_contents(&outcome);
            within_limit(contents.map_err(|error| QuestionError::quoting(&error.to_string()))?)
        })
    }

    /// Gets a prompt, or proposals for an argument, if the current run may.
    pub(in crate::session) async fn get_offer(
        &self,
        wanted: OfferUse,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        Answer::result(self.use_offer(wanted, cancel).await?)
    }

    async fn use_offer(
        &self,
        wanted: OfferUse,
        cancel: &CancellationToken,
    ) -> Result<CallOutcome, QuestionError> {
        let OfferUse { server, request, line } = wanted;
        let granted = self.granted_for(&server, (Some(request.kind()), request.name()), cancel).await?;
        let server = Arc::clone(&granted.server);
        let options = self.options(granted, request.method(), line, cancel);
        let _under_way = UnderWay::new(self, &server, Some(request.method()));
        match self.upstream.use_offer(&server, &request, options.clone()).await {
            Ok(outcome) => Ok(outcome),
            Err(error) => {
                self.log_in_for(&server, error, cancel).await?;
                Ok(self.upstream.use_offer(&server, &request, options).await?)
            }
        }
    }

    /// Returns one of the lists of what a server offers beside tools. Code may read that of all servers.
    pub(in crate::session) async fn offers(
        &self,
        wanted: OffersWanted,
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let server = self.look_up(&wanted.server).await?;
        let _under_way = UnderWay::new(self, &server, None);
        let OfferPages { items, is_cut, .. } =
            self.upstream.offers(&server, wanted.list.into(), cancel).await?;
        Answer::work(move || ok(&Offers { items: &items, cut: is_cut }))
    }

    /// Returns the server that the current run may use, and records a refusal.
    pub(super) async fn granted_for(
        &self,
        server: &str,
        what: (Option<Kind>, &str),
        cancel: &CancellationToken,
    ) -> Result<Granted, QuestionError> {
        let granted = self.granted(server, cancel).await;
        if let Err(error) = &granted {
            let verdict = if error.kind == Some("server") { "not-granted" } else { "not-found" };
            self.upstream.record_refusal(server, what, &self.by(), verdict, &error.message).await;
        }
        granted
    }

    /// Returns the caller's end of a call.
    pub(super) fn options<'a>(
        &self,
        granted: Granted,
        what: &str,
        line: Option<u32>,
        cancel: &'a CancellationToken,
    ) -> CallOptions<'a> {
        let Granted { server, progress, answers, by, code, timeout } = granted;
        let by = CalledBy { line: line.and_then(|number| code_line(&code, number)), ..by };
        let progress = progress.map(|progress| forward_server_progress(&server, what, progress));
        let unread = Some(self.unread.clone());
        CallOptions { by, progress, answers, unread, at_least: timeout, cancel }
    }
}

/// Returns how a call ended that has no result.
fn shown_outcome(error: &QuestionError, cancel: &CancellationToken) -> activity::CallOutcome {
    match error.kind {
        _ if cancel.is_cancelled() => activity::CallOutcome::Cancelled,
        Some("denied" | "server") => activity::CallOutcome::Denied,
        _ => activity::CallOutcome::Error,
    }
}

/// Returns a line of the code that the host has: the sandbox only says which.
fn code_line(code: &str, number: u32) -> Option<CodeLine> {
    let number = usize::try_from(number).ok()?;
    let text = code.lines().nth(number.checked_sub(1)?)?;
    Some(CodeLine { number, text: text.chars().take(LONGEST_LINE).collect() })
}

/// Forwards the progress that a server reports of a call, as long as the call runs.
fn forward_server_progress<R: Display + Send + 'static>(
    server: &Server,
    tool: &str,
    progress: mpsc::Sender<Progress>,
) -> mpsc::Sender<R> {
    let (sender, mut reports) = mpsc::channel::<R>(WAITING_PROGRESS);
    let name = format!("{}.{tool}", server.name);
    tokio::spawn(async move {
        while let Some(report) = reports.recv().await {
            // What does not fit in the queue is out of date by the time it would.
            let _ = progress.try_send(Progress::Calling(format!("{name}: {report}")));
        }
    });
    sender
}
