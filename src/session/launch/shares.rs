//! What is odd in shared folders, and what calls hear of it.

use std::path::{Path, PathBuf};

use codebridge_runtimes::exec::visible_line;
use codebridge_runtimes::{AnyDriver, HostFolder, Oddities, Sandbox, SandboxSpec, look_at};

/// How many files and folders of all shares are looked at before a session, which takes 50 to 100 ms.
const MOST_LOOKED_AT: usize = 20_000;

/// Looks at the shares that a sandbox would see as mounts, and has those with named pipes copied: a pipe can be written to on a
/// read-only mount too. Returns what was found.
pub(super) async fn copy_pipes(driver: &AnyDriver, spec: &mut SandboxSpec) -> Vec<(PathBuf, Oddities)> {
    let shares: Vec<_> = spec.shares.iter().map(|share| share.source.clone()).collect();
    if shares.is_empty() || driver.share_mechanism(spec.user).is_copy() {
        return Vec::new();
    }
    let most = MOST_LOOKED_AT / shares.len();
    let look = move |path: PathBuf| Some((path.clone(), look_at(&path, most).ok()?));
    let looking = tokio::task::spawn_blocking(move || shares.into_iter().filter_map(look).collect());
    let found: Vec<_> = looking.await.unwrap_or_default();
    let has_pipes =
        |share: &HostFolder| found.iter().any(|(path, odd)| *path == share.source && !odd.pipes.is_empty());
    (spec.copied_shares, spec.shares) = std::mem::take(&mut spec.shares).into_iter().partition(has_pipes);
    found
}

/// Returns what there is to say about files that code cannot read in shares, and about copies.
pub(super) fn notices_of_shares(sandbox: &Sandbox, found: &[(PathBuf, Oddities)]) -> Vec<String> {
    let name = |path: &Path| visible_line(&path.to_string_lossy());
    let is_copied = |path: &Path| sandbox.copied().iter().any(|(copy, _)| copy == path);
    let copies = found.iter().filter(|(path, _)| is_copied(path)).map(|(path, odd)| {
        let why = match odd.pipes.is_empty() {
            false => "it has named pipes, which a read-only mount cannot protect",
            true => "it cannot be mounted with another owner, by its file system or kernel",
        };
        format!("the shared folder '{}' is copied, because {why}", name(path))
    });
    // A copy knows what it lacks.
    let copied = sandbox.copied();
    let live = found.iter().filter(|(path, _)| !is_copied(path));
    let live = live.map(|(path, odd)| (path, &odd.unread));
    let unread = live.chain(copied.iter().map(|(path, unread)| (path, unread)));
    let unread = unread
        .filter(|(_, names)| !names.is_empty())
        .map(|(path, names)| format!("code cannot read in the shared folder '{}': {names}", name(path)));
    copies.chain(unread).collect()
}
