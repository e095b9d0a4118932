//! Byte-compiled modules: in a read-only root, Python would compile them again at each start.

use std::path::{Path, PathBuf};

use codebridge_images::Recipe;
use codebridge_runtimes::exec::CommandLine;

use super::error::BuildError;
use super::work::Work;

/// Returns the dynamic loader of an image and the folder of its libraries.
fn loader(architecture: &str) -> Result<(&'static str, &'static str), BuildError> {
    match architecture {
        "amd64" => Ok(("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu")),
        "arm64" => Ok(("usr/lib/ld-linux-aarch64.so.1", "usr/lib/aarch64-linux-gnu")),
        other => Err(BuildError::Architecture(other.into())),
    }
}

/// Compiles the modules of the topmost root with the Python of the lowest, whose version bytecode depends on. It runs with
/// the loader and the libraries of the image.
pub(super) async fn compile(
    work: &Work<'_>,
    recipe: &Recipe,
    architecture: &str,
    roots: &[PathBuf],
) -> Result<(), BuildError> {
    let (Some(lowest), Some(root)) = (roots.first(), roots.last()) else { return Ok(()) };
    let (loader, libraries) = loader(architecture)?;
    let python = lowest.join(format!("usr/bin/python{}", recipe.python));
    work.listener.step(&format!("{}: compiling Python modules", recipe.name), None);
    let command = CommandLine::new(lowest.join(loader))
        .arg("--library-path")
        .arg(lowest.join(libraries))
        // Python finds its modules by this name.
        .arg("--argv0")
        .arg(&python)
        .arg(&python)
        .args([
            "-I", "-S", "-B", "-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "unchecked-hash",
        ])
        // Tracebacks show the paths in the image.
        .arg("-s")
        .arg(root)
        .args(["-p", "/"]);
    let folders = ["usr/lib", "usr/local/lib"].map(|name| root.join(name));
    let folders = folders.into_iter().flat_map(|folder| modules(&folder, &recipe.python));
    let folders: Vec<_> = folders.filter(|folder| folder.is_dir()).collect();
    if !folders.is_empty() {
        // Sources for other versions, such as examples, do not compile; the rest does.
        let _ = work.run(command.args(folders)).await?;
    }
    Ok(())
}

fn modules(folder: &Path, version: &str) -> [PathBuf; 2] {
    [folder.join(format!("python{version}")), folder.join("python3")]
}
