//! A docker daemon that the ordinary user runs without root, as `dockerd-rootless.sh` starts it without systemd.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use super::bridge::BridgeBuilder;
use super::engines::bridge_on;
use super::env::TestEnv;
use super::matrix::{Machine, which};
use super::process::{Output, Running};
use super::suite::ignore;

const START: Duration = Duration::from_secs(60);

/// The daemon, in a user namespace of its own.
pub(crate) struct RootlessDocker<'a> {
    env: &'a TestEnv,
    /// Whether it has numbers of its own for processes, as one in a container has.
    apart: bool,
    running: Option<Running>,
}

impl<'a> RootlessDocker<'a> {
    /// Starts one with the image of the tests. The runtime folder is the test's own: there is one socket in each.
    pub(crate) fn start(env: &'a TestEnv) -> Self {
        Self::start_in(env, false)
    }

    /// The same in a pid namespace of its own.
    pub(crate) fn start_apart(env: &'a TestEnv) -> Self {
        Self::start_in(env, true)
    }

    fn start_in(env: &'a TestEnv, apart: bool) -> Self {
        let archive = std::env::var_os("CODEBRIDGE_TEST_CACHE").map(PathBuf::from).unwrap_or_default();
        let archive = archive.join("images/python-3.14.tar");
        let programs = ["rootlesskit", "dockerd", "docker", "newuidmap"];
        let missing = programs.into_iter().find(|name| which(name).is_err());
        let (None, Some(image), Some(_), true) =
            (missing, &Machine::get().image, env.user(), archive.is_file())
        else {
            ignore("this machine is not prepared, see tests/check");
        };
        let mut docker = Self { env, apart, running: None };
        docker.start_again();
        let _ = docker.run(&["import", archive.to_str().unwrap(), image]).ok();
        docker
    }

    pub(crate) fn runtime_dir(&self) -> PathBuf {
        self.env.folder("run")
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.runtime_dir().join("docker.sock").display())
    }

    pub(crate) fn start_again(&mut self) {
        let folder = self.env.folder("rootless");
        let configuration = self.env.write("rootless/daemon.json", "{}\n");
        let runtime_dir = self.runtime_dir();
        let mut command = self.env.command(which("rootlesskit").unwrap());
        command.env.insert("XDG_RUNTIME_DIR".into(), runtime_dir.clone().into());
        let state = format!("--state-dir={}", runtime_dir.join("rootlesskit").display());
        // Networks are the engine's matter, and no sandbox has one.
        let namespaces = ["--net=host", "--copy-up=/etc", "--copy-up=/run", "--propagation=rslave"];
        command.argv.push(state.into());
        command.argv.extend(namespaces.map(Into::into));
        command.argv.extend(self.apart.then_some("--pidns".into()));
        // What is copied from the host's /run are links to places of root.
        let script = "rm -f /run/docker /run/containerd /run/xtables.lock; exec \"$@\"";
        command.argv.extend(["sh", "-c", script, "sh"].map(Into::into));
        command.argv.push(which("dockerd").unwrap().into());
        let own = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display()).into();
        command.argv.extend([
            own("config-file", configuration),
            own("data-root", folder.join("data")),
            own("exec-root", runtime_dir.join("docker")),
            own("pidfile", runtime_dir.join("docker.pid")),
            format!("--host={}", self.url()).into(),
        ]);
        let flags =
            ["--rootless", "--iptables=false", "--ip6tables=false", "--bridge=none", "--log-level=error"];
        command.argv.extend(flags.map(Into::into));
        let answers = || self.run(&["version"]).status.success().then_some(());
        self.running = Some(command.serve(self.env.guard(), START, answers));
    }

    /// Ends it as a service manager does.
    pub(crate) fn stop(&mut self) {
        let mut running = self.running.take().expect("it does not run");
        running.signal(Signal::TERM);
        running.wait();
    }

    /// A command of its user's client.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let mut command = self.env.command(which("docker").unwrap());
        command.argv.extend(["--host".into(), self.url().into()]);
        command.argv.extend(args.iter().map(Into::into));
        command.run(self.env.guard())
    }

    /// The containers that it has.
    pub(crate) fn containers(&self) -> Vec<String> {
        self.run(&["ps", "--all", "--format={{.Names}}"]).ok().lines().map(String::from).collect()
    }

    /// A bridge of the same user, in the same login.
    pub(crate) fn bridge(&self) -> BridgeBuilder<'a> {
        bridge_on(self.env, "docker").var("XDG_RUNTIME_DIR", self.runtime_dir())
    }
}

impl Drop for RootlessDocker<'_> {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.stop();
        }
    }
}
