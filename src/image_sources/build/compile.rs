//! Byte-compiled modules: a root filesystem that is only read cannot keep what Python compiles at each start.

use std::path::{Path, PathBuf};

use codebridge_images::Recipe;
use codebridge_runtimes::exec::CommandLine;

use super::error::BuildError;
use super::work::Work;

/// Where the loader of a C library is in an image, and its libraries.
fn loader(architecture: &str) -> Result<(&'static str, &'static str), BuildError> {
    match architecture {
        "amd64" => Ok(("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu")),
        "arm64" => Ok(("usr/lib/ld-linux-aarch64.so.1", "usr/lib/aarch64-linux-gnu")),
        other => Err(BuildError::Architecture(other.into())),
    }
}

/// Compiles the modules of the topmost root with the Python of the lowest.
///
/// That Python runs as it is, with the image's own loader and libraries: its bytecode is for no other version.
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
        // By this Python finds its own modules.
        .arg("--argv0")
        .arg(&python)
        .arg(&python)
        .args([
            "-I", "-S", "-B", "-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "unchecked-hash",
        ])
        // Nothing of what it imports itself is compiled on the way, with the names that files have here.
        // In tracebacks the modules are where the image has them.
        .arg("-s")
        .arg(root)
        .args(["-p", "/"]);
    let folders = ["usr/lib", "usr/local/lib"].map(|name| root.join(name));
    let folders = folders.into_iter().flat_map(|folder| modules(&folder, &recipe.python));
    let folders: Vec<_> = folders.filter(|folder| folder.is_dir()).collect();
    if !folders.is_empty() {
        // Sources that are not for this version, such as examples, do not compile; the rest has.
        let _ = work.run(command.args(folders)).await?;
    }
    Ok(())
}

fn modules(folder: &Path, version: &str) -> [PathBuf; 2] {
    [folder.join(format!("python{version}")), folder.join("python3")]
}
