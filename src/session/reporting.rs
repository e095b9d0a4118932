//! What the record of a workspace and telemetry say of a run.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Caller, Progress, RunOutcome, RunRequest, Status, outcome_name};
use crate::activity::{Activity, ArtifactRow, FileRow, NewRun, RunEnd, RunGuard, RunReporter};
use crate::audit::RunFacts;
use crate::telemetry;

/// Progress of a start that waits to be forwarded.
const WAITING: usize = 16;

/// Begins the record of a call. Its questions can be answered by others than its client from here on.
pub(super) fn begin(
    activity: &Activity,
    request: &RunRequest,
    caller: &mut Caller,
    is_background: bool,
    facts: Arc<RunFacts>,
) -> RunGuard {
    let running = activity.begin(NewRun {
        code: &request.code,
        session: &request.session,
        servers: &request.servers,
        timeout: request.timeout,
        client: caller.client.clone(),
        is_background,
        facts,
        cancel: caller.cancel.clone(),
    });
    // Nobody is asked about what nobody has asked for.
    if caller.unattended.is_none() {
        caller.answers = running.reporter().answers(Arc::clone(&caller.answers));
    }
    running
}

/// Returns a caller that gets the progress of a start, which is reported too.
pub(super) fn while_starting(caller: &Caller, reporter: &RunReporter) -> Caller {
    let (sender, mut events) = mpsc::channel(WAITING);
    let (progress, reporter) = (caller.progress.clone(), reporter.clone());
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            if let Progress::Preparing(what) = &event {
                reporter.prepares(what);
            }
            // A receiver that is too slow misses a line.
            let _ = progress.try_send(event);
        }
    });
    Caller { progress: sender, ..caller.clone() }
}

/// Returns how a run ended.
pub(super) fn end(outcome: &RunOutcome) -> RunEnd {
    let files = outcome.files.files.iter().map(|file| FileRow {
        path: file.shown_path(),
        bytes: file.bytes,
        uri: file.uri.clone(),
    });
    let artifacts = outcome.artifacts.iter().map(|artifact| ArtifactRow {
        name: artifact.name.clone(),
        version: artifact.version,
        bytes: artifact.bytes,
        mime: artifact.mime_type.clone(),
    });
    RunEnd {
        outcome: outcome_name(outcome),
        error: outcome.error.clone(),
        notices: outcome.notices.clone(),
        files: files.collect(),
        artifacts: artifacts.collect(),
    }
}

/// Returns what telemetry has of the end of a run.
pub(super) fn measured(outcome: &RunOutcome) -> telemetry::RunEnd {
    telemetry::RunEnd {
        outcome: match outcome.status {
            Status::Refused => "refused",
            status => status.name(),
        },
        run: outcome.run_id,
        exit_code: outcome.exit_code,
        stdout: outcome.stdout.total_bytes,
        stderr: outcome.stderr.total_bytes,
    }
}
