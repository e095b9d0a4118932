//! Forwards the progress of a running call to its client.

use std::pin::{Pin, pin};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::{RequestContext, ServiceError};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::session::{OutputStream, Progress, Rewritten};

/// At most one notification in this time.
const PACE: Duration = Duration::from_millis(100);
/// A call without output is reported after this time as well: clients count their timeouts from the last
/// notification.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Characters of a line that are shown.
const LONGEST_MESSAGE: usize = 200;

/// Progress that waits for the client; more makes the code wait.
pub(super) const QUEUE: usize = 64;

type Sending = Pin<Box<dyn Future<Output = Result<(), ServiceError>> + Send>>;

/// Waits for the run and sends its progress to a client that wants it, nothing after its end, as the protocol demands.
pub(super) async fn forward_progress<T>(
    run: impl Future<Output = T>,
    events: &mut mpsc::Receiver<Progress>,
    context: &RequestContext<RoleServer>,
) -> T {
    let Some(token) = context.meta.get_progress_token() else {
        events.close();
        return run.await;
    };
    let mut run = pin!(run);
    let mut latest = Latest::default();
    let mut sending: Option<Sending> = None;
    let started = Instant::now();
    let mut last_sent = started;
    let notify = |message: String| -> Sending {
        let elapsed = started.elapsed().as_millis() as f64 / 1000.0;
        let progress = ProgressNotificationParam::new(token.clone(), elapsed).with_message(message);
        let peer = context.peer.clone();
        Box::pin(async move { peer.notify_progress(progress).await })
    };
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = &mut run => break outcome,
            Some(event) = events.recv() => latest.take_in(event),
            _ = async { sending.as_mut()?.await.ok() }, if sending.is_some() => sending = None,
            now = ticks.tick(), if sending.is_none() => {
                if latest.changed || now.duration_since(last_sent) >= HEARTBEAT {
                    last_sent = now;
                    sending = Some(notify(latest.message()));
                }
            }
        }
    };
    while let Ok(event) = events.try_recv() {
        latest.take_in(event);
    }
    // The last output is in the result; the last progress of a server is not.
    let last = latest.of_server.take().map(notify);
    let rest = async {
        for sending in sending.into_iter().chain(last) {
            let _ = sending.await;
        }
    };
    tokio::select! {
        () = rest => {}
        () = context.ct.cancelled() => {}
    }
    outcome
}

/// The latest line to show.
#[derive(Debug, Default)]
pub(super) struct Latest {
    line: String,
    stdout: Rewritten,
    stderr: Rewritten,
    changed: bool,
    /// The last progress of a server, until it is sent.
    of_server: Option<String>,
}

impl Latest {
    pub(super) fn take_in(&mut self, event: Progress) {
        match event {
            Progress::Preparing(what) => self.set(what),
            Progress::Calling(what) => {
                self.of_server = Some(what.clone());
                self.set(what);
            }
            Progress::Running => self.set("running".to_owned()),
            Progress::Output(stream, bytes) => self.take_in_output(stream, &bytes),
            Progress::Reported(what) => self.set(what),
            Progress::Displayed(..) => {}
        }
    }

    fn set(&mut self, line: String) {
        self.changed |= self.line != line;
        self.line = line;
    }

    /// Takes the last line that has ended, or what progress bars show.
    fn take_in_output(&mut self, stream: OutputStream, bytes: &[u8]) {
        let output = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr | OutputStream::Traceback => &mut self.stderr,
        };
        let shown = output.push(bytes);
        let progress = output.progress();
        let last = shown.rsplit(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
        let line = progress.or_else(|| {
            // A character has at most four bytes.
            let line = last?.trim_ascii();
            let text = String::from_utf8_lossy(&line[..line.len().min(4 * LONGEST_MESSAGE)]);
            Some(text.chars().take(LONGEST_MESSAGE).collect())
        });
        if let Some(line) = line {
            self.set(line);
        }
    }

    /// Returns the line if it has changed since the last call.
    pub(super) fn take_change(&mut self) -> Option<String> {
        self.changed.then(|| self.message())
    }

    fn message(&mut self) -> String {
        self.changed = false;
        self.of_server = None;
        if self.line.is_empty() { "waiting".to_owned() } else { self.line.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pieces: &[&str]) -> String {
        let mut latest = Latest::default();
        for piece in pieces {
            latest.take_in(Progress::Output(OutputStream::Stdout, piece.as_bytes().to_vec()));
        }
        latest.message()
    }

    #[test]
    fn the_latest_finished_line_is_shown() {
        assert_eq!(after(&[]), "waiting");
        assert_eq!(after(&["one\n"]), "one");
        assert_eq!(after(&["one\ntwo\nthr"]), "two");
        assert_eq!(after(&["one\ntw", "o\n"]), "two");
        assert_eq!(after(&["o", "n", "e", "\n", "\n \n"]), "one");
        assert_eq!(after(&["10%\r20%\r30%"]), "30%");
        assert_eq!(after(&["\x1b[?25l\r\x1b[2Kone \x1b[90m━━\x1b[0m 5%"]), "one ━━ 5%");
        assert_eq!(after(&["  padded  \n"]), "padded");
        assert_eq!(after(&["one\n\n\n", "\n"]), "one");
    }

    #[test]
    fn a_long_line_is_shown_in_part() {
        assert_eq!(after(&["ä".repeat(5000).as_str(), "\n"]), "ä".repeat(LONGEST_MESSAGE));
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_replaced() {
        let mut latest = Latest::default();
        latest.take_in_output(OutputStream::Stderr, b"a\xffb\n");
        assert_eq!(latest.message(), "a\u{fffd}b");
    }

    #[test]
    fn preparations_are_shown_until_the_code_runs() {
        let mut latest = Latest::default();
        latest.take_in(Progress::Preparing("pulling".into()));
        assert_eq!(latest.message(), "pulling");
        assert!(!latest.changed);
        latest.take_in(Progress::Running);
        assert!(latest.changed);
        assert_eq!(latest.message(), "running");
    }
}
