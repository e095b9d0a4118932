//! Which versions a request led to: the index is asked once a day for the same request, and what it said last is used while it
//! cannot be reached.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use codebridge_images::Digest;

use super::pins::{Pin, parse_pins, requirements_text};
use super::resolve::Resolve;
use super::{InstallError, Store};

/// How long an answer holds while the index can be reached.
const FRESH: Duration = Duration::from_secs(24 * 3600);

/// The answer to a request, and where it is kept.
#[derive(Debug)]
pub(super) struct Resolution {
    path: PathBuf,
}

/// What was kept.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) pins: Vec<Pin>,
    pub(super) is_fresh: bool,
}

impl Resolution {
    pub(super) fn of(store: &Store, wanted: &Resolve) -> Result<Self, InstallError> {
        let lines = |items: Vec<String>| items.join("\n");
        let text = [
            lines(wanted.requirements.iter().map(ToString::to_string).collect()),
            lines(wanted.constraints.to_vec()),
            wanted.python.full_version(),
            wanted.python.platform(),
        ];
        let name = Digest::of(text.join("\n\n").as_bytes()).hex().to_string();
        Ok(Self { path: store.folder("resolutions")?.join(name) })
    }

    pub(super) fn known(&self) -> Option<Known> {
        let pins = parse_pins(&fs::read_to_string(&self.path).ok()?).ok()?;
        let changed =
            fs::metadata(&self.path).and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        Some(Known { pins, is_fresh: changed.elapsed().is_ok_and(|age| age < FRESH) })
    }

    /// Keeps an answer. Without it, the next request only takes longer.
    pub(super) fn keep(&self, pins: &[Pin]) {
        let folder = self.path.parent().unwrap_or(&self.path);
        let written = tempfile::NamedTempFile::new_in(folder).and_then(|file| {
            fs::write(file.path(), requirements_text(pins))?;
            file.persist(&self.path).map_err(|error| error.error)
        });
        if let Err(error) = written {
            tracing::debug!(%error, "could not keep a resolution");
        }
    }
}
