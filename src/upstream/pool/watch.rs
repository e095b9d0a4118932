//! Resources that code watches: each has a subscription at its server as long as somebody watches it.

use std::time::Duration;

use rmcp::model::{ClientRequest, CustomRequest, ErrorData};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::connection::Lease;
use super::listen::Listening;
use super::outcome::CallOutcome;
use crate::mcp::client::Expected;
use crate::upstream::error::UpstreamError;

/// How long a server may take to end a subscription.
const UNSUBSCRIBE_LIMIT: Duration = Duration::from_secs(5);
/// How long one may take to accept one.
const ACCEPT_LIMIT: Duration = Duration::from_secs(20);

/// A resource that is watched. Its server is not stopped meanwhile.
#[derive(Debug)]
pub struct ResourceWatch {
    /// None only while it is dropped.
    lease: Option<Lease>,
    uri: String,
    changes: watch::Receiver<u64>,
    /// The subscription, where it is a request that stays open.
    listening: Option<Listening>,
}

impl ResourceWatch {
    /// Begins before the server is asked: the first change may come before its answer.
    pub(super) fn begin(lease: Lease, uri: String) -> Self {
        let changes = lease.connection.parts.updates.begin(&uri);
        Self { lease: Some(lease), uri, changes, listening: None }
    }

    /// Subscribes with a request that stays open, and waits until the server has accepted it.
    ///
    /// # Errors
    /// The server does not.
    pub(super) async fn listen(&mut self, cancel: &CancellationToken) -> Result<CallOutcome, UpstreamError> {
        const METHOD: &str = "subscriptions/listen";
        let Some(lease) = &self.lease else { return Err(UpstreamError::ShuttingDown) };
        let connection = &lease.connection;
        let acceptance = connection.parts.updates.acceptance(&self.uri);
        let listening = self.listening.insert(Listening::to(connection, &self.uri));
        let Some(mut acceptance) = acceptance else { return Err(UpstreamError::ShuttingDown) };
        tokio::select! {
            accepted = acceptance.wait_for(|accepted| *accepted) => match accepted {
                Ok(_) => Ok(CallOutcome::new(RawValue::from_string("{}".into()).unwrap_or_default(), None)),
                Err(_) => Err(UpstreamError::ShuttingDown),
            },
            error = listening.ended() => Err(error),
            () = cancel.cancelled() => Err(connection.cancelled(METHOD)),
            () = tokio::time::sleep(ACCEPT_LIMIT) => {
                let why = "the server has not accepted the subscription";
                Err(connection.refused(METHOD, ErrorData::internal_error(why, None)))
            }
        }
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
            error = ended(&mut self.listening) => Err(error),
        }
    }
}

/// Waits until a subscription has ended; without one, for ever.
async fn ended(listening: &mut Option<Listening>) -> UpstreamError {
    match listening {
        Some(listening) => listening.ended().await,
        None => std::future::pending().await,
    }
}

impl Drop for ResourceWatch {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let was_last = lease.connection.parts.updates.end(&self.uri);
        // One that stays open ends with its request.
        if !was_last || self.listening.is_some() || lease.connection.has_gone() {
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
