//! How much may be saved.

/// Bytes of one source.
pub const LONGEST_SOURCE: usize = 256 << 10;
/// Functions.
pub(super) const MOST_TOOLS: usize = 500;
/// Bytes of all sources: every session holds them, and every start reads them.
pub(super) const MOST_BYTES: u64 = 4 << 20;
/// Earlier versions of a function that are kept.
pub(super) const MOST_VERSIONS: usize = 9;
/// Bytes of all earlier versions.
pub(super) const MOST_EARLIER: u64 = 64 << 20;
/// Bytes of an example.
pub const LONGEST_EXAMPLE: usize = 16 << 10;
/// Characters of the error of an example.
pub(super) const LONGEST_ERROR: usize = 400;
