//! The folder in which a layer is put together.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::{Recipe, RecipeError};
use crate::unpack::{Limits, UnpackError, Unpacker};

/// Stays where its folder goes: whoever hands on a package has to hand on its licence.
const NOTICE: &str = "copyright";

/// A layer being put together.
pub struct Staging {
    folder: PathBuf,
    unpacker: Unpacker,
}

impl Staging {
    /// Makes the folder.
    ///
    /// # Errors
    /// It cannot be made, or is there already.
    pub fn new(folder: &Path) -> Result<Self, RecipeError> {
        fs::create_dir(folder).map_err(RecipeError::io("make the folder", folder))?;
        let unpacker = Unpacker::new(folder, Limits::of_unknown()).map_err(unpacking("the layer"))?;
        Ok(Self { folder: folder.into(), unpacker })
    }

    /// Adds the files of a package, which come as a tar archive.
    ///
    /// # Errors
    /// The archive is damaged or not decent, or there is no room for it.
    pub fn add(
        &mut self,
        package: &str,
        archive: impl Read + Send,
        cancelled: &AtomicBool,
    ) -> Result<(), RecipeError> {
        self.unpacker.apply(archive, None, cancelled).map_err(unpacking(package))
    }

    /// Adds a small file of our own.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&mut self, name: &str, content: &[u8]) -> Result<(), RecipeError> {
        let path = self.folder.join(name);
        make_parent(&path)?;
        fs::write(&path, content).map_err(RecipeError::io("write", &path))
    }

    /// Does what the recipe says beside its packages.
    ///
    /// # Errors
    /// Something that it speaks of is not there, or cannot be written.
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

/// Does in a layer's folder what the recipe says beside its packages.
///
/// # Errors
/// Something that it speaks of is not there, or cannot be written.
pub fn apply_recipe(recipe: &Recipe, folder: &Path) -> Result<(), RecipeError> {
    for (path, source) in &recipe.copies {
        let (path, source) = (folder.join(path), folder.join(source));
        make_parent(&path)?;
        fs::copy(&source, &path).map_err(RecipeError::io("copy", &source))?;
    }
    for (path, text) in &recipe.files {
        let path = folder.join(path);
        make_parent(&path)?;
        fs::write(&path, text).map_err(RecipeError::io("write", &path))?;
    }
    for (path, target) in &recipe.links {
        let path = folder.join(path);
        make_parent(&path)?;
        symlink(target, &path).map_err(RecipeError::io("make the link", &path))?;
    }
    for path in &recipe.leave_out {
        leave_out(&folder.join(path))?;
    }
    if !recipe.leave_out_everywhere.is_empty() {
        leave_out_everywhere(folder, &recipe.leave_out_everywhere)?;
    }
    Ok(())
}

fn make_parent(path: &Path) -> Result<(), RecipeError> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(RecipeError::io("make the folder", parent))
}

/// What is in a folder; nothing when there is no folder.
fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>, RecipeError> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect::<Result<_, _>>().map_err(RecipeError::io("read the folder", folder)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(RecipeError::io("read the folder", folder)(error)),
    }
}

/// Removes all of a folder but for notices; true when nothing is left.
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
