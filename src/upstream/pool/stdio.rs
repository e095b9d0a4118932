//! The transport over the standard input and output of a server process.

use std::collections::VecDeque;
use std::io;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::process::ServerProcess;
use super::wire::WireMessage;
use crate::mcp::client::Inbox;
use crate::mcp::line::{Line, LineReader};

/// The longest line that is read.
pub(super) const LONGEST_LINE: usize = 256 << 20;

/// A message to write, and the channel for the result.
type Outgoing = (WireMessage, oneshot::Sender<io::Result<()>>);

/// Our side of the pipes. Dropping it ends the process.
pub(super) struct StdioTransport {
    lines: LineReader<ChildStdout>,
    /// Messages that arrived together with an earlier one.
    ready: VecDeque<ServerJsonRpcMessage>,
    inbox: Inbox,
    to_writer: Option<mpsc::UnboundedSender<Outgoing>>,
    writer: AbortHandle,
    process: ServerProcess,
    gone: CancellationToken,
}

impl StdioTransport {
    pub(super) fn new(
        process: ServerProcess,
        stdin: ChildStdin,
        stdout: ChildStdout,
        inbox: Inbox,
        gone: CancellationToken,
    ) -> Self {
        let (to_writer, outgoing) = mpsc::unbounded_channel();
        Self {
            lines: LineReader::new(stdout, LONGEST_LINE),
            ready: VecDeque::new(),
            inbox,
            to_writer: Some(to_writer),
            writer: tokio::spawn(write(stdin, outgoing)).abort_handle(),
            process,
            gone,
        }
    }

    /// Closes the standard input, even if the server has stopped reading, and stops the process.
    fn end(&mut self) {
        self.to_writer = None;
        self.writer.abort();
        self.process.stop();
    }
}

/// Writes messages in the order in which they were sent: a cancellation must follow its request.
async fn write(mut stdin: ChildStdin, mut outgoing: mpsc::UnboundedReceiver<Outgoing>) {
    while let Some((message, done)) = outgoing.recv().await {
        let _ = done.send(message.write_line(&mut stdin).await);
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.inbox.note(&message);
        let queued = WireMessage::new(&message).map_err(io::Error::other).and_then(|message| {
            let (done, written) = oneshot::channel();
            let writer = self.to_writer.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
            writer.send((message, done)).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(written)
        });
        async move { queued?.await.map_err(|_| io::ErrorKind::BrokenPipe)? }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            match self.lines.next_line().await {
                Ok(Some(Line::Complete(line))) => self.ready.extend(self.inbox.read_line(line)),
                Ok(Some(Line::TooLong(skipped))) => {
                    self.ready.extend(self.inbox.read_skipped(&skipped, LONGEST_LINE));
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
