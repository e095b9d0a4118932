//! What all steps of a build share: the order, its folder, and how programs and threads run in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use codebridge_images::{Recipe, RecipeError};
use codebridge_runtimes::exec::{self, CommandLine, Finished};
use tokio_util::sync::CancellationToken;

use super::error::BuildError;

/// The limit of one program. apt and pip end by themselves when nothing arrives any more.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// What to build.
#[derive(Debug)]
pub struct Order {
    pub recipe: Recipe,
    /// The archive to write.
    pub target: PathBuf,
    /// The name of the image in the archive.
    pub tag: Option<String>,
    /// The mirror of the distribution, instead of the one that this machine uses.
    pub mirror: Option<String>,
    /// Whether to use the packages of the mirror instead of those that the recipe is pinned to.
    pub update: bool,
}

/// Receives the progress of a build.
pub trait Listener: Sync {
    /// Prints a line, also when the output is not a terminal.
    fn say(&self, line: &str);
    /// Shows the current step, and how much of how much is done if that is known.
    fn step(&self, what: &str, amount: Option<(u64, u64)>);
}

/// A running build, in a folder of its own.
pub(super) struct Work<'a> {
    pub(super) order: &'a Order,
    pub(super) folder: PathBuf,
    pub(super) stop: &'a CancellationToken,
    pub(super) listener: &'a dyn Listener,
}

impl Work<'_> {
    /// Runs a program to its end, or until the build is cancelled.
    pub(super) async fn run(&self, command: CommandLine) -> Result<Finished, BuildError> {
        tokio::select! {
            done = exec::run(command, LIMIT) => Ok(done?.success()?),
            () = self.stop.cancelled() => Err(RecipeError::Cancelled.into()),
        }
    }

    /// Runs a program and shows how much it has written into a folder.
    pub(super) async fn run_watching(
        &self,
        command: CommandLine,
        what: &str,
        folder: &Path,
        total: u64,
    ) -> Result<Finished, BuildError> {
        let mut running = std::pin::pin!(self.run(command));
        loop {
            self.listener.step(what, Some((size_of(folder).min(total), total)));
            tokio::select! {
                done = &mut running => return done,
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
            }
        }
    }

    /// Runs `work` in a thread. When the build is cancelled, sets the flag and still waits: nothing may work in a folder
    /// that is being removed.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> Result<T, RecipeError> + Send + 'static,
    ) -> Result<T, BuildError> {
        let cancelled = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&cancelled);
        let mut working = tokio::task::spawn_blocking(move || work(&flag));
        let done = tokio::select! {
            done = &mut working => done,
            () = self.stop.cancelled() => {
                cancelled.store(true, Ordering::Relaxed);
                working.await
            }
        };
        Ok(done.unwrap_or(Err(RecipeError::Cancelled))?)
    }
}

/// Returns the size of the files in a folder.
fn size_of(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size_of(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Finds a program, which the named package has.
pub(super) fn program(name: &'static str, package: &'static str) -> Result<PathBuf, BuildError> {
    exec::find_program(Path::new(name)).ok_or(BuildError::Missing { name, package })
}
