//! The folder that an image is put together in: beside the image's own file, gone with the build, and, when that was
//! killed, with the next build there.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use tempfile::TempDir;

const PREFIX: &str = ".codebridge-build-";

/// A folder, locked as long as its build lives: the lock dies with its holder, however that ends.
#[derive(Debug)]
pub(super) struct Folder {
    dir: TempDir,
    _lock: File,
}

impl Folder {
    /// A new folder in this one, where those of builds that were killed are removed.
    pub(super) fn new_in(beside: &Path) -> io::Result<Self> {
        remove_abandoned(beside);
        loop {
            let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(beside)?;
            // Another build may have taken it for abandoned before it was locked.
            if let Some(lock) = lock(dir.path())? {
                return Ok(Self { dir, _lock: lock });
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Removes it, and says whether that went well.
    pub(super) fn close(self) -> io::Result<()> {
        self.dir.close()
    }
}

/// The lock of a folder that is still there and nobody else's.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match open(path, flags, Mode::empty()) {
        Ok(folder) => File::from(folder),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        // A file system without locks: nobody there takes any folder for abandoned.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOLCK) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    let there = path.symlink_metadata().is_ok_and(|there| {
        folder.metadata().is_ok_and(|ours| (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
    });
    Ok(there.then_some(folder))
}

/// What cannot be removed stays, and is none of this build's business.
fn remove_abandoned(beside: &Path) {
    let Ok(entries) = beside.read_dir() else { return };
    let ours =
        entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    for path in ours.map(|entry| entry.path()) {
        let own = path
            .symlink_metadata()
            .is_ok_and(|it| it.is_dir() && it.uid() == rustix::process::getuid().as_raw());
        if let (true, Ok(Some(folder))) = (own, lock(&path))
            // Where locks do not work, nothing tells that it is abandoned.
            && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            match std::fs::remove_dir_all(&path) {
                Ok(()) => tracing::info!(folder = %path.display(), "removed what a killed build had left"),
                Err(error) => {
                    tracing::warn!(folder = %path.display(), %error, "what a killed build has left stays")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_a_build_that_lives_stays_and_an_abandoned_one_goes() {
        let place = tempfile::tempdir().unwrap();
        let abandoned = place.path().join(".codebridge-build-dead");
        let other = place.path().join(".codebridge-builds");
        std::fs::create_dir_all(abandoned.join("layer0/usr")).unwrap();
        std::fs::create_dir(&other).unwrap();
        let link = place.path().join(".codebridge-build-link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let living = Folder::new_in(place.path()).unwrap();
        assert!(!abandoned.exists() && other.exists() && link.exists());
        let next = Folder::new_in(place.path()).unwrap();
        assert!(living.path().exists() && next.path() != living.path());
        let path = living.path().to_path_buf();
        living.close().unwrap();
        assert!(!path.exists() && next.path().exists());
    }
}
