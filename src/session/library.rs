//! The standard library of an image, compiled once: images for engines often come without, and a root that is only read
//! cannot keep what Python compiles at each import.
//!
//! It is done in a sandbox of its own, in which nothing of the user's runs, before the first interpreter starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use codebridge_images::Compiling;
use codebridge_runtimes::{AnyDriver, Instance, Sandbox, SandboxSpec};
use tokio::io::AsyncWriteExt;
use tokio_util::io::SyncIoBridge;
use tokio_util::sync::CancellationToken;

use crate::guest;

/// Some seconds, on a machine that is not busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Compiles it as far as that goes; without it, imports take longer, and that is all.
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
    let launched = match driver.plan(&spec, instance) {
        Ok(plan) => Sandbox::launch(driver, plan, instance).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let mut sandbox = match launched {
        Ok(sandbox) => sandbox,
        // The interpreter will not start either, and say why.
        Err(error) => return tracing::debug!(%error, "modules are not compiled"),
    };
    match add(compiling, &mut sandbox, cancel).await {
        Ok(count) => tracing::debug!(count, elapsed = ?began.elapsed(), "compiled the image's modules"),
        Err(error) => {
            let messages = sandbox.messages();
            tracing::debug!(error, messages, "the image's modules are not compiled");
        }
    }
    if let Err(error) = sandbox.end().await {
        tracing::warn!(%error, "a sandbox was left behind");
    }
}

/// Hands on what the sandbox writes, until its end, or until it takes too long.
async fn add(
    compiling: Compiling,
    sandbox: &mut Sandbox,
    cancel: &CancellationToken,
) -> Result<usize, String> {
    let (Some(mut stdin), Some(stdout)) = (sandbox.take_stdin(), sandbox.take_stdout()) else {
        return Err("the sandbox has no pipes".into());
    };
    let own = sandbox.own_limits();
    let limits = guest::library_limits(own.data, own.address_space, own.processes);
    stdin.write_all(limits.as_bytes()).await.map_err(|error| error.to_string())?;
    drop(stdin);
    let given_up = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&given_up);
    let archive = SyncIoBridge::new(stdout);
    let mut adding = tokio::task::spawn_blocking(move || compiling.add(archive, &told));
    let added = tokio::select! {
        added = &mut adding => added,
        // The end of the sandbox, which follows, ends the thread's wait for more, and an archive without an end is none.
        () = tokio::time::sleep(LIMIT) => Ok(Ok(0)),
        () = cancel.cancelled() => {
            given_up.store(true, Ordering::Relaxed);
            Ok(Ok(0))
        }
    };
    added.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}
