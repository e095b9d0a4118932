//! The catalogue for asynchronous callers: what blocks runs on threads for that.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::value::RawValue;
use tokio_util::task::TaskTracker;

use super::failures::{Failures, LastFailure, Reason};
use super::functions::{Functions, SavedFunctions};
use super::keys::Keys;
use crate::upstream::catalog::{
    Catalog, Detail, FOLDER, FoundTool, ListedServer, Prepared, Schemas, ServerDocs, ToolItem,
};
use crate::upstream::discovery::{Definition, Server, Snapshot, Surroundings};
use crate::upstream::error::UpstreamError;
use crate::upstream::meaning::ModelError;
use crate::upstream::pool::{Listener, Listing, Tool};

/// The documentation that servers gave of their tools, kept on disk and in memory.
#[derive(Debug)]
pub(in crate::upstream) struct DocsCache {
    catalog: Catalog,
    keys: Keys,
    failures: Failures,
    functions: SavedFunctions,
    /// The servers of the latest snapshot, with their keys.
    listed: Mutex<Option<Keyed>>,
    tasks: TaskTracker,
}

/// A snapshot and its servers with their keys, in the same order.
#[derive(Debug, Clone)]
pub(super) struct Keyed {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) servers: Arc<[ListedServer]>,
}

/// The result of a search.
pub(super) struct Found {
    pub(super) tools: Vec<ToolItem>,
    /// Servers whose tools are not known.
    pub(super) unknown: Vec<Unknown>,
    pub(super) keyed: Keyed,
}

/// What the catalogue has of a server.
#[derive(Debug, Clone, Default)]
pub struct Known {
    pub docs: Option<Arc<ServerDocs>>,
    /// Why it could not be used, if that was so the last time.
    pub failure: Option<LastFailure>,
}

/// A server whose tools are not known.
pub(super) struct Unknown {
    pub(super) server: ListedServer,
    pub(super) failure: Option<LastFailure>,
}

impl DocsCache {
    pub(in crate::upstream) fn new(surroundings: &Surroundings) -> Self {
        let Surroundings { home, cwd, state_dir, search_model, .. } = surroundings;
        let folder = state_dir.join(FOLDER);
        let project = Some(cwd.clone()).filter(|cwd| home.as_ref() != Some(cwd));
        Self {
            catalog: Catalog::at(folder.clone()).with_model(search_model.clone()),
            failures: Failures::new(folder.clone()),
            functions: SavedFunctions::at(state_dir),
            keys: Keys::new(folder, project),
            listed: Mutex::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Returns the documentation of a server, if the catalogue has it.
    pub(super) async fn known(self: &Arc<Self>, server: &Arc<Server>) -> Option<Arc<ServerDocs>> {
        let (cache, server) = (Arc::clone(self), Arc::clone(server));
        blocking(move || cache.catalog.docs(&cache.key(&server)?)).await
    }

    /// Returns the same of all servers, in the order of the snapshot.
    pub(super) async fn all_known(self: &Arc<Self>, snapshot: Arc<Snapshot>) -> Vec<Known> {
        let cache = Arc::clone(self);
        let known = move || {
            let keyed = cache.keyed(snapshot);
            let known = |server: &ListedServer| Known {
                docs: cache.catalog.docs(&server.key),
                failure: cache.failures.last(&server.key),
            };
            keyed.servers.iter().map(known).collect()
        };
        blocking(known).await
    }

    /// Keeps a list of tools; once, however often it is called.
    pub(super) async fn keep(self: &Arc<Self>, listing: &Arc<Listing>) -> Arc<ServerDocs> {
        let keeping = || async {
            let (cache, listing) = (Arc::clone(self), Arc::clone(listing));
            blocking(move || {
                let docs: Vec<_> = listing.tools.tools.iter().map(Tool::doc).collect();
                let key = cache.keys.of(&listing.source, &listing.definition);
                cache.failures.forget(&key);
                cache.catalog.keep(&key, listing.about.clone(), docs)
            })
            .await
        };
        Arc::clone(listing.docs.get_or_init(keeping).await)
    }

    /// Returns the tools that fit a query best.
    pub(super) async fn find(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        query: &str,
        limit: usize,
        detail: Detail,
    ) -> Found {
        let (cache, query) = (Arc::clone(self), query.to_owned());
        let find = move || {
            let keyed = cache.keyed(snapshot);
            let functions = cache.functions.current();
            let mut servers = keyed.servers.to_vec();
            if !functions.is_empty() {
                let listed = Functions::listed();
                cache.catalog.put(&listed.key, &functions.docs);
                servers.push(listed);
            }
            let found = cache.catalog.search(&servers, &query, limit);
            let schemas = OnceCell::new();
            let item = |tool: &FoundTool| match tool.server == keyed.servers.len() {
                false => tool.item(&servers, detail),
                true => functions.item(tool.tool, detail, schemas.get_or_init(|| cache.schemas(&keyed))),
            };
            let tools = found.tools.iter().filter_map(item).collect();
            let unknown = found.unknown.iter().map(|at| &keyed.servers[*at]).map(|server| Unknown {
                server: server.clone(),
                failure: cache.failures.recent(&server.key),
            });
            Found { tools, unknown: unknown.collect(), keyed }
        };
        blocking(find).await
    }

    fn schemas(&self, keyed: &Keyed) -> Schemas {
        let docs = |server: &ListedServer| Some((server.alias.clone(), self.catalog.docs(&server.key)?));
        Schemas::new(keyed.servers.iter().filter_map(docs).collect())
    }

    /// Removes old files of servers that are not defined any more.
    pub(super) async fn prune(self: &Arc<Self>, keyed: Keyed) {
        let cache = Arc::clone(self);
        let prune = move || {
            let pruned = cache.catalog.prune(&keyed.servers);
            if let Err(error) = pruned.and_then(|_| cache.failures.remove_old()) {
                tracing::debug!(folder = %cache.catalog.folder().display(), %error, "could not remove old tool documentation");
            }
        };
        blocking(prune).await;
    }

    /// Notes whether a server answered, and returns its key if its definition is used.
    pub(super) async fn note(
        self: &Arc<Self>,
        server: &Arc<Server>,
        failure: Option<&UpstreamError>,
    ) -> Option<Arc<str>> {
        let (cache, server) = (Arc::clone(self), Arc::clone(server));
        let why = match failure {
            None => Some(None),
            // That says nothing new about the server.
            Some(
                UpstreamError::ShuttingDown
                | UpstreamError::Cancelled { .. }
                | UpstreamError::BackingOff { .. },
            ) => None,
            Some(error) => Some(Some(Reason::of(error))),
        };
        let note = move || {
            let key = cache.key(&server)?;
            match why {
                Some(Some(why)) => cache.failures.note(&key, why),
                Some(None) => cache.failures.forget(&key),
                None => {}
            }
            Some(key)
        };
        blocking(note).await
    }

    /// Learns what a tool returns from the result of a successful call, unless enough was seen of it; in the background.
    pub(super) fn learn(self: &Arc<Self>, server: &Arc<Server>, tool: &str, result: &RawValue) {
        if !self.catalog.wants_result(&server.name, tool) {
            return;
        }
        let (cache, server) = (Arc::clone(self), Arc::clone(server));
        let (tool, result) = (tool.to_owned(), result.to_owned());
        self.tasks.spawn_blocking(move || {
            if let Some(key) = cache.key(&server) {
                cache.catalog.learn(&key, &tool, &result);
            }
        });
    }

    /// Returns how far the search model is with the tools of all servers; None without a model.
    pub(super) async fn prepared(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
    ) -> Option<Result<Prepared, ModelError>> {
        let cache = Arc::clone(self);
        blocking(move || cache.catalog.prepared(&cache.keyed(snapshot).servers)).await
    }

    /// Has the search model read the tools of all servers; None without a model.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        report: impl FnMut(Prepared) -> bool + Send + 'static,
    ) -> Option<Result<Prepared, ModelError>> {
        let cache = Arc::clone(self);
        blocking(move || cache.catalog.prepare(&cache.keyed(snapshot).servers, report)).await
    }

    /// Returns the tracker of background tasks.
    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Waits until everything is kept.
    pub(super) async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn key(&self, server: &Server) -> Option<Arc<str>> {
        let definition: &Definition = server.definition.as_ref().ok()?;
        Some(self.keys.of(&server.source.path, definition))
    }

    fn keyed(&self, snapshot: Arc<Snapshot>) -> Keyed {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keyed) = &*listed
            && Arc::ptr_eq(&keyed.snapshot, &snapshot)
        {
            return keyed.clone();
        }
        let server = |server: &Arc<Server>| {
            let (name, alias) = (server.name.to_string(), server.alias.to_string());
            Some(ListedServer { name, alias, key: self.key(server)? })
        };
        let servers = snapshot.servers.iter().filter_map(server).collect();
        let keyed = Keyed { snapshot, servers };
        *listed = Some(keyed.clone());
        keyed
    }
}

impl Listener for DocsCache {
    fn listed(self: Arc<Self>, listing: Arc<Listing>) {
        let cache = Arc::clone(&self);
        self.tasks.spawn(async move { cache.keep(&listing).await });
    }
}

/// Runs blocking work on a thread for that.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(value) => value,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // It is cancelled only when the runtime ends.
        Err(Err(_)) => std::future::pending().await,
    }
}
