//! The runtimes under test, as data: four kinds as root, three of them as an ordinary user; and a cluster, for `tests/cluster`.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::process::{Guard, Prepared};

/// Where programs are found, the same on every machine.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Podman,
    Docker,
    Crun,
    Runc,
    Kubernetes,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
            Self::Crun => "crun",
            Self::Runc => "runc",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// What the bridge is told to use.
    pub(crate) fn setting(self) -> &'static str {
        match self {
            // The context with the Role of the documentation.
            Self::Kubernetes => "kubernetes:least",
            other => other.name(),
        }
    }

    /// Whether the output of a sandbox passes through others: its monitor and its client, which may be lost without it.
    pub(crate) fn carries_streams(self) -> bool {
        !matches!(self, Self::Crun | Self::Runc)
    }

    /// Whether it is an engine with images and containers of its own, not a low-level runtime.
    pub(crate) fn is_engine(self) -> bool {
        matches!(self, Self::Podman | Self::Docker)
    }
}

/// One row of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Runtime {
    pub(crate) kind: Kind,
    /// As the prepared ordinary user in place of root.
    pub(crate) as_user: bool,
}

impl Runtime {
    pub(crate) const ALL: [Self; 7] = [
        Self { kind: Kind::Podman, as_user: false },
        Self { kind: Kind::Docker, as_user: false },
        Self { kind: Kind::Crun, as_user: false },
        Self { kind: Kind::Runc, as_user: false },
        Self { kind: Kind::Podman, as_user: true },
        Self { kind: Kind::Crun, as_user: true },
        Self { kind: Kind::Runc, as_user: true },
    ];

    /// Pods of a cluster, when there is one.
    pub(crate) const CLUSTER: Self = Self { kind: Kind::Kubernetes, as_user: false };

    /// The rows of this run: those of the machine, or the cluster alone.
    pub(crate) fn rows() -> &'static [Self] {
        if Machine::get().kubeconfig.is_some() { &[Self::CLUSTER] } else { &Self::ALL }
    }

    /// The runtime of this kind that root starts.
    pub(crate) const fn of_root(kind: Kind) -> Self {
        Self { kind, as_user: false }
    }

    /// The runtime of this kind that the ordinary user starts.
    pub(crate) const fn of_user(kind: Kind) -> Self {
        Self { kind, as_user: true }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if self.as_user { f.write_str("-user") } else { Ok(()) }
    }
}

/// What this machine has been prepared with, by the variables that `tests/host/prepare` writes down.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The runtimes that must work; None on a machine that is not prepared.
    prepared: Option<Vec<String>>,
    pub(crate) image: Option<String>,
    pub(crate) rootfs_314: Option<PathBuf>,
    pub(crate) rootfs_39: Option<PathBuf>,
    pub(crate) docker_host: Option<OsString>,
    pub(crate) user: Option<TestUser>,
    /// The configuration of kubectl for the cluster under test.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The folder of the kubectl under test, where it is not that of this machine.
    pub(crate) kubectl: Option<PathBuf>,
    versions: [OnceLock<(u32, u32)>; 4],
}

/// The ordinary user.
#[derive(Debug, Clone)]
pub(crate) struct TestUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
    pub(crate) runtime_dir: PathBuf,
}

impl Machine {
    /// This machine.
    pub(crate) fn get() -> &'static Self {
        static MACHINE: OnceLock<Machine> = OnceLock::new();
        MACHINE.get_or_init(|| {
            let text =
                |name: &str| env::var(format!("CODEBRIDGE_TEST_{name}")).ok().filter(|v| !v.is_empty());
            Self {
                prepared: text("RUNTIMES").map(|names| names.split_whitespace().map(String::from).collect()),
                image: text("IMAGE"),
                rootfs_314: text("ROOTFS_314").map(PathBuf::from),
                rootfs_39: text("ROOTFS_39").map(PathBuf::from),
                docker_host: text("DOCKER_HOST").map(OsString::from).or_else(|| env::var_os("DOCKER_HOST")),
                user: test_user(),
                kubeconfig: text("KUBECONFIG").map(PathBuf::from),
                kubectl: text("KUBECTL").map(PathBuf::from),
                versions: Default::default(),
            }
        })
    }

    /// Whether this runtime was prepared.
    pub(crate) fn is_prepared(&self, runtime: Runtime) -> bool {
        self.prepared.as_ref().is_some_and(|names| names.contains(&runtime.to_string()))
    }

    /// The version of a runtime that is here.
    pub(crate) fn version(&self, kind: Kind) -> (u32, u32) {
        *self.versions[kind as usize].get_or_init(|| {
            let argv = vec![which(kind.name()).unwrap().into(), "--version".into()];
            let env = [("PATH".into(), PATH.into())].into();
            let said = Prepared { argv, env, cwd: "/".into() }.run(&Guard::start()).ok();
            version_in(&said).unwrap_or_else(|| panic!("{} tells no version: {said}", kind.name()))
        })
    }

    /// The image for tests that do not care which: one that this runtime starts without any preparation.
    pub(crate) fn usual_image(&self, runtime: Runtime) -> String {
        match (&self.image, &self.rootfs_314) {
            (Some(image), _) if runtime.kind.is_engine() || runtime.kind == Kind::Kubernetes => image.clone(),
            (_, Some(rootfs)) => format!("dir:{}", rootfs.display()),
            _ => "host:".into(),
        }
    }
}

/// The first two numbers of the first version in a text.
pub(crate) fn version_in(text: &str) -> Option<(u32, u32)> {
    text.split(|c: char| c.is_whitespace() || "+~-,".contains(c)).find_map(|word| {
        let (major, rest) = word.split_once('.')?;
        Some((major.parse().ok()?, rest.split('.').next()?.parse().ok()?))
    })
}

/// The command of a server or client of others that was prepared for the tests.
pub(crate) fn prepared_command(name: &str) -> Option<Vec<String>> {
    let line = env::var(format!("CODEBRIDGE_TEST_{name}")).ok()?;
    let words: Vec<String> = line.split_whitespace().map(String::from).collect();
    (!words.is_empty()).then_some(words)
}

fn test_user() -> Option<TestUser> {
    let name = env::var("CODEBRIDGE_TEST_USER").ok()?;
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name.as_str()))?;
    let mut ids = line.split(':').skip(2).map(str::parse);
    Some(TestUser {
        uid: ids.next()?.ok()?,
        gid: ids.next()?.ok()?,
        home: env::var_os("CODEBRIDGE_TEST_USER_HOME")?.into(),
        runtime_dir: env::var_os("CODEBRIDGE_TEST_USER_RUNTIME_DIR")?.into(),
    })
}

/// The absolute path of a program of this machine.
pub(crate) fn which(name: &str) -> Result<PathBuf, String> {
    let candidates = PATH.split(':').map(|dir| Path::new(dir).join(name));
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(|| format!("there is no {name} here"))
}
