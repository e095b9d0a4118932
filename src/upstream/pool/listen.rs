//! Changes of lists and of resources by protocol 2026-07-28: a request that stays open, as long as somebody wants to know of changes:
//! <https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions>.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::model::{ClientRequest, CustomRequest, ErrorCode, ErrorData};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::connection::Connection;
use crate::mcp::client::Expected;
use crate::upstream::error::UpstreamError;

const METHOD: &str = "subscriptions/listen";
/// As long as a subscription can last.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How long to wait before a subscription that has ended is asked for again. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A subscription, until it is dropped.
#[derive(Debug)]
pub(super) struct Listening {
    ended: watch::Receiver<Option<UpstreamError>>,
    _request: AbortOnDropHandle<()>,
}

impl Listening {
    /// Asks for the changes of one resource.
    pub(super) fn to(connection: &Arc<Connection>, uri: &str) -> Self {
        let (says, ended) = watch::channel(None);
        let wanted = Map::from_iter([("resourceSubscriptions".to_owned(), json!([uri]))]);
        let connection = Arc::clone(connection);
        let request = tokio::spawn(async move {
            let error = connection.listen(wanted).await;
            says.send_replace(Some(error));
        });
        Self { ended, _request: AbortOnDropHandle::new(request) }
    }

    /// Waits until it has ended, and returns why.
    pub(super) async fn ended(&mut self) -> UpstreamError {
        match self.ended.wait_for(Option::is_some).await {
            Ok(error) => error.clone().unwrap_or(UpstreamError::ShuttingDown),
            Err(_) => UpstreamError::ShuttingDown,
        }
    }
}

impl Connection {
    /// Whether the server says what changes only on such requests.
    pub(super) fn listens(&self) -> bool {
        self.parts.listens
    }

    /// Asks for the changes of the lists of the server, as far as it announces them, until it ends.
    pub(super) async fn listen_for_lists(&self) {
        let wanted = self.lists_that_change();
        if !self.listens() || wanted.is_empty() {
            return;
        }
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = Instant::now();
            let error = self.listen(wanted.clone()).await;
            tracing::debug!(server = %self.parts.server, %error, "a subscription has ended");
            let is_unknown =
                matches!(error, UpstreamError::Refused { code, .. } if code == ErrorCode::METHOD_NOT_FOUND.0);
            if is_unknown || self.has_gone() {
                return;
            }
            if begun.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.parts.gone.cancelled() => return,
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    fn lists_that_change(&self) -> Map<String, Value> {
        let Some(info) = self.peer.peer_info() else { return Map::new() };
        let capabilities = &info.capabilities;
        let all = [
            ("toolsListChanged", capabilities.tools.as_ref().and_then(|tools| tools.list_changed)),
            ("promptsListChanged", capabilities.prompts.as_ref().and_then(|prompts| prompts.list_changed)),
            ("resourcesListChanged", capabilities.resources.as_ref().and_then(|it| it.list_changed)),
        ];
        let announced = all.into_iter().filter(|(_, changes)| *changes == Some(true));
        announced.map(|(name, _)| (name.to_owned(), true.into())).collect()
    }

    /// Asks for changes, and returns why there are no more.
    async fn listen(&self, wanted: Map<String, Value>) -> UpstreamError {
        let params = json!({ "notifications": wanted });
        let request = ClientRequest::CustomRequest(CustomRequest::new(METHOD, Some(params)));
        let expected = Expected::new(None, None);
        match self.request(METHOD, request, expected, FOR_EVER, &self.parts.gone).await {
            Ok(_) => {
                self.refused(METHOD, ErrorData::internal_error("the server has ended the subscription", None))
            }
            Err(error) => error,
        }
    }
}
