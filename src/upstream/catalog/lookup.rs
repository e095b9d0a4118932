//! The catalogue: documentation of all servers, and the search over it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;

use super::disk::Stamp;
use super::item::{Detail, ToolItem};
use super::meanings::{Keyed, Meanings, Prepared};
use super::seen::Seen;
use super::server_docs::ServerDocs;
use super::store::Store;
use crate::sizes::Amount;
use crate::upstream::meaning::{MOST_BY_WORDS, ModelError, fuse};
use crate::upstream::search::{Hit, Index, IndexedServer};
use crate::upstream::tool_doc::{About, ToolDoc};

/// Files that are kept, those of unused definitions included.
const MOST_FILES: usize = 1000;

/// A server and the key of its definition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListedServer {
    pub name: String,
    /// The name in Python.
    pub alias: String,
    /// Different for each definition.
    pub key: Arc<str>,
}

/// The documentation of all servers.
///
/// Files are read when needed, and again when other bridges have written them. All methods block, for a short time.
#[derive(Debug)]
pub struct Catalog {
    store: Store,
    loaded: Mutex<HashMap<Arc<str>, Loaded>>,
    index: Mutex<Option<Arc<BuiltIndex>>>,
    seen: Seen,
    /// None without a search model.
    meanings: Option<Arc<Meanings>>,
}

#[derive(Debug, Default)]
struct Loaded {
    /// The file that it is from; None if it could not be written.
    stamp: Option<Stamp>,
    docs: Option<Arc<ServerDocs>>,
}

#[derive(Debug)]
struct BuiltIndex {
    servers: Vec<(String, Arc<ServerDocs>)>,
    index: Index,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Found {
    /// The best tools, best first.
    pub tools: Vec<FoundTool>,
    /// Positions of servers whose tools are not known.
    pub unknown: Vec<usize>,
}

/// A tool that was found.
#[derive(Debug, Clone)]
pub struct FoundTool {
    /// The position of its server in the list.
    pub server: usize,
    /// Its position among the tools of the server.
    pub tool: usize,
    pub docs: Arc<ServerDocs>,
}

impl Catalog {
    /// Returns the catalogue of a folder. Nothing is read yet.
    pub fn at(folder: PathBuf) -> Self {
        let seen = Seen::at(folder.clone());
        Self {
            store: Store::at(folder),
            loaded: Mutex::default(),
            index: Mutex::default(),
            seen,
            meanings: None,
        }
    }

    /// Returns the same catalogue with the search model of a folder.
    #[must_use]
    pub fn with_model(self, model: Option<PathBuf>) -> Self {
        let folder = self.folder().to_owned();
        Self { meanings: model.map(|model| Arc::new(Meanings::new(model, folder))), ..self }
    }

    pub fn folder(&self) -> &Path {
        self.store.folder()
    }

    /// Returns the documentation of a definition, if there is any.
    pub fn docs(&self, key: &Arc<str>) -> Option<Arc<ServerDocs>> {
        let seen = self.seen.of(key);
        let stamp = self.store.stamp(key);
        let mut all = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        // Documentation that could not be written stays in memory while there is no file.
        if let Some(loaded) = all.get(key).filter(|loaded| loaded.stamp == stamp) {
            return loaded.docs.clone();
        }
        if stamp.is_none() {
            all.remove(key);
            return None;
        }
        let (stamp, docs) = self.store.read(key)?;
        let docs = docs.map(|docs| Arc::new(ServerDocs { seen, ..docs }));
        all.insert(key.clone(), Loaded { stamp: Some(stamp), docs: docs.clone() });
        docs
    }

    /// Keeps documentation in memory and on disk.
    pub fn keep(&self, key: &Arc<str>, about: About, docs: Vec<ToolDoc>) -> Arc<ServerDocs> {
        let docs = Arc::new(ServerDocs { seen: self.seen.of(key), ..ServerDocs::new(about, docs) });
        let stamp = match self.store.write(key, &docs) {
            Ok(stamp) => Some(stamp),
            Err(error) => {
                let folder = self.folder().display();
                tracing::warn!(%folder, %error, "could not store the documentation of a server");
                None
            }
        };
        let mut all = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Loaded { stamp: known, docs: Some(docs) }) = all.get(key)
            && *known == stamp
            && stamp.is_some()
        {
            // It is unchanged: an index built on it stays valid.
            return docs.clone();
        }
        all.insert(key.clone(), Loaded { stamp, docs: Some(docs.clone()) });
        docs
    }

    /// Takes documentation that is in no file.
    pub fn put(&self, key: &Arc<str>, docs: &Arc<ServerDocs>) {
        let mut all = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(Arc::clone(key), Loaded { stamp: None, docs: Some(Arc::clone(docs)) });
    }

    /// Whether another result of a server's tool is worth a look, and counts it.
    pub fn wants_result(&self, server: &Arc<str>, tool: &str) -> bool {
        self.seen.wants(server, tool)
    }

    /// Learns what a tool returns from the result of a successful call.
    pub fn learn(&self, key: &Arc<str>, tool: &str, result: &RawValue) {
        self.seen.learn(key, tool, result);
    }

    /// Removes the oldest files of definitions that are not listed, and returns their number.
    ///
    /// # Errors
    /// The folder could not be read.
    pub fn prune(&self, servers: &[ListedServer]) -> io::Result<usize> {
        let keep: Vec<_> = servers.iter().filter_map(|server| self.store.path(&server.key)).collect();
        self.store.prune(&keep, MOST_FILES)
    }

    /// Returns what is unused: files of definitions that are not listed and that have not changed for so long. Removes it if `remove`
    /// is set.
    ///
    /// # Errors
    /// The folder could not be read, or a file not be removed.
    pub fn unused(&self, servers: &[ListedServer], age: Duration, remove: bool) -> io::Result<Amount> {
        let keep: Vec<_> = servers.iter().filter_map(|server| self.store.path(&server.key)).collect();
        self.store.unused(&keep, age, remove)
    }

    /// Returns the tools that fit a query best, best first, at most `limit`.
    pub fn search(&self, servers: &[ListedServer], query: &str, limit: usize) -> Found {
        let mut found = Found::default();
        let mut known = Vec::new();
        let mut places = Vec::new();
        for (place, server) in servers.iter().enumerate() {
            match self.docs(&server.key) {
                Some(docs) => {
                    known.push((server.name.clone(), docs));
                    places.push(place);
                }
                None => found.unknown.push(place),
            }
        }
        let built = self.index(known);
        let tool = |hit: Hit| FoundTool {
            server: places[hit.server],
            tool: hit.tool,
            docs: built.servers[hit.server].1.clone(),
        };
        let hits = self.ranked(&built, servers, &places, query, limit);
        found.tools = hits.into_iter().map(tool).collect();
        found
    }

    /// Returns the tools that fit best by their words, and by their meaning where there is a model.
    fn ranked(
        &self,
        built: &BuiltIndex,
        servers: &[ListedServer],
        places: &[usize],
        query: &str,
        limit: usize,
    ) -> Vec<Hit> {
        let Some(meanings) = &self.meanings else { return built.index.search(query, limit) };
        let keyed = built.servers.iter().zip(places);
        let keyed: Vec<_> =
            keyed.map(|((_, docs), place)| (servers[*place].key.clone(), docs.clone())).collect();
        let Some(near) = meanings.nearest(&keyed, query) else { return built.index.search(query, limit) };
        let by_words = built.index.search(query, MOST_BY_WORDS.max(limit));
        let by_meaning: Vec<_> =
            near.tools.iter().map(|(server, tool)| Hit { server: *server, tool: *tool }).collect();
        fuse(&by_words, &by_meaning, |hit| near.knows(hit.server, hit.tool), limit)
    }

    /// Returns the servers whose documentation is known, and a search model for them.
    fn known_to_model(&self, servers: &[ListedServer]) -> Option<(&Arc<Meanings>, Vec<Keyed>)> {
        let known = servers.iter().filter_map(|server| Some((server.key.clone(), self.docs(&server.key)?)));
        Some((self.meanings.as_ref()?, known.collect()))
    }

    /// Returns how far the search model is with the tools of these servers; None without a model.
    pub fn prepared(&self, servers: &[ListedServer]) -> Option<Result<Prepared, ModelError>> {
        let (meanings, known) = self.known_to_model(servers)?;
        Some(meanings.prepared(&known))
    }

    /// Has the search model read all tools of these servers now, until `report` returns false; None without a model.
    pub fn prepare(
        &self,
        servers: &[ListedServer],
        report: impl FnMut(Prepared) -> bool,
    ) -> Option<Result<Prepared, ModelError>> {
        let (meanings, known) = self.known_to_model(servers)?;
        Some(meanings.prepare_all(&known, report))
    }

    /// Returns the index over these servers; the previous one if they are the same.
    fn index(&self, servers: Vec<(String, Arc<ServerDocs>)>) -> Arc<BuiltIndex> {
        // Held while the index is built: others wait for it instead of building another.
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(built) = &*index
            && built.servers.len() == servers.len()
            && built.servers.iter().zip(&servers).all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(&a.1, &b.1))
        {
            return built.clone();
        }
        let indexed: Vec<_> = servers
            .iter()
            .map(|(name, docs)| IndexedServer { name: name.clone(), terms: docs.terms.clone() })
            .collect();
        let built = Arc::new(BuiltIndex { index: Index::new(&indexed), servers });
        *index = Some(built.clone());
        built
    }
}

impl FoundTool {
    /// Returns its documentation; None if that is damaged on disk.
    pub fn item(&self, servers: &[ListedServer], detail: Detail) -> Option<ToolItem> {
        let server = servers.get(self.server)?;
        ToolItem::new(&server.name, &server.alias, &self.docs, self.tool, detail)
    }
}
