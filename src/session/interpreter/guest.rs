//! A guest: an interpreter that has started in its sandbox and knows nothing yet of the session that it is for.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use codebridge_runtimes::{End, Refusal, Sandbox};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio_util::sync::CancellationToken;

use super::pipes::widen;
use super::run::Early;
use super::silence::{Traffic, Watched};
use super::start_error::StartError;
use crate::session::frames::{FrameError, FrameReader, FromGuest, ToGuest};

const PROTOCOL: u32 = 1;
/// Bytes that are read at once of small frames; those of large ones go where they belong. Each session has as many.
const READ_AHEAD: usize = 2 << 10;
/// How long a guest may take to say that it is there. One that is stopped never says it.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it may take to load more: a twentieth of a second, on a loaded host more.
const LOADING: Duration = Duration::from_secs(10);

/// A guest that waits for its first frame. Nothing reads what its sandbox sends meanwhile. [`Guest::end`] must be called
/// unless it becomes an interpreter; dropping it leaves its sandbox to the reaper.
#[derive(Debug)]
pub(in crate::session) struct Guest {
    parts: GuestParts,
    /// What it offered before any user code ran.
    offered: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct GuestParts {
    pub(super) sandbox: Sandbox,
    pub(super) stdin: ChildStdin,
    pub(super) reader: FrameReader<BufReader<Watched<ChildStdout>>>,
    pub(super) traffic: Arc<Traffic>,
    /// What it has printed.
    pub(super) early: Early,
}

impl Guest {
    /// Sends the guest into a launched sandbox and waits for its hello. `blob` is the first bytes of its standard input.
    ///
    /// # Errors
    /// The sandbox is returned, to be ended.
    pub(in crate::session) async fn start(
        mut sandbox: Sandbox,
        blob: Vec<u8>,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Self, (Sandbox, StartError)> {
        let (Some(stdin), Some(stdout)) = (sandbox.take_stdin(), sandbox.take_stdout()) else {
            let message = "the sandbox has no pipes".into();
            return Err((sandbox, StartError::Refused(Refusal::TimedOut { message })));
        };
        widen(&stdin);
        let traffic = Arc::<Traffic>::default();
        let stdout = Watched::new(stdout, Arc::clone(&traffic));
        let reader = FrameReader::new(BufReader::with_capacity(READ_AHEAD, stdout));
        let parts = GuestParts { sandbox, stdin, reader, traffic, early: Early::default() };
        let mut starting = Self { parts, offered: None };
        let never_starts = starting.sandbox().never_starts();
        let hello = tokio::select! {
            hello = tokio::time::timeout(limit, starting.hello(&blob)) => hello,
            refusal = never_starts => Ok(Err(StartError::Refused(refusal))),
            () = cancel.cancelled() => Ok(Err(StartError::Stopped)),
        };
        let sandbox = starting.sandbox();
        let error = match hello {
            Ok(Ok(())) => return Ok(starting),
            Ok(Err(error)) => error,
            Err(_) => {
                let message = sandbox.with_messages(&format!("the sandbox did not answer within {limit:?}"));
                StartError::Refused(Refusal::TimedOut { message })
            }
        };
        Err((starting.parts.sandbox, error))
    }

    /// Writes the guest and waits until it has started.
    async fn hello(&mut self, blob: &[u8]) -> Result<(), StartError> {
        let GuestParts { sandbox, stdin, reader, early, .. } = &mut self.parts;
        let writing = async {
            // A failure shows at the other end of the sandbox.
            let _ = stdin.write_all(blob).await;
            Ok(())
        };
        let reading = async {
            loop {
                match reader.next().await {
                    Ok(Some(FromGuest::Hello(PROTOCOL))) => return Ok(()),
                    Ok(Some(FromGuest::Hello(version))) => return Err(StartError::Protocol(version)),
                    Ok(Some(FromGuest::Parts(parts))) => self.offered = Some(parts),
                    Ok(Some(FromGuest::Question(..))) => {
                        let message = "the sandbox asked something before it had started".into();
                        return Err(StartError::Refused(Refusal::Other { message }));
                    }
                    Ok(Some(frame)) => early.take(frame),
                    Ok(None) => break,
                    Err(FrameError::Io(error)) if error.kind() == ErrorKind::UnexpectedEof => break,
                    // It may live for ever.
                    Err(error) => {
                        return Err(StartError::Refused(Refusal::Other { message: error.to_string() }));
                    }
                }
            }
            let end = sandbox.wait().await.unwrap_or(End::Signalled(0));
            Err(StartError::Refused(sandbox.explain(end).await))
        };
        tokio::try_join!(writing, reading)?;
        Ok(())
    }

    /// Whether it still waits for its first frame: it is asked.
    pub(in crate::session) async fn is_alive(&mut self) -> bool {
        self.answers(false, PATIENCE).await
    }

    /// Has it load what most code needs, which a session that waits for it would not wait for; false if it is gone.
    pub(in crate::session) async fn load_ahead(&mut self) -> bool {
        // Whoever watches its memory finds its processes meanwhile, for which an engine is asked.
        self.parts.sandbox.set_busy(true);
        let is_there = self.answers(true, LOADING).await;
        self.parts.sandbox.set_busy(false);
        is_there
    }

    async fn answers(&mut self, loads_ahead: bool, limit: Duration) -> bool {
        let GuestParts { stdin, reader, early, .. } = &mut self.parts;
        let asking = async {
            let question = ToGuest::Alive { loads_ahead };
            if question.write(stdin).await.is_err() {
                return false;
            }
            loop {
                match reader.next().await {
                    Ok(Some(FromGuest::Alive)) => return true,
                    // What the image runs in every interpreter may print something.
                    Ok(Some(frame @ (FromGuest::Stdout(_) | FromGuest::Stderr(_)))) => early.take(frame),
                    _ => return false,
                }
            }
        };
        tokio::time::timeout(limit, asking).await.unwrap_or(false)
    }

    pub(in crate::session) fn sandbox(&self) -> &Sandbox {
        &self.parts.sandbox
    }

    /// Returns the parts of the guest in compiled form, if it offered them when it started.
    pub(in crate::session) fn take_offered(&mut self) -> Option<Vec<u8>> {
        self.offered.take()
    }

    pub(super) fn into_parts(self) -> GuestParts {
        self.parts
    }

    /// Ends the sandbox and verifies that it is removed.
    pub(in crate::session) async fn end(self) -> Result<(), codebridge_runtimes::ReclaimError> {
        let GuestParts { sandbox, stdin, reader, .. } = self.parts;
        // It exits at the end of its input.
        drop((stdin, reader));
        sandbox.end().await
    }
}
