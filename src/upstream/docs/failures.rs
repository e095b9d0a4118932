//! Servers that could not be used: so that not every search and every new bridge asks them again, and for lists of servers.
//!
//! Each has a file beside the documentation, which is removed when the server answers. A changed definition has another one.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::upstream::catalog::replace_file;
use crate::upstream::error::UpstreamError;
use crate::upstream::tool_doc::floor_char_boundary;

/// How long a server that failed is not asked again.
const BACKOFF: Duration = Duration::from_secs(600);
/// How long a failure is kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Bytes of a reason, of a hint, and of a file.
const LONGEST: usize = 8 << 10;
const LARGEST: u64 = 1 << 20;
const SUFFIX: &str = "failed";

/// Why a server could not be used, the last time that it was needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastFailure {
    pub at: SystemTime,
    pub why: Reason,
}

/// The text of a failure. It has no credentials in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub error: String,
    pub hint: Option<String>,
}

impl LastFailure {
    /// A failure of this moment.
    pub fn now(error: &UpstreamError) -> Self {
        Self { at: SystemTime::now(), why: Reason::of(error) }
    }
}

impl Reason {
    pub(super) fn of(error: &UpstreamError) -> Self {
        let cut = |mut text: String| {
            text.truncate(floor_char_boundary(&text, LONGEST));
            text
        };
        Self { error: cut(error.reason()), hint: error.hint().map(cut) }
    }
}

#[derive(Debug)]
pub(super) struct Failures {
    folder: PathBuf,
    /// Those whose file could not be written.
    unwritten: Mutex<HashMap<Arc<str>, LastFailure>>,
}

impl Failures {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, unwritten: Mutex::default() }
    }

    /// Notes why a server did not answer.
    pub(super) fn note(&self, key: &Arc<str>, why: Reason) {
        if let Err(error) = self.write(key, &why) {
            tracing::debug!(folder = %self.folder.display(), %error, "could not store a failure; it is kept in memory");
            let mut unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
            unwritten.insert(Arc::clone(key), LastFailure { at: SystemTime::now(), why });
        }
    }

    /// Removes the failure of a server that has answered.
    pub(super) fn forget(&self, key: &str) {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        // Usually there is no file.
        let _ = fs::remove_file(self.path(key));
    }

    /// Returns why a server did not answer the last time.
    pub(super) fn last(&self, key: &str) -> Option<LastFailure> {
        let read = || -> io::Result<LastFailure> {
            let file = fs::File::open(self.path(key))?;
            let at = file.metadata()?.modified()?;
            let why = serde_json::from_reader(file.take(LARGEST))?;
            Ok(LastFailure { at, why })
        };
        read().ok().or_else(|| {
            let unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
            unwritten.get(key).cloned()
        })
    }

    /// The same, unless that was so long ago that the server is asked again.
    pub(super) fn recent(&self, key: &str) -> Option<LastFailure> {
        self.last(key).filter(|failure| is_within(failure.at, BACKOFF))
    }

    /// Removes old files.
    pub(super) fn remove_old(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == SUFFIX)
                && fs::metadata(&path).and_then(|file| file.modified()).is_ok_and(|at| !is_within(at, KEPT))
            {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(key).with_extension(SUFFIX)
    }

    fn write(&self, key: &str, why: &Reason) -> io::Result<()> {
        replace_file(&self.path(key), &serde_json::to_vec(why)?).map(drop)
    }
}

/// Whether a time is so recent, also if the clock was set back.
fn is_within(at: SystemTime, limit: Duration) -> bool {
    at.elapsed().map_or_else(|ahead| ahead.duration() < limit, |age| age < limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(error: &str) -> Reason {
        Reason { error: error.into(), hint: None }
    }

    #[test]
    fn a_failure_is_known_to_all_until_the_server_answers_or_time_has_passed() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [0, 1].map(|_| Failures::new(folder.path().join("catalog")));
        let key: Arc<str> = "k".into();
        assert_eq!(other.recent(&key), None);
        one.note(&key, reason("no luck"));
        assert_eq!(other.recent(&key).unwrap().why, reason("no luck"));
        other.forget(&key);
        assert_eq!((one.recent(&key), one.last(&key)), (None, None));
        one.note(&key, reason("no luck"));
        let age = |age| {
            let file = fs::File::options().write(true).open(one.path(&key)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        for seconds in [BACKOFF, 2 * BACKOFF] {
            age(seconds);
            one.remove_old().unwrap();
            assert_eq!(one.recent(&key), None);
            assert!(one.last(&key).is_some_and(|failure| failure.at.elapsed().unwrap() >= seconds));
        }
        age(KEPT);
        one.remove_old().unwrap();
        assert_eq!(fs::read_dir(folder.path().join("catalog")).unwrap().count(), 0);
    }

    #[test]
    fn a_reason_of_any_length_is_bounded_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let failures = Failures::new(folder.path().join("catalog"));
        let error = UpstreamError::Malformed {
            server: "s".into(),
            method: "m".into(),
            why: "ß\u{1}".repeat(LONGEST),
        };
        failures.note(&"k".into(), Reason::of(&error));
        assert!(failures.last("k").is_some_and(|failure| (4..=LONGEST).contains(&failure.why.error.len())));
    }

    #[test]
    fn a_failure_is_kept_in_memory_where_no_file_can_be_written() {
        let failures = Failures::new("/proc/self/nowhere".into());
        let key: Arc<str> = "k".into();
        failures.note(&key, reason("no luck"));
        assert_eq!(failures.recent(&key).unwrap().why, reason("no luck"));
        failures.forget(&key);
        assert_eq!(failures.recent(&key), None);
    }
}
