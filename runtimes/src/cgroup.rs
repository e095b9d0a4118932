//! The control groups of sandboxes, on cgroup v1 and v2.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::process::Process;
use crate::spec::SandboxName;

pub(crate) const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Returns whether this machine has the controllers of version 1, alone or in addition to version 2.
pub(crate) fn is_v1() -> bool {
    Path::new(CGROUP_ROOT).join("memory").is_dir()
}

/// Returns the path of a sandbox's group below the root of every hierarchy: one level, so that no parent is left behind.
pub(crate) fn path_of(name: &SandboxName) -> String {
    format!("/{name}")
}

/// Returns the existing folders of a sandbox's group: one on v2, one for each controller on v1. Some may be plain folders: crun
/// makes one for each hierarchy that the kernel lists, mounted or not.
pub(crate) fn paths(name: &SandboxName) -> Vec<PathBuf> {
    let root = Path::new(CGROUP_ROOT);
    let mut found: Vec<PathBuf> = vec![root.join(name.as_str())];
    found.extend(
        fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path().join(name.as_str())),
    );
    found.retain(|path| path.is_dir());
    // Controllers that are mounted together have links to their folder.
    found.sort();
    found.dedup_by_key(|path| fs::canonicalize(&*path).unwrap_or_else(|_| path.clone()));
    found
}

/// Removes the groups that a killed runtime left, with the processes in them: one that is killed at the wrong moment leaves the
/// first process of a container that it has not recorded. A group can be removed once its last process is gone.
pub(crate) async fn remove(name: &SandboxName) {
    let deadline = Instant::now() + Duration::from_secs(1);
    for path in paths(name) {
        // No event for the end of the last process exists in both versions, hence the short pauses.
        while remove_tree(&path).is_err() && path.exists() && Instant::now() < deadline {
            kill_members(&path);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn kill_members(path: &Path) {
    let members = || fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    for line in members().lines() {
        let process = line.parse().ok().and_then(Pid::from_raw).and_then(Process::open);
        // Checked again, now that the process id cannot be reused unnoticed.
        if let Some(process) = process.filter(|_| members().lines().any(|member| member == line)) {
            let _ = process.kill();
        }
    }
}

/// Removes a group, leaves first.
fn remove_tree(path: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(path)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        } else {
            // The files of a group go with it; those of a plain folder have to be removed.
            let _ = fs::remove_file(entry.path());
        }
    }
    fs::remove_dir(path)
}
