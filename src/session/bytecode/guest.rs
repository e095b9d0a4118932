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

/// The maximum number of files. The oldest are removed first.
const MOST_FILES: usize = 16;
const EXTENSION: &str = "code";

/// The folder of compiled guests, one file for each root.
#[derive(Debug)]
pub(in crate::session) struct GuestBytecode {
    folder: Option<PathBuf>,
}

impl GuestBytecode {
    /// Returns the store in this folder. Without a folder nothing is kept.
    pub(in crate::session) fn at(folder: Option<PathBuf>) -> Self {
        Self { folder }
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
        (guest::fingerprint(), root.to_string()).hash(&mut hasher);
        Some(self.folder.as_ref()?.join(format!("{:016x}.{EXTENSION}", hasher.finish())))
    }
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
        let bytecode = GuestBytecode::at(Some(folder.path().join("guest")));
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
    fn without_a_folder_nothing_is_kept() {
        let bytecode = GuestBytecode::at(None);
        bytecode.keep(&RootFs::Host, b"code");
        assert_eq!((bytecode.keeps(), bytecode.load(&RootFs::Host)), (false, None));
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytecode = GuestBytecode::at(Some(file.path().join("guest")));
        bytecode.keep(&RootFs::Host, b"code");
        assert_eq!(bytecode.load(&RootFs::Host), None);
    }
}
