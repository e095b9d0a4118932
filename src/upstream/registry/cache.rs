//! Answers of registries, on disk for a while.

use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

/// The folder of the answers, in the state folder.
const FOLDER: &str = "registry";
/// How long an answer is used.
const FRESH: Duration = Duration::from_secs(3600);
/// Answers that are kept.
const MOST: usize = 100;

/// The answers of before. Whatever goes wrong with them, the registry can be asked.
#[derive(Debug)]
pub(super) struct Cache(PathBuf);

impl Cache {
    pub(super) fn in_state(state_dir: &Path) -> Self {
        Self(state_dir.join(FOLDER))
    }

    /// Returns the answer to a request, if it is fresh.
    pub(super) fn get(&self, url: &str) -> Option<Vec<u8>> {
        let file = self.file(url);
        is_fresh(&fs::metadata(&file).ok()?.modified().ok()?).then(|| fs::read(&file).ok())?
    }

    pub(super) fn put(&self, url: &str, answer: &[u8]) {
        let write = || {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
            file.write_all(answer)?;
            file.persist(self.file(url)).map_err(|refused| refused.error)?;
            Ok::<_, std::io::Error>(())
        };
        if let Err(error) = write() {
            tracing::debug!(%error, "an answer of the registry was not kept");
        }
        self.sweep();
    }

    fn file(&self, url: &str) -> PathBuf {
        self.0.join(format!("{}.json", hex::encode(Sha256::digest(url))))
    }

    /// Removes answers that are too old; all of them when there are too many.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.0) else { return };
        let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        let is_full = files.len() > MOST;
        for file in files {
            let modified = fs::metadata(&file).and_then(|data| data.modified());
            if is_full || modified.is_ok_and(|modified| !is_fresh(&modified)) {
                let _ = fs::remove_file(file);
            }
        }
    }
}

/// A time in the future is that of another clock.
fn is_fresh(modified: &SystemTime) -> bool {
    modified.elapsed().is_ok_and(|age| age < FRESH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_used_for_a_while_and_many_do_not_pile_up() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::in_state(dir.path());
        assert_eq!(cache.get("a"), None);
        cache.put("a", b"one");
        assert_eq!(cache.get("a").as_deref(), Some(&b"one"[..]));
        let old = SystemTime::now() - FRESH - Duration::from_secs(1);
        fs::File::options().write(true).open(cache.file("a")).unwrap().set_modified(old).unwrap();
        assert_eq!(cache.get("a"), None);
        for number in 0..MOST + 2 {
            cache.put(&number.to_string(), b"x");
        }
        assert!(fs::read_dir(&cache.0).unwrap().count() <= MOST);
    }
}
