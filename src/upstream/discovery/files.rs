//! Reading a file of definitions, and knowing whether it has changed since.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// More than this holds no definitions that somebody wrote.
const LARGEST_FILE: u64 = 32 << 20;
/// A file that was changed this shortly before it was read may be changed again without a trace: file systems keep
/// their times in steps, up to two seconds.
const RACY: Duration = Duration::from_secs(2);

/// What tells one state of a file from another.
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
    /// Of what is there now; None for nothing.
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

    /// What two paths to one file have in common.
    pub(super) fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Whether an equal stamp later means that nothing was changed.
    pub(super) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::from_secs(self.changed.0.try_into().unwrap_or(0));
        now.saturating_sub(changed) > RACY
    }
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The system says no.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Reading it might never end.
    #[error("it is {0}, not a file")]
    NotAFile(&'static str),
    /// It is no configuration.
    #[error("it is larger than {} MiB", LARGEST_FILE >> 20)]
    TooLarge,
    /// It is not text.
    #[error("it is not UTF-8 (line {line})")]
    NotText {
        /// Where.
        line: usize,
    },
}

impl ReadError {
    pub(super) fn line(&self) -> Option<usize> {
        match self {
            Self::NotText { line } => Some(*line),
            _ => None,
        }
    }
}

/// The text of a file; None when there is none.
pub(super) fn read(path: &Path) -> Result<Option<String>, ReadError> {
    let data = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A link to nowhere is a mistake; no file at all is what most users have.
            return if fs::symlink_metadata(path).is_ok() { Err(error.into()) } else { Ok(None) };
        }
        // A file where a folder should be, above what is looked for.
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
    fs::File::open(path)?.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(ReadError::TooLarge);
    }
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        ReadError::NotText { line: before.iter().filter(|byte| **byte == b'\n').count() + 1 }
    })
}
