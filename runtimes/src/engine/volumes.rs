//! Folders of this machine on an engine elsewhere, which does not see them: copies in volumes of the engine.
//!
//! A volume is made with the labels of its sandbox, filled through a container that is created and never started, and removed with
//! the sandbox, however that ends.

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::exec::{self, ExecError};
use crate::folders::{COPY_LIMIT, LeftOut, SupplyError, archive};
use crate::messages::engine as messages;
use crate::owner::{INSTANCE_LABEL, Owner};
use crate::plan::{OwnedSandbox, Plan, ReclaimError, Volume};
use crate::spec::SandboxName;

use super::driver::EngineDriver;

/// A copy goes over the network.
const COPY_TIME: Duration = Duration::from_secs(120);

/// Bytes of an archive that has no entries: its end.
const EMPTY_ARCHIVE: usize = 1024;

/// Returns the label that names a volume's sandbox.
fn label(name: &SandboxName) -> String {
    format!("{}={name}", messages::SANDBOX_LABEL)
}

impl EngineDriver {
    /// Makes the volumes of a plan. Returns what each copy lacks.
    pub(crate) async fn make_volumes(
        &self,
        plan: &Plan,
        owner: &Owner,
    ) -> Result<Vec<(PathBuf, LeftOut)>, SupplyError> {
        let mut made = Vec::new();
        for volume in &plan.volumes {
            let name = &plan.record.name;
            let create = ["volume".to_string(), "create".into(), format!("--label={}", label(name))];
            let words = create.into_iter().chain(owner.label_flags()).chain([volume.name.clone()]);
            self.run(words).await?.success()?;
            let source = volume.folder.source.clone();
            let read = tokio::task::spawn_blocking(move || archive(&source, COPY_LIMIT));
            let read = read.await.map_err(|failed| SupplyError::failed(&volume.folder.source, failed));
            let archive = read??;
            // podman refuses an archive without entries.
            if archive.bytes.len() > EMPTY_ARCHIVE {
                self.copy_into(volume, name, owner, archive.bytes, &CancellationToken::new()).await?;
            }
            made.push((volume.folder.source.clone(), archive.left_out));
        }
        Ok(made)
    }

    /// Adds the files of a tar archive to a volume, also while its sandbox runs. Each file appears while it is written. Stops in
    /// the middle once the sandbox ends.
    pub(crate) async fn copy_into(
        &self,
        volume: &Volume,
        sandbox: &SandboxName,
        owner: &Owner,
        archive: Vec<u8>,
        ended: &CancellationToken,
    ) -> Result<(), ExecError> {
        let (helper, target) = (helper_of(sandbox), &volume.folder.target);
        let create =
            ["create", "--name", &helper, "--network=none", "--entrypoint=/bin/true"].map(String::from);
        let create = create.into_iter().chain(owner.label_flags());
        let mount = format!("--volume={}:{target}", volume.name);
        self.run(create.chain([mount, volume.image.clone()])).await?.success()?;
        let copy = self.engine().args(["cp".to_string(), "-".into(), format!("{helper}:{target}")]);
        let copied = tokio::select! {
            copied = exec::run_with_input(copy, archive, COPY_TIME) => {
                copied.and_then(exec::Finished::success).map(drop)
            }
            () = ended.cancelled() => Ok(()),
        };
        self.run(["rm", "--force", &helper]).await?.success()?;
        copied
    }

    /// Removes the volumes of a sandbox whose container is gone, and what was left of copies into them.
    pub(crate) async fn remove_volumes(&self, name: &SandboxName) -> Result<(), ReclaimError> {
        let error = |source| ReclaimError::Command { name: name.clone(), source };
        let filter = format!("label={}", label(name));
        let list = async || {
            let done = self.run(["volume", "ls", "--quiet", "--filter", &filter]).await?.success()?;
            let text = String::from_utf8_lossy(&done.stdout).into_owned();
            Ok::<Vec<String>, ExecError>(text.split_whitespace().map(String::from).collect())
        };
        let volumes = list().await.map_err(error)?;
        if volumes.is_empty() {
            return Ok(());
        }
        if let Ok(helper) = SandboxName::try_from(helper_of(name)) {
            self.remove_container(&helper).await?;
        }
        let words = ["volume", "rm", "--force"].map(String::from).into_iter().chain(volumes);
        self.run(words).await.map_err(error)?;
        match list().await.map_err(error)?.first() {
            None => Ok(()),
            Some(volume) => {
                Err(ReclaimError::StillThere { name: name.clone(), what: format!("its volume '{volume}'") })
            }
        }
    }

    /// Returns the sandboxes that have volumes, also when they have no container any more.
    pub(super) async fn owners_of_volumes(&self) -> Result<Vec<OwnedSandbox>, ExecError> {
        let filter = format!("label={INSTANCE_LABEL}");
        let done = self.run(["volume", "ls", "--quiet", "--filter", &filter]).await?.success()?;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        // One that vanishes meanwhile makes the command fail; the others are on its standard output all the same.
        let done = self.run(["volume", "inspect"].into_iter().chain(text.split_whitespace())).await?;
        Ok(messages::parse_volume_owners(&done.stdout))
    }
}

/// Returns the name of the container that files are copied through.
fn helper_of(sandbox: &SandboxName) -> String {
    format!("{sandbox}-copy")
}
