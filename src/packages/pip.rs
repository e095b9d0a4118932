//! The command lines of pip, and what it says, where the host has no uv. <https://pip.pypa.io/en/stable/cli/pip_install/>

use std::collections::HashMap;
use std::path::Path;

use codebridge_images::package_name;
use codebridge_runtimes::exec::{CommandLine, visible_line};
use serde::Deserialize;

use super::error::without_addresses;
use super::hints::meant_by;
use super::pins::Pin;
use super::resolve::Resolve;
use super::{ImagePython, InstallError};

/// Returns the command that resolves `requirements.in` of its folder and writes `report.json`.
pub(super) fn resolve(python: &Path, wanted: &Resolve) -> CommandLine {
    let command = for_image(python, wanted.python).args(["--dry-run", "--ignore-installed"]);
    let command = command.args(["--report", "report.json", "--target", "files"]);
    command.args(["--requirement", "requirements.in", "--constraint", "constraints.txt"])
}

/// Returns the command that unpacks the pins of `requirements.txt` into `files`.
pub(super) fn download(python: &Path, image: &ImagePython, has_hashes: bool) -> CommandLine {
    let command = for_image(python, image).args(["--no-deps", "--no-compile"]);
    let command = command.args(has_hashes.then_some("--require-hashes"));
    // pip would compare a wheel with its own Python instead of the one of the image.
    let command = command.args(["--no-warn-script-location", "--ignore-requires-python"]);
    command.args(["--target", "files", "--requirement", "requirements.txt"])
}

fn for_image(python: &Path, image: &ImagePython) -> CommandLine {
    let version = image.short_version();
    let command = CommandLine::new(python).args(["-m", "pip", "install", "--quiet", "--no-input"]);
    let command = command.args(["--disable-pip-version-check", "--only-binary=:all:"]);
    let command = command.arg(format!("--python-version={version}")).arg("--implementation=cp");
    let command =
        command.arg(format!("--abi=cp{}", version.replace('.', ""))).args(["--abi=abi3", "--abi=none"]);
    command.args(image.pip_platforms().iter().map(|platform| format!("--platform={platform}")))
}

#[derive(Deserialize)]
struct Report {
    install: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
    download_info: Download,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    version: String,
}

#[derive(Deserialize)]
struct Download {
    #[serde(default)]
    archive_info: Archive,
}

#[derive(Deserialize, Default)]
struct Archive {
    #[serde(default)]
    hashes: HashMap<String, String>,
}

/// Parses an installation report. <https://pip.pypa.io/en/stable/reference/installation-report/>
pub(super) fn parse_report(json: &[u8]) -> Result<Vec<Pin>, InstallError> {
    let report: Report = serde_json::from_slice(json)
        .map_err(|error| InstallError::Failed(format!("the report of pip is not understood: {error}")))?;
    // The pins are written into files that installers read.
    let pin = |Item { metadata: Metadata { name, version }, download_info }: Item| {
        let hash = download_info.archive_info.hashes.get("sha256").cloned();
        let unknown = || InstallError::Failed(format!("pip resolved to {}", shown(&name, &version)));
        Pin::of(&name, &version, hash).ok_or_else(unknown)
    };
    let mut pins = report.install.into_iter().map(pin).collect::<Result<Vec<_>, _>>()?;
    pins.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(pins)
}

fn shown(name: &str, version: &str) -> String {
    without_addresses(&visible_line(&format!("{name} {version}")))
}

/// Returns why pip failed. Its words:
///
/// - `ERROR: No matching distribution found for polrs`, after
///   `ERROR: Could not find a version that satisfies the requirement polrs (from versions: none)`
/// - `ERROR: ResolutionImpossible: …` after `The conflict is caused by:`
/// - `WARNING: Retrying (…) after connection broken by 'NewConnectionError(…)'`
pub(super) fn parse_failure(stderr: &str, python: &ImagePython) -> InstallError {
    if stderr.contains("No module named pip") {
        return InstallError::NoInstaller;
    }
    if stderr.contains("No space left on device") {
        return InstallError::DiskFull;
    }
    if [
        "NewConnectionError", "ProxyError", "NameResolutionError", "ConnectTimeoutError",
        "Connection refused",
    ]
    .iter()
    .any(|word| stderr.contains(word))
    {
        return InstallError::Offline;
    }
    if stderr.contains("DO NOT MATCH THE HASHES") {
        return InstallError::Digest;
    }
    if stderr.contains("CERTIFICATE_VERIFY_FAILED") {
        return InstallError::Certificate;
    }
    if stderr.contains("401 Client Error") || stderr.contains("403 Client Error") {
        return InstallError::Denied;
    }
    let found = stderr.lines().find_map(|line| line.split_once("No matching distribution found for "));
    if let Some((_, requirement)) = found {
        let name = package_name(requirement.trim());
        if stderr.contains("(from versions: none)") {
            // pip does not say whether the index has the name.
            let (version, platform) = (python.short_version(), python.platform());
            return InstallError::NoneFound { nearest: meant_by(&name), name, python: version, platform };
        }
        return InstallError::Conflict(without_addresses(&format!("there is no {}", requirement.trim())));
    }
    let errors: Vec<_> = stderr.lines().filter(|line| line.starts_with("ERROR: ")).collect();
    match stderr.contains("ResolutionImpossible") {
        true => InstallError::Conflict(without_addresses(&errors.join(" "))),
        // A failure of pip itself: the last line of its traceback says which.
        false if errors.iter().all(|line| line.starts_with("ERROR: Exception:")) => {
            let last = stderr.lines().map(str::trim).rfind(|line| !line.is_empty());
            InstallError::Failed(format!(
                "pip stopped with {}",
                without_addresses(last.unwrap_or("no words"))
            ))
        }
        false => InstallError::Failed(without_addresses(&errors.join("\n"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::RawPython;
    use super::*;

    #[test]
    fn a_report_becomes_pins() {
        let report = br#"{"version":"1","install":[{"download_info":{"url":"https://x/h.whl","archive_info":{"hashes":{"sha256":"HASH"}}},"metadata":{"name":"Humanize","version":"4.9.0"}}]}"#;
        let hash = "ab".repeat(32);
        let report = String::from_utf8_lossy(report).replace("HASH", &hash);
        let pins = parse_report(report.as_bytes()).unwrap();
        assert_eq!((pins[0].name.as_str(), pins[0].version.as_str()), ("humanize", "4.9.0"));
        assert!(pins[0].hashes.contains(&hash));
        for bad in [("Humanize", "a\\n-e ."), ("4.9.0", "1\\n--index-url=http://x"), (&hash, "ab")] {
            let report = report.replace(bad.0, bad.1);
            assert!(matches!(parse_report(report.as_bytes()), Err(InstallError::Failed(_))), "{report}");
        }
        assert!(parse_report(b"{}").is_err());
    }

    #[test]
    fn failures_are_told_apart() {
        let [version, machine, libc] = ["3.14.0", "x86_64", "glibc 2.36"].map(String::from);
        let python =
            ImagePython::parse(&RawPython { version, machine, libc, abi_flags: String::new() }).unwrap();
        let parse = |text: &str| parse_failure(text, &python);
        let none = "ERROR: Could not find a version that satisfies the requirement polrs (from versions: none)\nERROR: No matching distribution found for polrs";
        assert!(matches!(parse(none), InstallError::NoneFound { nearest: Some(n), .. } if n == "polars"));
        let other = "ERROR: Could not find a version that satisfies the requirement humanize>=99 (from versions: 0.1, 4.9)\nERROR: No matching distribution found for humanize>=99";
        assert!(matches!(parse(other), InstallError::Conflict(why) if why == "there is no humanize>=99"));
        assert!(matches!(parse("/usr/bin/python3: No module named pip"), InstallError::NoInstaller));
        let down = "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(x)'";
        assert!(matches!(parse(down), InstallError::Offline));
        let crash = "ERROR: Exception:\nTraceback (most recent call last):\n  File \"x\"\nValueError: bad\n";
        assert!(
            matches!(parse(crash), InstallError::Failed(why) if why == "pip stopped with ValueError: bad")
        );
    }
}
