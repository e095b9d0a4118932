//! A command line, and the environment of its process.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

/// Variables that container engines need to find their configuration, stores, sockets and proxies.
const ENGINE_ENVIRONMENT: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "XDG_CACHE_HOME", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "KRB5CCNAME", "KRB5_CONFIG",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
    "no_proxy", "REGISTRY_AUTH_FILE",
];
/// Prefixes of such variables: `DOCKER_HOST`, `CONTAINER_CONNECTION`, `CONTAINERS_CONF`, `STORAGE_DRIVER` …
const ENGINE_PREFIXES: &[&str] = &["DOCKER_", "CONTAINER_", "CONTAINERS_", "STORAGE_", "PODMAN_"];

/// The same for the programs by which kubectl logs in to the clusters of clouds; nobody else gets these:
/// <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>.
const CLOUD_PREFIXES: &[&str] = &["AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_", "USE_GKE_", "OCI_CLI_"];

/// Nobody can answer ssh's questions for passphrases and unknown hosts: whichever client starts ssh, it asks this program
/// instead of a terminal, and the answer is no. <https://man.openbsd.org/ssh.1#ENVIRONMENT>
const NO_QUESTIONS: [(&str, &str); 2] = [("SSH_ASKPASS", "false"), ("SSH_ASKPASS_REQUIRE", "force")];

/// A command line that has not run yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// The absolute path of the program.
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// Variables to set, or to remove, in the environment of the process.
    pub env: Vec<(&'static str, Option<String>)>,
}

impl CommandLine {
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: Vec::new(), env: Vec::new() }
    }

    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    #[must_use]
    pub fn env(mut self, env: impl IntoIterator<Item = (&'static str, Option<String>)>) -> Self {
        self.env.extend(env);
        self
    }

    pub(super) fn command(&self) -> Command {
        let mut command = self.bare();
        command.process_group(0);
        command
    }

    /// Builds the command; the only call of `Command::new` in the product.
    pub(super) fn bare(&self) -> Command {
        #[expect(clippy::disallowed_methods, reason = "this is the one place")]
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().envs(engine_environment()).env("LC_MESSAGES", "C");
        command.envs(NO_QUESTIONS);
        if self.program.file_name().is_some_and(|name| name == "kubectl") {
            command.envs(variables_with(CLOUD_PREFIXES));
        }
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null()).kill_on_drop(false);
        command
    }
}

impl fmt::Display for CommandLine {
    /// Prints the line as one would type it, with long arguments shortened.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program.display())?;
        for arg in &self.args {
            let arg = arg.to_string_lossy();
            let short = match arg.char_indices().nth(120) {
                Some((end, _)) => format!("{}…", &arg[..end]),
                None => arg.into_owned(),
            };
            match shlex::try_quote(&short) {
                Ok(quoted) => write!(f, " {quoted}")?,
                Err(_) => write!(f, " {short:?}")?,
            }
        }
        Ok(())
    }
}

/// Lets a command of ours start in another folder. Variables that name a file or a folder keep their meaning.
pub(super) fn move_to(command: &mut Command, folder: &Path) {
    let place = |(name, value): (OsString, OsString)| Some((name, absolute_place(&value)?));
    command.envs(engine_environment().filter(|(name, _)| names_place(name)).filter_map(place));
    command.current_dir(folder);
}

/// Returns whether a variable names a file or a folder: `CONTAINERS_CONF`, `REGISTRY_AUTH_FILE`, `XDG_DATA_HOME` …
pub(super) fn names_place(name: &OsStr) -> bool {
    let ends = ["_CONF", "_CONFIG", "_FILE", "_DIR", "HOME", "_PATH", "TMPDIR"];
    name.to_str().is_some_and(|name| ends.iter().any(|end| name.ends_with(end)))
}

/// Returns the absolute form of a relative path.
pub(super) fn absolute_place(value: &OsStr) -> Option<OsString> {
    let path = Path::new(value);
    if path.is_absolute() || value.is_empty() { None } else { std::path::absolute(path).ok().map(Into::into) }
}

fn variables_with(prefixes: &'static [&str]) -> impl Iterator<Item = (OsString, OsString)> {
    let fits = |key: &str| prefixes.iter().any(|prefix| key.starts_with(prefix));
    std::env::vars_os().filter(move |(key, _)| key.to_str().is_some_and(fits))
}

fn engine_environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(key, _)| {
        key.to_str().is_some_and(|key| {
            ENGINE_ENVIRONMENT.contains(&key) || ENGINE_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
        })
    })
}
