//! Answers requests whose handler panics: the caller must not wait for ever.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
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
        let handled = AssertUnwindSafe(self.0.handle_request(request, context)).catch_unwind();
        handled.await.unwrap_or_else(|_| {
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
        let handled = AssertUnwindSafe(self.0.handle_notification(notification, context)).catch_unwind();
        handled.await.unwrap_or(Ok(()))
    }

    fn get_info(&self) -> ServerConfig {
        self.0.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.0.supported_protocol_versions()
    }
}
