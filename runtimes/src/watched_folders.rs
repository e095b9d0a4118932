//! Writable folders of a sandbox whose number of files nothing in the kernel limits.
//!
//! A file takes kernel memory even when it is empty. Most runtimes mount a tmpfs with a maximum number of files, and a control
//! group counts their memory. Where there is neither, the files are counted from outside.

use rustix::fs::statvfs;

use crate::spec::Tmpfs;

/// What an empty file takes in the kernel, in bytes.
const FILE: u64 = 1 << 10;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WatchedFolders {
    /// Absolute paths inside the sandbox, each one a mount.
    paths: Vec<String>,
    /// How many files all of them together may hold.
    most: u64,
}

/// More files than there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany {
    most: u64,
}

impl WatchedFolders {
    pub(crate) fn of(folders: impl IntoIterator<Item = Tmpfs>) -> Self {
        folders.into_iter().fold(Self::default(), |mut all, folder| {
            all.most += folder.files();
            all.paths.push(folder.target);
            all
        })
    }

    /// Returns the kernel's memory for the files that a process of the sandbox sees there, in bytes.
    pub(crate) fn memory(&self, pid: u32) -> Result<u64, TooMany> {
        let files: u64 = self.paths.iter().filter_map(|path| used(pid, path)).sum();
        if files > self.most { Err(TooMany { most: self.most }) } else { Ok(files * FILE) }
    }
}

/// Returns the number of files of a mount, as a process sees it; none when the process has ended.
fn used(pid: u32, path: &str) -> Option<u64> {
    let found = statvfs(format!("/proc/{pid}/root{path}")).ok()?;
    Some(found.f_files.saturating_sub(found.f_ffree))
}

impl std::fmt::Display for TooMany {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "too many files: the writable folders of the sandbox may hold {} together", self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_up_to_their_maximum() {
        let own = std::process::id();
        let folders = WatchedFolders::of([Tmpfs { target: "/dev/shm".into(), size: 4 << 30 }]);
        assert_eq!(folders.most, 2 << 20);
        assert!(used(own, "/dev/shm").is_some_and(|files| files > 0));
        assert!(folders.memory(own).is_ok_and(|bytes| bytes > 0));
        let none = WatchedFolders { most: 0, ..folders };
        assert_eq!(none.memory(own), Err(TooMany { most: 0 }));
        assert_eq!(WatchedFolders::default().memory(own), Ok(0));
    }
}
