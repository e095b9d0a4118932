//! The catalogue for asynchronous callers: what blocks runs on threads for that.

use std::cell::OnceCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio_util::task::TaskTracker;

use super::failures::{Failures, LastFailure, Reason};
use super::functions::{Functions, SavedFunctions, ToTest};
use super::keys::Keys;
use crate::sizes::Amount;
use crate::upstream::catalog::{
    Catalog, Detail, FOLDER, FoundTool, ListedServer, Prepared, Schemas, ServerDocs, ToolItem,
};
use crate::upstream::discovery::{Definition, Server, Snapshot, Surroundings};
use crate::upstream::error::UpstreamError;
use crate::upstream::meaning::ModelError;
use crate::upstream::pool::{Listener, Listing, OfferedDocs, Tool};
use crate::upstream::tool_doc::About;

/// How many times the wanted results are looked at.
const MORE: usize = 4;

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
    /// How many lists of tools were kept.
    generation: AtomicU64,
}

/// A snapshot and its servers with their keys, in the same order.
#[derive(Debug, Clone)]
pub(super) struct Keyed {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) servers: Arc<[ListedServer]>,
    /// The servers, and then each once more, with the key of what it offers beside tools.
    everything: Arc<[ListedServer]>,
}

/// The result of a search.
pub(super) struct Found {
    pub(super) tools: Vec<ToolItem>,
    /// Servers whose tools are not known.
    pub(super) unknown: Vec<Unknown>,
    /// The keys of servers that offer more than tools, of which nothing is known yet.
    pub(super) unlisted: Vec<Arc<str>>,
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
            generation: AtomicU64::new(0),
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
                let kept = cache.catalog.keep(&key, listing.about.clone(), docs);
                cache.generation.fetch_add(1, Ordering::Release);
                kept
            })
            .await
        };
        Arc::clone(listing.docs.get_or_init(keeping).await)
    }

    /// Keeps a list of what a server offers beside tools.
    pub(super) async fn keep_offers(self: &Arc<Self>, offered: &Arc<OfferedDocs>) {
        let (cache, offered) = (Arc::clone(self), Arc::clone(offered));
        blocking(move || {
            let key = cache.keys.of(&offered.source, &offered.definition);
            cache.catalog.keep(&key_of_offers(&key), About::default(), offered.docs.clone());
        })
        .await;
    }

    /// Notes that a server does not list what it offers beside tools.
    pub(super) async fn keep_no_offers(self: &Arc<Self>, server: &Arc<Server>) {
        let (cache, server) = (Arc::clone(self), Arc::clone(server));
        blocking(move || {
            if let Some(key) = cache.key(&server).map(|key| key_of_offers(&key))
                && cache.catalog.docs(&key).is_none()
            {
                cache.catalog.keep(&key, About::default(), Vec::new());
            }
        })
        .await;
    }

    /// Returns the tools, resources and prompts that fit a query best.
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
            let mut all = keyed.everything.to_vec();
            if !functions.is_empty() {
                let listed = Functions::listed();
                cache.catalog.put(&listed.key, &functions.docs);
                all.push(listed);
            }
            let found = cache.catalog.search(&all, &query, MORE * limit);
            let schemas = OnceCell::new();
            let item = |tool: &FoundTool| match tool.server == keyed.everything.len() {
                false => tool.item(&all, detail),
                true => functions.item(tool.tool, detail, schemas.get_or_init(|| cache.schemas(&keyed))),
            };
            let tools = best_of(found.tools, limit).iter().filter_map(item).collect();
            let unknown = found.unknown.iter().filter_map(|at| keyed.servers.get(*at)).map(|server| {
                Unknown { server: server.clone(), failure: cache.failures.recent(&server.key) }
            });
            let unlisted = found.unknown.iter().filter_map(|at| at.checked_sub(keyed.servers.len()));
            let unlisted = unlisted.filter_map(|at| keyed.servers.get(at));
            let has_offers = |server: &&ListedServer| {
                let docs = cache.catalog.docs(&server.key);
                docs.is_some_and(|docs| docs.about().has_offers)
                    && cache.failures.recent(&server.key).is_none()
            };
            let unlisted = unlisted.filter(has_offers).map(|server| Arc::clone(&server.key)).collect();
            Found { tools, unknown: unknown.collect(), unlisted, keyed }
        };
        blocking(find).await
    }

    /// Returns the saved functions whose examples are to be run again.
    pub(super) async fn functions_to_test(self: &Arc<Self>, snapshot: Arc<Snapshot>) -> Vec<ToTest> {
        let cache = Arc::clone(self);
        blocking(move || cache.functions.current().to_test(|| cache.schemas(&cache.keyed(snapshot)))).await
    }

    /// Returns a number that changes when a server has listed its tools.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn schemas(&self, keyed: &Keyed) -> Schemas {
        let docs = |server: &ListedServer| Some((server.alias.clone(), self.catalog.docs(&server.key)?));
        Schemas::new(keyed.servers.iter().filter_map(docs).collect())
    }

    /// Removes old files of servers that are not defined any more.
    pub(super) async fn prune(self: &Arc<Self>, keyed: Keyed) {
        let cache = Arc::clone(self);
        let prune = move || {
            let pruned = cache.catalog.prune(&keyed.everything);
            if let Err(error) = pruned.and_then(|_| cache.failures.remove_old()) {
                tracing::debug!(folder = %cache.catalog.folder().display(), %error, "could not remove old tool documentation");
            }
        };
        blocking(prune).await;
    }

    /// Returns what is unused: documentation of servers that are not defined any more, if it is so old. Removes it if `remove` is set.
    pub(super) async fn unused(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        age: Duration,
        remove: bool,
    ) -> io::Result<Amount> {
        let cache = Arc::clone(self);
        let unused = move || match cache.catalog.folder().is_dir() {
            true => cache.catalog.unused(&cache.keyed(snapshot).everything, age, remove),
            false => Ok(Amount::default()),
        };
        blocking(unused).await
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
        let servers: Arc<[ListedServer]> = snapshot.servers.iter().filter_map(server).collect();
        let offers =
            servers.iter().map(|server| ListedServer { key: key_of_offers(&server.key), ..server.clone() });
        let everything = servers.iter().cloned().chain(offers).collect();
        let keyed = Keyed { snapshot, servers, everything };
        *listed = Some(keyed.clone());
        keyed
    }
}

impl Listener for DocsCache {
    fn listed(self: Arc<Self>, listing: Arc<Listing>) {
        let cache = Arc::clone(&self);
        self.tasks.spawn(async move { cache.keep(&listing).await });
    }

    fn offered(self: Arc<Self>, offered: Arc<OfferedDocs>) {
        let cache = Arc::clone(&self);
        self.tasks.spawn(async move { cache.keep_offers(&offered).await });
    }
}

/// Returns the key of what a server offers beside tools.
fn key_of_offers(key: &str) -> Arc<str> {
    format!("{key}-offers").into()
}

/// Returns the best results, of which no more than half are something else than tools unless there are no others: a server may
/// have thousands of resources.
fn best_of(found: Vec<FoundTool>, limit: usize) -> Vec<FoundTool> {
    let is_tool =
        |found: &FoundTool| found.docs.tools().get(found.tool).is_none_or(|tool| tool.kind.is_tool());
    let most = (limit / 2).max(1);
    let (mut best, mut rest) = (Vec::with_capacity(limit), Vec::new());
    let mut others = 0;
    for (at, found) in found.into_iter().enumerate() {
        let is_tool = is_tool(&found);
        others += usize::from(!is_tool);
        if !is_tool && others > most { rest.push((at, found)) } else { best.push((at, found)) }
    }
    best.truncate(limit);
    best.extend(rest.into_iter().take(limit - best.len()));
    best.sort_by_key(|(at, _)| *at);
    best.into_iter().map(|(_, found)| found).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::tool_doc::{DocKind, ToolDoc};

    fn best(kinds: &[DocKind], limit: usize) -> String {
        let doc = |(at, kind): (usize, &DocKind)| ToolDoc {
            kind: *kind,
            name: format!("{at}"),
            ..ToolDoc::default()
        };
        let docs = Arc::new(ServerDocs::new(About::default(), kinds.iter().enumerate().map(doc).collect()));
        let found = |tool: usize| FoundTool { server: 0, tool, docs: Arc::clone(&docs) };
        best_of((0..kinds.len()).map(found).collect(), limit)
            .iter()
            .map(|found| found.tool.to_string())
            .collect()
    }

    #[test]
    fn tools_are_not_lost_among_resources() {
        use DocKind::{Prompt, Resource, Tool};
        let many = [Resource, Resource, Resource, Prompt, Tool, Resource, Tool, Tool];
        assert_eq!(best(&many, 4), "0146");
        assert_eq!(best(&many, 1), "0");
        assert_eq!(best(&[Resource, Tool, Resource, Prompt], 4), "0123", "there are no other tools");
        assert_eq!(best(&[Resource; 3], 2), "01");
        assert_eq!(best(&[], 5), "");
    }
}
