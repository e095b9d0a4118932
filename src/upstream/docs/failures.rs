//! Servers that could not list their tools, so that not every search and every new bridge asks them again.
//!
//! Each has a file beside the documentation, which is removed when the server answers.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::upstream::catalog::create_folder;
use crate::upstream::tool_doc::floor_char_boundary;

/// How long a server that failed is not asked again.
const BACKOFF: Duration = Duration::from_secs(600);
/// Bytes of a reason.
const LONGEST: usize = 8 << 10;
const SUFFIX: &str = "failed";

#[derive(Debug)]
pub(super) struct Failures {
    folder: PathBuf,
    /// Those whose file could not be written.
    unwritten: Mutex<HashMap<Arc<str>, (SystemTime, String)>>,
}

impl Failures {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, unwritten: Mutex::default() }
    }

    /// Notes why a server did not answer.
    pub(super) fn note(&self, key: &Arc<str>, why: &str) {
        let why = &why[..floor_char_boundary(why, LONGEST)];
        if let Err(error) = self.write(key, why) {
            tracing::debug!(folder = %self.folder.display(), %error, "could not store a failure; it is kept in memory");
            let mut unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
            unwritten.insert(Arc::clone(key), (SystemTime::now(), why.to_owned()));
        }
    }

    /// Removes the failure of a server that has answered.
    pub(super) fn forget(&self, key: &str) {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        // Usually there is no file.
        let _ = fs::remove_file(self.path(key));
    }

    /// Returns why a server did not answer, unless that was long ago.
    pub(super) fn recent(&self, key: &str) -> Option<String> {
        let read = || -> io::Result<Option<String>> {
            let file = fs::File::open(self.path(key))?;
            if !is_recent(file.metadata()?.modified()?) {
                return Ok(None);
            }
            let mut bytes = Vec::new();
            file.take(LONGEST as u64).read_to_end(&mut bytes)?;
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        };
        read().unwrap_or_else(|_| {
            let unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
            unwritten.get(key).filter(|(at, _)| is_recent(*at)).map(|(_, why)| why.clone())
        })
    }

    /// Removes old files.
    pub(super) fn remove_old(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == SUFFIX)
                && fs::metadata(&path).and_then(|file| file.modified()).is_ok_and(|at| !is_recent(at))
            {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(key).with_extension(SUFFIX)
    }

    fn write(&self, key: &str, why: &str) -> io::Result<()> {
        create_folder(&self.folder)?;
        let mut file = tempfile::Builder::new().prefix(".unfinished-").tempfile_in(&self.folder)?;
        file.write_all(why.as_bytes())?;
        file.persist(self.path(key)).map_err(|refused| refused.error)?;
        Ok(())
    }
}

/// Whether a time is recent, also if the clock was set back.
fn is_recent(at: SystemTime) -> bool {
    at.elapsed().map_or_else(|ahead| ahead.duration() < BACKOFF, |age| age < BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_known_to_all_until_the_server_answers_or_time_has_passed() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [0, 1].map(|_| Failures::new(folder.path().join("catalog")));
        let key: Arc<str> = "k".into();
        assert_eq!(other.recent(&key), None);
        one.note(&key, "no luck");
        assert_eq!(other.recent(&key).as_deref(), Some("no luck"));
        other.forget(&key);
        assert_eq!(one.recent(&key), None);
        one.note(&key, &"ß".repeat(LONGEST));
        assert!(other.recent(&key).is_some_and(|why| why.len() <= LONGEST && why.ends_with('ß')));
        for age in [BACKOFF, 2 * BACKOFF] {
            let file = fs::File::options().write(true).open(one.path(&key)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
            assert_eq!(one.recent(&key), None);
        }
        one.remove_old().unwrap();
        assert_eq!(fs::read_dir(folder.path().join("catalog")).unwrap().count(), 0);
    }

    #[test]
    fn a_failure_is_kept_in_memory_where_no_file_can_be_written() {
        let failures = Failures::new("/proc/self/nowhere".into());
        let key: Arc<str> = "k".into();
        failures.note(&key, "no luck");
        assert_eq!(failures.recent(&key).as_deref(), Some("no luck"));
        failures.forget(&key);
        assert_eq!(failures.recent(&key), None);
    }
}
