//! Reads files of definitions.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// Larger files were not written by a person, and some programs keep their history beside the definitions.
pub(super) const LARGEST_OF_USER: u64 = 32 << 20;
/// The same for a file that others may have written: parsing takes many times its size.
pub(super) const LARGEST_OF_PROJECT: u64 = 256 << 10;

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
