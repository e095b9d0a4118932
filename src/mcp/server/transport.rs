//! One message a line, from any reader to any writer.
//!
//! The library's own transport loses requests without an answer when it cannot read them, and ends the service
//! when a notification comes before `initialize`. This one answers whom it can, and never stops for garbage.

use std::io;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetMeta, JsonRpcMessage, ProtocolVersion, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::message::{self, Incoming};
use super::order::Order;
use crate::mcp::line::{Line, LineReader};

/// The longest line that is read.
const LONGEST_LINE: usize = 64 << 20;
/// While more than this waits to be written, nothing is read: a client that does not read its answers gets no
/// further ones, and their memory stays bounded.
const MOST_QUEUED: usize = 16 << 20;
/// Messages are written together up to this.
const BATCH: usize = 64 << 10;
/// How long what is left may take to be written at the very end; the service has already waited for its answers.
const FLUSH_TIME: Duration = Duration::from_millis(500);

/// The server's end of the connection.
#[derive(Debug)]
pub(crate) struct LineTransport<R> {
    lines: LineReader<R>,
    outbox: Option<Outbox>,
    writer: Option<JoinHandle<()>>,
    broken: CancellationToken,
    opened: bool,
    calls: Order,
}

/// What waits to be written, and how much it is.
#[derive(Debug)]
struct Outbox {
    queue: mpsc::UnboundedSender<Outgoing>,
    queued: watch::Sender<usize>,
}

#[derive(Debug)]
struct Outgoing {
    line: Vec<u8>,
    written: oneshot::Sender<()>,
}

impl<R: AsyncRead + Unpin + Send> LineTransport<R> {
    /// Starts the writer. `broken` is cancelled when `output` takes no more; nothing is read after that.
    pub(crate) fn new<W>(input: R, output: W, broken: CancellationToken) -> Self
    where
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (queue, outgoing) = mpsc::unbounded_channel();
        let queued = watch::Sender::new(0);
        let writer = tokio::spawn(write_lines(output, outgoing, queued.clone(), broken.clone()));
        Self {
            lines: LineReader::new(input, LONGEST_LINE),
            outbox: Some(Outbox { queue, queued }),
            writer: Some(writer),
            broken,
            opened: false,
            calls: Order::default(),
        }
    }

    /// Queues at once, so that messages leave in the order in which they were sent.
    fn enqueue(&self, message: &ServerJsonRpcMessage) -> io::Result<oneshot::Receiver<()>> {
        let outbox = self.outbox.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let (written, receiver) = oneshot::channel();
        outbox.queued.send_modify(|queued| *queued += line.len());
        outbox.queue.send(Outgoing { line, written }).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(receiver)
    }

    /// The next line as a message; None at the end.
    async fn next_incoming(&mut self) -> Option<Incoming> {
        if let Some(outbox) = &self.outbox {
            // An error means that the writer is gone, which `broken` says too.
            let _ = outbox.queued.subscribe().wait_for(|queued| *queued <= MOST_QUEUED).await;
        }
        match self.lines.next_line().await {
            Ok(Some(Line::Complete(line))) => Some(message::read_line(line)),
            Ok(Some(Line::TooLong(skipped))) => {
                tracing::warn!(bytes = skipped.length, "skipped a line that is too long");
                Some(message::read_skipped(&skipped, LONGEST_LINE))
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(%error, "cannot read standard input");
                None
            }
        }
    }

    /// Calls carry their place in the order in which they were read.
    fn give_turn(&mut self, message: &mut ClientJsonRpcMessage) {
        if let JsonRpcMessage::Request(request) = message
            && let ClientRequest::CallToolRequest(call) = &mut request.request
        {
            call.extensions.insert(self.calls.next());
        }
    }

    /// Whether the service is ready for the message. Until a first request has opened the session, it would take
    /// anything but a request for a reason to end.
    fn admits(&mut self, message: &ClientJsonRpcMessage) -> bool {
        match message {
            JsonRpcMessage::Request(request) => {
                self.opened |= opens(&request.request);
                true
            }
            _ => self.opened,
        }
    }
}

/// Whether the service leaves its first phase with this request: `initialize`, or one that says by itself which
/// protocol it speaks.
fn opens(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
        request => {
            let meta = request.get_meta();
            meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
                && meta.protocol_version().is_some_and(|it| ProtocolVersion::KNOWN_VERSIONS.contains(&it))
        }
    }
}

impl<R: AsyncRead + Unpin + Send> Transport<RoleServer> for LineTransport<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let queued = self.enqueue(&message);
        async move { queued?.await.map_err(|_| io::ErrorKind::BrokenPipe.into()) }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        let broken = self.broken.clone();
        loop {
            let incoming = tokio::select! {
                biased;
                () = broken.cancelled() => None,
                incoming = self.next_incoming() => incoming,
            };
            match incoming? {
                Incoming::Message(mut message) if self.admits(&message) => {
                    self.give_turn(&mut message);
                    return Some(message);
                }
                Incoming::Message(_) => tracing::debug!("ignored a message before the session was opened"),
                Incoming::Answer(answer) => {
                    tracing::debug!(?answer, "refused a message");
                    // Nobody waits for the writer here; whether it still works is seen on the next turn.
                    let _ = self.enqueue(&answer);
                }
                Incoming::Nothing(reason) => tracing::debug!(reason, "ignored a line"),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.outbox = None;
        if let Some(mut writer) = self.writer.take()
            && tokio::time::timeout(FLUSH_TIME, &mut writer).await.is_err()
        {
            tracing::warn!("standard output takes no more; the last answers are lost");
            writer.abort();
        }
        Ok(())
    }
}

/// The only one who writes to the output: whole lines, one after the other.
async fn write_lines(
    mut output: impl AsyncWrite + Unpin,
    mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
    queued: watch::Sender<usize>,
    broken: CancellationToken,
) {
    let mut waiting = Vec::new();
    while let Some(first) = outgoing.recv().await {
        let mut batch = first.line;
        waiting.push(first.written);
        while batch.len() < BATCH
            && let Ok(next) = outgoing.try_recv()
        {
            batch.extend_from_slice(&next.line);
            waiting.push(next.written);
        }
        let written = match output.write_all(&batch).await {
            Ok(()) => output.flush().await,
            Err(error) => Err(error),
        };
        queued.send_modify(|queued| *queued -= batch.len());
        if let Err(error) = written {
            tracing::debug!(%error, "cannot write to standard output");
            broken.cancel();
            return;
        }
        for waiter in waiting.drain(..) {
            // Who sent a message may have gone.
            let _ = waiter.send(());
        }
    }
    // For files, which write behind; there is nobody left to tell.
    let _ = output.shutdown().await;
}
