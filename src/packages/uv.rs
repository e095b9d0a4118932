//! The command lines of uv, and what it says. <https://docs.astral.sh/uv/reference/cli/>

use std::path::Path;

use codebridge_runtimes::exec::CommandLine;

use super::error::without_addresses;
use super::hints::{meant_by, package_of_module};
use super::pins::{Pin, is_name, parse_pins};
use super::resolve::Resolve;
use super::{ImagePython, InstallError};

/// Returns the command that resolves `requirements.in` of its folder and prints pins.
pub(super) fn resolve(program: &Path, wanted: &Resolve) -> CommandLine {
    let command = CommandLine::new(program).args(["pip", "compile", "requirements.in"]);
    let command = command.args(["--constraints", "constraints.txt", "--generate-hashes", "--no-header"]);
    for_image(command.args(["--no-annotate"]), wanted.python, wanted.offline)
}

/// Returns the command that unpacks the pins of `requirements.txt` into `files`. Copies, because links to uv's cache would
/// let other programs change what sandboxes load.
pub(super) fn download(program: &Path, python: &ImagePython, offline: bool) -> CommandLine {
    let command = CommandLine::new(program).args(["pip", "install", "--requirements", "requirements.txt"]);
    let command = command.args(["--target", "files", "--no-deps", "--require-hashes", "--link-mode", "copy"]);
    for_image(command.args(["--no-compile-bytecode"]), python, offline)
}

/// Adds what makes uv choose wheels for the image, and never build or run anything.
fn for_image(command: CommandLine, python: &ImagePython, offline: bool) -> CommandLine {
    let command = command.args(["--python-version", &python.short_version()]);
    let command = command.args(["--python-platform", &python.platform()]);
    let command = command.args(["--no-build", "--no-python-downloads", "--no-sources", "--quiet"]);
    command.args(offline.then_some("--offline")).args(["--color", "never", "--no-progress"])
}

/// Parses what `uv pip compile` prints.
pub(super) fn parse_resolution(stdout: &[u8]) -> Result<Vec<Pin>, InstallError> {
    parse_pins(&String::from_utf8_lossy(stdout))
        .map_err(|line| InstallError::Failed(format!("uv resolved to {}", without_addresses(&line))))
}

/// Returns why uv failed. Its words:
///
/// - `Because polrs was not found in the package registry and you require polrs, …`
/// - `Because all versions of wxpython have no usable wheels and you require wxpython, …`
/// - `error: Failed to fetch: https://…` with `cause: client error (Connect)`, or `Because humanize was not found in the cache`
/// - `cause: Hash mismatch for `plain==1.0``
/// - `cause: invalid peer certificate: UnknownIssuer`
/// - `hint: An index URL (…) could not be queried due to a lack of valid authentication credentials (401 Unauthorized).`
pub(super) fn parse_failure(stderr: &str, python: &ImagePython) -> InstallError {
    // uv breaks long lines.
    let text = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let name_before = |words: &str| {
        let before = text.split(words).next().filter(|before| before.len() < text.len())?;
        let name = before.rsplit(' ').next()?.trim_matches(['`', '\'']);
        let name = name.split(['=', '<', '>', '[']).next()?;
        // Whatever else is there, such as an address with a password, is no name.
        is_name(name).then(|| name.to_owned())
    };
    if ["Unauthorized", "Forbidden"].iter().any(|word| text.contains(word)) {
        return InstallError::Denied;
    }
    if text.contains("Hash mismatch for") {
        return InstallError::Digest;
    }
    if text.contains("invalid peer certificate") {
        return InstallError::Certificate;
    }
    let is_offline = ["client error (Connect)", "network was disabled", "dns error", "operation timed out"];
    if is_offline.iter().any(|words| text.contains(words)) {
        return InstallError::Offline;
    }
    if text.contains("No space left on device") {
        return InstallError::DiskFull;
    }
    if let Some(name) = name_before(" was not found in the package registry") {
        return InstallError::UnknownName { nearest: meant_by(&name), name };
    }
    let no_wheels = [" have no usable wheels", " has no usable wheels", " has no wheels with a matching"];
    if let Some(name) = no_wheels.iter().find_map(|words| name_before(words)) {
        let (python, platform) = (python.short_version(), python.platform());
        return InstallError::NoWheel { nearest: package_of_module(&name), name, python, platform };
    }
    match text.split_once("No solution found when resolving dependencies") {
        Some((_, why)) => {
            let why = why.trim_start_matches([':', ' ']).trim_start_matches("cause: ");
            InstallError::Conflict(without_addresses(why.split(" hint: ").next().unwrap_or(why)))
        }
        None => InstallError::Failed(without_addresses(stderr.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::RawPython;
    use super::*;

    fn python() -> ImagePython {
        let [version, machine, libc] = ["3.14.0", "x86_64", "glibc 2.36"].map(String::from);
        ImagePython::parse(&RawPython { version, machine, libc, abi_flags: String::new() }).unwrap()
    }

    #[test]
    fn nothing_is_built_and_no_value_of_a_sandbox_is_on_the_command_line() {
        let wanted = Resolve { requirements: &[], constraints: &[], python: &python(), offline: true };
        let lines = [resolve(Path::new("/uv"), &wanted), download(Path::new("/uv"), &python(), false)];
        for line in lines.map(|line| line.to_string()) {
            for option in
                ["--no-build", "--no-python-downloads", "--python-version 3.14", "x86_64-manylinux_2_36"]
            {
                assert!(line.contains(option), "{option}: {line}");
            }
        }
    }

    #[test]
    fn failures_are_told_apart() {
        let head = "error: No solution found when resolving dependencies\n  cause: ";
        let parse = |text: &str| parse_failure(text, &python());
        let unknown = format!(
            "{head}Because sklern was not found in the package registry and you require sklern, we can conclude that your requirements are unsatisfiable."
        );
        assert!(matches!(parse(&unknown), InstallError::UnknownName { name, .. } if name == "sklern"));
        let wheels = format!(
            "{head}Because all versions of wxpython have no usable wheels and you require wxpython, we can conclude that your requirements are unsatisfiable.\n\nhint: Wheels are required for `wxpython`"
        );
        assert!(matches!(parse(&wheels), InstallError::NoWheel { name, .. } if name == "wxpython"));
        let address = "error: Because https://user:pw@host/x.whl has no usable wheels";
        assert!(!parse(address).to_string().contains("pw"), "{}", parse(address));
        let versions = format!(
            "{head}Because only humanize<=4.17.0 is available and you require humanize>=99, we can conclude that your requirements are unsatisfiable."
        );
        let InstallError::Conflict(why) = parse(&versions) else { panic!() };
        assert!(why.starts_with("Because only humanize<=4.17.0 is available"), "{why}");
        let offline = "error: Failed to fetch: https://x/simple/humanize/\n  cause: client error (Connect)\n  cause: tcp connect error";
        assert!(matches!(parse(offline), InstallError::Offline));
        let cold = format!(
            "{head}Because humanize was not found in the cache and you require humanize\n\nhint: Packages were unavailable because the network was disabled."
        );
        assert!(matches!(parse(&cold), InstallError::Offline));
        let untrusted = "error: Failed to fetch: https://x\n  cause: client error (Connect)\n  cause: invalid peer certificate: UnknownIssuer";
        assert!(matches!(parse(untrusted), InstallError::Certificate));
        assert!(matches!(parse("error: … (401 Unauthorized)"), InstallError::Denied));
        assert!(matches!(
            parse("error: failed to write: No space left on device (os error 28)"),
            InstallError::DiskFull
        ));
    }
}
