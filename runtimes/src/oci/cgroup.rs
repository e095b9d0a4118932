//! What is left of a sandbox's control group, on cgroup v1 and v2.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::statfs;

use crate::spec::SandboxName;

const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// The types of cgroup v1 and v2 file systems: <https://man7.org/linux/man-pages/man2/statfs.2.html>.
const CGROUP_MAGIC: [rustix::fs::FsWord; 2] = [0x0027_e0eb, 0x6367_7270];

/// Whether this machine has the controllers of version 1, alone or beside version 2.
pub(crate) fn is_v1() -> bool {
    Path::new(CGROUP_ROOT).join("memory").is_dir()
}

/// Where a sandbox's group is below the root of every hierarchy: one level, so that no parent is left behind.
pub(crate) fn path_of(name: &SandboxName) -> String {
    format!("/{name}")
}

/// The folders of a sandbox's group that exist now: one on v2, one a controller on v1.
pub(crate) fn paths(name: &SandboxName) -> Vec<PathBuf> {
    let root = Path::new(CGROUP_ROOT);
    let mut found: Vec<PathBuf> = vec![root.join(name.as_str())];
    found.extend(
        fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path().join(name.as_str())),
    );
    found.retain(|path| is_group(path));
    // Controllers that are mounted together have links beside their folder.
    found.sort();
    found.dedup_by_key(|path| fs::canonicalize(&*path).unwrap_or_else(|_| path.clone()));
    found
}

/// Whether a path is a folder of a cgroup file system; `/sys/fs/cgroup` itself may be a tmpfs.
fn is_group(path: &Path) -> bool {
    path.is_dir() && statfs(path).is_ok_and(|stat| CGROUP_MAGIC.contains(&stat.f_type))
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

/// Groups are removed leaf first; their files need no removal.
fn remove_tree(path: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(path)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}
