//! Exports an image from the store of a local engine, for runtimes that have no store.

use tokio::process::ChildStdout;

use crate::exec::{self, ExecError};
use crate::runtime::{RuntimeId, RuntimeKind};
use crate::spec::{RootFs, SandboxName};
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

/// Returns the transport of an engine's store in containers-transports(5).
fn own_store(kind: RuntimeKind) -> &'static str {
    if kind == RuntimeKind::Podman { "containers-storage:" } else { "docker-daemon:" }
}

#[derive(Debug)]
pub struct Export {
    child: tokio::process::Child,
    driver: EngineDriver,
    name: SandboxName,
    instance: Instance,
    /// The flattened root filesystem as a tar archive.
    pub archive: Option<ChildStdout>,
}

/// Returns the image from the store of an engine that is installed here, or of this one; nothing is pulled.
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
    /// Returns the name of the image with the transport of its store, as in containers-transports(5).
    pub fn name(&self) -> String {
        format!("{}{}", own_store(self.driver.id().kind), self.reference)
    }

    /// Starts the export, from a container that is never started and that [`Export::finish`] removes.
    pub async fn export(&self, instance: &Instance) -> Result<Export, ExecError> {
        let name = instance.next_name();
        let record = Record::now(&name, self.driver.id(), RootFs::Image(self.reference.clone()));
        if let Err(error) = instance.record(&record) {
            tracing::debug!(%error, "could not record the container of an export");
        }
        let mut child = self.driver.export(&self.reference, &name, instance.owner()).await?;
        let archive = child.stdout.take();
        Ok(Export { child, driver: self.driver.clone(), name, instance: instance.clone(), archive })
    }
}

impl Export {
    /// Ends the export and removes its container. Returns whether the engine wrote the archive to its end.
    pub async fn finish(mut self) -> bool {
        drop(self.archive.take());
        let group = exec::group_of(&self.child);
        let status = tokio::time::timeout(COMMAND_LIMIT, self.child.wait()).await;
        if status.is_err() {
            exec::terminate(&mut self.child, group, std::time::Duration::from_secs(1)).await;
        }
        match self.driver.reclaim(&self.name).await {
            Ok(()) => self.instance.forget(&self.name),
            Err(error) => tracing::warn!(%error, "could not remove the container of an export"),
        }
        matches!(status, Ok(Ok(status)) if status.success())
    }
}
