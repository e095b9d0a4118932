//! What tools mean: a vector for each, made once by the user's search model, in a file beside the documentation.
//!
//! Making them takes a moment for each tool. That is done in the background, on one thread of low priority; what it has not read
//! yet is compared by words alone.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::disk::{VECTORS, replace};
use super::server_docs::{ServerDocs, ToolSummary};
use crate::upstream::meaning::{
    Encoder, MODEL, MOST_BY_MEANING, Model, ModelError, Priority, TOKENIZER, Vector,
};

/// Bytes of a file of vectors.
const LARGEST: u64 = 64 << 20;

/// The number of a text: the beginning of its hash.
type TextId = u64;

/// The vectors of one server's tools as a file has them.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// The model that made them.
    model: [u8; 32],
    /// None for a text that the model does not work with.
    vectors: HashMap<TextId, Option<Vector>>,
}

/// The vectors of one server's tools, in their order.
#[derive(Debug)]
struct Ready {
    docs: Arc<ServerDocs>,
    /// None for a tool that the model has not read, or whose text it does not work with.
    vectors: Vec<Option<Vector>>,
    /// Whether it has read all.
    is_whole: bool,
}

/// The tools that are nearest to a query.
#[derive(Debug)]
pub(super) struct Nearest {
    /// Positions of servers and of their tools, best first.
    pub(super) tools: Vec<(usize, usize)>,
    ready: Vec<Option<Arc<Ready>>>,
}

impl Nearest {
    /// Whether a tool was compared with the query.
    pub(super) fn knows(&self, server: usize, tool: usize) -> bool {
        let ready = self.ready.get(server).and_then(Option::as_ref);
        ready.is_some_and(|ready| ready.vectors.get(tool).is_some_and(Option::is_some))
    }
}

/// A server, by the key of its definition.
pub(super) type Keyed = (Arc<str>, Arc<ServerDocs>);

/// How much is prepared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prepared {
    pub tools: usize,
    pub ready: usize,
}

/// The user's search model, and what it made of the tools.
#[derive(Debug)]
pub(super) struct Meanings {
    /// The folder of the model.
    model: PathBuf,
    /// The folder of the catalogue.
    folder: PathBuf,
    loaded: OnceLock<Result<Loaded, ModelError>>,
    ready: Mutex<HashMap<Arc<str>, Arc<Ready>>>,
    /// Whether a thread makes vectors, or none can.
    is_preparing: Mutex<bool>,
}

struct Loaded {
    /// Of this content of the folder.
    id: [u8; 32],
    /// Reads queries.
    encoder: Encoder,
    /// Starts another encoder.
    start: Box<dyn Fn(Priority) -> Encoder + Send + Sync>,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("encoder", &self.encoder).finish_non_exhaustive()
    }
}

impl Meanings {
    pub(super) fn new(model: PathBuf, folder: PathBuf) -> Self {
        Self {
            model,
            folder,
            loaded: OnceLock::new(),
            ready: Mutex::default(),
            is_preparing: Mutex::default(),
        }
    }

    /// Returns the tools that are nearest to a query, of those that the model has read. None before it has read any, and where it
    /// cannot be used.
    pub(super) fn nearest(self: &Arc<Self>, servers: &[Keyed], query: &str) -> Option<Nearest> {
        let loaded = self.loaded().ok()?;
        // What is being made would be looked for in every file, at every search.
        let is_preparing = *lock(&self.is_preparing);
        let find =
            |server| self.in_memory(server).or_else(|| (!is_preparing).then(|| self.on_disk(server, loaded)));
        let ready: Vec<Option<Arc<Ready>>> = servers.iter().map(find).collect();
        if !is_preparing && !ready.iter().flatten().all(|ready| ready.is_whole) {
            self.prepare(servers);
        }
        if ready.iter().flatten().all(|ready| ready.vectors.iter().all(Option::is_none)) {
            return None;
        }
        let wanted = loaded.encoder.encode(query);
        let wanted = wanted.inspect_err(|error| tracing::debug!(%error, "could not encode a query")).ok()?;
        let mut near = Vec::new();
        for (server, ready) in ready.iter().enumerate() {
            let tools = ready.iter().flat_map(|ready| ready.vectors.iter().enumerate());
            let similar = |(tool, vector): (usize, &Option<Vector>)| {
                Some((wanted.similarity(vector.as_ref()?), (server, tool)))
            };
            near.extend(tools.filter_map(similar));
        }
        near.sort_by(|a, b| b.0.total_cmp(&a.0));
        near.truncate(MOST_BY_MEANING);
        Some(Nearest { tools: near.into_iter().map(|(_, place)| place).collect(), ready })
    }

    /// Makes all vectors that are missing, and calls `report` for each tool, until it returns false. Takes long.
    ///
    /// # Errors
    /// The model cannot be used.
    pub(super) fn prepare_all(
        self: &Arc<Self>,
        servers: &[Keyed],
        mut report: impl FnMut(Prepared) -> bool,
    ) -> Result<Prepared, ModelError> {
        let loaded = self.loaded().map_err(Clone::clone)?;
        let mut prepared = self.prepared(servers)?;
        let mut goes_on = true;
        for server in servers {
            self.prepare_one(server, loaded, &loaded.encoder, &mut || {
                prepared.ready += 1;
                goes_on = report(prepared);
                goes_on
            })?;
            if !goes_on {
                break;
            }
        }
        Ok(prepared)
    }

    /// Returns how many tools have vectors.
    ///
    /// # Errors
    /// The model cannot be used.
    pub(super) fn prepared(&self, servers: &[Keyed]) -> Result<Prepared, ModelError> {
        let loaded = self.loaded().map_err(Clone::clone)?;
        let mut prepared = Prepared::default();
        for (key, docs) in servers {
            let kept = self.kept(key, loaded);
            let texts = texts(docs);
            prepared.tools += texts.len();
            prepared.ready += texts.iter().filter(|text| kept.vectors.contains_key(&id_of(text))).count();
        }
        Ok(prepared)
    }

    fn loaded(&self) -> Result<&Loaded, &ModelError> {
        let load = || {
            let model = Model::load(&self.model)?;
            let start = Box::new(move |priority| Encoder::start(&model, priority));
            Ok(Loaded { id: id_of_model(&self.model), encoder: start(Priority::Usual), start })
        };
        let load = || {
            load().inspect_err(|error: &ModelError| {
                tracing::warn!(%error, hint = error.hint(), "tools are searched by words alone");
            })
        };
        self.loaded.get_or_init(load).as_ref()
    }

    fn in_memory(&self, (key, docs): &Keyed) -> Option<Arc<Ready>> {
        lock(&self.ready).get(key).filter(|ready| Arc::ptr_eq(&ready.docs, docs)).cloned()
    }

    fn on_disk(&self, server: &Keyed, loaded: &Loaded) -> Arc<Ready> {
        let ids: Vec<_> = texts(&server.1).iter().map(|text| id_of(text)).collect();
        self.take(server, &ids, &self.kept(&server.0, loaded))
    }

    /// Takes vectors into memory. `ids` are those of the texts of the server's tools.
    fn take(&self, (key, docs): &Keyed, ids: &[TextId], kept: &Kept) -> Arc<Ready> {
        let found: Vec<_> = ids.iter().map(|id| kept.vectors.get(id)).collect();
        let is_whole = found.iter().all(Option::is_some);
        let vectors = found.into_iter().map(|vector| vector.cloned().flatten()).collect();
        let ready = Arc::new(Ready { docs: Arc::clone(docs), vectors, is_whole });
        lock(&self.ready).insert(Arc::clone(key), Arc::clone(&ready));
        ready
    }

    /// Makes what is missing in the background, unless that is being done.
    fn prepare(self: &Arc<Self>, servers: &[Keyed]) {
        let mut is_preparing = lock(&self.is_preparing);
        if *is_preparing {
            return;
        }
        let (meanings, servers) = (Arc::downgrade(self), servers.to_vec());
        let work = move || {
            let Some(encoder) = meanings.upgrade().and_then(|owner| owner.slow_encoder()) else { return };
            for server in &servers {
                let Some(owner) = meanings.upgrade() else { return };
                let Ok(loaded) = owner.loaded() else { break };
                // Where nobody searches any more, this is the last owner.
                let mut goes_on = || Arc::strong_count(&owner) > 1;
                if owner.prepare_one(server, loaded, &encoder, &mut goes_on).is_err() {
                    // Nor would it work at the next search.
                    return;
                }
            }
            if let Some(owner) = meanings.upgrade() {
                *lock(&owner.is_preparing) = false;
            }
        };
        *is_preparing = thread::Builder::new().name("search-model-docs".into()).spawn(work).is_ok();
    }

    fn slow_encoder(&self) -> Option<Encoder> {
        Some((self.loaded().ok()?.start)(Priority::Low))
    }

    /// Makes what is missing of one server, until `report` returns false.
    ///
    /// # Errors
    /// The encoder has ended.
    fn prepare_one(
        &self,
        server: &Keyed,
        loaded: &Loaded,
        encoder: &Encoder,
        report: &mut impl FnMut() -> bool,
    ) -> Result<(), ModelError> {
        let (key, docs) = server;
        let mut kept = self.kept(key, loaded);
        let texts = texts(docs);
        let ids: Vec<TextId> = texts.iter().map(|text| id_of(text)).collect();
        let before = kept.vectors.len();
        kept.vectors.retain(|id, _| ids.contains(id));
        let mut is_changed = kept.vectors.len() != before;
        for (id, text) in ids.iter().zip(&texts) {
            if kept.vectors.contains_key(id) {
                continue;
            }
            let vector = match encoder.encode(text) {
                Err(error @ ModelError::Ended) => return Err(error),
                encoded => encoded.inspect_err(|error| {
                    tracing::debug!(%error, "could not encode the documentation of a tool");
                }),
            };
            kept.vectors.insert(*id, vector.ok());
            is_changed = true;
            if !report() {
                break;
            }
        }
        self.take(server, &ids, &kept);
        if !is_changed {
            return Ok(());
        }
        let bytes = postcard::to_allocvec(&kept).map_err(io::Error::other);
        if let Err(error) = bytes.and_then(|bytes| replace(&self.path(key), &bytes)) {
            tracing::warn!(folder = %self.folder.display(), %error, "could not store what tools mean");
        }
        Ok(())
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(key).with_extension(VECTORS)
    }

    /// Returns what a file has, if this model made it.
    fn kept(&self, key: &str, loaded: &Loaded) -> Kept {
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            File::open(self.path(key))?.take(LARGEST).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let kept = read().ok().and_then(|bytes| postcard::from_bytes::<Kept>(&bytes).ok());
        let kept = kept.filter(|kept| kept.model == loaded.id);
        kept.unwrap_or_else(|| Kept { model: loaded.id, vectors: HashMap::new() })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns what the model reads of each tool.
fn texts(docs: &ServerDocs) -> Vec<String> {
    let text = |(at, tool): (usize, &ToolSummary)| {
        let description = docs.doc(at).map(|doc| doc.description);
        format!("{}: {}", tool.name, description.as_deref().unwrap_or(&tool.description))
    };
    docs.tools().iter().enumerate().map(text).collect()
}

fn id_of(text: &str) -> TextId {
    let hash = Sha256::digest(text);
    hash.iter().take(8).fold(0, |id, byte| id << 8 | u64::from(*byte))
}

/// Returns what changes when another model is put into the folder.
fn id_of_model(folder: &Path) -> [u8; 32] {
    // The form of the file, which changes with the number.
    let mut hash = Sha256::new_with_prefix("2\n");
    for name in [MODEL, TOKENIZER] {
        let stamp =
            fs::metadata(folder.join(name)).map(|file| (file.size(), file.mtime(), file.mtime_nsec()));
        hash.update(format!("{name} {stamp:?}\n"));
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
