//! `codebridge image build`: an image out of packages, without any builder.
//!
//! `apt` asks the distribution's mirror and downloads, `wheels` has pip bring the Python packages, `compile` has the
//! image's own Python compile what it will import, `folder` is where all of it lies, `error` says why not; this file puts one after the other. What the
//! layers are put together from, and packed into, is the image crate's.
//!
//! No root is needed and no package's own script runs: packages are unpacked, nothing more.

mod apt;
mod compile;
mod error;
mod folder;
mod wheels;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use codebridge_images::{Digest, Layer, Lock, Platform, Recipe, RecipeError, pack_layer, write_archive};
use codebridge_runtimes::exec::{self, CommandLine, Finished};
use tokio_util::sync::CancellationToken;

pub use error::BuildError;

use super::bytes_text;
use apt::Apt;
use folder::Folder;

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

/// What is going to be downloaded.
#[derive(Debug)]
struct Plan {
    architecture: String,
    mirror: String,
    /// For each layer.
    packages: Vec<Lock>,
}

/// An image being built, in a folder of its own that is gone with it.
struct Work<'a> {
    order: &'a Order,
    folder: PathBuf,
    stop: &'a CancellationToken,
    listener: &'a dyn Listener,
}

/// Builds an image; gives the digest of its manifest. With `only_plan` nothing is built, and there is none.
///
/// # Errors
/// Something cannot be had, or not be written; then nothing stays.
pub async fn build(
    order: &Order,
    only_plan: bool,
    listener: &dyn Listener,
    stop: &CancellationToken,
) -> Result<Option<Digest>, BuildError> {
    // Beside the target: there is room for it, and it can be renamed.
    let beside = order.target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let beside = beside.unwrap_or(Path::new("."));
    let folder = Folder::new_in(beside).map_err(BuildError::io("make a folder in", beside))?;
    let work = Work { order, folder: folder.path().to_path_buf(), stop, listener };
    let built = work.build(only_plan).await;
    let closed = folder.close().map_err(BuildError::io("clean up in", beside));
    let digest = built?;
    closed?;
    Ok(digest)
}

impl Work<'_> {
    async fn build(&self, only_plan: bool) -> Result<Option<Digest>, BuildError> {
        let mut apt = Apt::prepare(self).await?;
        let plan = self.plan(&mut apt).await?;
        self.tell(&plan);
        if only_plan {
            return Ok(None);
        }
        let mut layers = Vec::new();
        let mut roots = Vec::new();
        for (index, (recipe, packages)) in
            self.order.recipe.layers().into_iter().zip(&plan.packages).enumerate()
        {
            let root = self.folder.join(format!("layer{index}"));
            self.fill(recipe, packages, &apt, &root).await?;
            roots.push(root.clone());
            compile::compile(self, recipe, &plan.architecture, &roots).await?;
            layers.push(self.pack(recipe, root).await?);
        }
        let digest = self.write(layers).await?;
        if self.order.update {
            self.pin(&plan)?;
        }
        Ok(Some(digest))
    }

    /// What there is to be downloaded, which has to be what the recipe is pinned to.
    async fn plan(&self, apt: &mut Apt) -> Result<Plan, BuildError> {
        let mut packages = Vec::new();
        for recipe in self.order.recipe.layers() {
            if recipe.packages.is_empty() {
                packages.push(Lock::default());
                continue;
            }
            let offered = apt.resolve(self, recipe).await?;
            if !self.order.update {
                let pinned = recipe.lock(&apt.architecture)?;
                let pinned =
                    pinned.filter(|pinned| !pinned.is_empty()).ok_or_else(|| BuildError::NotPinned {
                        recipe: recipe.name.clone(),
                        architecture: apt.architecture.clone(),
                    })?;
                let differences = pinned.differences(&offered);
                if !differences.is_empty() {
                    return Err(BuildError::Moved { recipe: recipe.name.clone(), differences });
                }
            }
            packages.push(offered);
        }
        Ok(Plan { architecture: apt.architecture.clone(), mirror: apt.mirror.clone(), packages })
    }

    /// Before anything is downloaded.
    fn tell(&self, plan: &Plan) {
        let recipe = &self.order.recipe;
        self.listener.say(&format!("{} for linux/{} downloads:", recipe.name, plan.architecture));
        for (recipe, packages) in recipe.layers().into_iter().zip(&plan.packages) {
            if !packages.is_empty() {
                let names: Vec<_> = packages
                    .packages()
                    .map(|package| format!("{} {}", package.name, package.version))
                    .collect();
                self.listener.say(&format!(
                    "{} packages of Debian {}, {} from {}: {}",
                    packages.len(),
                    recipe.suite,
                    bytes_text(packages.bytes()),
                    plan.mirror,
                    names.join(", ")
                ));
            }
            let requirements = recipe.requirements();
            if !requirements.is_empty() {
                let names: Vec<_> = requirements.iter().map(|one| one.name.replace("==", " ")).collect();
                self.listener.say(&format!(
                    "{} Python packages, {} from the index that pip uses: {}",
                    requirements.len(),
                    bytes_text(requirements.iter().map(|one| one.bytes).sum()),
                    names.join(", ")
                ));
            }
        }
    }

    /// Downloads and unpacks what a layer is made of.
    async fn fill(&self, recipe: &Recipe, packages: &Lock, apt: &Apt, root: &Path) -> Result<(), BuildError> {
        if !packages.is_empty() {
            let files = apt.download(self, recipe, packages).await?;
            apt.unpack(self, recipe, files, root).await?;
        } else {
            std::fs::create_dir(root).map_err(BuildError::io("make the folder", root))?;
        }
        if recipe.requirements.is_some() {
            wheels::install(self, recipe, &apt.architecture, root).await?;
        }
        if packages.is_empty() {
            codebridge_images::apply_recipe(recipe, root)?;
        }
        Ok(())
    }

    async fn pack(&self, recipe: &Recipe, root: PathBuf) -> Result<Layer, BuildError> {
        self.listener.step(&format!("{}: packing", recipe.name), None);
        let (into, created) = (root.with_extension("tar.gz"), recipe.created);
        self.blocking(move |cancelled| pack_layer(&root, &into, created, cancelled)).await
    }

    /// Puts the archive in its place, once it is whole.
    async fn write(&self, layers: Vec<Layer>) -> Result<Digest, BuildError> {
        let recipe = self.order.recipe.clone();
        let tag = self.order.tag.clone().unwrap_or_else(|| recipe.name.clone());
        let archive = self.folder.join("image.tar");
        let into = archive.clone();
        self.listener.step("writing the archive", None);
        let digest =
            self.blocking(move |_| write_archive(&recipe, &Platform::here(), &layers, &tag, &into)).await?;
        let target = &self.order.target;
        std::fs::rename(&archive, target).map_err(BuildError::io("write", target))?;
        Ok(digest)
    }

    fn pin(&self, plan: &Plan) -> Result<(), BuildError> {
        for (recipe, packages) in self.order.recipe.layers().into_iter().zip(&plan.packages) {
            if !packages.is_empty() && !recipe.write_lock(&plan.architecture, packages)? {
                let text =
                    "the versions of this image are not those of the recipe, which came with the program";
                self.listener.say(text);
            }
        }
        Ok(())
    }

    /// Runs a program to its end, or to the moment when nobody waits any more.
    async fn run(&self, command: CommandLine) -> Result<Finished, BuildError> {
        tokio::select! {
            done = exec::run(command, LIMIT) => Ok(done?.success()?),
            () = self.stop.cancelled() => Err(RecipeError::Cancelled.into()),
        }
    }

    /// The same, with how much has come into a folder so far.
    async fn run_watching(
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
    async fn blocking<T: Send + 'static>(
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
fn program(name: &'static str, package: &'static str) -> Result<PathBuf, BuildError> {
    exec::find_program(Path::new(name)).ok_or(BuildError::Missing { name, package })
}
