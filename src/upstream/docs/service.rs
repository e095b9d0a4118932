//! Documentation and search, for the rest of the product.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio_util::sync::CancellationToken;

use super::keeper::{Keyed, Unknown};
use super::sweep::{ALL_LIMIT, AT_ONCE, ONE_LIMIT};
use crate::upstream::catalog::{Detail, ServerDocs, ToolItem};
use crate::upstream::discovery::Server;
use crate::upstream::error::UpstreamError;
use crate::upstream::facade::{Upstream, use_of};
use crate::upstream::pool::{Age, Purpose};

/// What a search came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Searched {
    /// The tools that fit best, best first.
    pub tools: Vec<ToolItem>,
    /// Servers that are defined, but what they offer is not known.
    pub unknown: Vec<UnknownServer>,
}

/// A server of which it is not known what it offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownServer {
    /// Its name.
    pub name: String,
    /// Why it could not be asked; none while it is yet to answer.
    pub failure: Option<String>,
}

/// A server that was asked anew.
#[derive(Debug, Clone)]
pub struct Refreshed {
    /// The name that it was asked by.
    pub name: String,
    /// What it offers.
    pub docs: Result<Arc<ServerDocs>, UpstreamError>,
}

impl Upstream {
    /// The documentation of a server's tools, by its name or alias: from the catalogue when it is there, else from the
    /// server itself, which is started for it.
    ///
    /// # Errors
    /// There is no such server, or it was never asked and cannot be.
    pub async fn docs_of(
        &self,
        server: &str,
        cancel: &CancellationToken,
    ) -> Result<(Arc<Server>, Arc<ServerDocs>), UpstreamError> {
        let server = self.server(server)?;
        if let Some(docs) = self.keeper().known(&server).await {
            return Ok((server, docs));
        }
        let docs = self.ask(&server, Age::Current, cancel).await?;
        Ok((server, docs))
    }

    /// The same as far as it is known; no server is started.
    pub async fn known_docs(&self, server: &str) -> Option<Arc<ServerDocs>> {
        let server = self.server(server).ok()?;
        self.keeper().known(&server).await
    }

    /// What is known of all servers that are used, in the order of [`Self::snapshot`].
    pub async fn all_known_docs(&self) -> Vec<(Arc<Server>, Option<Arc<ServerDocs>>)> {
        let snapshot = self.snapshot();
        let known = self.keeper().all_known(Arc::clone(&snapshot)).await;
        snapshot.servers.iter().cloned().zip(known).collect()
    }

    /// The tools of all servers that fit a query best, best first.
    ///
    /// Servers that were never asked are asked in the background; they are waited for no longer than `patience`, and
    /// what they say later is found by later searches.
    pub async fn search(&self, query: &str, limit: usize, detail: Detail, patience: Duration) -> Searched {
        let mut found = self.keeper().find(self.snapshot(), query, limit, detail).await;
        let untried = found.unknown.iter().filter(|unknown| unknown.failure.is_none());
        let keys: Vec<_> = untried.map(|unknown| Arc::clone(&unknown.server.key)).collect();
        if !keys.is_empty() {
            self.sweep(&found.keyed, &keys);
            self.sweeping().settled(&keys, patience).await;
            found = self.keeper().find(found.keyed.snapshot, query, limit, detail).await;
        }
        let unknown =
            |unknown: Unknown| UnknownServer { name: unknown.server.name, failure: unknown.failure };
        Searched { unknown: found.unknown.into_iter().map(unknown).collect(), tools: found.tools }
    }

    /// Asks servers anew what they offer, a few at once: those of the names, or all that are used.
    pub async fn refresh(&self, names: &[String], cancel: &CancellationToken) -> Vec<Refreshed> {
        let all = || self.snapshot().servers.iter().map(|server| server.name.to_string()).collect();
        let names: Vec<String> = if names.is_empty() { all() } else { names.to_vec() };
        let refresh = |name: String| async move {
            let docs = match self.server(&name) {
                Ok(server) => {
                    let docs = self.ask(&server, Age::New, cancel).await;
                    self.pool().dismiss(&server.name);
                    docs
                }
                Err(error) => Err(error),
            };
            Refreshed { name, docs }
        };
        stream::iter(names).map(refresh).buffered(AT_ONCE).collect().await
    }

    /// Asks a server what it offers, and keeps that.
    async fn ask(
        &self,
        server: &Arc<Server>,
        age: Age,
        cancel: &CancellationToken,
    ) -> Result<Arc<ServerDocs>, UpstreamError> {
        let wanted = use_of(server, Purpose::Docs, cancel)?;
        let docs = match self.pool().tools(wanted, age).await {
            Ok(listing) => Ok(self.keeper().keep(&listing).await),
            Err(error) => Err(error),
        };
        if let Some(key) = self.keeper().note(server, docs.as_ref().err()).await {
            self.sweeping().settle(&key);
        }
        docs
    }

    /// Asks the servers of these keys in the background, unless that is being done.
    fn sweep(&self, keyed: &Keyed, keys: &[Arc<str>]) {
        if !self.sweeping().begin(keys) {
            return;
        }
        let (upstream, keyed, keys) = (self.clone(), keyed.clone(), keys.to_vec());
        self.keeper().tasks().spawn(async move {
            let ask = |key: Arc<str>| {
                let (upstream, keyed) = (&upstream, &keyed);
                async move { upstream.ask_once(keyed, &key).await }
            };
            let all = stream::iter(keys).for_each_concurrent(AT_ONCE, ask);
            if tokio::time::timeout(ALL_LIMIT, all).await.is_err() {
                tracing::info!("not every server could be asked for its tools yet");
            }
            upstream.sweeping().end();
            upstream.keeper().prune(keyed).await;
        });
    }

    async fn ask_once(&self, keyed: &Keyed, key: &Arc<str>) {
        // Two servers of one definition have one key.
        let named = keyed.servers.iter().find(|server| server.key == *key);
        let Some(server) = named.and_then(|server| keyed.snapshot.get(&server.name)) else { return };
        let cancel = CancellationToken::new();
        let asked = tokio::time::timeout(ONE_LIMIT, self.ask(server, Age::Current, &cancel)).await;
        let failure = match asked {
            Ok(Ok(_)) => {
                // Others are about to be started, and all of them together may be more than the machine has room for.
                self.pool().dismiss(&server.name);
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
            self.keeper().note(server, Some(&failure)).await;
        }
        self.sweeping().settle(key);
        tracing::info!(server = %server.name, %failure, "what it offers is not known");
    }
}
