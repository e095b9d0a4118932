//! The transport over the standard input and output of a server process.

use std::collections::VecDeque;
use std::io;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::outbox::Outbox;
use super::process::ServerProcess;
use super::wire::WireMessage;
use crate::mcp::client::{Inbox, Unaccepted};
use crate::mcp::line::{Line, LineReader};

/// The longest line that is read.
pub(super) const LONGEST_LINE: usize = 256 << 20;

/// Our side of the pipes. Dropping it ends the process.
pub(super) struct StdioTransport {
    lines: LineReader<ChildStdout>,
    /// Messages that arrived together with an earlier one.
    ready: VecDeque<ServerJsonRpcMessage>,
    inbox: Inbox,
    outbox: Option<Outbox>,
    writer: AbortHandle,
    process: ServerProcess,
    gone: CancellationToken,
    /// Whether anything was sent.
    has_sent: bool,
}

impl StdioTransport {
    pub(super) fn new(
        process: ServerProcess,
        stdin: ChildStdin,
        stdout: ChildStdout,
        inbox: Inbox,
        gone: CancellationToken,
    ) -> Self {
        let outbox = Outbox::default();
        Self {
            lines: LineReader::new(stdout, LONGEST_LINE),
            ready: VecDeque::new(),
            inbox,
            writer: tokio::spawn(outbox.writer(stdin)).abort_handle(),
            outbox: Some(outbox),
            process,
            gone,
            has_sent: false,
        }
    }

    /// Closes the standard input, even if the server has stopped reading, and stops the process.
    fn end(&mut self) {
        self.outbox = None;
        self.writer.abort();
        self.process.stop();
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.inbox.note(&message);
        self.inbox.replied(&message);
        let queued = WireMessage::new(&message).map_err(io::Error::other).and_then(|line| {
            let outbox = self.outbox.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(outbox.push(line, &message))
        });
        let is_first = !std::mem::replace(&mut self.has_sent, true);
        async move {
            let sent: io::Result<()> = queued?.await.map_err(|_| io::ErrorKind::BrokenPipe)?;
            match sent {
                // The server has exited already. What it printed says why, and is read before the end of its output.
                Err(error) if is_first && error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                sent => sent,
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            self.inbox.has_room().await;
            if let Some(outbox) = &self.outbox {
                outbox.has_room().await;
            }
            match self.lines.next_line().await {
                Ok(Some(Line::Complete(line))) => {
                    self.ready.extend(self.inbox.read_line(line));
                    self.lines.free_long_line();
                }
                Ok(Some(Line::TooLong(skipped))) => {
                    let read = Unaccepted::read_skipped(&skipped, LONGEST_LINE);
                    self.ready.extend(self.inbox.accept_all(read));
                }
                Ok(None) | Err(_) => {
                    self.gone.cancel();
                    self.end();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.end();
        self.process.ended().await;
        Ok(())
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.end();
    }
}
