//! Takes an image out of a local engine's store, for runtimes that have none.

use tokio::process::ChildStdout;

use crate::exec::{self, ExecError};
use crate::runtime::{RuntimeId, RuntimeKind};
use crate::spec::SandboxName;
use crate::state::{Instance, Record};

use super::driver::{COMMAND_LIMIT, EngineDriver};

/// An image in the store of podman or docker.
#[derive(Debug, Clone)]
pub struct LocalImage {
    driver: EngineDriver,
    reference: String,
    /// The image's id, in hexadecimal.
    pub id: String,
    /// The environment that the image sets, `NAME=value` each.
    pub env: Vec<String>,
}

/// How the store of an engine is called in containers-transports(5).
pub(crate) fn own_store(kind: RuntimeKind) -> &'static str {
    if kind == RuntimeKind::Podman { "containers-storage:" } else { "docker-daemon:" }
}

/// An export under way.
#[derive(Debug)]
pub struct Export {
    child: tokio::process::Child,
    driver: EngineDriver,
    name: SandboxName,
    record: Instance,
    /// The flattened root filesystem as a tar archive.
    pub archive: Option<ChildStdout>,
}

/// Looks for an image in the stores of the engines that are installed here, or of one of them; nothing is pulled.
pub async fn find_local_image(reference: &str, engine: Option<RuntimeKind>) -> Option<LocalImage> {
    for id in
        RuntimeId::installed_engines().into_iter().filter(|id| engine.is_none_or(|engine| engine == id.kind))
    {
        let driver = EngineDriver::new(id);
        let Ok(Some(reference)) = driver.resolve_local(reference).await else { continue };
        if let Ok(Some((id, env))) = driver.inspect_image(&reference).await {
            return Some(LocalImage { driver, reference, id, env });
        }
    }
    None
}

impl LocalImage {
    /// Whose it is and its name there, as in containers-transports(5).
    pub fn name(&self) -> String {
        format!("{}{}", own_store(self.driver.id().kind), self.reference)
    }

    /// Starts the export. It goes through a container that is never started and that [`Export::finish`] removes.
    pub async fn export(&self, instance: &Instance) -> Result<Export, ExecError> {
        let name = instance.next_name();
        let record = Record::of_container(&name, self.driver.id(), &self.reference);
        if let Err(error) = instance.record(&record) {
            tracing::debug!(%error, "an export is not written down");
        }
        let mut child = self.driver.export(&self.reference, &name, instance.owner()).await?;
        let archive = child.stdout.take();
        Ok(Export { child, driver: self.driver.clone(), name, record: instance.clone(), archive })
    }
}

impl Export {
    /// Ends the export and removes its container; whether the engine wrote the archive to its end.
    pub async fn finish(mut self) -> bool {
        drop(self.archive.take());
        let group = exec::group_of(&self.child);
        let status = tokio::time::timeout(COMMAND_LIMIT, self.child.wait()).await;
        if status.is_err() {
            exec::terminate(&mut self.child, group, std::time::Duration::from_secs(1)).await;
        }
        match self.driver.reclaim(&self.name).await {
            Ok(()) => self.record.forget(&self.name),
            Err(error) => tracing::warn!(%error, "the container of an export was left behind"),
        }
        matches!(status, Ok(Ok(status)) if status.success())
    }
}
