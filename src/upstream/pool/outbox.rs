//! Messages on their way to the standard input of a server, which may never read it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, RequestId};
use tokio::io::AsyncWrite;
use tokio::sync::{Notify, oneshot, watch};

use super::wire::WireMessage;
use crate::mcp::client::is_reply;

/// Bytes of replies that wait to be written, beyond which nothing more is read: a server that asks and does not read the
/// replies waits. Our own requests do not count: while one is written, its server may be writing as well.
const MOST_WAITING: usize = 1 << 20;
/// What a waiting reply takes beside its bytes, about.
const OVERHEAD: usize = 1 << 10;

/// The queue to the writer.
#[derive(Debug, Default)]
pub(super) struct Outbox(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<VecDeque<Outgoing>>,
    added: Notify,
    /// Bytes of the replies in the queue.
    replies: watch::Sender<usize>,
}

#[derive(Debug)]
struct Outgoing {
    line: WireMessage,
    /// The id of a request.
    request: Option<RequestId>,
    is_reply: bool,
    done: oneshot::Sender<io::Result<()>>,
}

impl Outgoing {
    fn weight(&self) -> usize {
        if self.is_reply { self.line.len() + OVERHEAD } else { 0 }
    }
}

impl Outbox {
    /// Queues the line of a message, and returns what says when it was written.
    pub(super) fn push(
        &self,
        line: WireMessage,
        message: &ClientJsonRpcMessage,
    ) -> oneshot::Receiver<io::Result<()>> {
        let (done, written) = oneshot::channel();
        let request = match message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        if self.was_withdrawn(message) {
            let _ = done.send(Ok(()));
            return written;
        }
        let outgoing = Outgoing { line, request, is_reply: is_reply(message), done };
        self.0.replies.send_modify(|bytes| *bytes += outgoing.weight());
        self.0.queue().push_back(outgoing);
        self.0.added.notify_one();
        written
    }

    /// Removes the request that a message cancels, if nothing of it was written: its server never knows of it.
    fn was_withdrawn(&self, message: &ClientJsonRpcMessage) -> bool {
        let ClientJsonRpcMessage::Notification(notification) = message else { return false };
        let ClientNotification::CancelledNotification(cancelled) = &notification.notification else {
            return false;
        };
        let Some(id) = &cancelled.params.request_id else { return false };
        let mut queue = self.0.queue();
        let at = queue.iter().position(|outgoing| outgoing.request.as_ref() == Some(id));
        at.and_then(|at| queue.remove(at)).is_some()
    }

    /// Waits until the server may be read.
    pub(super) async fn has_room(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.replies.subscribe().wait_for(|bytes| *bytes <= MOST_WAITING).await;
    }

    /// Returns the writer, which writes messages in the order in which they were sent: a cancellation must follow its request.
    pub(super) fn writer<W: AsyncWrite + Unpin>(&self, mut output: W) -> impl Future<Output = ()> + use<W> {
        let shared = Arc::clone(&self.0);
        async move {
            loop {
                let outgoing = shared.next().await;
                let weight = outgoing.weight();
                let written = outgoing.line.write_line(&mut output).await;
                shared.replies.send_modify(|bytes| *bytes -= weight);
                // The sender may have been cancelled.
                let _ = outgoing.done.send(written);
            }
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Outgoing>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&self) -> Outgoing {
        loop {
            // There is one writer, and a notification is kept for it.
            let first = self.queue().pop_front();
            match first {
                Some(outgoing) => return outgoing,
                None => self.added.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use rmcp::model::{
        CancelledNotification, CancelledNotificationParam, ClientRequest, ClientResult, EmptyResult,
    };
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    fn request(id: i64) -> ClientJsonRpcMessage {
        ClientJsonRpcMessage::request(ClientRequest::PingRequest(Default::default()), RequestId::Number(id))
    }

    fn line(text: &str) -> WireMessage {
        WireMessage::of_text(text)
    }

    fn reply(id: i64) -> ClientJsonRpcMessage {
        ClientJsonRpcMessage::response(ClientResult::EmptyResult(EmptyResult {}), RequestId::Number(id))
    }

    fn cancellation(id: i64) -> ClientJsonRpcMessage {
        let params = CancelledNotificationParam::new(Some(RequestId::Number(id)), None);
        let cancelled = CancelledNotification::new(params);
        ClientJsonRpcMessage::notification(ClientNotification::CancelledNotification(cancelled))
    }

    #[tokio::test]
    async fn a_server_is_read_while_our_requests_wait_and_not_while_its_replies_do() {
        let outbox = Outbox::default();
        let large = outbox.push(line(&"r".repeat(4 * MOST_WAITING)), &request(1));
        outbox.has_room().now_or_never().expect("a request does not count");
        let mut replies: Vec<_> =
            (0..MOST_WAITING / OVERHEAD).map(|id| outbox.push(line("x"), &reply(id as i64))).collect();
        let last = replies.pop().unwrap();
        assert!(outbox.has_room().now_or_never().is_none());
        let (output, mut input) = duplex(1 << 10);
        let writer = tokio::spawn(outbox.writer(output));
        let mut read = vec![0; 4 * MOST_WAITING + 1 + 2 * (MOST_WAITING / OVERHEAD)];
        input.read_exact(&mut read).await.unwrap();
        large.await.unwrap().unwrap();
        last.await.unwrap().unwrap();
        outbox.has_room().await;
        writer.abort();
    }

    #[tokio::test]
    async fn a_request_that_was_not_written_yet_is_removed_by_its_cancellation() {
        let outbox = Outbox::default();
        let sent = outbox.push(line("1"), &request(1));
        let kept = outbox.push(line("2"), &request(2));
        outbox.push(line("-1"), &cancellation(1)).await.unwrap().unwrap();
        assert!(sent.await.is_err());
        drop(outbox.push(line("-3"), &cancellation(3)));
        let (output, mut input) = duplex(1 << 10);
        let writer = tokio::spawn(outbox.writer(output));
        kept.await.unwrap().unwrap();
        let mut read = [0; 5];
        input.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"2\n-3\n");
        writer.abort();
    }
}
