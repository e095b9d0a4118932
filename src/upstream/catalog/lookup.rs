//! The catalogue: documentation of all servers, and the search over it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::item::{Detail, ToolItem};
use super::server_docs::ServerDocs;
use super::store::{Stamp, Store};
use crate::upstream::search::{Index, IndexedServer, Weights};
use crate::upstream::tool_doc::{About, ToolDoc};

/// Files of definitions that nobody seems to use any more.
const MOST_FILES: usize = 1000;

/// A server as the catalogue knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListedServer {
    /// Its name in the configuration.
    pub name: String,
    /// Its name in Python.
    pub alias: String,
    /// What stands for its definition. Another definition has another key.
    pub key: Arc<str>,
}

/// The documentation of all servers.
///
/// It reads files when it is asked, and notices those that other bridges write. Everything blocks; none of it for long.
#[derive(Debug)]
pub struct Catalog {
    store: Store,
    loaded: Mutex<HashMap<Arc<str>, Loaded>>,
    index: Mutex<Option<Arc<BuiltIndex>>>,
}

#[derive(Debug, Default)]
struct Loaded {
    /// The file that it is from; none when it could not be written.
    stamp: Option<Stamp>,
    docs: Option<Arc<ServerDocs>>,
}

#[derive(Debug)]
struct BuiltIndex {
    servers: Vec<(String, Arc<ServerDocs>)>,
    index: Index,
}

/// What a search found.
#[derive(Debug, Default)]
pub struct Found {
    /// The best tools, best first.
    pub tools: Vec<FoundTool>,
    /// Servers, by their place in the list, whose tools are not known.
    pub unknown: Vec<usize>,
}

/// A tool that was found.
#[derive(Debug, Clone)]
pub struct FoundTool {
    /// The place of its server in the list.
    pub server: usize,
    /// Its place among the server's tools.
    pub tool: usize,
    /// The server's documentation.
    pub docs: Arc<ServerDocs>,
    /// Only to be compared within one search.
    pub score: f32,
}

impl Catalog {
    /// The catalogue that is kept in a folder. Nothing is read yet.
    pub fn at(folder: PathBuf) -> Self {
        Self { store: Store::at(folder), loaded: Mutex::default(), index: Mutex::default() }
    }

    /// Where the files are.
    pub fn folder(&self) -> &Path {
        self.store.folder()
    }

    /// What is known of the tools of a definition.
    pub fn docs(&self, key: &Arc<str>) -> Option<Arc<ServerDocs>> {
        let stamp = self.store.stamp(key);
        let mut all = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(key);
        match known {
            // What could not be written is kept for as long as there is no file.
            Some(loaded) if loaded.stamp == stamp => return loaded.docs.clone(),
            _ if stamp.is_none() => {
                all.remove(key);
                return None;
            }
            _ => {}
        }
        let (stamp, docs) = self.store.read(key)?;
        let docs = docs.map(Arc::new);
        all.insert(key.clone(), Loaded { stamp: Some(stamp), docs: docs.clone() });
        docs
    }

    /// Keeps what a server said, in memory and on disk.
    pub fn keep(&self, key: &Arc<str>, about: About, docs: Vec<ToolDoc>) -> Arc<ServerDocs> {
        let docs = Arc::new(ServerDocs::new(about, docs));
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
            // It has not changed: whoever built something on it need not do so again.
            return docs.clone();
        }
        all.insert(key.clone(), Loaded { stamp, docs: Some(docs.clone()) });
        docs
    }

    /// Removes files of definitions that are neither listed nor recent.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn prune(&self, servers: &[ListedServer]) -> io::Result<usize> {
        let keep: Vec<_> = servers.iter().filter_map(|server| self.store.path(&server.key)).collect();
        self.store.prune(&keep, MOST_FILES)
    }

    /// The tools that fit a query best, best first, at most `limit`.
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
        let tool = |hit: crate::upstream::search::Hit| FoundTool {
            server: places[hit.server],
            tool: hit.tool,
            docs: built.servers[hit.server].1.clone(),
            score: hit.score,
        };
        found.tools = built.index.search(query, limit).into_iter().map(tool).collect();
        found
    }

    /// The index over these; the last one when they are the same.
    fn index(&self, servers: Vec<(String, Arc<ServerDocs>)>) -> Arc<BuiltIndex> {
        // Whoever comes while it is built waits for it instead of building another.
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(built) = &*index
            && built.servers.len() == servers.len()
            && built.servers.iter().zip(&servers).all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(&a.1, &b.1))
        {
            return built.clone();
        }
        let indexed: Vec<_> = servers
            .iter()
            .map(|(name, docs)| IndexedServer { name: name.clone(), terms: docs.terms().clone() })
            .collect();
        let built = Arc::new(BuiltIndex { index: Index::new(&indexed, Weights::default()), servers });
        *index = Some(built.clone());
        built
    }
}

impl FoundTool {
    /// As it is shown; none when what the disk had of it is damaged.
    pub fn item(&self, servers: &[ListedServer], detail: Detail) -> Option<ToolItem> {
        let server = servers.get(self.server)?;
        ToolItem::new(&server.name, &server.alias, &self.docs, self.tool, detail)
    }
}
