//! The live sessions, as people see them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use codebridge_runtimes::Meter;

use super::call::ChangedFile;
use super::interpreter::{Files, Interpreter};
use super::recording::MadeOf;

/// A live session.
#[derive(Debug)]
pub struct ListedSession {
    pub name: String,
    pub runtime: Arc<str>,
    /// As the user names it.
    pub image: Arc<str>,
    pub age: Duration,
    /// How long it has done nothing; None while code runs in it.
    pub idle: Option<Duration>,
    /// In bytes, of all its processes; None where this host does not see them, or has not looked yet.
    pub memory: Option<u64>,
    pub processor: Option<Duration>,
}

/// The live sessions by name, as far as they last longer than a run.
#[derive(Debug, Default)]
pub(super) struct Listed(Mutex<BTreeMap<String, Entry>>);

struct Entry {
    files: Arc<Files>,
    made_of: MadeOf,
    since: Instant,
    meter: Arc<OnceLock<Meter>>,
    /// Finds the meter. It is polled when somebody looks for the first time.
    finding: Option<Pin<Box<dyn Future<Output = Option<Meter>> + Send>>>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("made_of", &self.made_of).finish_non_exhaustive()
    }
}

impl Listed {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a session; its files can be read from here on.
    pub(super) fn show(&self, session: &str, interpreter: &Interpreter) {
        let files = interpreter.files();
        let mut listed = self.lock();
        if listed.get(session).is_some_and(|known| Arc::ptr_eq(&known.files, files)) {
            return;
        }
        listed.retain(|_, known| !known.files.has_ended());
        let entry = Entry {
            files: Arc::clone(files),
            made_of: interpreter.made_of().clone(),
            since: Instant::now(),
            meter: Arc::default(),
            finding: Some(Box::pin(interpreter.meter())),
        };
        listed.insert(session.to_owned(), entry);
    }

    /// Returns the files of a session that lives.
    pub(super) fn files_of(&self, session: &str) -> Option<Arc<Files>> {
        let files = self.lock().get(session).map(|known| Arc::clone(&known.files));
        files.filter(|files| !files.has_ended())
    }

    /// Returns the files of all sessions that changed last.
    pub(super) fn changed_files(&self) -> Vec<ChangedFile> {
        let mut listed = self.lock();
        listed.retain(|_, known| !known.files.has_ended());
        listed.values().flat_map(|known| known.files.listed()).collect()
    }

    /// Returns all sessions; `idle` says how long one has done nothing.
    pub(super) fn list(&self, idle: impl Fn(&str) -> Option<Duration>) -> Vec<ListedSession> {
        let mut listed = self.lock();
        listed.retain(|_, known| !known.files.has_ended());
        let row = |(name, known): (&String, &mut Entry)| {
            if let Some(finding) = known.finding.take() {
                let meter = Arc::clone(&known.meter);
                tokio::spawn(async move {
                    if let Some(found) = finding.await {
                        let _ = meter.set(found);
                    }
                });
            }
            let meter = known.meter.get();
            ListedSession {
                name: name.clone(),
                runtime: Arc::clone(&known.made_of.runtime),
                image: Arc::clone(&known.made_of.image),
                age: known.since.elapsed(),
                idle: idle(name),
                memory: meter.and_then(Meter::memory),
                processor: meter.and_then(Meter::processor_time),
            }
        };
        listed.iter_mut().map(row).collect()
    }
}
