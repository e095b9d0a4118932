//! Answers requests whose handler panics: the caller must not wait for ever.

use std::borrow::Cow;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use rmcp::model::{
    ClientNotification, ClientRequest, ErrorData, ProtocolVersion, ServerConfig, ServerResult,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{RoleServer, Service};

/// The same service, but a request whose handler panics is answered with an error.
#[derive(Debug)]
pub(super) struct Guarded<S>(pub(super) S);

impl<S: Service<RoleServer>> Service<RoleServer> for Guarded<S> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        unless_it_panics(self.0.handle_request(request, context)).await.unwrap_or_else(|| {
            Err(ErrorData::internal_error(
                "the request failed because of a bug in codebridge; see its log",
                None,
            ))
        })
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        unless_it_panics(self.0.handle_notification(notification, context)).await.unwrap_or(Ok(()))
    }

    fn get_info(&self) -> ServerConfig {
        self.0.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.0.supported_protocol_versions()
    }
}

/// Returns None when the future panics; it is not polled again.
async fn unless_it_panics<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}
