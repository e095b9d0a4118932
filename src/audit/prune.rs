//! Removal of the oldest files, so that the log does not fill the disk.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

use super::event::Pruned;
use super::folder::{Part, head_of, names, parts};
use super::reader::last_line;

/// Bytes of all files, and their number.
const MOST_BYTES: u64 = 256 << 20;
const MOST_FILES: usize = 10_000;
/// Files that one line names.
const MOST_NAMED: usize = 20;

/// A file that may be removed.
struct Found {
    part: Part,
    bytes: u64,
    modified: SystemTime,
}

/// Removes files until the log is small enough; returns those that are gone, in groups.
pub(super) fn prune(folder: &Path, own: &Part) -> Vec<Vec<Pruned>> {
    prune_to(folder, own, MOST_BYTES, MOST_FILES)
}

fn prune_to(folder: &Path, own: &Part, most_bytes: u64, most_files: usize) -> Vec<Vec<Pruned>> {
    let all = parts(&names(folder).unwrap_or_default());
    let mut found: Vec<Found> = all.iter().filter_map(|part| look_at(folder, part)).collect();
    let mut bytes: u64 = found.iter().map(|file| file.bytes).sum();
    let mut count = found.len();
    if bytes <= most_bytes && count <= most_files {
        return Vec::new();
    }
    // One bridge at a time.
    let Ok(lock) = File::open(folder) else { return Vec::new() };
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Vec::new();
    }
    found.sort_by_key(|file| file.modified);
    let mut gone = Vec::new();
    for file in found {
        if bytes <= most_bytes && count <= most_files {
            break;
        }
        let is_last = !all.contains(&file.part.next());
        if file.part == *own || (is_last && is_live(folder, &file.part.bridge)) {
            continue;
        }
        if let Some(pruned) = remove(folder, &file.part, is_last) {
            gone.push(pruned);
            bytes -= file.bytes;
            count -= 1;
        }
    }
    gone.chunks(MOST_NAMED).map(<[Pruned]>::to_vec).collect()
}

fn look_at(folder: &Path, part: &Part) -> Option<Found> {
    let metadata = fs::symlink_metadata(folder.join(part.file())).ok()?;
    let blobs = fs::read_dir(folder.join(part.blobs())).into_iter().flatten();
    let of_blobs: u64 = blobs.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.blocks() * 512)).sum();
    let bytes = metadata.blocks() * 512 + of_blobs;
    Some(Found { part: part.clone(), bytes, modified: metadata.modified().ok()? })
}

/// Whether the bridge still writes.
fn is_live(folder: &Path, bridge: &str) -> bool {
    let Ok(head) = File::open(folder.join(head_of(bridge))) else { return false };
    flock(&head, FlockOperation::NonBlockingLockExclusive).is_err()
}

/// Removes a file with its texts, and the head after the last file of a bridge.
fn remove(folder: &Path, part: &Part, is_last: bool) -> Option<Pruned> {
    let path = folder.join(part.file());
    let (n, hash) = last_line(&path).unwrap_or_default();
    fs::remove_file(&path).ok()?;
    // What is left of it is found by the next one.
    let _ = fs::remove_dir_all(folder.join(part.blobs()));
    if is_last {
        let _ = fs::remove_file(folder.join(head_of(&part.bridge)));
    }
    Some(Pruned { file: part.file(), n, hash })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::chain::Chain;

    #[test]
    fn the_oldest_files_go_and_the_log_is_still_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("audit");
        for bridge in ["00000001", "00000002"] {
            let mut chain = Chain::begin(&folder, bridge, "on", jiff::Timestamp::now()).unwrap();
            chain.write(false).unwrap();
            chain.next_part().unwrap();
            chain.write(false).unwrap();
        }
        let mut own = Chain::begin(&folder, "00000003", "on", jiff::Timestamp::now()).unwrap();
        own.write(false).unwrap();
        let live = Chain::begin(&folder, "00000004", "on", jiff::Timestamp::now()).unwrap();
        let gone = prune_to(&folder, own.part(), u64::MAX, 3);
        let gone: Vec<String> = gone.concat().into_iter().map(|file| file.file).collect();
        assert_eq!(gone, ["00000001.jsonl", "00000001.2.jsonl", "00000002.jsonl"]);
        assert!(!folder.join("00000001.head").exists() && folder.join("00000002.head").exists());
        assert!(prune_to(&folder, own.part(), u64::MAX, 3).is_empty());
        drop(live);
    }
}
