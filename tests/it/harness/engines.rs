//! Real engines that are reached as if they were on another machine: a podman service on a socket, and a docker
//! daemon behind TLS on loopback. Each one has its own containers.

use std::ffi::OsString;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::bridge::BridgeBuilder;
use super::env::TestEnv;
use super::matrix::{Kind, Machine, which};
use super::process::{Prepared, Running, children, command_line, free_port, pid_of, processes};
use super::suite::ignore;
use super::works::works;

const START: Duration = Duration::from_secs(60);

/// A podman service with a storage of its own. Its images are in a store that only such services read: see
/// `tests/host/images.sh`.
pub(crate) struct PodmanService<'a> {
    env: &'a TestEnv,
    name: String,
    folder: PathBuf,
    images: OsString,
    hidden: Option<PathBuf>,
    running: Option<Running>,
}

impl<'a> PodmanService<'a> {
    /// Starts one and makes it known to the test's user as a connection of this name.
    pub(crate) fn start(env: &'a TestEnv, name: &str) -> Self {
        Self::start_hiding(env, name, None)
    }

    /// The same, which does not see what is in a folder of this host.
    pub(crate) fn start_hiding(env: &'a TestEnv, name: &str, hidden: Option<PathBuf>) -> Self {
        let Some(images) = std::env::var_os("CODEBRIDGE_TEST_PODMAN_IMAGES") else {
            ignore("this machine is not prepared, see tests/check");
        };
        let folder = env.folder(&format!("podman-{name}"));
        let mut service = Self { env, name: name.into(), folder, images, hidden, running: None };
        service.start_again();
        let mut add = env.command(which("podman").unwrap());
        add.env.extend(connections(env));
        add.argv.extend(["system", "connection", "add", name, &service.url()].map(Into::into));
        let _ = add.run(env.guard()).ok();
        service
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("sock")
    }

    /// The folder of its images and containers.
    pub(crate) fn storage(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// Its URL in the settings of the bridge.
    pub(crate) fn target(&self) -> String {
        format!("podman:{}", self.name)
    }

    fn podman(&self) -> Prepared {
        let mut command = self.env.command(which("podman").unwrap());
        let folder = |name: &str| self.folder.join(name).into_os_string();
        command.argv.extend([
            "--root".into(),
            self.storage().into_os_string(),
            "--runroot".into(),
            folder("run"),
        ]);
        command.argv.extend(["--tmpdir".into(), folder("tmp")]);
        let mut images = OsString::from("overlay.imagestore=");
        images.push(&self.images);
        command.argv.extend(["--storage-driver=overlay".into(), "--storage-opt".into(), images]);
        command
    }

    pub(crate) fn start_again(&mut self) {
        // What listens is asked below: a socket of the one before says nothing.
        let _ = fs::remove_file(self.socket());
        let mut command = self.podman();
        command.argv.extend(["system", "service", "--time=0"].map(Into::into));
        command.argv.push(self.url().into());
        if let Some(hidden) = &self.hidden {
            command = blind_to(command, hidden);
        }
        let listens = || UnixStream::connect(self.socket()).ok().map(drop);
        self.running = Some(command.serve(self.env.guard(), START, listens));
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        let mut running = self.running.take().expect("it does not run");
        running.signal(Signal::KILL);
        running.wait();
    }

    /// Lets it hang, or go on.
    pub(crate) fn hang(&self, hangs: bool) {
        let running = self.running.as_ref().expect("it does not run");
        running.signal(if hangs { Signal::STOP } else { Signal::CONT });
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.as_ref().expect("it does not run").pid()
    }

    /// The containers that it has, whether or not it runs.
    pub(crate) fn containers(&self) -> Vec<String> {
        let mut command = self.podman();
        command.argv.extend(["ps", "--all", "--format={{.Names}}"].map(Into::into));
        command.run(self.env.guard()).ok().lines().map(String::from).collect()
    }

    /// A command of that engine's own podman.
    pub(crate) fn run(&self, args: &[&str]) -> super::process::Output {
        let mut command = self.podman();
        command.argv.extend(args.iter().map(Into::into));
        command.run(self.env.guard())
    }
}

impl Drop for PodmanService<'_> {
    fn drop(&mut self) {
        let _ = self.run(&["rm", "--force", "--all", "--time=0"]);
        if let Some(running) = self.running.take() {
            running.signal(Signal::TERM);
        }
        // It mounts its storage onto itself, in the tests' own mounts.
        let _ = self.env.run(["umount", "--lazy", self.folder.join("root/overlay").to_str().unwrap()]);
    }
}

/// The same command, which does not see what is in this folder.
fn blind_to(command: Prepared, hidden: &Path) -> Prepared {
    let script = "mount -t tmpfs tmpfs \"$1\"; rmdir \"$1\" 2>/dev/null; shift; exec \"$@\"";
    let unshare = which("unshare").unwrap().into_os_string();
    let words = ["--mount", "--propagation=private", "--", "/bin/sh", "-c", script, "sh"];
    let prefix = std::iter::once(unshare).chain(words.map(OsString::from));
    command.behind(prefix.chain([hidden.as_os_str().to_owned()]))
}

/// A docker daemon that takes clients with a certificate only, but for those on its own socket.
pub(crate) struct DockerDaemon<'a> {
    env: &'a TestEnv,
    pub(crate) name: String,
    folder: PathBuf,
    port: u16,
    hidden: Option<PathBuf>,
    running: Option<Running>,
    /// Whether it was ever killed.
    was_killed: bool,
}

impl<'a> DockerDaemon<'a> {
    /// Starts one with the image of the tests, and makes it known to the test's user as a context of this name.
    pub(crate) fn start(env: &'a TestEnv, name: &str) -> Self {
        Self::start_hiding(env, name, None)
    }

    /// The same, which does not see what is in a folder of this host.
    pub(crate) fn start_hiding(env: &'a TestEnv, name: &str, hidden: Option<PathBuf>) -> Self {
        let archive = std::env::var_os("CODEBRIDGE_TEST_CACHE").map(PathBuf::from).unwrap_or_default();
        let archive = archive.join("images/python-3.14.tar");
        let (Ok(_), Some(image), true) = (which("openssl"), &Machine::get().image, archive.is_file()) else {
            ignore("this machine is not prepared, see tests/check");
        };
        let folder = env.folder(&format!("docker-{name}"));
        let port = free_port();
        let mut daemon =
            Self { env, name: name.into(), folder, port, hidden, running: None, was_killed: false };
        daemon.make_certificates();
        daemon.start_again();
        let (certificate, key, ca) = (daemon.file("cert.pem"), daemon.file("key.pem"), daemon.file("ca.pem"));
        let host = format!("host={},ca={ca},cert={certificate},key={key}", daemon.url());
        let _ = env.run(["docker", "context", "create", name, "--docker", &host]).ok();
        let mut import = daemon.client();
        import.argv.extend(["import".into(), archive.into_os_string(), image.into()]);
        let _ = import.run(env.guard()).ok();
        daemon
    }

    pub(crate) fn url(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port)
    }

    pub(crate) fn target(&self) -> String {
        format!("docker:{}", self.name)
    }

    /// Where it listens on this machine.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("sock")
    }

    /// Where a client's certificate, key and authority are.
    pub(crate) fn certificates(&self) -> &Path {
        &self.folder
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn make_certificates(&self) {
        let script = "set -e; cd \"$1\"
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test-ca \
                -keyout ca-key.pem -out ca.pem
            for who in server client; do
                openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=$who -keyout $who-key.pem -out $who.csr
                printf 'subjectAltName=IP:127.0.0.1\\nextendedKeyUsage=%sAuth\\n' $who > $who.ext
                openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile $who.ext -out $who-cert.pem
            done
            mv client-cert.pem cert.pem; mv client-key.pem key.pem";
        let folder = self.folder.to_str().unwrap();
        let _ = self.env.run(["sh", "-c", script, "sh", folder]).ok();
    }

    /// The docker client with all options for this daemon.
    fn client(&self) -> Prepared {
        let mut command = self.env.command(which("docker").unwrap());
        command.argv.extend(["--host".into(), self.url().into(), "--tlsverify".into()]);
        for (flag, file) in [("--tlscacert", "ca.pem"), ("--tlscert", "cert.pem"), ("--tlskey", "key.pem")] {
            command.argv.extend([flag.into(), self.file(file).into()]);
        }
        command
    }

    pub(crate) fn start_again(&mut self) {
        let mut command = self.env.command(which("dockerd").unwrap());
        self.env.write(&format!("docker-{}/daemon.json", self.name), "{}\n");
        let _ = fs::remove_file(self.folder.join("pid"));
        let own = |flag: &str, name: &str| format!("--{flag}={}", self.file(name));
        command.argv.extend([
            own("config-file", "daemon.json").into(),
            own("data-root", "data").into(),
            own("exec-root", "exec").into(),
            own("pidfile", "pid").into(),
            format!("--host={}", self.url()).into(),
            format!("--host=unix://{}", self.socket().display()).into(),
            "--tlsverify".into(),
            own("tlscacert", "ca.pem").into(),
            own("tlscert", "server-cert.pem").into(),
            own("tlskey", "server-key.pem").into(),
        ]);
        let flags = ["--iptables=false", "--ip6tables=false", "--bridge=none", "--log-level=error"];
        command.argv.extend(flags.map(Into::into));
        if let Some(hidden) = &self.hidden {
            command = blind_to(command, hidden);
        }
        let mut version = self.client();
        version.argv.push("version".into());
        let answers = || version.run(self.env.guard()).status.success().then_some(());
        self.running = Some(command.serve(self.env.guard(), START, answers));
    }

    /// Ends it and its containers, as a machine does that is shut down.
    pub(crate) fn stop(&mut self) {
        let mut running = self.running.take().expect("it does not run");
        running.signal(Signal::TERM);
        running.wait();
    }

    /// Kills the daemon; its containerd keeps running.
    pub(crate) fn kill(&mut self) {
        self.was_killed = true;
        let mut running = self.running.take().expect("it does not run");
        running.signal(Signal::KILL);
        running.wait();
    }

    /// The containers that it has. A daemon that was killed while it removed one, and both it and the bridge remove that
    /// when it is back, goes on listing it, without a name and a process, until it is started again.
    pub(crate) fn containers(&self) -> Vec<String> {
        let mut command = self.client();
        command.argv.extend(["ps", "--all", "--format={{.Names}}"].map(Into::into));
        command.run(self.env.guard()).ok().lines().filter(|name| !name.is_empty()).map(String::from).collect()
    }
}

impl Drop for DockerDaemon<'_> {
    fn drop(&mut self) {
        if self.running.is_none() {
            // Only a daemon ends the containerd of the one before.
            self.start_again();
        }
        if let Some(mut running) = self.running.take() {
            running.signal(Signal::TERM);
            running.wait();
        }
        if self.was_killed {
            self.end_what_it_has_forgotten();
        }
    }
}

impl DockerDaemon<'_> {
    /// Ends containers that no daemon lists any more: one that was killed at the wrong moment loses them.
    fn end_what_it_has_forgotten(&self) {
        let address = self.file("exec/containerd/containerd.sock");
        let is_shim = |pid: &u32| {
            let line = command_line(*pid);
            line.first().is_some_and(|program| program.contains("containerd-shim")) && line.contains(&address)
        };
        for shim in processes().filter(is_shim).collect::<Vec<_>>() {
            for pid in children(shim).into_iter().chain([shim]) {
                // It may have ended with the one before.
                let _ = rustix::process::kill_process(pid_of(pid), Signal::KILL);
            }
        }
    }
}

/// Where podman keeps its connections: root's would be in /etc. The second name is for podman 5.
pub(super) fn connections(env: &TestEnv) -> [(OsString, OsString); 2] {
    let file = |name: &str| env.home().join(name).into_os_string();
    if !env.home().join("containers.conf").exists() {
        env.write("home/containers.conf", "");
    }
    [
        ("CONTAINERS_CONF".into(), file("containers.conf")),
        ("PODMAN_CONNECTIONS_CONF".into(), file("connections.json")),
    ]
}

/// A bridge with these engines in its settings and no others.
pub(crate) fn bridge_on<'a>(env: &'a TestEnv, targets: &str) -> BridgeBuilder<'a> {
    let Some(image) = &Machine::get().image else { ignore("there is no image for engines, see tests/check") };
    let bridge = env.bridge().var("MCP_BRIDGE_RUNTIME", targets).var("MCP_BRIDGE_IMAGE", image.as_str());
    connections(env)
        .into_iter()
        .fold(bridge, |bridge, (name, value)| bridge.var(name.to_str().unwrap(), value))
}

/// Ends the test where an engine cannot be had.
pub(crate) fn need(kind: Kind) {
    let runtime = super::matrix::Runtime { kind, as_user: false };
    if let Err(reason) = works(runtime) {
        ignore(&reason);
    }
}
