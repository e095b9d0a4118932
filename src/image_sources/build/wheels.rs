//! Python packages: pip downloads them, verifies the digests of the recipe, and installs them where the Python of the
//! image looks.

use std::fs;
use std::path::{Path, PathBuf};

use codebridge_images::{Digest, Recipe, package_name, parse_requirements};
use codebridge_runtimes::exec::CommandLine;

use super::error::BuildError;
use super::work::{Work, program};

/// Platform tags of wheels that run on the C library of the image, newest first.
const PLATFORMS: [&str; 5] =
    ["manylinux_2_34", "manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014"];

/// The Python packages of a layer.
#[derive(Debug, Clone)]
pub(super) enum PythonPackages {
    None,
    /// With versions and digests, as pip reads them.
    Pinned(String),
    /// Names, which pip resolves.
    Names(String),
}

/// Downloads and installs Python packages below a root; returns them with versions and digests.
pub(super) async fn install(
    work: &Work<'_>,
    recipe: &Recipe,
    packages: &PythonPackages,
    architecture: &str,
    root: &Path,
) -> Result<String, BuildError> {
    let list = work.folder.join("requirements.txt");
    let write = |text: &str| fs::write(&list, text).map_err(BuildError::io("write", &list));
    let wheels = work.folder.join("wheels");
    let machine = match architecture {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => return Err(BuildError::Architecture(other.into())),
    };
    let pip = Pip { python: program("python3", "python3")?, version: &recipe.python, machine };
    let what = format!("{}: downloading Python packages", recipe.name);
    let download = pip.command("download").arg("--requirement").arg(&list).arg("--dest").arg(&wheels);
    let pinned = match packages {
        PythonPackages::None => return Ok(String::new()),
        PythonPackages::Pinned(text) => {
            write(text)?;
            let total = parse_requirements(text).iter().map(|one| one.bytes).sum();
            let download = download.args(["--no-deps", "--require-hashes"]);
            work.run_watching(download, &what, &wheels, total).await?;
            text.clone()
        }
        PythonPackages::Names(text) => {
            write(&without_digests(text))?;
            work.listener.step(&what, None);
            work.run(download).await?;
            let pinned = pin(&wheels)?;
            let names: Vec<_> = parse_requirements(&pinned).into_iter().map(|one| one.name).collect();
            work.listener.say(&format!(
                "{} Python packages: {}",
                names.len(),
                names.join(", ").replace("==", " ")
            ));
            // pip verifies them below.
            write(&pinned)?;
            pinned
        }
    };
    work.listener.step(&format!("{}: installing Python packages", recipe.name), None);
    // Where the Python of Debian looks for packages that are not Debian's.
    let target = root.join(format!("usr/local/lib/python{}/dist-packages", recipe.python));
    fs::create_dir_all(&target).map_err(BuildError::io("create the folder", &target))?;
    let install = pip.command("install").args(["--no-index", "--no-compile", "--no-warn-script-location"]);
    // pip would compare a wheel with its own Python instead of the one of the image.
    let install = install.args(["--no-deps", "--ignore-requires-python"]);
    let install = install.arg("--find-links").arg(&wheels).arg("--target").arg(&target);
    work.run(install.arg("--requirement").arg(&list)).await?;
    fs::remove_dir_all(&wheels).map_err(BuildError::io("remove", &wheels))?;
    remove_scripts(&target)?;
    Ok(pinned)
}

/// Returns requirements without `--hash`, so that others beside them need none either.
fn without_digests(text: &str) -> String {
    let lines = text.lines().map(|line| line.split(" --hash=").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// Returns requirements with the version, digest and size of each downloaded wheel.
fn pin(wheels: &Path) -> Result<String, BuildError> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(wheels).map_err(BuildError::io("read the folder", wheels))? {
        let path = entry.map_err(BuildError::io("read the folder", wheels))?.path();
        let content = fs::read(&path).map_err(BuildError::io("read", &path))?;
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some((name, version)) = parse_wheel_name(&file) else { return Err(BuildError::Wheel(file)) };
        let digest = Digest::of(&content);
        lines.push(format!("{name}=={version} --hash=sha256:{}  # {}", digest.hex(), content.len()));
    }
    lines.sort_unstable();
    let head =
        "# Written by `codebridge image build --update`: versions and digests, and the bytes of each file.";
    Ok(format!("{head}\n{}\n", lines.join("\n")))
}

/// Returns package and version of a wheel, of which its file is named
/// (<https://packaging.python.org/en/latest/specifications/binary-distribution-format/>). The index has chosen the name, and both
/// become part of a line that pip reads.
fn parse_wheel_name(file: &str) -> Option<(String, &str)> {
    let mut parts = file.strip_suffix(".whl")?.split('-');
    let (name, version) = (parts.next()?, parts.next()?);
    let is_plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+!".contains(&byte))
    };
    let package = package_name(name);
    (is_plain(name) && is_plain(version) && !package.is_empty()).then_some((package, version))
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
        let command = CommandLine::new(python).args(["-m", "pip", what, "--quiet", "--no-input"]);
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

#[cfg(test)]
mod fuzz {
    use codebridge_fuzz::fuzz;

    use super::*;

    #[test]
    fn names_of_wheels_become_plain_pins() {
        fuzz(
            "names_of_wheels",
            &["-", "-py3-none-any.whl", " --index-url=", "\n", "../", "1.0+cpu", "1!2"],
            |bytes| {
                let file = String::from_utf8_lossy(bytes);
                let Some((name, version)) = parse_wheel_name(&file) else { return };
                let line = format!("{name}=={version} --hash=sha256:00  # 1");
                assert!(
                    !name.is_empty() && !name.starts_with('-') && !name.contains(['/', '\\', '.']),
                    "{name:?}"
                );
                assert!(
                    !version.contains(|c: char| !c.is_ascii_graphic() || "-/\\;#=".contains(c)),
                    "{version:?}"
                );
                let read = parse_requirements(&line);
                assert_eq!((read.len(), read[0].name.as_str()), (1, &*format!("{name}=={version}")));
                assert_eq!(without_digests(&line), format!("{name}=={version}\n"));
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloaded_wheels_become_pinned_requirements() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Typing_Extensions-4.1-py3-none-any.whl"), "x").unwrap();
        fs::write(folder.path().join("idna-3.2-py3-none-any.whl"), "").unwrap();
        let digest = |text: &str| Digest::of(text.as_bytes()).hex().to_string();
        let pinned = pin(folder.path()).unwrap();
        let expected = format!(
            "idna==3.2 --hash=sha256:{}  # 0\ntyping-extensions==4.1 --hash=sha256:{}  # 1\n",
            digest(""),
            digest("x")
        );
        assert!(pinned.starts_with("# Written by ") && pinned.ends_with(&expected), "{pinned}");
        assert_eq!(without_digests("a==1 --hash=sha256:00  # 3\nb"), "a==1\nb\n");
    }
}
