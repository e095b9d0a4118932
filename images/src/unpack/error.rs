//! Why a layer was not unpacked.

use std::io;

use crate::digest::Digest;

/// Why an archive was not unpacked. Nothing of the image is used then.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// Reading the archive failed.
    #[error("failed to read the layer: {0}")]
    Read(io::Error),
    /// Writing an entry failed.
    #[error("failed to unpack '{entry}': {source}")]
    Write {
        /// Which entry.
        entry: String,
        /// Why.
        source: io::Error,
    },
    /// The archive is no tar archive, or a damaged one.
    #[error("the layer is damaged: {0}")]
    Malformed(String),
    /// An entry leads out of the root.
    #[error("the layer's entry '{entry}' leads out of the image: {how}")]
    Escape {
        /// Which entry.
        entry: String,
        /// In which way.
        how: &'static str,
    },
    /// An entry that has no meaning, or more than one.
    #[error("the layer's entry '{entry}' cannot be unpacked: {why}")]
    Entry {
        /// Which entry.
        entry: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More than an image may hold.
    #[error("the image holds more than {limit} {what}, which is more than it may")]
    TooBig {
        /// What is counted.
        what: &'static str,
        /// How many of it may be.
        limit: u64,
    },
    /// The content is not what the image's configuration promises.
    #[error("a layer's content has digest {actual} instead of {expected}")]
    WrongContent {
        /// As the configuration has it.
        expected: Digest,
        /// As it came.
        actual: Digest,
    },
    /// The one who waited for it went away.
    #[error("unpacking was cancelled")]
    Cancelled,
}

impl UnpackError {
    /// Whether the file system has no room for the image.
    pub fn is_out_of_space(&self) -> bool {
        matches!(self, Self::Write { source, .. } if is_out_of_space(source))
    }
}

/// No space, or none within a quota.
pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A name as a message can show it.
pub(super) fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let mut text: String = text.chars().flat_map(char::escape_debug).take(200).collect();
    if name.len() > 200 {
        text.push('…');
    }
    text
}
