//! Removal of the oldest files, so that the log does not fill the disk.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};

use super::chain::Chain;
use super::error::AuditError;
use super::event::{Contents, Event, Pruned};
use super::folder::{Part, head_of, names, parts};
use super::reader::{Lines, last_line};
use super::record::Record;
use crate::sizes::Amount;

/// Bytes of all files, and their number.
const MOST_BYTES: u64 = 256 << 20;
const MOST_FILES: usize = 10_000;
/// Files that one line names.
const MOST_NAMED: usize = 20;
/// What a line about them has.
const PRUNED: &[u8] = b"\"event\":\"pruned\"";

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
    if surplus(folder, Some(own), most_bytes, most_files).is_empty() {
        return Vec::new();
    }
    // One bridge at a time.
    let Ok(lock) = File::open(folder) else { return Vec::new() };
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Vec::new();
    }
    let (mut gone, mut carried) = (Vec::new(), Vec::new());
    for (file, is_last) in surplus(folder, Some(own), most_bytes, most_files) {
        carried.extend(named_in(&folder.join(file.part.file())));
        gone.extend(remove(folder, &file.part, is_last));
    }
    // What removed lines said of files that others follow is said again.
    carried.retain(|one: &Pruned| {
        let next = Part::parse(&one.file).map(|part| part.next().file());
        next.is_some_and(|next| folder.join(next).exists())
    });
    gone.extend(carried);
    gone.chunks(MOST_NAMED).map(<[Pruned]>::to_vec).collect()
}

/// Returns the oldest files, without which the others are within the limits, and whether each is the last of its bridge.
fn surplus(folder: &Path, own: Option<&Part>, most_bytes: u64, most_files: usize) -> Vec<(Found, bool)> {
    let all = parts(&names(folder).unwrap_or_default());
    let mut found: Vec<Found> = all.iter().filter_map(|part| look_at(folder, part)).collect();
    let mut bytes: u64 = found.iter().map(|file| file.bytes).sum();
    let mut count = found.len();
    found.sort_by_key(|file| file.modified);
    let mut surplus = Vec::new();
    for file in found {
        if bytes <= most_bytes && count <= most_files {
            break;
        }
        let is_last = !all.contains(&file.part.next());
        if own == Some(&file.part) || (is_last && is_live(folder, &file.part.bridge)) {
            continue;
        }
        bytes -= file.bytes;
        count -= 1;
        surplus.push((file, is_last));
    }
    surplus
}

/// Returns what of a log is too much.
pub fn unused(folder: &Path) -> Amount {
    let files = surplus(folder, None, MOST_BYTES, MOST_FILES);
    Amount { count: files.len(), bytes: files.iter().map(|(file, _)| file.bytes).sum() }
}

/// Removes what of a log is too much, as a bridge does when it begins to write, and says so in the log.
///
/// # Errors
/// The log cannot be written.
pub fn remove_unused(folder: &Path) -> Result<Amount, AuditError> {
    let amount = unused(folder);
    if amount.count == 0 {
        return Ok(amount);
    }
    let mut chain = Chain::begin(folder, &Chain::new_name(), "on", Timestamp::now())?;
    for files in prune(folder, chain.part()) {
        chain.add(Timestamp::now(), &Event::Pruned { files }, Contents::default());
    }
    chain.add(Timestamp::now(), &Event::Close, Contents::default());
    chain.write(false)?;
    Ok(amount)
}

fn look_at(folder: &Path, part: &Part) -> Option<Found> {
    let metadata = fs::symlink_metadata(folder.join(part.file())).ok()?;
    let blobs = fs::read_dir(folder.join(part.blobs())).into_iter().flatten();
    let of_blobs: u64 = blobs.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.blocks() * 512)).sum();
    let bytes = metadata.blocks() * 512 + of_blobs;
    Some(Found { part: part.clone(), bytes, modified: metadata.modified().ok()? })
}

/// Whether the bridge still writes.
pub fn is_live(folder: &Path, bridge: &str) -> bool {
    let Ok(head) = File::open(folder.join(head_of(bridge))) else { return false };
    flock(&head, FlockOperation::NonBlockingLockExclusive).is_err()
}

/// Returns the removed files that the lines of a file name.
fn named_in(path: &Path) -> Vec<Pruned> {
    let Ok(lines) = Lines::read(path, 0) else { return Vec::new() };
    let is_about = |line: &&[u8]| line.windows(PRUNED.len()).any(|part| part == PRUNED);
    let records =
        lines.iter().filter(is_about).filter_map(|line| serde_json::from_slice::<Record>(line).ok());
    records.filter(|record| record.event == "pruned").flat_map(|record| record.files).collect()
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
    use std::path::PathBuf;

    use super::*;
    use crate::audit::verify::verify;

    /// A chain of so many files.
    fn chain(folder: &Path, bridge: &str, files: u32) -> Chain {
        let mut chain = Chain::begin(folder, bridge, "on", Timestamp::now()).unwrap();
        chain.write(false).unwrap();
        for _ in 1..files {
            chain.next_part().unwrap();
            chain.write(false).unwrap();
        }
        chain
    }

    /// Removes what is too much, and says it in the chain.
    fn pruned(folder: &Path, own: &mut Chain, most_files: usize) -> Vec<String> {
        let gone = prune_to(folder, own.part(), u64::MAX, most_files);
        for files in gone.clone() {
            own.add(Timestamp::now(), &Event::Pruned { files }, Contents::default());
        }
        own.write(false).unwrap();
        gone.concat().into_iter().map(|file| file.file).collect()
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("audit");
        (dir, folder)
    }

    fn problems(folder: &Path) -> Vec<String> {
        let found = verify(folder, &[]).unwrap().problems;
        found.into_iter().map(|problem| format!("{}: {}", problem.place, problem.what)).collect()
    }

    #[test]
    fn the_oldest_files_go_and_the_log_is_still_in_order() {
        let (_dir, folder) = folder();
        chain(&folder, "00000001", 2);
        chain(&folder, "00000002", 2);
        let mut own = chain(&folder, "00000003", 1);
        let live = chain(&folder, "00000004", 1);
        let gone = pruned(&folder, &mut own, 3);
        assert_eq!(gone, ["00000001.jsonl", "00000001.2.jsonl", "00000002.jsonl"]);
        assert!(!folder.join("00000001.head").exists() && folder.join("00000002.head").exists());
        assert!(pruned(&folder, &mut own, 3).is_empty());
        assert_eq!(problems(&folder), [""; 0]);
        // A live bridge keeps its last file, whatever the limit.
        assert_eq!(pruned(&folder, &mut own, 1), ["00000002.2.jsonl"]);
        drop(live);
    }

    #[test]
    fn what_a_removed_file_said_of_others_is_said_again() {
        let (_dir, folder) = folder();
        let long = chain(&folder, "00000001", 2);
        let mut second = chain(&folder, "00000002", 1);
        assert_eq!(pruned(&folder, &mut second, 2), ["00000001.jsonl"]);
        drop(second);
        let mut third = chain(&folder, "00000003", 1);
        assert_eq!(pruned(&folder, &mut third, 2), ["00000002.jsonl", "00000001.jsonl"]);
        assert_eq!(problems(&folder), [""; 0]);
        drop(long);
    }

    #[test]
    fn a_file_that_nobody_pruned_is_missed() {
        let (_dir, folder) = folder();
        let _chain = chain(&folder, "00000001", 3);
        fs::remove_file(folder.join("00000001.2.jsonl")).unwrap();
        assert_eq!(problems(&folder), ["00000001.3.jsonl:1: the lines before it are missing"]);
        fs::remove_file(folder.join("00000001.jsonl")).unwrap();
        let expected = "00000001.3.jsonl:1: the file before it, 00000001.2.jsonl, is missing";
        assert_eq!(problems(&folder), [expected]);
    }
}
