//! What the artifacts that one bridge is saving take, all sessions together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ArtifactError;

/// Bytes that a version counts as at least: it is two files and a folder, whatever it contains.
const LEAST: u64 = 4 << 10;
/// Artifacts that a bridge saves at once: each has a thread.
pub(super) const MOST_AT_ONCE: usize = 16;
/// Versions of all artifacts.
pub(super) const MOST_VERSIONS: usize = 10_000;

/// Returns what a version of so many bytes counts as.
pub(super) fn cost(bytes: u64) -> u64 {
    bytes.max(LEAST)
}

/// What a bridge knows of its use.
#[derive(Debug, Default)]
struct Totals {
    /// Of all versions, and of what other bridges are saving, when it was last looked at.
    elsewhere: u64,
    /// Of what this bridge is saving.
    staged: u64,
    saving: usize,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Space(Arc<Mutex<Totals>>);

impl Space {
    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one of the places of artifacts that are being saved.
    pub(super) fn place(&self) -> Result<Place, ArtifactError> {
        let mut totals = self.totals();
        if totals.saving >= MOST_AT_ONCE {
            return Err(ArtifactError::Busy(MOST_AT_ONCE));
        }
        totals.saving += 1;
        Ok(Place { space: self.clone(), counted: 0 })
    }
}

/// The place of one artifact that is being saved, free again once this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    space: Space,
    counted: u64,
}

impl Place {
    /// Notes what there is: of all versions, and in all staging folders.
    pub(super) fn note(&self, kept: u64, staged: u64) {
        let mut totals = self.space.totals();
        totals.elsewhere = kept + staged.saturating_sub(totals.staged);
    }

    /// Counts it as of so many bytes, if all is within the limit then.
    pub(super) fn grow(&mut self, bytes: u64, limit: u64) -> bool {
        let mut totals = self.space.totals();
        let more = cost(bytes).saturating_sub(self.counted);
        let fits = totals.elsewhere + totals.staged + more <= limit;
        if fits {
            totals.staged += more;
            self.counted += more;
        }
        fits
    }

    /// It is a version now.
    pub(super) fn keep(&mut self) {
        let mut totals = self.space.totals();
        totals.staged -= self.counted;
        totals.elsewhere += self.counted;
        self.counted = 0;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut totals = self.space.totals();
        totals.staged -= self.counted;
        totals.saving -= 1;
    }
}
