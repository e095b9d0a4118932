//! The environment of one test: its own folders, cleared variables, the binary under test.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::matrix::{Machine, PATH, Runtime, TestUser, which};
use super::process::{Guard, Output, Prepared};

/// The folder of this run of the tests; short, because sockets' paths have to be.
pub(crate) fn base() -> &'static Path {
    static BASE: OnceLock<PathBuf> = OnceLock::new();
    BASE.get_or_init(|| {
        let base = env::temp_dir().join(format!("cbt{}", std::process::id()));
        fs::create_dir_all(base.join("bin")).unwrap();
        // Sandboxes' ids and the ordinary user have to pass through it.
        open_to_all(&base);
        open_to_all(&base.join("bin"));
        let binary = base.join("bin/codebridge");
        fs::copy(env!("CARGO_BIN_EXE_codebridge"), &binary).unwrap();
        open_to_all(&binary);
        base
    })
}

/// Removes what the run has left on disk.
pub(crate) fn remove_base() {
    let _ = fs::remove_dir_all(base());
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The environment of one test.
#[derive(Debug)]
pub(crate) struct TestEnv {
    runtime: Option<Runtime>,
    number: u32,
    root: PathBuf,
    guard: Guard,
    _turn: Turn,
}

/// Tests of one user run side by side, but for those that have to be alone.
#[derive(Debug)]
enum Turn {
    BesideOthers { _held: RwLockReadGuard<'static, ()> },
    Alone { _held: RwLockWriteGuard<'static, ()> },
}

/// One for each user.
fn lock_of(runtime: Option<Runtime>) -> &'static RwLock<()> {
    static LOCKS: [RwLock<()>; 2] = [RwLock::new(()), RwLock::new(())];
    &LOCKS[usize::from(runtime.is_some_and(|runtime| runtime.as_user))]
}

impl TestEnv {
    /// Creates an environment, for a runtime and its user or for none.
    pub(crate) fn new(runtime: Option<Runtime>) -> Self {
        let held = lock_of(runtime).read().unwrap_or_else(PoisonError::into_inner);
        Self::with(runtime, Turn::BesideOthers { _held: held })
    }

    /// Likewise, for a test that leaves behind what the bridges of other tests would remove.
    pub(crate) fn alone(runtime: Option<Runtime>) -> Self {
        let held = lock_of(runtime).write().unwrap_or_else(PoisonError::into_inner);
        Self::with(runtime, Turn::Alone { _held: held })
    }

    fn with(runtime: Option<Runtime>, turn: Turn) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = base().join(number.to_string());
        let env = Self { runtime, number, root, guard: Guard::start(), _turn: turn };
        env.make_folder(&env.root);
        for name in ["home", "tmp", "run"] {
            let _ = env.folder(name);
        }
        env.write_storage_conf();
        env
    }

    /// The runtime that the test is for.
    pub(crate) fn runtime(&self) -> Runtime {
        self.runtime.expect("this test runs without a runtime")
    }

    pub(super) fn runtime_if_any(&self) -> Option<Runtime> {
        self.runtime
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// A folder of the test's user, made when it is not there yet.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.root.join(name);
        if !path.is_dir() {
            self.make_folder(&path);
        }
        path
    }

    fn make_folder(&self, path: &Path) {
        fs::create_dir_all(path).unwrap();
        open_to_all(path);
        self.hand_over(path);
    }

    /// Writes a file of the test's user.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(name);
        if let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) {
            self.make_folder(parent);
        }
        fs::write(&path, content).unwrap();
        self.hand_over(&path);
        path
    }

    /// Writes a program of the test's user. Another process does it: a file that this process has open for writing is also
    /// open in a child that another test starts at this moment, and cannot be executed until that child executes another.
    pub(crate) fn write_program(&self, name: &str, content: &str) -> PathBuf {
        let draft = self.write(&format!("{name}.draft"), content);
        let path = self.root.join(name);
        let _ = self.run([Path::new("cp"), &draft, &path]).ok();
        fs::remove_file(draft).unwrap();
        open_to_all(&path);
        self.hand_over(&path);
        path
    }

    fn hand_over(&self, path: &Path) {
        if let Some(user) = self.user() {
            chown(path, Some(user.uid), Some(user.gid)).unwrap();
        }
    }

    /// The ordinary user, when the test runs as that one.
    pub(crate) fn user(&self) -> Option<&'static TestUser> {
        Machine::get().user.as_ref().filter(|_| self.runtime.is_some_and(|runtime| runtime.as_user))
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// Where the bridge keeps its instances: the same for all bridges of a user.
    pub(crate) fn state_base(&self) -> PathBuf {
        match self.user() {
            Some(user) => user.runtime_dir.join("codebridge"),
            None => "/run/codebridge".into(),
        }
    }

    /// The prepared images of the ordinary user are found from any home.
    fn write_storage_conf(&self) {
        if let Some(user) = self.user() {
            let text = format!(
                "[storage]\ndriver = \"overlay\"\nrootless_storage_path = \"{}\"\nrunroot = \"{}\"\n",
                user.home.join(".local/share/containers/storage").display(),
                user.runtime_dir.join("containers").display(),
            );
            self.write("storage.conf", text);
        }
    }

    /// The variables that every child of the test has.
    pub(crate) fn variables(&self) -> BTreeMap<OsString, OsString> {
        let mut variables: BTreeMap<OsString, OsString> = BTreeMap::new();
        let mut set = |name: &str, value: OsString| variables.insert(name.into(), value);
        match &Machine::get().kubectl {
            Some(folder) => set("PATH", format!("{}:{PATH}", folder.display()).into()),
            None => set("PATH", PATH.into()),
        };
        set("HOME", self.home().into());
        set("TMPDIR", self.root.join("tmp").into());
        set("LANG", "C.UTF-8".into());
        // A test must not reach the keyring of whoever runs it.
        set("MCP_BRIDGE_KEYRING", "0".into());
        match self.user() {
            Some(user) => {
                // One for all tests: podman allows a user no more than one.
                set("XDG_RUNTIME_DIR", user.runtime_dir.clone().into());
                set("CONTAINERS_STORAGE_CONF", self.root.join("storage.conf").into());
                set("CONTAINERS_CONF", user.home.join(".config/containers/containers.conf").into());
            }
            None => {
                set("XDG_RUNTIME_DIR", self.root.join("run").into());
                if let Some(file) = &Machine::get().kubeconfig {
                    set("KUBECONFIG", file.into());
                }
                if let Some(host) = &Machine::get().docker_host {
                    set("DOCKER_HOST", host.clone());
                }
            }
        }
        variables
    }

    /// A folder that holds these programs of the machine and no others, for a PATH.
    pub(crate) fn programs(&self, names: &[&str]) -> PathBuf {
        let folder = self.folder("programs");
        for name in names {
            symlink(which(name).unwrap(), folder.join(name)).unwrap();
        }
        folder
    }

    /// A command of the test's user.
    pub(crate) fn command(&self, program: impl Into<OsString>) -> Prepared {
        let prepared = Prepared { argv: vec![program.into()], env: self.variables(), cwd: self.home() };
        match self.user() {
            None => prepared,
            Some(user) => prepared.behind([
                which("setpriv").unwrap().into_os_string(),
                format!("--reuid={}", user.uid).into(),
                format!("--regid={}", user.gid).into(),
                "--init-groups".into(),
                "--".into(),
            ]),
        }
    }

    /// A command of the test's user, run to its end.
    pub(crate) fn run<S: Into<OsString>>(&self, argv: impl IntoIterator<Item = S>) -> Output {
        let mut words = argv.into_iter().map(Into::into);
        let name: OsString = words.next().unwrap();
        let program =
            if Path::new(&name).is_absolute() { name.into() } else { which(name.to_str().unwrap()).unwrap() };
        let mut command = self.command(program);
        command.argv.extend(words);
        command.run(&self.guard)
    }

    /// The binary under test.
    pub(crate) fn binary(&self) -> PathBuf {
        base().join("bin/codebridge")
    }

    /// Removes the environment. Returns true when the guard had to end the test.
    pub(crate) fn close(&self) -> bool {
        let fired = self.guard.finish();
        let _ = fs::remove_dir_all(&self.root);
        fired
    }
}
