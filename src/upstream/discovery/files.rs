//! Reads files of definitions, and tells whether they have changed since.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Larger files were not written by a person, and some programs keep their history beside the definitions.
pub(super) const LARGEST_OF_USER: u64 = 32 << 20;
/// The same for a file that others may have written: parsing takes many times its size.
pub(super) const LARGEST_OF_PROJECT: u64 = 256 << 10;
/// A file that was changed this shortly before it was read may be changed again without a trace: file systems keep
/// their times in steps, up to two seconds.
const RACY: Duration = Duration::from_secs(2);

/// Metadata that differs between two states of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    mode: u32,
}

impl Stamp {
    /// Returns the stamp of a file; None if there is no file.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let data = fs::metadata(path).ok()?;
        Some(Self {
            device: data.dev(),
            inode: data.ino(),
            length: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
            mode: data.mode(),
        })
    }

    /// Returns what two paths to one file have in common.
    pub(super) fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Whether an equal stamp later means that the file is unchanged.
    pub(super) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::from_secs(self.changed.0.try_into().unwrap_or(0));
        now.saturating_sub(changed) > RACY
    }
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("could not read it: {0}")]
    Io(#[from] io::Error),
    /// Reading it might never end.
    #[error("it is {0}, not a file")]
    NotAFile(&'static str),
    #[error("it is larger than {} KiB", .0 >> 10)]
    TooLarge(u64),
    #[error("it is not UTF-8 (line {line})")]
    NotText { line: usize },
}

impl ReadError {
    pub(super) fn line(&self) -> Option<usize> {
        match self {
            Self::NotText { line } => Some(*line),
            _ => None,
        }
    }
}

/// Returns the text of a file of at most `largest` bytes; None if there is no file.
pub(super) fn read(path: &Path, largest: u64) -> Result<Option<String>, ReadError> {
    let data = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A broken link is a mistake; most of these files do not exist.
            return if fs::symlink_metadata(path).is_ok() { Err(error.into()) } else { Ok(None) };
        }
        // A parent is a file.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        other => other?,
    };
    if data.is_dir() {
        return Err(ReadError::NotAFile("a folder"));
    }
    if !data.is_file() {
        return Err(ReadError::NotAFile("a pipe or a device"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(largest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > largest {
        return Err(ReadError::TooLarge(largest));
    }
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        ReadError::NotText { line: before.iter().filter(|byte| **byte == b'\n').count() + 1 }
    })
}
