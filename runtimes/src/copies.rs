//! The copies of this machine's folders that a sandbox on an engine elsewhere has, for somebody who does not own the sandbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::driver::AnyDriver;
use crate::folders::{LeftOut, SupplyError, archive};
use crate::plan::Volume;
use crate::spec::SandboxName;
use crate::state::Instance;

/// The copies of one sandbox. Clones are of the same copies.
#[derive(Debug, Clone)]
pub struct Copies(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    driver: Arc<AnyDriver>,
    instance: Arc<Instance>,
    sandbox: SandboxName,
    volumes: Vec<Volume>,
    /// The sandbox ends: an engine would make a removed volume again, without an owner.
    ended: CancellationToken,
    /// One addition at a time: the container that it goes through has a fixed name.
    turn: Mutex<()>,
}

impl Copies {
    /// Returns those of a sandbox that has any.
    pub(crate) fn of(
        driver: &Arc<AnyDriver>,
        instance: &Arc<Instance>,
        sandbox: &SandboxName,
        volumes: Vec<Volume>,
    ) -> Option<Self> {
        (!volumes.is_empty()).then(|| {
            Self(Arc::new(Shared {
                driver: Arc::clone(driver),
                instance: Arc::clone(instance),
                sandbox: sandbox.clone(),
                volumes,
                ended: CancellationToken::new(),
                turn: Mutex::default(),
            }))
        })
    }

    /// Adds what is in `folder`, up to `limit` bytes, to the copy that the sandbox sees at `target`. Each file appears while it is
    /// written. Returns what could not be copied. It goes on to its end, or that of the sandbox, when the caller does not wait.
    ///
    /// # Errors
    /// The sandbox has no copy there, or has ended; the folder cannot be read; the engine refused a command, or does not answer.
    pub async fn add(&self, target: &str, folder: PathBuf, limit: u64) -> Result<LeftOut, SupplyError> {
        let (shared, target, path) = (Arc::clone(&self.0), target.to_owned(), folder.clone());
        let added = tokio::spawn(async move { shared.add(&target, folder, limit).await });
        added.await.unwrap_or_else(|failed| Err(SupplyError::failed(&path, failed)))
    }

    /// Lets nothing be added any more. Returns when nothing is.
    pub(crate) async fn close(&self) {
        self.0.ended.cancel();
        drop(self.0.turn.lock().await);
    }
}

impl Shared {
    async fn add(&self, target: &str, folder: PathBuf, limit: u64) -> Result<LeftOut, SupplyError> {
        let gone = |path: &Path| SupplyError::NoCopy { path: path.to_path_buf(), target: target.to_owned() };
        let volume = self.volumes.iter().find(|volume| volume.folder.target == target);
        let (AnyDriver::Engine(engine), Some(volume)) = (&*self.driver, volume) else {
            return Err(gone(&folder));
        };
        let path = folder.clone();
        let read = tokio::task::spawn_blocking(move || archive(&folder, limit));
        let archive = read.await.map_err(|failed| SupplyError::failed(&path, failed))??;
        let _turn = self.turn.lock().await;
        if self.ended.is_cancelled() {
            return Err(gone(&path));
        }
        let owner = self.instance.owner();
        engine.copy_into(volume, &self.sandbox, owner, archive.bytes, &self.ended).await?;
        if self.ended.is_cancelled() { Err(gone(&path)) } else { Ok(archive.left_out) }
    }
}
