//! The folder of a build, beside the file of the image. It is removed with the build, or by the next build there if that
//! one was killed.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use tempfile::TempDir;

const PREFIX: &str = ".codebridge-build-";

/// A folder, locked until its build ends: the kernel releases the lock when its holder ends.
#[derive(Debug)]
pub(super) struct Folder {
    dir: TempDir,
    _lock: File,
}

impl Folder {
    /// Creates a folder in this one, after removing those of killed builds.
    pub(super) fn new_in(beside: &Path) -> io::Result<Self> {
        remove_abandoned(beside);
        loop {
            let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(beside)?;
            // Another build may have removed it as abandoned before it was locked.
            if let Some(lock) = lock(dir.path())? {
                return Ok(Self { dir, _lock: lock });
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Removes the folder.
    pub(super) fn close(self) -> io::Result<()> {
        self.dir.close()
    }
}

/// Locks a folder; None when another process holds the lock or the folder is gone.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match open(path, flags, Mode::empty()) {
        Ok(folder) => File::from(folder),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        // Without locks, no build takes a folder for abandoned.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOLCK) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    let there = path.symlink_metadata().is_ok_and(|there| {
        folder.metadata().is_ok_and(|ours| (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
    });
    Ok(there.then_some(folder))
}

/// Removes the folders of killed builds, as far as possible.
fn remove_abandoned(beside: &Path) {
    let Ok(entries) = beside.read_dir() else { return };
    let ours =
        entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    for path in ours.map(|entry| entry.path()) {
        let own = path
            .symlink_metadata()
            .is_ok_and(|it| it.is_dir() && it.uid() == rustix::process::getuid().as_raw());
        if let (true, Ok(Some(folder))) = (own, lock(&path))
            // Where locks do not work, nothing shows that a folder is abandoned.
            && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            match std::fs::remove_dir_all(&path) {
                Ok(()) => tracing::info!(folder = %path.display(), "removed the folder of a killed build"),
                Err(error) => {
                    tracing::warn!(folder = %path.display(), %error, "could not remove the folder of a killed build")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_running_build_stays_and_an_abandoned_one_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let abandoned = place.path().join(".codebridge-build-dead");
        let other = place.path().join(".codebridge-builds");
        std::fs::create_dir_all(abandoned.join("layer0/usr")).unwrap();
        std::fs::create_dir(&other).unwrap();
        let link = place.path().join(".codebridge-build-link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let running = Folder::new_in(place.path()).unwrap();
        assert!(!abandoned.exists() && other.exists() && link.exists());
        let next = Folder::new_in(place.path()).unwrap();
        assert!(running.path().exists() && next.path() != running.path());
        let path = running.path().to_path_buf();
        running.close().unwrap();
        assert!(!path.exists() && next.path().exists());
    }
}
