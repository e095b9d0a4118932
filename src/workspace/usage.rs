//! What a user has used of a day, on disk: it also counts for a bridge that is started again, and for others with the same users.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// The file in the folder of a user. With the ending of JSON it would be read as definitions of servers.
const FILE: &str = "usage";
/// Bytes of the file.
const LONGEST: u64 = 1 << 10;

/// What was used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) time: Duration,
    pub(super) bytes: u64,
}

impl Used {
    pub(super) fn add(&mut self, more: Self) {
        self.time = self.time.saturating_add(more.time);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }

    pub(super) fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Day {
    /// Since 1970.
    day: u64,
    milliseconds: u64,
    bytes: u64,
}

impl Day {
    fn read(file: &File) -> Self {
        let mut text = Vec::new();
        // A file that was cut off by a full disk counts as empty.
        let _ = file.take(LONGEST).read_to_end(&mut text);
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn used_on(&self, day: u64) -> Used {
        match self.day == day {
            true => Used { time: Duration::from_millis(self.milliseconds), bytes: self.bytes },
            false => Used::default(),
        }
    }
}

/// Returns what a user has used on a day.
pub(super) fn read(folder: &Path, day: u64) -> io::Result<Used> {
    match File::open(folder.join(FILE)) {
        Ok(file) => Ok(Day::read(&file).used_on(day)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Used::default()),
        Err(error) => Err(error),
    }
}

/// Adds to what a user has used on a day, and returns all of it: other bridges may have added to it too.
pub(super) fn add(folder: &Path, day: u64, more: Used) -> io::Result<Used> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut options = OpenOptions::new();
    let file =
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(folder.join(FILE))?;
    flock(&file, FlockOperation::LockExclusive)?;
    let mut used = Day::read(&file).used_on(day);
    used.add(more);
    let milliseconds = u64::try_from(used.time.as_millis()).unwrap_or(u64::MAX);
    let text = serde_json::to_vec(&Day { day, milliseconds, bytes: used.bytes })?;
    file.write_all_at(&text, 0)?;
    file.set_len(text.len() as u64)?;
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_adds_up_and_a_new_day_begins_with_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let user = folder.path().join("alice");
        assert_eq!(read(&user, 7).unwrap(), Used::default());
        let more = Used { time: Duration::from_millis(1500), bytes: 10 };
        let twice = Used { time: Duration::from_secs(3), bytes: 20 };
        assert_eq!(add(&user, 7, more).unwrap(), more);
        assert_eq!(add(&user, 7, more).unwrap(), twice);
        assert_eq!((read(&user, 7).unwrap(), read(&user, 8).unwrap()), (twice, Used::default()));
        assert_eq!(add(&user, 8, more).unwrap(), more);
        std::fs::write(user.join(FILE), "{\"day\":8,").unwrap();
        assert_eq!(add(&user, 8, more).unwrap(), more);
    }
}
