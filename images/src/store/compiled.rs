//! Compiled Python modules in an unpacked image: added once, while others may use the image.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use super::StoreError;
use super::lock::{Kind, Lock};
use super::roots::Root;
use crate::unpack::add_compiled;

/// The file beside the root that is empty until the modules are added, and locked meanwhile.
const MARK: &str = "compiled";

/// The right to add compiled modules to an unpacked image.
#[derive(Debug)]
pub struct Compiling {
    root: Root,
    lock: Lock,
}

impl Root {
    /// Returns the right to add compiled modules; None when they were added or another process adds them.
    pub fn try_compile(&self) -> Result<Option<Compiling>, StoreError> {
        let Some(place) = self.directory().parent() else { return Ok(None) };
        let path = place.join(MARK);
        let error = || StoreError::io("lock", &path);
        if std::fs::metadata(&path).is_ok_and(|meta| meta.len() > 0) {
            return Ok(None);
        }
        let Some(lock) = Lock::try_take(&path, Kind::Exclusive).map_err(error())? else { return Ok(None) };
        let done = std::fs::metadata(&path).map_err(error())?.len() > 0;
        Ok((!done).then(|| Compiling { root: self.clone(), lock }))
    }
}

impl Compiling {
    /// Adds the modules of an archive; returns how many. Blocks. A failure counts as done: it is not tried again unless it
    /// was cancelled.
    pub fn add(mut self, archive: impl Read + Send, cancelled: &AtomicBool) -> Result<usize, StoreError> {
        let added = add_compiled(self.root.directory(), archive, cancelled);
        let text = match &added {
            Ok(count) => format!("{count} modules\n"),
            Err(_) if cancelled.load(Ordering::Relaxed) => return Ok(added?),
            Err(error) => format!("{error}\n"),
        };
        let marked: io::Result<()> = self.lock.file().write_all(text.as_bytes());
        if let Err(error) = marked {
            tracing::debug!(%error, "could not mark the modules of an image as compiled");
        }
        Ok(added?)
    }
}
