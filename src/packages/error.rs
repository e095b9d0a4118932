//! Why packages could not be installed, in words for code in a sandbox: they name no path of the host and no address.

use std::io;
use std::path::PathBuf;

use codebridge_runtimes::SupplyError;
use codebridge_runtimes::exec::{ExecError, printable};

use crate::requirements::RequirementError;

/// Characters of the words of an installer that are passed on.
const LONGEST: usize = 600;

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error(transparent)]
    Requirement(#[from] RequirementError),
    #[error("{0} packages at once are too many: 100 are the most")]
    TooMany(usize),
    #[error(
        "the metadata of the script (# /// script) cannot be read: {0}\nhint: a correct line is: # dependencies = [\"polars\", \"httpx>=0.27\"]"
    )]
    Script(String),
    #[error(
        "the script requires Python {needed}, and this image has {has}\nhint: change requires-python, or let the operator set another image: --image or MCP_BRIDGE_IMAGE"
    )]
    PythonVersion { needed: String, has: String },
    #[error(
        "the index has no wheels for the Python of this image: CPython on x86_64 or aarch64, with glibc or musl, is needed"
    )]
    UnknownPython,
    #[error("installing {names} is not allowed: {why}\nhint: {hint}")]
    Refused { names: String, why: String, hint: String },
    #[error("packages cannot be installed in this session: {0}")]
    Unavailable(String),
    #[error(
        "this machine has neither uv nor pip to download packages with\nhint: install uv (https://docs.astral.sh/uv), or pip for its python3 (the package python3-pip)"
    )]
    NoInstaller,
    #[error("the index has no package named {name}{}", suggestion(.nearest.as_deref()))]
    UnknownName { name: String, nearest: Option<String> },
    #[error(
        "{name} has no wheel for Python {python} on {platform}, and nothing is built from source{}",
        suggestion(.nearest.as_deref())
    )]
    NoWheel { name: String, python: String, platform: String, nearest: Option<String> },
    #[error(
        "{name} is not in the index, or has no wheel for Python {python} on {platform}: pip does not tell which{}",
        suggestion(.nearest.as_deref())
    )]
    NoneFound { name: String, python: String, platform: String, nearest: Option<String> },
    #[error("no versions fit together: {0}")]
    Conflict(String),
    #[error("the package index cannot be reached, and not all packages were downloaded before")]
    Offline,
    #[error(
        "the package index refused access\nhint: the operator sets its credentials in the configuration of uv or pip"
    )]
    Denied,
    #[error(
        "the certificate of the package index is not trusted on the host\nhint: the operator sets SSL_CERT_FILE for uv, or PIP_CERT for pip"
    )]
    Certificate,
    #[error("the installer failed: {0}")]
    Failed(String),
    #[error("a downloaded file does not match its hash")]
    Digest,
    #[error("the download took longer than {0} s")]
    TimedOut(u64),
    #[error(
        "{name} {version} is not in the lock file\nhint: the operator renews it with `codebridge packages lock`"
    )]
    NotLocked { name: String, version: String },
    #[error(
        "the lock file cannot be used: {0}\nhint: the operator writes it again: codebridge packages lock NAME… -o FILE"
    )]
    LockFile(String),
    #[error(
        "{name} {present} is installed in this session, and {wanted} cannot replace it while it may be loaded\nhint: install {name}=={wanted} in a new session"
    )]
    OtherVersion { name: String, present: String, wanted: String },
    #[error("a package has a file that no wheel should have: {0}")]
    Entry(String),
    #[error("the packages have {size} MiB, more than the {most} MiB that are allowed at once")]
    TooLarge { size: u64, most: u64 },
    #[error(
        "the packages have {size} MiB, more than the {most} MiB that are copied to an engine on another machine\nhint: the operator builds an image with them: codebridge image build --with NAME,…"
    )]
    TooLargeToCopy { size: u64, most: u64 },
    #[error("the packages could not be copied to the engine of the sandbox")]
    Copy(#[source] SupplyError),
    #[error("the disk of the host has less than {least} MiB left: the installation was stopped")]
    LittleSpace { least: u64 },
    #[error("the disk of the host is full")]
    DiskFull,
    #[error("the package store of the host cannot be used: failed to {what} it")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{setting}: {error}")]
    Named { setting: String, error: Box<InstallError> },
    #[error("the installation was cancelled")]
    Cancelled,
}

impl InstallError {
    /// Returns an adapter for errors about a path of the host, which the message does not name.
    pub(super) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull,
            _ => Self::Io { what, path, source },
        }
    }

    /// Returns the message with what only the operator may see.
    pub fn for_operator(&self) -> String {
        match self {
            Self::Io { path, source, .. } => format!("{self}: {}: {source}", path.display()),
            Self::Copy(error) => without_credentials(&format!("{self}: {error}")),
            Self::Named { setting, error } => format!("{setting}: {}", error.for_operator()),
            _ => without_credentials(&self.to_string()),
        }
    }
}

impl From<ExecError> for InstallError {
    fn from(error: ExecError) -> Self {
        match error {
            ExecError::TimedOut { limit, .. } => Self::TimedOut(limit.as_secs()),
            ExecError::Start { source, .. } | ExecError::Read { source, .. } => {
                Self::Failed(source.to_string())
            }
            ExecError::Failed(failed) => Self::Failed(without_addresses(&failed.stderr_tail)),
        }
    }
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("\nhint: did you mean {nearest}?"))
}

/// Returns the words of an installer without addresses, which may be private, and without paths of this machine.
pub(super) fn without_addresses(text: &str) -> String {
    let text = printable(text);
    let word = |word: &str| {
        let bare = word.trim_start_matches(['`', '\'', '"', '(']);
        if bare.contains("://") {
            "<address>".to_owned()
        } else if bare.starts_with('/') && bare.len() > 1 {
            "<path>".to_owned()
        } else {
            word.to_owned()
        }
    };
    let lines = text.lines().map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" "));
    let text = lines.collect::<Vec<_>>().join("\n");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Returns a text for the log without the user names and passwords of addresses.
pub(super) fn without_credentials(text: &str) -> String {
    // What an address cannot have. A password may have every other character, also one that should have been encoded.
    let is_end = |c: char| c.is_whitespace() || "\"<>`".contains(c);
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(is_end).unwrap_or(part.len());
        let rest = part[..end].rfind('@').map_or(part, |at| &part[at..]);
        shown += "://";
        shown += if rest.len() < part.len() { "****" } else { "" };
        shown += rest;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_addresses_without_credentials() {
        for (text, expected) in [
            ("at https://user:pw@x.example/simple/, b@c", "at https://****@x.example/simple/, b@c"),
            (
                "`http://t@h/` \"http://a:p/w@d@h\" http://h/x",
                "`http://****@h/` \"http://****@h\" http://h/x",
            ),
            ("no address: user@host", "no address: user@host"),
            ("('https://a:b@c','http://d:e@f')", "('https://****@c','http://****@f')"),
        ] {
            assert_eq!(without_credentials(text), expected);
        }
    }

    #[test]
    fn addresses_and_paths_do_not_reach_the_sandbox() {
        let text = "error: Failed to fetch: `https://user:pw@index.example/simple/x/`\n  cause: /root/.netrc is bad, 1/2";
        let shown = without_addresses(text);
        assert_eq!(shown, "error: Failed to fetch: <address>\n  cause: <path> is bad, 1/2");
    }
}
