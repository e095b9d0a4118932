//! What is known of servers and their tools: from the catalogue, or from the servers themselves.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use tokio_util::sync::CancellationToken;

use super::Upstream;
use crate::policy::Shapes;
use crate::sizes::Amount;
use crate::upstream::catalog::{Detail, Prepared, Schemas, ServerDocs};
use crate::upstream::discovery::Server;
use crate::upstream::docs::{Known, Refreshed, Searched, ToTest};
use crate::upstream::error::UpstreamError;
use crate::upstream::meaning::ModelError;
use crate::upstream::pool::{Age, PoolRequest, Purpose, Tool};

impl Upstream {
    /// Returns what the tools of a server are now, as far as rules and models rely on it.
    ///
    /// # Errors
    /// The server cannot be used.
    pub async fn shapes(
        &self,
        server: &Arc<Server>,
        cancel: &CancellationToken,
    ) -> Result<Shapes, UpstreamError> {
        let request = PoolRequest::new(server, Purpose::Docs, cancel)?;
        let listing = self.0.pool.tools(request, Age::Current).await?;
        Ok(listing.tools.tools.iter().map(|tool| (tool.name.clone(), tool.shape())).collect())
    }

    #[cfg(test)]
    pub(in crate::upstream) async fn tools(
        &self,
        server: &str,
        cancel: &CancellationToken,
    ) -> Result<Arc<crate::upstream::pool::ToolList>, UpstreamError> {
        let server = self.server(server)?;
        let wanted = PoolRequest::new(&server, Purpose::Docs, cancel)?;
        let listing = self.0.pool.tools(wanted, Age::Current).await?;
        Ok(Arc::clone(&listing.tools))
    }

    /// Returns the tool of a name or an alias, as its server lists it now. The catalogue keeps the list.
    ///
    /// # Errors
    /// The server cannot be used, or has no such tool.
    pub async fn tool(
        &self,
        server: &Arc<Server>,
        tool: &str,
        cancel: &CancellationToken,
    ) -> Result<Tool, UpstreamError> {
        if self.0.recorded.is_some() {
            return Err(self.unknown_tool(server, tool, Arc::default()).await);
        }
        let mut listing =
            self.0.pool.tools(PoolRequest::new(server, Purpose::Docs, cancel)?, Age::Current).await?;
        if listing.tools.get(tool).is_none() {
            listing =
                self.0.pool.tools(PoolRequest::new(server, Purpose::Docs, cancel)?, Age::With(tool)).await?;
        }
        self.0.docs.keep(&listing).await;
        match listing.tools.get(tool) {
            Some(tool) => Ok(tool.clone()),
            None => Err(self.unknown_tool(server, tool, Arc::clone(&listing.tools)).await),
        }
    }

    /// Returns the documentation of a server's tools, by the server's name or alias: from the catalogue, else from the
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
        let docs = self.docs_of_server(&server, cancel).await?;
        Ok((server, docs))
    }

    /// As [`Self::docs_of`], of a server that is known already: nothing is looked up.
    ///
    /// # Errors
    /// It was never asked and cannot be.
    pub async fn docs_of_server(
        &self,
        server: &Arc<Server>,
        cancel: &CancellationToken,
    ) -> Result<Arc<ServerDocs>, UpstreamError> {
        match &self.0.recorded {
            Some(recorded) => Ok(recorded.docs_of(server)),
            None => self.0.docs.of(server, cancel).await,
        }
    }

    #[cfg(test)]
    pub(in crate::upstream) async fn known_docs(&self, server: &str) -> Option<Arc<ServerDocs>> {
        self.0.docs.known(&self.server(server).ok()?).await
    }

    /// Returns what the catalogue has of every usable server, in the order of [`Self::snapshot`].
    pub async fn all_known_docs(&self) -> Vec<(Arc<Server>, Known)> {
        self.0.docs.all_known(self.snapshot()).await
    }

    /// Returns the schemas of all tools that the catalogue has. No server is asked.
    pub async fn known_schemas(&self) -> Schemas {
        let all = self.all_known_docs().await.into_iter();
        Schemas::new(
            all.filter_map(|(server, known)| Some((server.alias.to_string(), known.docs?))).collect(),
        )
    }

    /// Returns the saved functions whose examples are to be run again, because a tool that they name has changed.
    pub async fn functions_to_test(&self) -> Vec<ToTest> {
        self.0.docs.functions_to_test(self.snapshot()).await
    }

    /// Returns a number that changes when a server has listed its tools.
    pub fn generation(&self) -> u64 {
        self.0.docs.generation()
    }

    /// Returns the tools of all servers that fit a query best, best first.
    ///
    /// Servers that were never asked are asked in the background. They are awaited no longer than `patience`; later
    /// searches find what they answer after that.
    pub async fn search(&self, query: &str, limit: usize, detail: Detail, patience: Duration) -> Searched {
        self.0.docs.search(self.snapshot(), query, limit, detail, patience).await
    }

    /// Returns how far the search model is with the tools of all servers; None without a model.
    pub async fn search_model(&self) -> Option<Result<Prepared, ModelError>> {
        self.0.docs.prepared(self.snapshot()).await
    }

    /// Has the search model read the tools of all servers now, until `report` returns false; None without a model.
    pub async fn prepare_search_model(
        &self,
        report: impl FnMut(Prepared) -> bool + Send + 'static,
    ) -> Option<Result<Prepared, ModelError>> {
        self.0.docs.prepare(self.snapshot(), report).await
    }

    /// Returns the documentation of servers that are not defined any more, if it is so old. Removes it if `remove` is set.
    ///
    /// # Errors
    /// The catalogue could not be read, or a file not be removed.
    pub async fn unused_documentation(&self, age: Duration, remove: bool) -> io::Result<Amount> {
        self.0.docs.unused(self.snapshot(), age, remove).await
    }

    /// Asks servers again for their tools, a few at once. They come as they answer.
    pub fn refresh<'a>(
        &'a self,
        servers: Vec<Arc<Server>>,
        cancel: &'a CancellationToken,
    ) -> impl Stream<Item = Refreshed> + 'a {
        self.0.docs.refresh(servers, cancel)
    }
}
