//! Compiles Python modules in a sandbox of their own, in which no user code runs. Without them, imports only take longer.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use codebridge_runtimes::{AnyDriver, Instance, Sandbox, SandboxSpec, SupplyError};
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdout;
use tokio::task::JoinError;
use tokio_util::io::SyncIoBridge;
use tokio_util::sync::CancellationToken;

use crate::guest;

/// Bytes that are copied to an engine elsewhere.
const MOST_COPIED: u64 = 1 << 30;

/// The modules that a sandbox compiles.
#[derive(Debug)]
pub(super) struct Modules {
    /// For the log.
    pub(super) what: &'static str,
    pub(super) limit: Duration,
    /// A folder that is copied to a place of the sandbox once it runs.
    pub(super) files: Option<(PathBuf, &'static str)>,
}

/// Why the modules are not compiled.
#[derive(Debug, thiserror::Error)]
enum CompileError {
    #[error("the sandbox has no pipes")]
    NoPipes,
    #[error("failed to write to the sandbox: {0}")]
    Write(#[from] io::Error),
    #[error(transparent)]
    Copy(#[from] SupplyError),
    #[error("{0}")]
    Add(String),
    #[error(transparent)]
    Thread(#[from] JoinError),
    #[error("it took too long, or was cancelled")]
    GivenUp,
}

/// Compiles modules as far as possible. `add` takes the archive that the sandbox writes, on a thread, and discards it once the
/// flag is set.
pub(super) async fn compile(
    modules: Modules,
    spec: SandboxSpec,
    driver: &Arc<AnyDriver>,
    instance: &Arc<Instance>,
    cancel: &CancellationToken,
    add: impl FnOnce(SyncIoBridge<ChildStdout>, &AtomicBool) -> Result<usize, String> + Send + 'static,
) {
    let (began, what) = (Instant::now(), modules.what);
    let launched = match driver.plan(&spec, instance) {
        Ok(plan) => Sandbox::launch(driver, plan, instance).await,
        Err(error) => Err(error.into()),
    };
    let mut sandbox = match launched {
        Ok(sandbox) => sandbox,
        // An interpreter will fail to start as well, and say why.
        Err(error) => return tracing::debug!(%error, "could not compile the modules of {what}"),
    };
    match run(modules, &mut sandbox, cancel, add).await {
        Ok(count) => tracing::debug!(count, elapsed = ?began.elapsed(), "compiled the modules of {what}"),
        Err(error) => {
            let error = sandbox.with_messages(&error.to_string());
            tracing::debug!(error, "could not compile the modules of {what}");
        }
    }
    if let Err(error) = sandbox.end().await {
        tracing::warn!(%error, "a sandbox was left behind");
    }
}

async fn run(
    modules: Modules,
    sandbox: &mut Sandbox,
    cancel: &CancellationToken,
    add: impl FnOnce(SyncIoBridge<ChildStdout>, &AtomicBool) -> Result<usize, String> + Send + 'static,
) -> Result<usize, CompileError> {
    let (Some(mut stdin), Some(stdout)) = (sandbox.take_stdin(), sandbox.take_stdout()) else {
        return Err(CompileError::NoPipes);
    };
    if let (Some(copies), Some((folder, target))) = (sandbox.copies(), modules.files) {
        copies.add(target, folder, MOST_COPIED).await?;
    }
    stdin.write_all(guest::library_limits(sandbox.own_limits()).as_bytes()).await?;
    drop(stdin);
    let given_up = Arc::new(AtomicBool::new(false));
    let (stop, archive) = (Arc::clone(&given_up), SyncIoBridge::new(stdout));
    let mut adding = tokio::task::spawn_blocking(move || add(archive, &stop));
    tokio::select! {
        added = &mut adding => return added?.map_err(CompileError::Add),
        () = tokio::time::sleep(modules.limit) => {}
        () = cancel.cancelled() => {}
    }
    given_up.store(true, Ordering::Relaxed);
    Err(CompileError::GivenUp)
}
