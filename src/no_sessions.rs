//! Holds the place of the sessions until they are merged: says that there is no runtime.

use std::time::Duration;

use codebridge::session::{
    Failure, OutputStream, Progress, RunOutcome, RunPython, RunRequest, Status, Stream,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub(crate) struct NoSessions;

impl RunPython for NoSessions {
    async fn run(&self, _: RunRequest, _: mpsc::Sender<Progress>, _: CancellationToken) -> RunOutcome {
        RunOutcome {
            run_id: 0,
            status: Status::Error,
            failure: Some(Failure::NoRuntime),
            exit_code: None,
            stdout: Stream::default(),
            stderr: Stream::default(),
            error: Some("no container runtime is built in".into()),
            notices: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    fn output(&self, _: u32, _: OutputStream, _: u64, _: u64) -> Option<Vec<u8>> {
        None
    }

    fn kept_runs(&self) -> Vec<u32> {
        Vec::new()
    }

    async fn shutdown(&self) {}
}
