//! Answers of registries, on disk for a while.

use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use crate::sizes::Amount;

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

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    /// Removes answers that are too old; all of them when there are too many.
    fn sweep(&self) {
        let files = self.files();
        let is_full = files.len() > MOST;
        for file in files.iter().filter(|file| is_full || is_old(file)) {
            let _ = fs::remove_file(file);
        }
    }
}

/// Returns the answers in a state folder that are too old. Removes them if `remove` is set.
pub fn old_answers(state_dir: &Path, remove: bool) -> Amount {
    let mut old = Cache::in_state(state_dir).files();
    old.retain(|file| is_old(file));
    let amount = Amount::of(old.iter().map(PathBuf::as_path));
    if remove {
        old.iter().for_each(|file| drop(fs::remove_file(file)));
    }
    amount
}

fn is_old(file: &Path) -> bool {
    let modified = fs::metadata(file).and_then(|data| data.modified());
    modified.is_ok_and(|modified| !is_fresh(&modified))
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
        cache.put("b", b"two");
        fs::File::options().write(true).open(cache.file("b")).unwrap().set_modified(old).unwrap();
        assert_eq!((old_answers(dir.path(), true).count, old_answers(dir.path(), false).count), (1, 0));
        for number in 0..MOST + 2 {
            cache.put(&number.to_string(), b"x");
        }
        assert!(fs::read_dir(&cache.0).unwrap().count() <= MOST);
    }
}
