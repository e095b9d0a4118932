//! The specification of a sandbox: data with validation, independent of any runtime.

use std::any::Any;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::owner::Owner;
use crate::pod::PodSettings;
use crate::seccomp::UnixSockets;

/// The name of one sandbox: container name for podman and docker, container id for crun and runc.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxName(String);

impl SandboxName {
    /// The prefix of every name, by which a person recognises our containers in `podman ps`.
    pub const PREFIX: &str = "codebridge-";

    /// Returns the name of sandbox number `number` of an instance, whose id is plain by construction.
    pub(crate) fn of_instance(instance: &str, number: u32) -> Self {
        Self(format!("{}{instance}-{number}", Self::PREFIX))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SandboxName {
    type Error = SpecError;

    fn try_from(name: String) -> Result<Self, SpecError> {
        let valid = name.len() <= 63
            && name.starts_with(Self::PREFIX)
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if valid { Ok(Self(name)) } else { Err(SpecError::Name(name)) }
    }
}

impl From<SandboxName> for String {
    fn from(name: SandboxName) -> Self {
        name.0
    }
}

impl fmt::Display for SandboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The right to use a root filesystem that somebody else manages: the folder is neither removed nor changed while this lives.
pub trait RootLease: Any + fmt::Debug + Send + Sync {
    /// Returns the folder that holds the root filesystem.
    fn path(&self) -> &Path;

    /// Returns the id by which the same root can be leased again, also from another process.
    fn id(&self) -> String;
}

impl PartialEq for dyn RootLease {
    fn eq(&self, other: &Self) -> bool {
        self.path() == other.path()
    }
}

impl Eq for dyn RootLease {}

/// Where the sandbox's `/` comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootFs {
    /// An image reference that the engine has.
    Image(String),
    /// A folder that holds a root filesystem; it is never written to.
    Directory(PathBuf),
    /// Such a folder that is on lease until the sandbox is gone. It is written down as the folder.
    #[serde(rename(serialize = "Directory"), serialize_with = "serialize_path", skip_deserializing)]
    Leased(Arc<dyn RootLease>),
    /// This machine's own `/usr`, with a generated `/etc` and nothing else of this machine.
    Host,
}

fn serialize_path<S: Serializer>(lease: &Arc<dyn RootLease>, serializer: S) -> Result<S::Ok, S::Error> {
    lease.path().serialize(serializer)
}

impl RootFs {
    /// Returns the lease that has to be held as long as the root is used.
    pub fn lease(&self) -> Option<&Arc<dyn RootLease>> {
        if let Self::Leased(lease) = self { Some(lease) } else { None }
    }
}

impl fmt::Display for RootFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(reference) => f.write_str(reference),
            Self::Directory(path) => write!(f, "dir:{}", path.display()),
            Self::Leased(lease) => write!(f, "dir:{}", lease.path().display()),
            Self::Host => f.write_str("host:"),
        }
    }
}

/// The numeric user and group of the sandboxed process, inside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// The limits on all processes of a sandbox together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory in bytes, swap included.
    pub memory: u64,
    pub pids: u32,
    /// Processors; None = unlimited.
    pub cpus: Option<f64>,
    /// Open descriptors per process.
    pub descriptors: u64,
}

impl Limits {
    /// Less memory does not start an interpreter. It also catches `512`, which was meant to be MiB.
    pub const LEAST_MEMORY: u64 = 16 << 20;
    /// A sandbox needs the interpreter, its supervisor and the runtime's own helper.
    pub const LEAST_PIDS: u32 = 4;
}

/// A tmpfs may hold one file for each half page of its size, and at least [`LEAST_FILES`].
const BYTES_PER_FILE: u64 = 2048;
const LEAST_FILES: u64 = 64;

/// A writable folder that lives in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tmpfs {
    /// The absolute path inside the sandbox.
    pub target: String,
    /// The size in bytes.
    pub size: u64,
}

impl Tmpfs {
    /// Returns how many files it may hold: no rlimit counts the kernel's memory for empty files.
    pub(crate) fn files(&self) -> u64 {
        (self.size / BYTES_PER_FILE).max(LEAST_FILES)
    }
}

/// A folder of this machine that the sandbox sees read-only. The sandbox follows the folder itself: what changes in it is
/// visible at once, what replaces it is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFolder {
    /// The absolute path on this machine.
    pub source: PathBuf,
    /// The absolute path inside the sandbox.
    pub target: String,
}

impl HostFolder {
    /// Returns whether it may be mounted there, beside these writable folders.
    fn fits(&self, tmpfs: &[Tmpfs]) -> bool {
        let top = self.target[1..].split('/').next().unwrap_or_default();
        self.source.is_absolute()
            && !self.source.as_os_str().as_bytes().contains(&0)
            && !TAKEN.contains(&top)
            && !tmpfs.iter().any(|other| overlap(&other.target, &self.target))
    }
}

/// Top-level folders in which nothing of the host is mounted.
const TAKEN: &[&str] = &["dev", "proc", "sys", "run", "etc", "usr", "bin", "sbin", "lib", "lib64"];

/// Returns whether a path is another one, or within it.
pub(crate) fn is_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn overlap(a: &str, b: &str) -> bool {
    is_within(a, b) || is_within(b, a)
}

/// Everything that a driver needs to start one sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxSpec {
    /// Unique on this host.
    pub name: SandboxName,
    /// Where `/` comes from; read-only in the sandbox.
    pub root: RootFs,
    /// The command; the program is looked up in the sandbox's PATH.
    pub argv: Vec<String>,
    /// Variables in addition to those of the image. Nothing of the host's environment is added.
    pub env: Vec<(String, String)>,
    pub cwd: String,
    pub hostname: String,
    /// The only writable places, `noexec,nosuid,nodev`, world-writable with the sticky bit.
    pub tmpfs: Vec<Tmpfs>,
    /// The folders of this machine that it sees, `ro,nosuid,nodev`.
    pub folders: Vec<HostFolder>,
    /// More of them, in which it reads what the folder's owner can read. It has no sockets with names, by which it could talk to
    /// programs of that owner.
    pub shares: Vec<HostFolder>,
    /// Those of which it gets a copy, also where they can be mounted.
    pub copied_shares: Vec<HostFolder>,
    pub user: User,
    pub limits: Limits,
    pub owner: Owner,
    /// Further `--security-opt` values, for podman and docker.
    pub security_options: Vec<String>,
    /// The folders for which the engine would make volumes of the image, which are writable and on its disk.
    pub volumes: Vec<String>,
    /// Where its pod runs, for Kubernetes.
    pub pod: PodSettings,
    /// Whether its pod learns the addresses of its node, of the name servers and its own: only a probe does.
    pub knows_addresses: bool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpecError {
    #[error("'{0}' is not a sandbox name")]
    Name(String),
    #[error("'{0}' is not a plain absolute path inside the sandbox")]
    Path(String),
    #[error("the command of the sandbox is empty, or its command or environment contains a NUL byte")]
    Command,
    #[error(
        "the folder '{path}' cannot be mounted at '{target}': that place is taken, or the folder has no absolute path"
    )]
    Folder { path: PathBuf, target: String },
    #[error("'{0}' is not an image reference")]
    Image(String),
    #[error("a {what} limit of {value} is too small to run anything")]
    Limit { what: &'static str, value: u64 },
}

impl SandboxSpec {
    fn mount_points(&self) -> impl Iterator<Item = &String> {
        self.tmpfs.iter().map(|tmpfs| &tmpfs.target).chain(self.host_folders().map(|folder| &folder.target))
    }

    /// Returns what it can do with Unix sockets.
    pub(crate) fn unix_sockets(&self) -> UnixSockets {
        let has_shares = !self.shares.is_empty() || !self.copied_shares.is_empty();
        if has_shares { UnixSockets::Pairs } else { UnixSockets::Any }
    }

    /// Returns every folder of this machine that it sees.
    pub(crate) fn host_folders(&self) -> impl Iterator<Item = &HostFolder> {
        self.folders.iter().chain(&self.shares).chain(&self.copied_shares)
    }

    /// Checks everything that would otherwise fail with an unclear message of some runtime.
    pub fn validate(&self) -> Result<(), SpecError> {
        let texts = self.argv.iter().chain(self.env.iter().flat_map(|(k, v)| [k, v]));
        if self.argv.is_empty() || texts.into_iter().any(|text| text.contains('\0')) {
            return Err(SpecError::Command);
        }
        for path in self.mount_points().chain([&self.cwd]) {
            let plain = path.starts_with('/')
                && path.len() > 1
                && path[1..].split('/').all(|part| !matches!(part, "" | "." | ".."))
                && !path.contains([',', ':', '\0', '\n']);
            if !plain {
                return Err(SpecError::Path(path.clone()));
            }
        }
        for (at, folder) in self.host_folders().enumerate() {
            let twice = self.host_folders().take(at).any(|other| overlap(&other.target, &folder.target));
            if twice || !folder.fits(&self.tmpfs) {
                return Err(SpecError::Folder { path: folder.source.clone(), target: folder.target.clone() });
            }
        }
        if let RootFs::Image(reference) = &self.root
            && (reference.is_empty()
                || reference.starts_with('-')
                || reference.contains(|c: char| c.is_whitespace() || c.is_control()))
        {
            return Err(SpecError::Image(reference.clone()));
        }
        let Limits { memory, pids, .. } = self.limits;
        if memory < Limits::LEAST_MEMORY {
            return Err(SpecError::Limit { what: "memory", value: memory });
        }
        if pids < Limits::LEAST_PIDS {
            return Err(SpecError::Limit { what: "pids", value: pids.into() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        assert!(SandboxName::try_from(String::from(SandboxName::of_instance("a1b2", 3))).is_ok());
        for bad in ["", "codebridge-A", "x", "codebridge-a b", "codebridge-../x"] {
            assert!(SandboxName::try_from(bad.to_string()).is_err(), "{bad}");
        }
    }
}
