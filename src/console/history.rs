//! Runs of the audit log: a list that is kept while somebody looks at it, and search.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::text::in_a_line;
use crate::audit::{Follower, Found, Record};

/// Runs that are kept of a log, the newest. `codebridge audit` shows all.
const MOST_RUNS: usize = 5_000;
/// How long a list is kept that nobody looks at.
const IDLE: Duration = Duration::from_secs(300);
/// Texts of a line that are searched.
const SEARCHED: [&str; 6] = ["code", "stdout", "stderr", "message", "arguments", "result"];

/// The lists that somebody looks at, by the folder of the log.
#[derive(Debug, Clone, Default)]
pub(super) struct Histories(Arc<Mutex<HashMap<PathBuf, Kept>>>);

#[derive(Debug)]
struct Kept {
    history: Arc<Mutex<History>>,
    used: Instant,
}

/// A run of the log.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LoggedRun {
    pub(super) name: String,
    pub(super) session: String,
    pub(super) client: Option<String>,
    pub(super) began: Option<Timestamp>,
    /// Of the code, if it was recorded.
    pub(super) first_line: Option<String>,
    pub(super) servers: Vec<String>,
    pub(super) runtime: Option<String>,
    pub(super) image: Option<String>,
    pub(super) timeout_seconds: f64,
    pub(super) end: Option<LoggedEnd>,
}

/// How a run of the log has ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LoggedEnd {
    pub(super) outcome: String,
    pub(super) error: Option<String>,
    pub(super) exit_code: Option<i32>,
    pub(super) milliseconds: f64,
    pub(super) output_bytes: u64,
    pub(super) calls: u64,
    pub(super) refused: u64,
}

#[derive(Debug)]
struct History {
    follower: Follower,
    runs: HashMap<String, LoggedRun>,
}

/// Which runs are wanted.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    /// Words that code, output, calls or names contain; empty for all runs.
    pub(super) text: String,
    /// Empty for all.
    pub(super) outcome: String,
    pub(super) session: String,
}

impl Wanted {
    pub(super) fn is_everything(&self) -> bool {
        self.text.is_empty() && self.outcome.is_empty() && self.session.is_empty()
    }

    fn fits(&self, run: &LoggedRun) -> bool {
        let outcome = run.end.as_ref().map_or("running", |end| &end.outcome);
        (self.outcome.is_empty() || self.outcome == outcome)
            && (self.session.is_empty() || self.session == run.session)
    }
}

impl LoggedRun {
    /// Reads what lines of a run say of it.
    pub(super) fn note(&mut self, folder: &Path, line: &Found) {
        let record = &line.record;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        match record.event.as_str() {
            "run-start" => {
                self.began = record.time;
                self.servers.clone_from(&record.servers);
                self.timeout_seconds = record.timeout_seconds;
                self.first_line = line.text_of(folder, "code").ok().flatten().map(|code| in_a_line(&code));
            }
            "run" => {
                self.end = Some(LoggedEnd {
                    outcome: text(&record.outcome),
                    error: record.error.clone(),
                    exit_code: record.exit_code,
                    milliseconds: record.milliseconds.unwrap_or_default(),
                    output_bytes: record.stdout_bytes.saturating_add(record.stderr_bytes),
                    calls: record.calls,
                    refused: record.refused,
                });
            }
            _ => return,
        }
        self.name = text(&record.run);
        self.session = text(&record.session);
        self.client.clone_from(&record.client);
        self.runtime.clone_from(&record.runtime);
        self.image.clone_from(&record.image);
    }
}

impl History {
    fn read_new(&mut self, folder: &Path) -> io::Result<()> {
        let runs = &mut self.runs;
        let is_of_run = |text: &str| text.contains("\"event\":\"run");
        self.follower.read_new(is_of_run, |line| {
            let Some(name) = &line.record.run else { return };
            runs.entry(name.clone()).or_default().note(folder, &line);
            if runs.len() > 2 * MOST_RUNS {
                forget_oldest(runs);
            }
        })?;
        if runs.len() > MOST_RUNS {
            forget_oldest(runs);
        }
        Ok(())
    }
}

/// Forgets all but the newest.
fn forget_oldest(runs: &mut HashMap<String, LoggedRun>) {
    let mut times: Vec<_> = runs.values().map(|run| run.began).collect();
    let surplus = times.len().saturating_sub(MOST_RUNS);
    let (_, oldest_kept, _) = times.select_nth_unstable(surplus);
    let oldest_kept = *oldest_kept;
    runs.retain(|_, run| run.began >= oldest_kept);
}

impl Histories {
    /// Returns the runs of a log that are wanted, the newest first.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(super) async fn runs(&self, folder: &Path, wanted: Wanted) -> io::Result<Vec<LoggedRun>> {
        let (history, folder) = (self.of(folder), folder.to_path_buf());
        let read = move || {
            let named = match wanted.text.is_empty() {
                true => None,
                false => Some(find(&folder, &wanted.text)?),
            };
            let mut history = lock(&history);
            history.read_new(&folder)?;
            let is_named = |run: &&LoggedRun| named.as_ref().is_none_or(|named| named.contains(&run.name));
            let fitting = history.runs.values().filter(|run| wanted.fits(run)).filter(is_named);
            let mut runs: Vec<LoggedRun> = fitting.cloned().collect();
            runs.sort_by(|a, b| b.began.cmp(&a.began).then_with(|| b.name.cmp(&a.name)));
            Ok(runs)
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    fn of(&self, folder: &Path) -> Arc<Mutex<History>> {
        let mut all = lock(&self.0);
        if all.is_empty() {
            self.forget_unused();
        }
        let new = || {
            let history = History { follower: Follower::new(folder, None), runs: HashMap::new() };
            Kept { history: Arc::new(Mutex::new(history)), used: Instant::now() }
        };
        let kept = all.entry(folder.to_path_buf()).or_insert_with(new);
        kept.used = Instant::now();
        Arc::clone(&kept.history)
    }

    /// Forgets lists that nobody looks at any more, until there is none.
    fn forget_unused(&self) {
        let all = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE).await;
                let mut all = lock(&all.0);
                all.retain(|_, kept| kept.used.elapsed() < IDLE);
                if all.is_empty() {
                    return;
                }
            }
        });
    }
}

/// Returns the names of the runs with lines that contain a text, in whatever case.
fn find(folder: &Path, text: &str) -> io::Result<HashSet<String>> {
    let text = text.to_lowercase();
    let contains = |other: &str| other.to_lowercase().contains(&text);
    let mut names = HashSet::new();
    let is_of_run = |line: &str| line.contains("\"run\":\"");
    let mut follower = Follower::new(folder, None);
    follower.read_new(is_of_run, |line| {
        let Some(name) = line.record.run.as_deref().filter(|name| !names.contains(*name)) else { return };
        let is_named = names_of(&line.record).into_iter().any(contains) || contains(name);
        let is_in_text = || {
            SEARCHED
                .iter()
                .any(|field| line.text_of(folder, field).ok().flatten().is_some_and(|text| contains(&text)))
        };
        if is_named || is_in_text() {
            let name = name.to_owned();
            names.insert(name);
        }
    })?;
    Ok(names)
}

/// Returns the names in a line.
fn names_of(record: &Record) -> Vec<&str> {
    let Record { session, client, server, tool, error, kind, name, image, .. } = record;
    let named = [session, client, server, tool, error, kind, name, image];
    named
        .into_iter()
        .filter_map(|text| text.as_deref())
        .chain(record.servers.iter().map(String::as_str))
        .collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
