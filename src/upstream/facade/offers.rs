//! Resources and prompts of servers: what code reads is decided and recorded as calls are.

use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::{Upstream, Watched, failure_of, transport_of};
use crate::upstream::discovery::Server;
use crate::upstream::error::UpstreamError;
use crate::upstream::govern::{Admitted, WantedOffer, admit_offer};
use crate::upstream::offer::{OfferList, OfferRequest};
use crate::upstream::options::CallOptions;
use crate::upstream::pool::{CallOutcome, OfferPages, PoolRequest, Purpose, ResourceWatch};
use crate::upstream::raw_arguments::RawArguments;
use crate::upstream::recording::Recording;

impl Upstream {
    /// Uses a resource or a prompt of a server. The result is that of the protocol's method.
    ///
    /// # Errors
    /// It is denied, or the server cannot be used, has no such thing, or gives no result.
    pub async fn use_offer(
        &self,
        server: &Arc<Server>,
        request: &OfferRequest,
        options: CallOptions<'_>,
    ) -> Result<CallOutcome, UpstreamError> {
        self.use_or_watch(server, request, options, &mut None).await
    }

    /// Begins to watch a resource of a server.
    ///
    /// # Errors
    /// It is denied, or the server cannot be used, or has no such thing.
    pub async fn watch(
        &self,
        server: &Arc<Server>,
        uri: &str,
        options: CallOptions<'_>,
    ) -> Result<ResourceWatch, UpstreamError> {
        let request = OfferRequest::Subscribe { uri: uri.to_owned() };
        let mut watch = None;
        self.use_or_watch(server, &request, options, &mut watch).await?;
        watch.ok_or_else(|| UpstreamError::Replayed {
            text: "a replay has no changes of resources".into(),
            kind: None,
        })
    }

    /// Uses a resource or a prompt; a subscription leaves the watch in `watch`.
    async fn use_or_watch(
        &self,
        server: &Arc<Server>,
        request: &OfferRequest,
        mut options: CallOptions<'_>,
        watch: &mut Option<ResourceWatch>,
    ) -> Result<CallOutcome, UpstreamError> {
        let arguments = request.arguments().map_err(|why| UpstreamError::Arguments {
            server: Arc::clone(&server.name),
            tool: request.method().to_owned(),
            why: why.to_string(),
        })?;
        if let Some(recorded) = &self.0.recorded {
            return recorded.call(server, (Some(request.kind()), request.name()), &arguments);
        }
        let span = self.0.telemetry.begin_call(&server.name, transport_of(server), &options.by.trace);
        if let Some(context) = span.context() {
            options.by.trace = context;
        }
        let recording = Recording::of_offer(&self.0.audit, server, request, &arguments, &options.by);
        let mut watched = Watched { span, recording };
        let unattended = options.by.unattended.clone();
        let used = self.admit_and_use(server, request, &arguments, options, &mut watched).await;
        if let Some(unattended) = unattended {
            unattended.look_at(&used);
        }
        let outcome = used.map(|(outcome, begun)| {
            *watch = begun;
            outcome
        });
        watched.recording.end(server, &outcome).await;
        watched.span.end(failure_of(&outcome));
        outcome
    }

    async fn admit_and_use(
        &self,
        server: &Arc<Server>,
        request: &OfferRequest,
        arguments: &RawArguments,
        options: CallOptions<'_>,
        Watched { span, recording }: &mut Watched,
    ) -> Result<(CallOutcome, Option<ResourceWatch>), UpstreamError> {
        span.set_tool(request.method());
        recording.is_deciding();
        let admitted = self.admit_offer(server, request, &options).await?;
        recording.admitted(server, request.name(), admitted.as_ref()).await?;
        // A server may ask as soon as it is started.
        let _caller = self.begin_run(&options.answers, Some(vec![Arc::clone(&server.name)]));
        let wanted = PoolRequest::new(server, Purpose::Call, options.cancel)?;
        let (begun, sent) = (Instant::now(), arguments.as_bytes().len());
        let outcome = match request {
            OfferRequest::Subscribe { uri } => {
                let watching = self.0.pool.watch(wanted, uri, options).await;
                watching.map(|(outcome, watch)| (outcome, Some(watch)))
            }
            _ => self.0.pool.offer(wanted, request, options).await.map(|outcome| (outcome, None)),
        };
        let received = outcome.as_ref().map_or(0, |(outcome, _)| outcome.json.get().len());
        if let Some(admitted) = admitted {
            admitted.end(sent + received, begun.elapsed());
        }
        outcome
    }

    async fn admit_offer(
        &self,
        server: &Server,
        request: &OfferRequest,
        options: &CallOptions<'_>,
    ) -> Result<Option<Admitted>, UpstreamError> {
        let CallOptions { by, cancel, .. } = options;
        let telemetry = &self.0.telemetry;
        let wanted = WantedOffer { server, request, by, answers: &*options.answers, cancel, telemetry };
        admit_offer(&self.0.policy, wanted).await
    }

    /// Returns one of the lists of what a server offers beside tools, as the server lists it now.
    ///
    /// # Errors
    /// The server cannot be used.
    pub async fn offers(
        &self,
        server: &Arc<Server>,
        list: OfferList,
        cancel: &CancellationToken,
    ) -> Result<OfferPages, UpstreamError> {
        if self.0.recorded.is_some() {
            return Ok(OfferPages::default());
        }
        let listed = self.0.pool.offers(PoolRequest::new(server, Purpose::Docs, cancel)?, list).await;
        if let Err(error) = &listed {
            self.0.docs.note(server, error).await;
        }
        listed
    }
}
