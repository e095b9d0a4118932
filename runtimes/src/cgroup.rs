//! What is left of a sandbox's control group, on cgroup v1 and v2.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::spec::SandboxName;

const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Whether this machine has the controllers of version 1, alone or beside version 2.
pub(crate) fn is_v1() -> bool {
    Path::new(CGROUP_ROOT).join("memory").is_dir()
}

/// Where a sandbox's group is below the root of every hierarchy: one level, so that no parent is left behind.
pub(crate) fn path_of(name: &SandboxName) -> String {
    format!("/{name}")
}

/// The folders of a sandbox's group that exist now: one on v2, one a controller on v1. Some of them may be plain folders:
/// crun makes one for each hierarchy that the kernel lists, also where none is mounted.
pub(crate) fn paths(name: &SandboxName) -> Vec<PathBuf> {
    let root = Path::new(CGROUP_ROOT);
    let mut found: Vec<PathBuf> = vec![root.join(name.as_str())];
    found.extend(
        fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path().join(name.as_str())),
    );
    found.retain(|path| path.is_dir());
    // Controllers that are mounted together have links beside their folder.
    found.sort();
    found.dedup_by_key(|path| fs::canonicalize(&*path).unwrap_or_else(|_| path.clone()));
    found
}

/// Removes what a runtime that was ended halfway left; a group can be removed once its last process is gone.
pub(crate) async fn remove_empty(name: &SandboxName) {
    let deadline = Instant::now() + Duration::from_secs(1);
    for path in paths(name) {
        // The kernel tells the end of the last process by no event that both versions have, hence the short steps.
        while remove_tree(&path).is_err() && path.exists() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Groups are removed leaf first.
fn remove_tree(path: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(path)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        } else {
            // A group's files go with it and cannot be removed before; those in a plain folder have to be.
            let _ = fs::remove_file(entry.path());
        }
    }
    fs::remove_dir(path)
}
