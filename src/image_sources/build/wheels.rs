//! Python packages: pip downloads them, verifies the digests of the recipe, and installs them where the Python of the
//! image looks.

use std::fs;
use std::path::{Path, PathBuf};

use codebridge_images::Recipe;
use codebridge_runtimes::exec::CommandLine;

use super::error::BuildError;
use super::work::{Work, program};

/// Platform tags of wheels that run on the C library of the image, newest first.
const PLATFORMS: [&str; 5] =
    ["manylinux_2_34", "manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014"];

/// Downloads and installs a recipe's Python packages below a root.
pub(super) async fn install(
    work: &Work<'_>,
    recipe: &Recipe,
    architecture: &str,
    root: &Path,
) -> Result<(), BuildError> {
    let text = recipe.requirements.as_deref().unwrap_or_default();
    let list = work.folder.join("requirements.txt");
    fs::write(&list, text).map_err(BuildError::io("write", &list))?;
    let wheels = work.folder.join("wheels");
    let machine = match architecture {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => return Err(BuildError::Architecture(other.into())),
    };
    let pip = Pip { python: program("python3", "python3")?, version: &recipe.python, machine };
    let total = recipe.requirements().iter().map(|one| one.bytes).sum();
    let what = format!("{}: downloading Python packages", recipe.name);
    let download = pip.command("download").arg("--require-hashes").arg("--requirement").arg(&list);
    work.run_watching(download.arg("--dest").arg(&wheels), &what, &wheels, total).await?;
    work.listener.step(&format!("{}: installing Python packages", recipe.name), None);
    // Where the Python of Debian looks for packages that are not Debian's.
    let target = root.join(format!("usr/local/lib/python{}/dist-packages", recipe.python));
    fs::create_dir_all(&target).map_err(BuildError::io("create the folder", &target))?;
    let install = pip.command("install").args(["--no-index", "--no-compile", "--no-warn-script-location"]);
    // pip would compare a wheel with its own Python instead of the one of the image.
    let install = install.arg("--ignore-requires-python");
    let install = install.arg("--find-links").arg(&wheels).arg("--target").arg(&target);
    work.run(install.arg("--requirement").arg(&list)).await?;
    fs::remove_dir_all(&wheels).map_err(BuildError::io("remove", &wheels))?;
    remove_scripts(&target)
}

struct Pip<'a> {
    python: PathBuf,
    version: &'a str,
    machine: &'a str,
}

impl Pip<'_> {
    /// Returns a pip command for the Python of the image. Nothing is built, and no script of a package runs.
    fn command(&self, what: &str) -> CommandLine {
        let Self { python, version, machine } = self;
        let short = version.replace('.', "");
        let command =
            CommandLine::new(python).args(["-m", "pip", what, "--quiet", "--no-input", "--no-deps"]);
        let command = command.args(["--disable-pip-version-check", "--only-binary=:all:", "--no-cache-dir"]);
        let command = command.arg(format!("--python-version={version}")).arg("--implementation=cp");
        let command = command.arg(format!("--abi=cp{short}")).args(["--abi=abi3", "--abi=none"]);
        command.args(PLATFORMS.map(|platform| format!("--platform={platform}_{machine}")))
    }
}

/// Removes the scripts, which name the Python that ran pip, and their lines in the lists of files.
fn remove_scripts(target: &Path) -> Result<(), BuildError> {
    let scripts = target.join("bin");
    if scripts.exists() {
        fs::remove_dir_all(&scripts).map_err(BuildError::io("remove", &scripts))?;
    }
    for entry in fs::read_dir(target).map_err(BuildError::io("read the folder", target))? {
        let record = entry.map_err(BuildError::io("read the folder", target))?.path().join("RECORD");
        let Ok(text) = fs::read_to_string(&record) else { continue };
        let kept = text.lines().filter(|line| !line.starts_with("../../bin/") && !line.starts_with("bin/"));
        let mut lines: Vec<_> = kept.collect();
        lines.sort_unstable();
        fs::write(&record, lines.join("\n") + "\n").map_err(BuildError::io("write", &record))?;
    }
    Ok(())
}
