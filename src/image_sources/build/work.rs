//! What every step of a build shares: the order, its folder, and how programs and threads run in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use codebridge_images::{Recipe, RecipeError};
use codebridge_runtimes::exec::{self, CommandLine, Finished};
use tokio_util::sync::CancellationToken;

use super::error::BuildError;

/// Anything may take long on a slow line; apt and pip give up by themselves when nothing comes any more.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// What is to be built, and where.
#[derive(Debug)]
pub struct Order {
    /// The recipe.
    pub recipe: Recipe,
    /// The archive that comes of it.
    pub target: PathBuf,
    /// The image's name in it.
    pub tag: Option<String>,
    /// Where packages of the distribution come from, in place of the mirror that this machine uses.
    pub mirror: Option<String>,
    /// Whether to take what the mirror has now in place of what the recipe is pinned to.
    pub update: bool,
}

/// Hears of what goes on.
pub trait Listener: Sync {
    /// A line that everybody reads, also in a log.
    fn say(&self, line: &str);
    /// What is being done, with how much of how much when that is known.
    fn step(&self, what: &str, amount: Option<(u64, u64)>);
}

/// An image being built, in a folder of its own that is gone with it.
pub(super) struct Work<'a> {
    pub(super) order: &'a Order,
    pub(super) folder: PathBuf,
    pub(super) stop: &'a CancellationToken,
    pub(super) listener: &'a dyn Listener,
}

impl Work<'_> {
    /// Runs a program to its end, or to the moment when nobody waits any more.
    pub(super) async fn run(&self, command: CommandLine) -> Result<Finished, BuildError> {
        tokio::select! {
            done = exec::run(command, LIMIT) => Ok(done?.success()?),
            () = self.stop.cancelled() => Err(RecipeError::Cancelled.into()),
        }
    }

    /// The same, with how much has come into a folder so far.
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

    /// Does something in a thread, which is told when nobody waits any more and is waited for then too: nothing must be
    /// at work in a folder that is being removed.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> Result<T, RecipeError> + Send + 'static,
    ) -> Result<T, BuildError> {
        let cancelled = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&cancelled);
        let mut working = tokio::task::spawn_blocking(move || work(&told));
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

/// Bytes of the files in a folder.
fn size_of(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size_of(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// A program that every Debian machine has, or one of the named package.
pub(super) fn program(name: &'static str, package: &'static str) -> Result<PathBuf, BuildError> {
    exec::find_program(Path::new(name)).ok_or(BuildError::Missing { name, package })
}
