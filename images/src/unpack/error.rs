//! Errors of unpacking.

use std::io;

use crate::digest::Digest;

/// The reason why an archive was not unpacked. Nothing of the image is used then.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("failed to read the archive: {0}")]
    Read(io::Error),
    #[error("failed to unpack '{entry}': {source}")]
    Write { entry: String, source: io::Error },
    #[error("the archive is damaged: {0}")]
    Malformed(String),
    #[error("the archive's entry '{entry}' leads out of the image: {how}")]
    Escape { entry: String, how: &'static str },
    /// An entry has no meaning, or more than one.
    #[error("the archive's entry '{entry}' cannot be unpacked: {why}")]
    Entry { entry: String, why: &'static str },
    #[error("the image has more than {limit} {what}, which is the limit")]
    TooBig { what: &'static str, limit: u64 },
    #[error("a layer's content has digest {actual} instead of {expected}")]
    WrongContent { expected: Digest, actual: Digest },
    /// Nobody waits for the image any more.
    #[error("unpacking was cancelled")]
    Cancelled,
}

impl UnpackError {
    /// Returns whether the file system has no space for the image.
    pub fn is_out_of_space(&self) -> bool {
        matches!(self, Self::Write { source, .. } if is_out_of_space(source))
    }
}

/// Returns whether there is no space, or none within a quota.
pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns a name for a message: escaped and shortened.
pub(super) fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let mut text: String = text.chars().flat_map(char::escape_debug).take(200).collect();
    if name.len() > 200 {
        text.push('…');
    }
    text
}

/// Returns the error for an entry that cannot be unpacked.
pub(super) fn refused(entry: &[u8], why: &'static str) -> UnpackError {
    UnpackError::Entry { entry: shown(entry), why }
}
