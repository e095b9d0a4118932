//! An artifact that is being saved: invisible until it is complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::name::check;
use super::space::Place;
use super::store::{Artifact, Artifacts};
use super::{ArtifactError, mime_of};

/// Bytes of a description.
const LONGEST_DESCRIPTION: usize = 1000;
/// Bytes after which the kernel is asked to write what it has, so that the end of a large file does not wait for all of it.
const FLUSH: u64 = 32 << 20;
/// Renames that another bridge won, before this one gives up.
const TRIES: usize = 1000;

/// Which code saved an artifact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// None for a session that ended with its call.
    pub session: Option<String>,
    pub run: u32,
}

/// The bytes so far. Dropped before [`Staged::commit`], it leaves nothing.
#[derive(Debug)]
pub struct Staged {
    artifacts: Artifacts,
    folder: tempfile::TempDir,
    file: File,
    name: String,
    description: Option<String>,
    bytes: u64,
    flushed: u64,
    place: Place,
    digest: Sha256,
}

impl Artifacts {
    /// Begins to save an artifact.
    pub fn begin(&self, name: &str, description: Option<String>) -> Result<Staged, ArtifactError> {
        check(name)?;
        if description.as_ref().is_some_and(|text| text.len() > LONGEST_DESCRIPTION) {
            return Err(ArtifactError::Description(LONGEST_DESCRIPTION));
        }
        let mut place = self.space().place()?;
        let staging = self.staging()?;
        // A sweep of another bridge sees the folder only with its lock.
        let _lock = self.lock()?;
        self.sweep(&staging);
        let (kept, _) = self.kept();
        place.note(kept, self.in_staging());
        if !place.grow(0, self.limit()) {
            return Err(self.full(name));
        }
        Staged::new(self.clone(), &staging, name, description, place)
    }
}

impl Staged {
    fn new(
        artifacts: Artifacts,
        staging: &Path,
        name: &str,
        description: Option<String>,
        place: Place,
    ) -> Result<Self, ArtifactError> {
        let failed = |source| ArtifactError::Io { action: "write to", path: staging.to_owned(), source };
        let folder = tempfile::Builder::new().prefix("").tempdir_in(staging).map_err(failed)?;
        let file = File::create_new(folder.path().join("content")).map_err(failed)?;
        // Held as long as this bridge lives, and works on this: other bridges see that it is not left over.
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
        let name = name.to_owned();
        let (bytes, flushed, digest) = (0, 0, Sha256::new());
        Ok(Self { artifacts, folder, file, name, description, bytes, flushed, place, digest })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The limit is reached, or the disk is full.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        if !self.place.grow(self.bytes + bytes.len() as u64, self.artifacts.limit()) {
            return Err(self.artifacts.full(&self.name));
        }
        self.digest.update(bytes);
        self.file.write_all(bytes).map_err(|source| self.failed(source))?;
        self.bytes += bytes.len() as u64;
        if self.bytes - self.flushed >= FLUSH {
            self.start_writing();
            self.flushed = self.bytes;
        }
        Ok(())
    }

    /// Asks the kernel to write to the disk what it holds. This is an optimisation of Linux only.
    fn start_writing(&self) {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{Advice, fadvise};
            let length = std::num::NonZeroU64::new(self.bytes - self.flushed);
            // It starts to write pages that are not on the disk yet, and forgets the others.
            let _ = fadvise(&self.file, self.flushed, length, Advice::DontNeed);
        }
    }

    fn failed(&self, source: io::Error) -> ArtifactError {
        ArtifactError::Io { action: "write", path: self.folder.path().to_owned(), source }
    }

    /// Makes it the next version of its name, on disk before anybody sees it.
    pub fn commit(mut self, origin: Origin) -> Result<Artifact, ArtifactError> {
        self.file.sync_all().map_err(|source| self.failed(source))?;
        let _lock = self.artifacts.lock()?;
        // Another bridge may have saved meanwhile.
        self.artifacts.check_space(&self.name, self.bytes)?;
        let mut artifact = Artifact {
            name: self.name.clone(),
            version: 0,
            bytes: self.bytes,
            sha256: hex::encode(self.digest.clone().finalize()),
            mime_type: mime_of(&self.name).to_owned(),
            description: self.description.clone(),
            session: origin.session,
            run: origin.run,
            created: jiff::Timestamp::now()
                .round(jiff::Unit::Second)
                .unwrap_or_else(|_| jiff::Timestamp::now()),
        };
        let folder = self.artifacts.folder_of(&self.name);
        let failed = |source| ArtifactError::Io { action: "write to", path: folder.clone(), source };
        fs::create_dir_all(&folder).map_err(failed)?;
        let last = self.artifacts.last_version(&self.name);
        for version in (last..u32::MAX).take(TRIES).map(|last| last + 1) {
            artifact.version = version;
            self.write_about(&artifact)?;
            match fs::rename(self.folder.path(), folder.join(version.to_string())) {
                Ok(()) => {
                    sync_folder(&folder);
                    self.place.keep();
                    // Nothing is left at its old place.
                    let _: PathBuf = self.folder.keep();
                    return Ok(artifact);
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                    ) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(ArtifactError::Versions(self.name.clone()))
    }

    fn write_about(&self, artifact: &Artifact) -> Result<(), ArtifactError> {
        let write = || {
            let mut about = File::create(self.folder.path().join("about.json"))?;
            serde_json::to_writer(&mut about, artifact)?;
            about.sync_all()
        };
        write().map_err(|source| self.failed(source))
    }
}

/// Writes the entries of a folder to the disk, as far as its file system does that.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}
