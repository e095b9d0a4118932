//! The folder that a layer is built in.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::{Recipe, RecipeError};
use crate::unpack::{Limits, UnpackError, Unpacker};

/// Kept where its folder is removed: whoever passes a package on has to pass on its licence.
const NOTICE: &str = "copyright";

/// A layer being built.
pub struct Staging {
    folder: PathBuf,
    unpacker: Unpacker,
}

impl Staging {
    /// Creates the folder.
    ///
    /// # Errors
    /// The folder cannot be created, or exists.
    pub fn new(folder: &Path) -> Result<Self, RecipeError> {
        fs::create_dir(folder).map_err(RecipeError::io("create the folder", folder))?;
        let unpacker = Unpacker::new(folder, Limits::of_unknown()).map_err(unpacking("the layer"))?;
        Ok(Self { folder: folder.into(), unpacker })
    }

    /// Unpacks the tar archive of a package.
    ///
    /// # Errors
    /// The archive is damaged or malformed, or there is no space for it.
    pub fn add(
        &mut self,
        package: &str,
        archive: impl Read + Send,
        cancelled: &AtomicBool,
    ) -> Result<(), RecipeError> {
        self.unpacker.apply(archive, None, cancelled).map_err(unpacking(package))
    }

    /// Adds a small file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, name: &str, content: &[u8]) -> Result<(), RecipeError> {
        let path = with_parent(&self.folder, name)?;
        fs::write(&path, content).map_err(RecipeError::io("write", &path))
    }

    /// Applies what the recipe has beside packages.
    ///
    /// # Errors
    /// See [`apply_recipe`].
    pub fn finish(self, recipe: &Recipe) -> Result<(), RecipeError> {
        let Self { folder, unpacker } = self;
        unpacker.finish().map_err(unpacking("the layer"))?;
        apply_recipe(recipe, &folder)
    }
}

fn unpacking(package: &str) -> impl FnOnce(UnpackError) -> RecipeError + use<> {
    let package = package.to_string();
    move |source| match source {
        UnpackError::Cancelled => RecipeError::Cancelled,
        source => RecipeError::Unpack { package, source },
    }
}

/// Applies what a recipe has beside packages to the folder of a layer: copies, files, links and what is left out.
///
/// # Errors
/// The source of a copy does not exist, or a file cannot be written.
pub fn apply_recipe(recipe: &Recipe, folder: &Path) -> Result<(), RecipeError> {
    for (path, source) in &recipe.copies {
        let (path, source) = (with_parent(folder, path)?, folder.join(source));
        fs::copy(&source, &path).map_err(RecipeError::io("copy", &source))?;
    }
    for (path, text) in &recipe.files {
        let path = with_parent(folder, path)?;
        fs::write(&path, text).map_err(RecipeError::io("write", &path))?;
    }
    for (path, target) in &recipe.links {
        let path = with_parent(folder, path)?;
        symlink(target, &path).map_err(RecipeError::io("create the link", &path))?;
    }
    for path in &recipe.leave_out {
        leave_out(&folder.join(path))?;
    }
    if !recipe.leave_out_everywhere.is_empty() {
        leave_out_everywhere(folder, &recipe.leave_out_everywhere)?;
    }
    Ok(())
}

/// Returns a path below a folder, after creating the folder that it is in.
fn with_parent(folder: &Path, name: &str) -> Result<PathBuf, RecipeError> {
    let path = folder.join(name);
    let parent = path.parent().unwrap_or(&path);
    fs::create_dir_all(parent).map_err(RecipeError::io("create the folder", parent))?;
    Ok(path)
}

/// Returns the entries of a folder; none when there is no folder.
fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>, RecipeError> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect::<Result<_, _>>().map_err(RecipeError::io("read the folder", folder)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(RecipeError::io("read the folder", folder)(error)),
    }
}

/// Removes a folder except for licences; returns whether nothing is left.
fn leave_out(folder: &Path) -> Result<bool, RecipeError> {
    let mut empty = true;
    for entry in entries(folder)? {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            empty &= leave_out(&path)?;
        } else if entry.file_name() == NOTICE {
            empty = false;
        } else {
            fs::remove_file(&path).map_err(RecipeError::io("remove", &path))?;
        }
    }
    if empty && folder.exists() {
        fs::remove_dir(folder).map_err(RecipeError::io("remove", folder))?;
    }
    Ok(empty)
}

fn leave_out_everywhere(folder: &Path, names: &[String]) -> Result<(), RecipeError> {
    for entry in entries(folder)? {
        let path = entry.path();
        if path.is_symlink() || !path.is_dir() {
            continue;
        }
        if names.iter().any(|name| entry.file_name() == name.as_str()) {
            fs::remove_dir_all(&path).map_err(RecipeError::io("remove", &path))?;
        } else {
            leave_out_everywhere(&path, names)?;
        }
    }
    Ok(())
}
