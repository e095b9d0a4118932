//! Documentation and search over all servers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::cache::{DocsCache, Keyed, Known, Unknown};
use super::failures::LastFailure;
use super::functions::ToTest;
use super::sweep::{ALL_LIMIT, AT_ONCE, ONE_LIMIT, Sweep};
use crate::sizes::Amount;
use crate::upstream::catalog::{Detail, Prepared, ServerDocs, ToolItem};
use crate::upstream::discovery::{Server, Snapshot};
use crate::upstream::error::UpstreamError;
use crate::upstream::meaning::ModelError;
use crate::upstream::pool::{Age, Listing, Pool, PoolRequest, Purpose};

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Searched {
    /// The tools that fit best, best first.
    pub tools: Vec<ToolItem>,
    /// Servers whose tools are not known.
    pub unknown: Vec<UnknownServer>,
}

/// A server whose tools are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownServer {
    pub name: String,
    /// Why it could not be asked; None while its answer is awaited.
    pub failure: Option<LastFailure>,
}

/// A server that was asked again.
#[derive(Debug, Clone)]
pub struct Refreshed {
    pub server: Arc<Server>,
    pub docs: Result<Arc<ServerDocs>, UpstreamError>,
}

/// How long resources and prompts are waited for, once the tools are known.
const OFFERS_LIMIT: Duration = Duration::from_secs(3);

/// What a server is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// What the next call needs.
    Tools,
    /// Also what else searches find.
    All,
}

/// Documentation of servers: from the catalogue, else from the servers.
#[derive(Debug, Clone)]
pub(in crate::upstream) struct Docs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: Arc<Pool>,
    cache: Arc<DocsCache>,
    sweep: Sweep,
}

impl Docs {
    pub(in crate::upstream) fn new(pool: Arc<Pool>, cache: Arc<DocsCache>) -> Self {
        Self(Arc::new(Inner { pool, cache, sweep: Sweep::default() }))
    }

    /// Returns the documentation of a server's tools, which is started if the catalogue has none.
    pub(in crate::upstream) async fn of(
        &self,
        server: &Arc<Server>,
        cancel: &CancellationToken,
    ) -> Result<Arc<ServerDocs>, UpstreamError> {
        match self.0.cache.known(server).await {
            Some(docs) => Ok(docs),
            None => self.ask(server, Age::Current, Scope::Tools, cancel).await,
        }
    }

    #[cfg(test)]
    pub(in crate::upstream) async fn known(&self, server: &Arc<Server>) -> Option<Arc<ServerDocs>> {
        self.0.cache.known(server).await
    }

    /// Returns what the catalogue has of all servers, in the order of the snapshot.
    pub(in crate::upstream) async fn all_known(&self, snapshot: Arc<Snapshot>) -> Vec<(Arc<Server>, Known)> {
        let known = self.0.cache.all_known(Arc::clone(&snapshot)).await;
        snapshot.servers.iter().cloned().zip(known).collect()
    }

    /// Returns the tools of all servers that fit a query best, best first.
    ///
    /// Servers that were never asked are asked in the background. They are awaited no longer than `patience`; later
    /// searches find what they answer after that.
    pub(in crate::upstream) async fn search(
        &self,
        snapshot: Arc<Snapshot>,
        query: &str,
        limit: usize,
        detail: Detail,
        patience: Duration,
    ) -> Searched {
        let mut found = self.0.cache.find(snapshot, query, limit, detail).await;
        let untried = found.unknown.iter().filter(|unknown| unknown.failure.is_none());
        let mut keys: Vec<_> = untried.map(|unknown| Arc::clone(&unknown.server.key)).collect();
        keys.append(&mut found.unlisted);
        if !keys.is_empty() {
            self.sweep(&found.keyed, &keys);
            self.0.sweep.settled(&keys, patience).await;
            found = self.0.cache.find(found.keyed.snapshot, query, limit, detail).await;
        }
        let unknown =
            |unknown: Unknown| UnknownServer { name: unknown.server.name, failure: unknown.failure };
        Searched { unknown: found.unknown.into_iter().map(unknown).collect(), tools: found.tools }
    }

    /// Asks servers again for their tools, a few at once. They come as they answer.
    pub(in crate::upstream) fn refresh<'a>(
        &'a self,
        servers: Vec<Arc<Server>>,
        cancel: &'a CancellationToken,
    ) -> impl Stream<Item = Refreshed> + 'a {
        let refresh = move |server: Arc<Server>| async move {
            let docs = self.ask(&server, Age::New, Scope::All, cancel).await;
            self.0.pool.stop_when_unused(&server.name);
            Refreshed { server, docs }
        };
        stream::iter(servers).map(refresh).buffer_unordered(AT_ONCE)
    }

    /// Notes that a server could not be used.
    pub(in crate::upstream) async fn note(&self, server: &Arc<Server>, failure: &UpstreamError) {
        self.0.cache.note(server, Some(failure)).await;
    }

    /// Keeps a list of tools in the catalogue.
    pub(in crate::upstream) async fn keep(&self, listing: &Arc<Listing>) {
        self.0.cache.keep(listing).await;
    }

    /// Returns the saved functions whose examples are to be run again.
    pub(in crate::upstream) async fn functions_to_test(&self, snapshot: Arc<Snapshot>) -> Vec<ToTest> {
        self.0.cache.functions_to_test(snapshot).await
    }

    /// Returns a number that changes when a server has listed its tools.
    pub(in crate::upstream) fn generation(&self) -> u64 {
        self.0.cache.generation()
    }

    /// Returns how far the search model is with the tools of all servers; None without a model.
    pub(in crate::upstream) async fn prepared(
        &self,
        snapshot: Arc<Snapshot>,
    ) -> Option<Result<Prepared, ModelError>> {
        self.0.cache.prepared(snapshot).await
    }

    /// Has the search model read the tools of all servers; None without a model.
    pub(in crate::upstream) async fn prepare(
        &self,
        snapshot: Arc<Snapshot>,
        report: impl FnMut(Prepared) -> bool + Send + 'static,
    ) -> Option<Result<Prepared, ModelError>> {
        self.0.cache.prepare(snapshot, report).await
    }

    /// Learns what a tool returns from the result of a successful call.
    pub(in crate::upstream) fn learn(&self, server: &Arc<Server>, tool: &str, result: &RawValue) {
        self.0.cache.learn(server, tool, result);
    }

    /// Returns the documentation of servers that are not defined any more, if it is so old. Removes it if `remove` is set.
    pub(in crate::upstream) async fn unused(
        &self,
        snapshot: Arc<Snapshot>,
        age: Duration,
        remove: bool,
    ) -> io::Result<Amount> {
        self.0.cache.unused(snapshot, age, remove).await
    }

    /// Waits until everything is kept.
    pub(in crate::upstream) async fn finish(&self) {
        self.0.cache.finish().await;
    }

    /// Asks a server, and keeps the answer.
    async fn ask(
        &self,
        server: &Arc<Server>,
        age: Age<'_>,
        scope: Scope,
        cancel: &CancellationToken,
    ) -> Result<Arc<ServerDocs>, UpstreamError> {
        let docs = self.ask_for_tools(server, age, cancel).await;
        if scope == Scope::All
            && let Ok(docs) = &docs
            && docs.about().has_offers
        {
            self.ask_for_offers(server).await;
        }
        if let Some(key) = self.0.cache.note(server, docs.as_ref().err()).await {
            self.0.sweep.settle(&[key]);
        }
        docs
    }

    /// Asks a server for its tools, and keeps them.
    async fn ask_for_tools(
        &self,
        server: &Arc<Server>,
        age: Age<'_>,
        cancel: &CancellationToken,
    ) -> Result<Arc<ServerDocs>, UpstreamError> {
        let wanted = PoolRequest::new(server, Purpose::Docs, cancel)?;
        let listing = self.0.pool.tools(wanted, age).await?;
        Ok(self.0.cache.keep(&listing).await)
    }

    /// Asks a server for what it offers beside tools. It goes on in the background when that takes long.
    async fn ask_for_offers(&self, server: &Arc<Server>) {
        let (docs, server) = (self.clone(), Arc::clone(server));
        let ask = async move {
            let cancel = CancellationToken::new();
            let offered = match PoolRequest::new(&server, Purpose::Docs, &cancel) {
                Ok(wanted) => docs.0.pool.offer_docs(wanted).await,
                Err(error) => Err(error),
            };
            match offered {
                Ok(offered) => docs.0.cache.keep_offers(&offered).await,
                Err(error) => {
                    tracing::debug!(server = %server.name, %error, "could not list resources and prompts");
                    // Not every search asks it again.
                    docs.0.cache.keep_no_offers(&server).await;
                }
            }
        };
        let asked = self.0.cache.tasks().spawn(ask);
        let _ = tokio::time::timeout(OFFERS_LIMIT, asked).await;
    }

    /// Asks the servers of these keys in the background, unless a sweep is under way.
    fn sweep(&self, keyed: &Keyed, keys: &[Arc<str>]) {
        if !self.0.sweep.begin(keys) {
            return;
        }
        let (docs, keyed, keys) = (self.clone(), keyed.clone(), keys.to_vec());
        self.0.cache.tasks().spawn(async move {
            let ask = |key: Arc<str>| {
                let (docs, keyed) = (&docs, &keyed);
                async move { docs.ask_once(keyed, &key).await }
            };
            let all = stream::iter(keys).for_each_concurrent(AT_ONCE, ask);
            if tokio::time::timeout(ALL_LIMIT, all).await.is_err() {
                tracing::info!("some servers have not been asked for their tools yet");
            }
            docs.0.sweep.end();
            docs.0.cache.prune(keyed).await;
        });
    }

    async fn ask_once(&self, keyed: &Keyed, key: &Arc<str>) {
        // Two servers of one definition have one key.
        let named = keyed.servers.iter().find(|server| server.key == *key);
        let Some(server) = named.and_then(|server| keyed.snapshot.get(&server.name)) else { return };
        let cancel = CancellationToken::new();
        let asked =
            tokio::time::timeout(ONE_LIMIT, self.ask(server, Age::Current, Scope::All, &cancel)).await;
        let failure = match asked {
            Ok(Ok(_)) => {
                // Others start next, and the machine may not have the memory for all of them at once.
                self.0.pool.stop_when_unused(&server.name);
                return;
            }
            Ok(Err(error)) => error,
            Err(_) => UpstreamError::TimedOut {
                server: Arc::clone(&server.name),
                method: "tools/list".into(),
                limit: ONE_LIMIT,
                by_definition: false,
            },
        };
        if matches!(failure, UpstreamError::TimedOut { .. }) {
            self.0.cache.note(server, Some(&failure)).await;
        }
        self.0.sweep.settle(std::slice::from_ref(key));
        tracing::info!(server = %server.name, %failure, "the tools of the server are unknown");
    }
}
