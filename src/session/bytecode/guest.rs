//! The compiled guest, kept between runs of the bridge: compiling it takes some milliseconds of every first call.
//!
//! A guest offers it before user code runs, and it only goes back into sandboxes of the same root. A guest ignores what
//! another Python compiled, so that a stale file only costs time.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use codebridge_runtimes::RootFs;

use crate::guest;
use crate::sizes::Amount;

/// The maximum number of files. The oldest are removed first.
const MOST_FILES: usize = 16;
const EXTENSION: &str = "code";
/// The folder of compiled guests, in the cache folder.
const FOLDER: &str = "guest";

/// The folder of compiled guests, one file for each root.
#[derive(Debug)]
pub(in crate::session) struct GuestBytecode {
    folder: Option<PathBuf>,
}

impl GuestBytecode {
    /// Returns the store in a cache folder. Without a folder nothing is kept.
    pub(in crate::session) fn in_cache(cache: Option<PathBuf>) -> Self {
        Self { folder: cache.map(|cache| cache.join(FOLDER)) }
    }

    pub(in crate::session) fn keeps(&self) -> bool {
        self.folder.is_some()
    }

    pub(in crate::session) fn load(&self, root: &RootFs) -> Option<Vec<u8>> {
        fs::read(self.path(root)?).ok().filter(|code| !code.is_empty())
    }

    /// Keeps the compiled guest of a root. A folder that is not writable only costs time.
    pub(in crate::session) fn keep(&self, root: &RootFs, code: &[u8]) {
        if let Some(path) = self.path(root)
            && let Err(error) = write(&path, code)
        {
            tracing::debug!(path = %path.display(), %error, "could not store the compiled guest");
        }
    }

    fn path(&self, root: &RootFs) -> Option<PathBuf> {
        let mut hasher = DefaultHasher::new();
        root.to_string().hash(&mut hasher);
        Some(self.folder.as_ref()?.join(format!("{}{:016x}.{EXTENSION}", own_prefix(), hasher.finish())))
    }
}

/// Returns how the names of the files of this program begin: another version has another guest.
fn own_prefix() -> String {
    format!("{:016x}-", guest::fingerprint())
}

/// Returns what other versions of this program have compiled. Removes it if `remove` is set.
pub fn old_bytecode(cache: &Path, remove: bool) -> Amount {
    let own = own_prefix();
    let is_old = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.ends_with(EXTENSION) && !name.starts_with(&own))
    };
    let entries = fs::read_dir(cache.join(FOLDER)).into_iter().flatten().flatten();
    let old: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_old).collect();
    let amount = Amount::of(old.iter().map(PathBuf::as_path));
    if remove {
        old.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    amount
}

fn write(path: &Path, code: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    prune(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(code)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Removes the oldest files, until one more fits. They include unfinished files of a bridge that was killed.
fn prune(folder: &Path) -> io::Result<()> {
    let mut files: Vec<(SystemTime, PathBuf)> = fs::read_dir(folder)?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.metadata().ok()?.modified().ok()?, entry.path()))
        })
        .collect();
    files.sort();
    let surplus = (files.len() + 1).saturating_sub(MOST_FILES);
    for (_, path) in files.into_iter().take(surplus) {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_root_has_its_own_code_and_the_oldest_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let bytecode = GuestBytecode::in_cache(Some(folder.path().to_owned()));
        let root = |number: usize| RootFs::Image(format!("python:{number}"));
        assert_eq!(bytecode.load(&root(0)), None);
        for number in 0..=MOST_FILES {
            bytecode.keep(&root(number), format!("code {number}").as_bytes());
            let file = fs::File::options().write(true).open(bytecode.path(&root(number)).unwrap()).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64))
                .unwrap();
        }
        assert_eq!(bytecode.load(&root(0)), None, "the oldest was removed");
        assert_eq!(bytecode.load(&root(1)).unwrap(), b"code 1");
        assert_eq!(bytecode.load(&root(MOST_FILES)).unwrap(), format!("code {MOST_FILES}").as_bytes());
    }

    #[test]
    fn what_other_versions_have_compiled_is_old() {
        let cache = tempfile::tempdir().unwrap();
        let bytecode = GuestBytecode::in_cache(Some(cache.path().to_owned()));
        bytecode.keep(&RootFs::Host, b"own");
        assert_eq!(old_bytecode(cache.path(), false), Amount::default());
        let old = ["0123456789abcdef-0123456789abcdef.code", "0123456789abcdef.code"];
        let old = old.map(|name| cache.path().join(FOLDER).join(name));
        old.iter().for_each(|path| fs::write(path, "old").unwrap());
        assert_eq!(old_bytecode(cache.path(), false).count, 2);
        assert!(old.iter().all(|path| path.exists()), "a look removes nothing");
        assert_eq!(old_bytecode(cache.path(), true).count, 2);
        assert!(!old.iter().any(|path| path.exists()));
        assert_eq!(bytecode.load(&RootFs::Host).unwrap(), b"own");
    }

    #[test]
    fn without_a_folder_nothing_is_kept() {
        let bytecode = GuestBytecode::in_cache(None);
        bytecode.keep(&RootFs::Host, b"code");
        assert_eq!((bytecode.keeps(), bytecode.load(&RootFs::Host)), (false, None));
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytecode = GuestBytecode::in_cache(Some(file.path().to_owned()));
        bytecode.keep(&RootFs::Host, b"code");
        assert_eq!(bytecode.load(&RootFs::Host), None);
    }
}
