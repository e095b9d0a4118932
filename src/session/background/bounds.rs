//! What runs in the background may keep.

use crate::session::output::PictureBudget;

/// What runs in the background may keep for looks, and how many there may be.
#[derive(Debug, Clone, Copy)]
pub(in crate::session) struct Bounds {
    /// Bytes of each stream.
    pub(in crate::session) stdout: usize,
    pub(in crate::session) pictures: PictureBudget,
    /// As many as sessions.
    pub(in crate::session) runs: usize,
}
