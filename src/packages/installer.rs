//! The program of the host that resolves and downloads: uv, else pip. It runs in a folder of its own, so that no project's
//! configuration is read, with the user's own configuration of the index. It ends with the bridge, and when it writes too much.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use codebridge_runtimes::exec::{self, CommandLine, Finished};
use rustix::process::Pid;
use tokio::sync::oneshot;

use super::disk::Disk;
use super::error::without_credentials;
use super::pins::{Pin, versions_text};
use super::resolve::Resolve;
use super::{ImagePython, InstallError, pip, uv};
use crate::reaper::Reaper;
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
    reaper: Reaper,
}

impl Installer {
    /// Finds uv, also where its own installer puts it, else a Python for pip.
    pub(super) fn find(environment: &Environment, reaper: Reaper) -> Result<Self, InstallError> {
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
        Ok(Self { tool, environment, reaper })
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
        let mut environment = self.environment.clone();
        if matches!(self.tool, Tool::Pip(_)) {
            // Where it unpacks before it moves: what is there counts.
            environment.retain(|(name, _)| name != "TMPDIR");
            environment.push(("TMPDIR".into(), folder.into()));
        }
        // A bridge that is killed cannot end it itself.
        self.reaper.start().await;
        let (send, started) = oneshot::channel();
        let running = exec::run_in(command, environment, folder, LIMIT, |group| {
            let _ = send.send(group);
        });
        let watching = async {
            let Ok(group) = started.await else { return std::future::pending().await };
            self.reaper.watch_group(group).await;
            let _watched = Watched { reaper: self.reaper.clone(), group };
            Disk::of(folder, &self.environment).watch().await
        };
        let done = tokio::select! {
            done = running => done?,
            error = watching => return Err(error),
        };
        if !done.status.success() {
            // For the operator: what the sandbox gets is shorter.
            let stderr = without_credentials(&done.stderr_text());
            tracing::info!(command = %done.command, stderr, "the installer failed");
        }
        Ok(done)
    }
}

/// A process group that the reaper knows, until this is dropped. It has ended then.
struct Watched {
    reaper: Reaper,
    group: Pid,
}

impl Drop for Watched {
    fn drop(&mut self) {
        let (reaper, group) = (self.reaper.clone(), self.group);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { reaper.forget_group(group).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    async fn script(path: &Path, text: &str) {
        let draft = path.with_extension("draft");
        fs::write(&draft, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
        // What is open for writing here, children that other tests start now have too, and nobody could run it.
        let copy = CommandLine::new("/bin/cp").arg(&draft).arg(path);
        let _ = exec::run(copy, LIMIT).await.and_then(Finished::success).unwrap();
    }

    #[tokio::test]
    async fn what_unpacks_too_much_is_ended_and_the_reaper_knows_it_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let [uv, reaper, heard] = ["uv", "reaper", "heard"].map(|name| folder.path().join(name));
        let staging = folder.path().join("staging");
        fs::create_dir(&staging).unwrap();
        script(&uv, "truncate -s 5G zeros; exec sleep 1000").await;
        script(&reaper, &format!("exec cat > {}", heard.display())).await;
        let reaper = Reaper::of(Some(reaper));
        let path = ("PATH".into(), std::env::var_os("PATH").unwrap());
        let installer =
            Installer { tool: Tool::Uv(uv.clone()), environment: vec![path], reaper: reaper.clone() };
        let error = installer.run(CommandLine::new(&uv), &staging).await.unwrap_err();
        assert!(matches!(error, InstallError::TooLarge { size: 5120, .. }), "{error}");
        reaper.dismiss().await;
        let heard = fs::read_to_string(heard).unwrap();
        assert!(heard.starts_with("started "), "{heard}");
    }
}
