//! Compiles the standard library of an image, once: images often lack compiled modules, and Python cannot write them into
//! a read-only root.
//!
//! This happens in a sandbox of its own, in which no user code runs, before the first interpreter starts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use codebridge_images::{Compiling, StoreError};
use codebridge_runtimes::{AnyDriver, Instance, Sandbox, SandboxSpec};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinError;
use tokio_util::io::SyncIoBridge;
use tokio_util::sync::CancellationToken;

use crate::guest;

/// It takes some seconds on a machine that is not busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Why the modules are not compiled.
#[derive(Debug, thiserror::Error)]
enum CompileError {
    #[error("the sandbox has no pipes")]
    NoPipes,
    #[error("failed to write to the sandbox: {0}")]
    Write(#[from] io::Error),
    #[error(transparent)]
    Add(#[from] StoreError),
    #[error(transparent)]
    Thread(#[from] JoinError),
}

/// Compiles the modules as far as possible. Without them, imports only take longer.
pub(super) async fn compile(
    compiling: Compiling,
    driver: &Arc<AnyDriver>,
    spec: &SandboxSpec,
    instance: &Arc<Instance>,
    cancel: &CancellationToken,
) {
    let began = Instant::now();
    let mut spec = spec.clone();
    spec.name = instance.next_name();
    spec.argv = guest::library_argv();
    (spec.folders, spec.shares) = (Vec::new(), Vec::new());
    let launched = match driver.plan(&spec, instance) {
        Ok(plan) => Sandbox::launch(driver, plan, instance).await,
        Err(error) => Err(error.into()),
    };
    let mut sandbox = match launched {
        Ok(sandbox) => sandbox,
        // The interpreter will fail to start as well, and say why.
        Err(error) => return tracing::debug!(%error, "could not compile the modules of the image"),
    };
    match add(compiling, &mut sandbox, cancel).await {
        Ok(count) => tracing::debug!(count, elapsed = ?began.elapsed(), "compiled the modules of the image"),
        Err(error) => {
            let error = sandbox.with_messages(&error.to_string());
            tracing::debug!(error, "could not compile the modules of the image");
        }
    }
    if let Err(error) = sandbox.end().await {
        tracing::warn!(%error, "a sandbox was left behind");
    }
}

/// Adds what the sandbox writes to the image, until the sandbox ends or takes too long.
async fn add(
    compiling: Compiling,
    sandbox: &mut Sandbox,
    cancel: &CancellationToken,
) -> Result<usize, CompileError> {
    let (Some(mut stdin), Some(stdout)) = (sandbox.take_stdin(), sandbox.take_stdout()) else {
        return Err(CompileError::NoPipes);
    };
    let limits = guest::library_limits(sandbox.own_limits());
    stdin.write_all(limits.as_bytes()).await?;
    drop(stdin);
    let given_up = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&given_up);
    let archive = SyncIoBridge::new(stdout);
    let mut adding = tokio::task::spawn_blocking(move || compiling.add(archive, &stop));
    let added = tokio::select! {
        added = &mut adding => added,
        // The thread waits until the sandbox ends, and then discards an archive without an end.
        () = tokio::time::sleep(LIMIT) => Ok(Ok(0)),
        () = cancel.cancelled() => {
            given_up.store(true, Ordering::Relaxed);
            Ok(Ok(0))
        }
    };
    Ok(added??)
}
