//! Locks between processes: files that are locked, so that a lock dies with its holder, however it ends.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How often a lock is tried that another has: a blocking call could not be given up.
const PACE: Duration = Duration::from_millis(20);

/// A lock that is held until it is dropped. Children do not inherit it.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

/// For one holder, or for many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Exclusive,
    Shared,
}

impl Kind {
    fn operation(self) -> FlockOperation {
        match self {
            Self::Exclusive => FlockOperation::NonBlockingLockExclusive,
            Self::Shared => FlockOperation::NonBlockingLockShared,
        }
    }
}

impl Lock {
    /// Takes the lock when it is free.
    pub(crate) fn try_take(path: &Path, kind: Kind) -> io::Result<Option<Self>> {
        loop {
            let open =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
            let file = open?;
            match flock(&file, kind.operation()) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
            // Whoever removes a lock's file holds it: a lock on a removed one would be a lock of our own.
            let ours = file.metadata()?;
            match fs::metadata(path) {
                Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => {
                    return Ok(Some(Self { file, path: path.to_path_buf() }));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the lock as soon as it is free; `waiting` is called once when it is not.
    pub(crate) async fn take(path: &Path, kind: Kind, waiting: impl FnOnce()) -> io::Result<Self> {
        let mut waiting = Some(waiting);
        loop {
            if let Some(lock) = Self::try_take(path, kind)? {
                return Ok(lock);
            }
            if let Some(waiting) = waiting.take() {
                waiting();
            }
            pause().await;
        }
    }

    /// Makes an exclusive lock a shared one. For a moment in between another may have it: look again after that.
    pub(crate) fn share(&self) -> io::Result<()> {
        Ok(flock(&self.file, FlockOperation::LockShared)?)
    }

    /// The lock's file, to leave a note in.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Removes the lock's file with the lock, which has to be an exclusive one.
    pub(crate) fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// Until a lock is worth another try.
pub(crate) async fn pause() {
    tokio::time::sleep(PACE).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writes_or_many_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let take = |kind| Lock::try_take(&path, kind).unwrap();
        let first = take(Kind::Exclusive).unwrap();
        assert!(take(Kind::Shared).is_none());
        first.share().unwrap();
        let second = take(Kind::Shared).unwrap();
        assert!(take(Kind::Exclusive).is_none());
        drop((first, second));
        assert!(take(Kind::Exclusive).is_some());
    }

    #[test]
    fn a_removed_lock_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::try_take(&path, Kind::Exclusive).unwrap().unwrap();
        let handle = File::open(&path).unwrap();
        first.remove().unwrap();
        let _second = Lock::try_take(&path, Kind::Exclusive).unwrap().unwrap();
        assert_ne!(handle.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
        assert!(Lock::try_take(&path, Kind::Shared).unwrap().is_none());
    }

    #[tokio::test]
    async fn who_waits_is_told_once_and_gets_it_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::try_take(&path, Kind::Exclusive).unwrap().unwrap();
        let (told, heard) = tokio::sync::oneshot::channel();
        let waiter = async { Lock::take(&path, Kind::Exclusive, || told.send(()).unwrap()).await.unwrap() };
        let release = async {
            heard.await.unwrap();
            drop(first);
        };
        tokio::join!(waiter, release);
    }
}
