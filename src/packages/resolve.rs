//! What an installer is asked to resolve.

use super::ImagePython;
use crate::requirements::Requirement;

/// What to resolve.
#[derive(Debug, Clone)]
pub(super) struct Resolve<'a> {
    pub(super) requirements: &'a [Requirement],
    /// Versions that hold if a package is needed, as lines.
    pub(super) constraints: &'a [String],
    pub(super) python: &'a ImagePython,
    /// Whether only what was downloaded before may be used.
    pub(super) offline: bool,
}
