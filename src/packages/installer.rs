//! The program of the host that resolves and downloads: uv, else pip. It runs in a folder of its own, so that no project's
//! configuration is read, with the user's own configuration of the index.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use codebridge_runtimes::exec::{self, CommandLine, Finished};

use super::error::without_credentials;
use super::pins::{Pin, versions_text};
use super::wanted::Resolve;
use super::{ImagePython, InstallError, pip, uv};
use crate::settings::Environment;

/// The limit of one run of the installer.
pub(super) const LIMIT: Duration = Duration::from_secs(600);

/// Variables that the installer needs: where its configuration and cache are, the index, its credentials, and the proxy.
const VARIABLES: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_DIRS",
    "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "NETRC", "HTTP_PROXY", "HTTPS_PROXY",
    "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy", "SSL_CERT_FILE",
    "SSL_CERT_DIR", "SSL_CLIENT_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "KRB5CCNAME", "KRB5_CONFIG",
];
/// Those of uv and pip that say where packages come from. Others could let it build or run something.
const INDEX_VARIABLES: &[&str] = &[
    "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX_STRATEGY",
    "UV_FIND_LINKS", "UV_KEYRING_PROVIDER", "UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS",
    "UV_OFFLINE", "UV_CACHE_DIR", "UV_CONFIG_FILE", "UV_NO_CONFIG", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES",
    "UV_EXCLUDE_NEWER", "UV_PRERELEASE", "UV_RESOLUTION", "UV_CREDENTIALS_DIR", "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_CONFIG_FILE", "PIP_CERT",
    "PIP_CLIENT_CERT", "PIP_TRUSTED_HOST", "PIP_PROXY", "PIP_KEYRING_PROVIDER", "PIP_CACHE_DIR",
    "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES",
];
/// Credentials of an index by its name: `UV_INDEX_PRIVATE_PASSWORD`.
const INDEX_PREFIX: &str = "UV_INDEX_";

#[derive(Debug, Clone)]
pub(super) enum Tool {
    Uv(PathBuf),
    /// A Python that has pip.
    Pip(PathBuf),
}

/// The installer of this machine, and its environment.
#[derive(Debug, Clone)]
pub(super) struct Installer {
    tool: Tool,
    environment: Vec<(String, OsString)>,
}

impl Installer {
    /// Finds uv, also where its own installer puts it, else a Python for pip.
    pub(super) fn find(environment: &Environment) -> Result<Self, InstallError> {
        let home = environment.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let usual =
            [".local/bin/uv", ".cargo/bin/uv"].into_iter().filter_map(|path| Some(home.as_ref()?.join(path)));
        let uv =
            exec::find_program(Path::new("uv")).or_else(|| usual.into_iter().find(|path| path.is_file()));
        let pip = || exec::find_program(Path::new("python3")).map(Tool::Pip);
        let tool = uv.map(Tool::Uv).or_else(pip).ok_or(InstallError::NoInstaller)?;
        let is_needed = |name: &str| {
            VARIABLES.contains(&name)
                || INDEX_VARIABLES.contains(&name)
                || (name.starts_with(INDEX_PREFIX)
                    && (name.ends_with("_USERNAME") || name.ends_with("_PASSWORD")))
        };
        let kept = environment.iter().filter(|(name, _)| is_needed(name));
        let mut environment: Vec<_> = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        environment.extend([
            ("LC_ALL".into(), "C.UTF-8".into()),
            ("NO_COLOR".into(), "1".into()),
            ("UV_PYTHON_DOWNLOADS".into(), "never".into()),
        ]);
        Ok(Self { tool, environment })
    }

    /// Returns the packages that meet the requirements, in this folder.
    pub(super) async fn resolve(
        &self,
        wanted: &Resolve<'_>,
        folder: &Path,
    ) -> Result<Vec<Pin>, InstallError> {
        let write = |name: &str, lines: Vec<String>| {
            let path = folder.join(name);
            std::fs::write(&path, lines.join("\n") + "\n").map_err(InstallError::io("write", &path))
        };
        write("requirements.in", wanted.requirements.iter().map(ToString::to_string).collect())?;
        write("constraints.txt", wanted.constraints.to_vec())?;
        match &self.tool {
            Tool::Uv(program) => {
                let done = self.run(uv::resolve(program, wanted), folder).await?;
                if !done.status.success() {
                    return Err(uv::parse_failure(&done.stderr_text(), wanted.python));
                }
                uv::parse_resolution(&done.stdout)
            }
            Tool::Pip(python) => {
                let report = folder.join("report.json");
                let done = self.run(pip::resolve(python, wanted), folder).await?;
                if !done.status.success() {
                    return Err(pip::parse_failure(&done.stderr_text(), wanted.python));
                }
                pip::parse_report(&std::fs::read(&report).map_err(InstallError::io("read", &report))?)
            }
        }
    }

    /// Downloads and unpacks packages below `folder/files`.
    pub(super) async fn download(
        &self,
        pins: &[Pin],
        python: &ImagePython,
        folder: &Path,
        offline: bool,
    ) -> Result<(), InstallError> {
        let list = folder.join("requirements.txt");
        // pip names no hashes for what is in a folder (PIP_FIND_LINKS), and wants all or none. A lock file has all.
        let has_hashes = matches!(self.tool, Tool::Uv(_)) || pins.iter().all(|pin| !pin.hashes.is_empty());
        let text = if has_hashes { super::requirements_text(pins) } else { versions_text(pins) };
        std::fs::write(&list, text).map_err(InstallError::io("write", &list))?;
        let command = match &self.tool {
            Tool::Uv(program) => uv::download(program, python, offline),
            Tool::Pip(program) => pip::download(program, python, has_hashes),
        };
        let done = self.run(command, folder).await?;
        match (&self.tool, done.status.success()) {
            (_, true) => Ok(()),
            (Tool::Uv(_), false) => Err(uv::parse_failure(&done.stderr_text(), python)),
            (Tool::Pip(_), false) => Err(pip::parse_failure(&done.stderr_text(), python)),
        }
    }

    async fn run(&self, command: CommandLine, folder: &Path) -> Result<Finished, InstallError> {
        let done = exec::run_in(command, self.environment.clone(), folder, LIMIT).await?;
        if !done.status.success() {
            // For the operator: what the sandbox gets is shorter.
            let stderr = without_credentials(&done.stderr_text());
            tracing::info!(command = %done.command, stderr, "the installer failed");
        }
        Ok(done)
    }
}
