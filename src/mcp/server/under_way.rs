//! The requests of a client that are under way: a client decides how many it sends, and `rmcp` starts a task for each.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, GetExtensions, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};

/// The longest line that is read.
pub(super) const LONGEST_LINE: usize = 64 << 20;
/// Requests under way at once.
const MOST_REQUESTS: usize = 512;
/// Bytes of their lines. A single one may be as long as a line can be.
const MOST_BYTES: usize = LONGEST_LINE;

/// The requests under way on one connection.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// Those that have no answer yet.
    shares: HashMap<RequestId, Share>,
    total: Arc<Total>,
}

/// All that is held, by requests without an answer and by handlers of cancelled ones.
#[derive(Debug, Default)]
struct Total {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

/// What one request holds, until it was answered or cancelled and its handler is done. It is an extension of the request,
/// which has to be `Clone`.
#[derive(Debug, Clone)]
struct Share(#[expect(dead_code, reason = "held until it is dropped")] Arc<Held>);

#[derive(Debug)]
struct Held {
    bytes: usize,
    total: Arc<Total>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.requests.fetch_sub(1, Ordering::AcqRel);
        self.total.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl UnderWay {
    /// Whether one more request of so many bytes may be under way.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let requests = self.total.requests.load(Ordering::Acquire);
        let held = self.total.bytes.load(Ordering::Acquire);
        requests == 0 || (requests < MOST_REQUESTS && held.saturating_add(bytes) <= MOST_BYTES)
    }

    /// Notes a message of so many bytes that is handled from now on.
    pub(super) fn enter(&mut self, message: &mut ClientJsonRpcMessage, bytes: usize) {
        match message {
            JsonRpcMessage::Request(request) => {
                self.total.requests.fetch_add(1, Ordering::AcqRel);
                self.total.bytes.fetch_add(bytes, Ordering::AcqRel);
                let share = Share(Arc::new(Held { bytes, total: Arc::clone(&self.total) }));
                request.request.extensions_mut().insert(share.clone());
                self.shares.insert(request.id.clone(), share);
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.shares.remove(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
    }

    /// Notes an answer that is sent.
    pub(super) fn leave(&mut self, message: &ServerJsonRpcMessage) {
        match message {
            JsonRpcMessage::Response(response) => self.shares.remove(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref().and_then(|id| self.shares.remove(id)),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{
        CancelledNotification, CancelledNotificationParam, ClientRequest, EmptyResult, ServerResult,
    };

    use super::*;

    fn request(id: i64) -> ClientJsonRpcMessage {
        ClientJsonRpcMessage::request(ClientRequest::PingRequest(Default::default()), RequestId::Number(id))
    }

    fn cancellation(id: i64) -> ClientJsonRpcMessage {
        let params = CancelledNotificationParam::new(Some(RequestId::Number(id)), None);
        let cancelled = CancelledNotification::new(params);
        ClientJsonRpcMessage::notification(ClientNotification::CancelledNotification(cancelled))
    }

    fn answer(id: i64) -> ServerJsonRpcMessage {
        ServerJsonRpcMessage::response(ServerResult::EmptyResult(EmptyResult {}), RequestId::Number(id))
    }

    #[test]
    fn so_many_requests_and_bytes_are_under_way() {
        let mut under_way = UnderWay::default();
        assert!(under_way.has_room(LONGEST_LINE));
        for id in 0..MOST_REQUESTS as i64 {
            assert!(under_way.has_room(10));
            under_way.enter(&mut request(id), 10);
        }
        assert!(!under_way.has_room(10));
        under_way.leave(&answer(0));
        assert!(under_way.has_room(10) && !under_way.has_room(LONGEST_LINE));
    }

    #[test]
    fn a_cancelled_request_counts_until_its_handler_is_done() {
        let mut under_way = UnderWay::default();
        let mut handled = request(1);
        under_way.enter(&mut handled, LONGEST_LINE);
        under_way.enter(&mut cancellation(1), 10);
        assert!(!under_way.has_room(10));
        drop(handled);
        assert!(under_way.has_room(LONGEST_LINE));
    }
}
