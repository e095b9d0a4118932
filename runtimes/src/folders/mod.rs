//! Folders of this machine in a sandbox that reads what their owner can read.
//!
//! A plain read-only mount is enough where the sandbox's user is the owner. Elsewhere the folder is mounted with its owner's id
//! mapped to that of the sandbox's user (`idmap`), or copied (`archive`).

mod archive;
mod idmap;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tokio::process::Child;

use crate::exec::{self, CommandLine, ExecError};

pub(crate) use archive::archive;
pub use archive::{ArchiveError, LeftOut, Oddities, look_at};

/// Bytes of all files of a folder that is copied.
pub(crate) const COPY_LIMIT: u64 = 64 << 20;

/// A folder that a launch prepares at a place of its own, which is then mounted in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supplied {
    /// The folder of this machine.
    pub source: PathBuf,
    /// The place, in a folder that only this user may enter.
    pub place: PathBuf,
    /// The user and group of the sandbox's process as this machine counts them, where its owner's ids can be mapped to them.
    pub reader: Option<(u32, u32)>,
}

#[derive(Debug, thiserror::Error)]
pub enum SupplyError {
    #[error("could not make the folder '{path}': {source}")]
    Place { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("could not copy the folder '{path}': {source}")]
    Copy { path: PathBuf, source: io::Error },
    #[error(
        "could not add the files of '{path}' to the sandbox: it has no copy of a folder at '{target}', or has ended"
    )]
    NoCopy { path: PathBuf, target: String },
    #[error(transparent)]
    Exec(#[from] ExecError),
}

impl SupplyError {
    /// Returns the error of a task that panicked.
    pub(crate) fn failed(path: &Path, failed: tokio::task::JoinError) -> Self {
        Self::Copy { path: path.to_path_buf(), source: io::Error::other(failed) }
    }
}

/// What the folders of a sandbox became.
#[derive(Debug, Default)]
pub(crate) struct Supplies {
    mounts: Vec<(idmap::Mapped, PathBuf)>,
    /// The folders that were copied, and what each copy lacks.
    pub(crate) copied: Vec<(PathBuf, LeftOut)>,
}

impl Supplies {
    /// Prepares folders: mapped where this machine can, else copied.
    pub(crate) async fn prepare(folders: &[Supplied]) -> Result<Self, SupplyError> {
        let mut all = Self::default();
        for folder in folders {
            make_place(&folder.place)?;
            let mapped = match folder.reader {
                Some(reader) => idmap::map(&folder.source, reader).await,
                None => Err(io::ErrorKind::Unsupported.into()),
            };
            match mapped {
                Ok(mapped) => all.mounts.push((mapped, folder.place.clone())),
                Err(error) => {
                    tracing::debug!(path = %folder.source.display(), %error, "this folder is copied");
                    let left_out = copy(folder).await?;
                    all.copied.push((folder.source.clone(), left_out));
                }
            }
        }
        Ok(all)
    }

    /// Starts a runtime, which sees the folders at their places, and nobody else does.
    pub(crate) fn spawn(&self, command: &CommandLine, folder: Option<&Path>) -> Result<Child, ExecError> {
        if self.mounts.is_empty() {
            return exec::spawn_piped_in(command, folder);
        }
        idmap::with_private(&self.mounts, || exec::spawn_piped_in(command, folder))
            .unwrap_or_else(|source| Err(ExecError::Start { command: command.clone(), source }))
    }
}

fn make_place(place: &Path) -> Result<(), SupplyError> {
    let error = |source| SupplyError::Place { path: place.to_path_buf(), source };
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    if let Some(parent) = place.parent() {
        if let Some(bundle) = parent.parent() {
            builder.mode(0o711).create(bundle).map_err(error)?;
        }
        builder.mode(0o700).create(parent).map_err(error)?;
    }
    builder.mode(0o755).create(place).map_err(error)
}

async fn copy(folder: &Supplied) -> Result<LeftOut, SupplyError> {
    let Supplied { source, place, .. } = folder.clone();
    let copied = tokio::task::spawn_blocking(move || {
        let archive = archive(&source, COPY_LIMIT)?;
        let mut reader = tar::Archive::new(&archive.bytes[..]);
        reader.set_preserve_mtime(true);
        reader.unpack(&place).map_err(|error| SupplyError::Copy { path: source, source: error })?;
        Ok(archive.left_out)
    });
    copied.await.map_err(|failed| SupplyError::failed(&folder.source, failed))?
}
