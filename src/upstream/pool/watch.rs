//! Resources that code watches: each has a subscription at its server as long as somebody watches it.

use std::time::Duration;

use rmcp::model::{ClientRequest, CustomRequest};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::connection::Lease;
use crate::mcp::client::Expected;
use crate::upstream::error::UpstreamError;

/// How long a server may take to end a subscription.
const UNSUBSCRIBE_LIMIT: Duration = Duration::from_secs(5);

/// A resource that is watched. Its server is not stopped meanwhile.
#[derive(Debug)]
pub struct ResourceWatch {
    /// None only while it is dropped.
    lease: Option<Lease>,
    uri: String,
    changes: watch::Receiver<u64>,
}

impl ResourceWatch {
    /// Begins before the server is asked: the first change may come before its answer.
    pub(super) fn begin(lease: Lease, uri: String) -> Self {
        let changes = lease.connection.parts.updates.begin(&uri);
        Self { lease: Some(lease), uri, changes }
    }

    /// Returns its URI.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Waits for the next change. Changes that came since the last one count as one.
    ///
    /// # Errors
    /// The server has ended, or nobody waits any more.
    pub async fn changed(&mut self, cancel: &CancellationToken) -> Result<(), UpstreamError> {
        const METHOD: &str = "resources/subscribe";
        let Some(lease) = &self.lease else { return Err(UpstreamError::ShuttingDown) };
        let connection = &lease.connection;
        tokio::select! {
            biased;
            changed = self.changes.changed() => match changed {
                Ok(()) => Ok(()),
                Err(_) => Err(connection.ended().await),
            },
            () = cancel.cancelled() => Err(connection.cancelled(METHOD)),
            () = connection.parts.gone.cancelled() => Err(connection.ended().await),
        }
    }
}

impl Drop for ResourceWatch {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if !lease.connection.parts.updates.end(&self.uri) || lease.connection.has_gone() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let uri = std::mem::take(&mut self.uri);
        runtime.spawn(async move {
            const METHOD: &str = "resources/unsubscribe";
            let request =
                ClientRequest::CustomRequest(CustomRequest::new(METHOD, Some(json!({ "uri": uri }))));
            let (expected, cancel) = (Expected::new(None, None), CancellationToken::new());
            let ended = lease.connection.request(METHOD, request, expected, UNSUBSCRIBE_LIMIT, &cancel).await;
            if let Err(error) = ended {
                tracing::debug!(%error, "could not end a subscription");
            }
        });
    }
}
