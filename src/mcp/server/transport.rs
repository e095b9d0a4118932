//! The server's transport: one message on each line, from any reader to any writer.
//!
//! It answers requests that it cannot read, and invalid input never ends the service.

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
use super::task_call::{announce, unread};
use super::under_way::{LONGEST_LINE, UnderWay};
use crate::mcp::bounds::work_on;
use crate::mcp::line::{Line, LineReader};

/// Nothing is read while more than this waits to be written, so that a client that does not read its answers cannot fill
/// the memory.
const MOST_QUEUED: usize = 16 << 20;
/// What a waiting answer takes beside its bytes, about. With it, many small answers count as a few large ones do.
const OVERHEAD: usize = 4 << 10;
/// Bytes up to which messages are written together.
const BATCH: usize = 64 << 10;
/// How long writing the rest may take at the end.
const FLUSH_TIME: Duration = Duration::from_millis(500);

/// The transport.
#[derive(Debug)]
pub(crate) struct LineTransport<R> {
    lines: LineReader<R>,
    outbox: Option<Outbox>,
    writer: Option<JoinHandle<()>>,
    broken: CancellationToken,
    opened: bool,
    /// Whether the client has opened the session with `initialize`.
    is_initialized: bool,
    calls: Order,
    under_way: UnderWay,
}

/// The queue to the writer, and the bytes in it.
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
    /// Starts the writer. `broken` is cancelled when writing fails; nothing is read after that.
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
            is_initialized: false,
            calls: Order::default(),
            under_way: UnderWay::default(),
        }
    }

    /// Queues a message before it returns, so that messages are written in the order in which they were sent.
    fn enqueue(&self, message: &ServerJsonRpcMessage) -> io::Result<oneshot::Receiver<()>> {
        let outbox = self.outbox.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let (written, receiver) = oneshot::channel();
        outbox.queued.send_modify(|queued| *queued += line.len() + OVERHEAD);
        outbox.queue.send(Outgoing { line, written }).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(receiver)
    }

    /// Returns the next line as a message; None at the end.
    async fn next_incoming(&mut self) -> Option<Incoming> {
        if let Some(outbox) = &self.outbox {
            // It fails only if the writer has ended, and then `broken` is cancelled.
            let _ = outbox.queued.subscribe().wait_for(|queued| *queued <= MOST_QUEUED).await;
        }
        match self.lines.next_line().await {
            Ok(Some(Line::Complete(line))) => {
                let bytes = line.len();
                let incoming = match self.under_way.has_room(bytes) {
                    true => work_on(bytes, || message::read_line(line)),
                    // Cancellations are read in any case.
                    false => work_on(bytes, || message::read_beyond_limits(line)),
                };
                self.lines.free_long_line();
                Some(match incoming {
                    Incoming::Message(mut message) => {
                        self.under_way.enter(&mut message, bytes);
                        Incoming::Message(message)
                    }
                    other => other,
                })
            }
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

    /// Gives a call its turn.
    fn set_turn(&mut self, message: &mut ClientJsonRpcMessage) {
        if let JsonRpcMessage::Request(request) = message
            && let ClientRequest::CallToolRequest(call) = &mut request.request
        {
            call.extensions.insert(self.calls.next());
        }
    }

    /// Whether the service is ready for the message. Before the first request has opened the session, `rmcp` ends the
    /// service for anything but a request.
    fn admits(&mut self, message: &ClientJsonRpcMessage) -> bool {
        match message {
            JsonRpcMessage::Request(request) => {
                self.opened |= opens(&request.request);
                self.is_initialized |= matches!(request.request, ClientRequest::InitializeRequest(_));
                true
            }
            _ => self.opened,
        }
    }
}

/// Whether a request opens the session: `initialize`, or a request that names its protocol version.
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
        self.under_way.leave(&message);
        let message = announce(message);
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
                    self.set_turn(&mut message);
                    return Some(if self.is_initialized { unread(message) } else { message });
                }
                Incoming::Message(_) => tracing::debug!("ignored a message before the session was opened"),
                Incoming::Answer(answer) => {
                    tracing::debug!(?answer, "refused a message");
                    // A failure of the writer is noticed in the next turn.
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
            tracing::warn!("could not write the last answers to standard output");
            writer.abort();
        }
        Ok(())
    }
}

/// Writes whole lines to the output, one after the other.
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
        queued.send_modify(|queued| *queued -= batch.len() + waiting.len() * OVERHEAD);
        if let Err(error) = written {
            tracing::debug!(%error, "cannot write to standard output");
            broken.cancel();
            return;
        }
        for waiter in waiting.drain(..) {
            // The sender may have been cancelled.
            let _ = waiter.send(());
        }
    }
    // Files are written with a delay. There is no caller left to report an error to.
    let _ = output.shutdown().await;
}
