//! Compiles the modules of packages for the Python of an image, once for each set: without them, imports take several times as
//! long, and the sandbox cannot write them.
//!
//! As for the standard library, this happens in a sandbox of its own, in which no code of a package runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use codebridge_runtimes::{AnyDriver, HostFolder, Instance, Sandbox, SandboxSpec};
use tokio::io::AsyncWriteExt;
use tokio_util::io::SyncIoBridge;
use tokio_util::sync::CancellationToken;

use crate::guest;
use crate::packages::PackageSet;

/// A large set takes some ten seconds on a machine that is not busy.
const LIMIT: Duration = Duration::from_secs(180);
const TARGET: &str = "/packages";

/// Bytes that are copied to an engine elsewhere.
const MOST_COPIED: u64 = 1 << 30;

/// Compiles as far as possible. On an engine elsewhere, the sandbox gets the files once it runs: a copy of that size is not made
/// for its start.
pub(super) async fn compile(
    set: &PackageSet,
    image: &str,
    driver: &Arc<AnyDriver>,
    spec: &SandboxSpec,
    instance: &Arc<Instance>,
    is_elsewhere: bool,
    cancel: &CancellationToken,
) {
    let began = Instant::now();
    let mut spec = spec.clone();
    spec.name = instance.next_name();
    spec.argv = guest::library_argv();
    spec.argv.push(TARGET.into());
    let empty = is_elsewhere.then(tempfile::tempdir).transpose().ok().flatten();
    let source = empty.as_ref().map_or_else(|| set.files(), |folder| folder.path().to_path_buf());
    spec.folders = vec![HostFolder { source, target: TARGET.into() }];
    spec.shares.clear();
    let launched = match driver.plan(&spec, instance) {
        Ok(plan) => Sandbox::launch(driver, plan, instance).await,
        Err(error) => Err(error.into()),
    };
    let mut sandbox = match launched {
        Ok(sandbox) => sandbox,
        Err(error) => return tracing::debug!(%error, "could not compile the modules of packages"),
    };
    match add(set, image, &mut sandbox, cancel).await {
        Ok(count) => tracing::debug!(count, elapsed = ?began.elapsed(), "compiled the modules of packages"),
        Err(error) => {
            let error = sandbox.with_messages(&error);
            tracing::debug!(error, "could not compile the modules of packages");
        }
    }
    if let Err(error) = sandbox.end().await {
        tracing::warn!(%error, "a sandbox was left behind");
    }
}

/// Adds what the sandbox writes to the set, until the sandbox ends or takes too long.
async fn add(
    set: &PackageSet,
    image: &str,
    sandbox: &mut Sandbox,
    cancel: &CancellationToken,
) -> Result<usize, String> {
    let (Some(mut stdin), Some(stdout)) = (sandbox.take_stdin(), sandbox.take_stdout()) else {
        return Err("the sandbox has no pipes".into());
    };
    if let Some(copies) = sandbox.copies() {
        let added = copies.add(TARGET, set.files(), MOST_COPIED).await;
        let _ = added.map_err(|error| error.to_string())?;
    }
    let limits = guest::library_limits(sandbox.own_limits());
    stdin.write_all(limits.as_bytes()).await.map_err(|error| error.to_string())?;
    drop(stdin);
    let given_up = Arc::new(AtomicBool::new(false));
    let (stop, set, image) = (Arc::clone(&given_up), set.clone(), image.to_owned());
    let archive = SyncIoBridge::new(stdout);
    let mut adding = tokio::task::spawn_blocking(move || set.add_compiled(&image, archive, &stop));
    tokio::select! {
        added = &mut adding => match added {
            Ok(added) => added.map_err(|error| error.for_operator()),
            Err(error) => Err(error.to_string()),
        },
        // The thread discards what it has.
        () = tokio::time::sleep(LIMIT) => {
            given_up.store(true, Ordering::Relaxed);
            Err("it took too long".into())
        }
        () = cancel.cancelled() => {
            given_up.store(true, Ordering::Relaxed);
            Err("it was cancelled".into())
        }
    }
}
