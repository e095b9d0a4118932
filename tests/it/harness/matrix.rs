//! The runtimes under test, as data: four kinds as root, three of them as an ordinary user.
//!
//! Whether a runtime works on this machine is found out without the product, by one container of its own making.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::env::TestEnv;
use super::process::{Guard, Prepared};

/// Which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Podman,
    Docker,
    Crun,
    Runc,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
            Self::Crun => "crun",
            Self::Runc => "runc",
        }
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
    /// The runtimes that must work; None when nobody says so.
    prepared: Option<Vec<String>>,
    pub(crate) image: Option<String>,
    pub(crate) rootfs_314: Option<PathBuf>,
    pub(crate) rootfs_39: Option<PathBuf>,
    pub(crate) docker_host: Option<OsString>,
    pub(crate) user: Option<TestUser>,
    works: [OnceLock<Result<(), String>>; 7],
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
                works: Default::default(),
                versions: Default::default(),
            }
        })
    }

    /// Whether somebody has said that this runtime is there.
    pub(crate) fn is_prepared(&self, runtime: Runtime) -> bool {
        self.prepared.as_ref().is_some_and(|names| names.contains(&runtime.to_string()))
    }

    /// Whether a container runs, found out once.
    pub(crate) fn works(&self, runtime: Runtime) -> Result<(), String> {
        let index = Runtime::ALL.iter().position(|known| *known == runtime).unwrap();
        self.works[index].get_or_init(|| try_out(runtime)).clone()
    }

    /// The version of a runtime that is here.
    pub(crate) fn version(&self, kind: Kind) -> (u32, u32) {
        *self.versions[kind as usize].get_or_init(|| {
            let argv = vec![which(kind.name()).unwrap().into(), "--version".into()];
            let env = [("PATH".into(), super::env::PATH.into())].into();
            let said = Prepared { argv, env, cwd: "/".into() }.run(&Guard::start()).ok();
            version_in(&said).unwrap_or_else(|| panic!("{} tells no version: {said}", kind.name()))
        })
    }

    /// The image for tests that do not care which: one that this runtime starts without any preparation.
    pub(crate) fn usual_image(&self, runtime: Runtime) -> String {
        match (&self.image, &self.rootfs_314) {
            (Some(image), _) if runtime.kind.is_engine() => image.clone(),
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

/// Runs `true` in a container that the product has no part in.
fn try_out(runtime: Runtime) -> Result<(), String> {
    if !rustix::process::getuid().is_root() {
        return Err("the tests have to be run as root, see tests/check".into());
    }
    if runtime.as_user && Machine::get().user.is_none() {
        return Err("there is no ordinary user for the tests, see tests/check".into());
    }
    let Ok(program) = which(runtime.kind.name()) else { return Err("not installed".into()) };
    let env = TestEnv::new(Some(runtime));
    let output = match runtime.kind {
        Kind::Podman | Kind::Docker => {
            let Some(image) = &Machine::get().image else {
                return Err("there is no image for it (CODEBRIDGE_TEST_IMAGE)".into());
            };
            let mut command = env.command(program);
            command.argv.extend(["run", "--rm", "--network=none"].map(Into::into));
            // The engines' own defaults are above what a process without CAP_SYS_RESOURCE may set.
            command.argv.extend(["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"].map(Into::into));
            command.argv.extend([image.into(), OsString::from("true")]);
            command.run(env.guard())
        }
        Kind::Crun | Kind::Runc => run_bundle(&env, &program),
    };
    let result = if output.status.success() {
        Ok(())
    } else {
        let said = output.stderr.trim();
        Err(said.lines().next_back().unwrap_or("it failed without a word").to_string())
    };
    env.close();
    result
}

/// The bundle that the runtime itself proposes, with `true` of a real root filesystem.
fn run_bundle(env: &TestEnv, program: &Path) -> super::process::Output {
    let bundle = env.folder("try");
    let mut spec = env.command(program);
    spec.cwd.clone_from(&bundle);
    spec.argv.push("spec".into());
    if env.runtime().as_user {
        spec.argv.push("--rootless".into());
    }
    let output = spec.run(env.guard());
    if !output.status.success() {
        return output;
    }
    let path = bundle.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let root = Machine::get().rootfs_314.clone().unwrap_or_else(|| "/".into());
    config["root"] = json!({ "path": root, "readonly": true });
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["/bin/true"]);
    config["process"]["rlimits"] = json!([]);
    fs::write(&path, config.to_string()).unwrap();
    let mut run = env.command(program);
    let state = env.folder("state");
    run.argv.extend(["--root".into(), state.into(), "run".into(), "--bundle".into(), bundle.into()]);
    run.argv.push(format!("codebridge-try-{}-{}", std::process::id(), env.number()).into());
    run.run(env.guard())
}

/// The absolute path of a program of this machine.
pub(crate) fn which(name: &str) -> Result<PathBuf, String> {
    let candidates = super::env::PATH.split(':').map(|dir| Path::new(dir).join(name));
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(|| format!("there is no {name} here"))
}
