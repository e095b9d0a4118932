//! What is wrong with a policy file, and where.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// A place in a file; line and column start at 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: PathBuf,
    pub line: usize,
    pub column: usize,
}

impl Place {
    /// Returns the place of a byte of a text.
    pub(super) fn of(file: &Path, text: &str, at: usize) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self { file: file.to_path_buf(), line, column }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column } = self;
        write!(f, "{}:{line}:{column}", file.display())
    }
}

/// Why a policy file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("{place}: {why}")]
    Invalid { place: Place, why: String },
    #[error("could not read '{}': {why}", .file.display())]
    Read { file: PathBuf, why: String },
    #[error("the policy '{}' {why}", .file.display())]
    Unsafe { file: PathBuf, why: &'static str },
    #[error("the policy '{}' has {bytes} bytes, {} are the most", .file.display(), .most)]
    TooLong { file: PathBuf, bytes: u64, most: u64 },
}

impl PolicyError {
    /// Returns the error of a file that could not be read.
    pub fn unreadable(file: &Path, error: &io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "there is no such file".to_owned(),
            _ => error.to_string(),
        };
        Self::Read { file: file.to_path_buf(), why }
    }
}
