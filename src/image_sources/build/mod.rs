//! `codebridge image build`: an image from packages, without an image builder.
//!
//! `apt` resolves and downloads packages of the distribution, `wheels` installs Python packages by pip, `compile` compiles
//! modules by the Python of the image; `work` runs programs, in the `folder` of the build. This file goes through the steps.
//! The image crate unpacks packages and packs layers.
//!
//! No root is needed, and no script of a package runs: packages are only unpacked.

mod apt;
mod compile;
mod error;
mod folder;
mod wheels;
mod work;

use std::path::{Path, PathBuf};

use codebridge_images::{
    Digest, Layer, Lock, Platform, Recipe, pack_layer, parse_requirements, write_archive,
};
use tokio_util::sync::CancellationToken;

pub use error::BuildError;
pub use work::{Listener, Order};

use crate::sizes::bytes_text;
use apt::Apt;
use folder::Folder;
use wheels::PythonPackages;
use work::Work;

/// What the build downloads.
#[derive(Debug)]
struct Plan {
    architecture: String,
    mirror: String,
    /// The packages of each layer.
    packages: Vec<Lock>,
    /// The Python packages of each layer.
    python: Vec<PythonPackages>,
}

/// Builds an image; returns the digest of its manifest, or None with `only_plan`, which builds nothing.
///
/// # Errors
/// A program fails, or a file cannot be downloaded or written. Then nothing is left behind.
pub async fn build(
    order: &Order,
    only_plan: bool,
    listener: &dyn Listener,
    stop: &CancellationToken,
) -> Result<Option<Digest>, BuildError> {
    // Beside the target, on the same file system, so that the image can be renamed.
    let beside = order.target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let beside = beside.unwrap_or(Path::new("."));
    let folder = Folder::new_in(beside).map_err(BuildError::io("create a folder in", beside))?;
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
        self.announce(&plan);
        if only_plan {
            return Ok(None);
        }
        let mut layers = Vec::new();
        let mut roots = Vec::new();
        let mut pinned = Vec::new();
        for (index, (recipe, packages)) in
            self.order.recipe.layers().into_iter().zip(&plan.packages).enumerate()
        {
            let root = self.folder.join(format!("layer{index}"));
            pinned.push(self.fill(recipe, packages, &plan.python[index], &apt, &root).await?);
            roots.push(root.clone());
            compile::compile(self, recipe, &plan.architecture, &roots).await?;
            layers.push(self.pack(recipe, root).await?);
        }
        let digest = self.write(layers).await?;
        if self.order.update {
            self.pin(&plan, &pinned)?;
        }
        Ok(Some(digest))
    }

    /// Returns what to download, and checks that it is what the recipe is pinned to.
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
        let layers = self.order.recipe.layers();
        let python = layers.into_iter().map(|recipe| self.python_packages(recipe, &apt.architecture));
        let python = python.collect::<Result<_, _>>()?;
        Ok(Plan { architecture: apt.architecture.clone(), mirror: apt.mirror.clone(), packages, python })
    }

    fn python_packages(&self, recipe: &Recipe, architecture: &str) -> Result<PythonPackages, BuildError> {
        let Some(names) = &recipe.requirements else { return Ok(PythonPackages::None) };
        let is_new = recipe.is_of_names() || self.order.update;
        Ok(match recipe.pinned_requirements(architecture)? {
            // An update leaves alone what the recipe itself pins.
            Some(text) if !is_new || text == *names => PythonPackages::Pinned(text),
            _ if is_new => PythonPackages::Names(names.clone()),
            _ => {
                let (recipe, architecture) = (recipe.name.clone(), architecture.into());
                return Err(BuildError::NotPinned { recipe, architecture });
            }
        })
    }

    /// Lists what will be downloaded.
    fn announce(&self, plan: &Plan) {
        let recipe = &self.order.recipe;
        self.listener.say(&format!("{} for linux/{} downloads:", recipe.name, plan.architecture));
        for ((recipe, packages), python) in recipe.layers().into_iter().zip(&plan.packages).zip(&plan.python)
        {
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
            let (text, is_pinned) = match python {
                PythonPackages::None => continue,
                PythonPackages::Pinned(text) => (text, true),
                PythonPackages::Names(text) => (text, false),
            };
            let requirements = parse_requirements(text);
            if !is_pinned {
                let names: Vec<_> = requirements.iter().map(|one| one.name.as_str()).collect();
                self.listener.say(&format!(
                    "Python packages, and what they need, from the index that pip uses: {}",
                    names.join(", ")
                ));
            } else if !requirements.is_empty() {
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

    /// Downloads and unpacks the packages of a layer.
    ///
    /// Returns the Python packages with versions and digests.
    async fn fill(
        &self,
        recipe: &Recipe,
        packages: &Lock,
        python: &PythonPackages,
        apt: &Apt,
        root: &Path,
    ) -> Result<String, BuildError> {
        if !packages.is_empty() {
            let files = apt.download(self, recipe, packages).await?;
            apt.unpack(self, recipe, files, root).await?;
        } else {
            std::fs::create_dir(root).map_err(BuildError::io("create the folder", root))?;
        }
        let pinned = wheels::install(self, recipe, python, &apt.architecture, root).await?;
        if packages.is_empty() {
            codebridge_images::apply_recipe(recipe, root)?;
        }
        Ok(pinned)
    }

    async fn pack(&self, recipe: &Recipe, root: PathBuf) -> Result<Layer, BuildError> {
        self.listener.step(&format!("{}: packing", recipe.name), None);
        let (into, created) = (root.with_extension("tar.gz"), recipe.created);
        self.blocking(move |cancelled| pack_layer(&root, &into, created, cancelled)).await
    }

    /// Writes the archive and moves it to its place.
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

    fn pin(&self, plan: &Plan, python: &[String]) -> Result<(), BuildError> {
        for ((recipe, packages), lock) in self.order.recipe.layers().into_iter().zip(&plan.python).zip(python)
        {
            if matches!(packages, PythonPackages::Names(_)) {
                recipe.write_python_lock(&plan.architecture, lock)?;
            }
        }
        for (recipe, packages) in self.order.recipe.layers().into_iter().zip(&plan.packages) {
            if !packages.is_empty() && !recipe.write_lock(&plan.architecture, packages)? {
                let text = "warning: the packages of this image differ from the built-in recipe, which stays as it is";
                self.listener.say(text);
            }
        }
        Ok(())
    }
}
