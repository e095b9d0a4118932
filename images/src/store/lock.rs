//! Locks between processes: locked files, so that the kernel releases a lock when its holder ends.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The pause between two attempts to take a lock: a blocking call could not be cancelled.
const PACE: Duration = Duration::from_millis(20);

/// A lock, held until it is dropped. Child processes do not inherit it.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

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
    /// Takes the lock if it is free.
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
            // The holder may have removed the file meanwhile: then this lock excludes nobody.
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

    /// Takes the lock as soon as it is free; calls `waiting` once if it is not free now.
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

    /// Turns an exclusive lock into a shared one. Another process may hold it for a moment in between.
    pub(crate) fn share(&self) -> io::Result<()> {
        Ok(flock(&self.file, FlockOperation::LockShared)?)
    }

    /// Returns the file, which may have content.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Removes the file together with the lock, which has to be exclusive.
    pub(crate) fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// Waits before the next attempt to take a lock.
pub(crate) async fn pause() {
    tokio::time::sleep(PACE).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_one_exclusive_holder_or_many_shared_ones() {
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
    fn a_removed_lock_file_is_created_again() {
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
    async fn a_waiter_is_notified_once_and_gets_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Lock::try_take(&path, Kind::Exclusive).unwrap().unwrap();
        let (notify, notified) = tokio::sync::oneshot::channel();
        let waiter = async { Lock::take(&path, Kind::Exclusive, || notify.send(()).unwrap()).await.unwrap() };
        let release = async {
            notified.await.unwrap();
            drop(first);
        };
        tokio::join!(waiter, release);
    }
}
