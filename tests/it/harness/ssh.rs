//! Access to engines over ssh: an sshd on loopback, and the configuration of the clients.
//!
//! OpenSSH's client looks for its files in the home folder of the password database, whatever HOME says. So docker
//! finds a wrapper in PATH that passes the test's own files by an option, and records how it was started.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use super::bridge::BridgeBuilder;
use super::engines::connections;
use super::env::TestEnv;
use super::matrix::{Machine, PATH, which};
use super::process::{Running, children, free_port, pid_of};
use super::suite::ignore;

const START: Duration = Duration::from_secs(30);

/// The passphrase of [`SshServer::key_with_passphrase`].
pub(crate) const PASSPHRASE: &str = "open-sesame";

/// An sshd that lets root in with a key of the test's own.
pub(crate) struct SshServer<'a> {
    env: &'a TestEnv,
    folder: PathBuf,
    pub(crate) port: u16,
    running: Option<Running>,
}

impl<'a> SshServer<'a> {
    /// Starts one whose host key the test's user knows, and whose docker is that of the tests.
    pub(crate) fn start(env: &'a TestEnv) -> Self {
        if which("sshd").is_err() {
            ignore("there is no sshd here, see tests/check");
        }
        let folder = env.folder("sshd");
        let port = free_port();
        let mut server = Self { env, folder, port, running: None };
        for (name, passphrase) in [("host", ""), ("user", ""), ("guarded", PASSPHRASE), ("stranger", "")] {
            let file = server.key(name);
            let words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", file.to_str().unwrap()];
            let _ = env.run(words).ok();
        }
        let public = |name: &str| fs::read_to_string(server.folder.join(format!("{name}.pub"))).unwrap();
        env.write("sshd/authorized", public("user") + &public("guarded"));
        server.be_known_by(Some("host"));
        server.use_key(Some("user"));
        server.write_client(env);
        server.write_config();
        server.start_again();
        server
    }

    fn key(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The key that is let in.
    pub(crate) fn identity(&self) -> PathBuf {
        self.key("user")
    }

    /// One that is let in as well, behind a passphrase.
    pub(crate) fn key_with_passphrase(&self) -> PathBuf {
        self.key("guarded")
    }

    /// One that is not.
    pub(crate) fn stranger(&self) -> PathBuf {
        self.key("stranger")
    }

    /// This server's address, with a path for podman.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("ssh://root@127.0.0.1:{}{path}", self.port)
    }

    fn write_config(&self) {
        let docker = Machine::get().docker_host.as_ref().map(|url| format!(" DOCKER_HOST={}", url.display()));
        // At the second level bash reads no startup files over ssh. What those lock stays locked when a test kills it.
        // Without PAM an account that has no password, but a mark that it never will, is closed to keys as well.
        let shadow = fs::read_to_string("/etc/shadow").unwrap_or_default();
        let pam = if shadow.lines().any(|line| line.starts_with("root:!")) { "yes" } else { "no" };
        let text = format!(
            "ListenAddress 127.0.0.1\nPort {}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nPidFile none\n\
             UsePAM {pam}\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             MaxStartups 100\nSetEnv PATH={PATH} SHLVL=1{}\n",
            self.port,
            self.key("host").display(),
            self.folder.join("authorized").display(),
            docker.unwrap_or_default(),
        );
        self.env.write("sshd/config", text);
    }

    fn write_client(&self, env: &TestEnv) {
        let home = env.home();
        let real = which("ssh").unwrap();
        env.write_program(
            "ssh-bin/ssh",
            &format!(
                "#!/bin/sh\n\
                 terminal=none; if (: < /dev/tty) 2>/dev/null; then terminal=there; fi\n\
                 echo \"$$ $terminal $(readlink /proc/$$/fd/0) $(readlink /proc/$$/fd/1) ${{SSH_AUTH_SOCK:--}}\" >> {log}\n\
                 exec {real} -F {home}/.ssh/config \"$@\"\n",
                log = self.log().display(),
                real = real.display(),
                home = home.display(),
            ),
        );
    }

    fn log(&self) -> PathBuf {
        self.folder.join("clients")
    }

    /// How OpenSSH's clients were started.
    pub(crate) fn clients(&self) -> Vec<Client> {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let client = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            Client {
                pid: words[0].parse().unwrap(),
                has_terminal: words[1] != "none",
                streams: [words[2].into(), words[3].into()],
                agent: words[4].into(),
            }
        };
        text.lines().map(client).collect()
    }

    /// Which of the keys the test's user takes for the host's. Each client has a file of its own: podman adds to it, also when
    /// a bridge only looks after what dead ones have left.
    pub(crate) fn be_known_by(&self, key: Option<&str>) {
        let line = key.map(|key| {
            let public = fs::read_to_string(self.folder.join(format!("{key}.pub"))).unwrap();
            format!("[127.0.0.1]:{} {public}", self.port)
        });
        let line = line.unwrap_or_default();
        self.env.write("home/.ssh/known_hosts", &line);
        self.env.write("sshd/known_hosts", line);
    }

    /// Which key OpenSSH's client offers; None = those of an agent.
    pub(crate) fn use_key(&self, key: Option<&str>) {
        let key = key.map(|key| format!("IdentityFile {}\nIdentitiesOnly yes\n", self.key(key).display()));
        let text = format!(
            "UserKnownHostsFile {}\nGlobalKnownHostsFile /dev/null\n{}",
            self.folder.join("known_hosts").display(),
            key.unwrap_or_else(|| "IdentityFile none\n".into())
        );
        self.env.write("home/.ssh/config", text);
    }

    /// Has OpenSSH's clients share one connection, which stays open between them.
    pub(crate) fn share_connections(&self) -> SharedConnection<'a> {
        let config = self.env.home().join(".ssh/config");
        let socket = self.folder.join("shared");
        let text = fs::read_to_string(&config).unwrap();
        let more = format!("ControlMaster auto\nControlPath {}\nControlPersist 600\n", socket.display());
        self.env.write("home/.ssh/config", text + &more);
        SharedConnection { env: self.env, socket }
    }

    pub(crate) fn start_again(&mut self) {
        // Its children have to be left in an empty place of root's; a host whose sshd is no service has none.
        fs::create_dir_all("/run/sshd").unwrap();
        fs::set_permissions("/run/sshd", fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = self.env.command(which("sshd").unwrap());
        command.argv.extend(["-D", "-e", "-f"].map(Into::into));
        command.argv.push(self.folder.join("config").into());
        let answers = || {
            let mut banner = [0; 8];
            TcpStream::connect(("127.0.0.1", self.port)).ok()?.read_exact(&mut banner).ok()?;
            (&banner == b"SSH-2.0-").then_some(())
        };
        self.running = Some(command.serve(self.env.guard(), START, answers));
    }

    /// It and the processes of its connections, which are in sessions of their own.
    fn processes(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.running.iter().map(Running::pid).collect();
        let mut at = 0;
        while at < all.len() {
            all.extend(children(all[at]));
            at += 1;
        }
        all
    }

    /// Kills it and all of its connections.
    pub(crate) fn kill(&mut self) {
        // First none may begin another one.
        self.hang(true);
        for pid in self.processes().into_iter().skip(1) {
            signal_if_there(pid, Signal::KILL);
        }
        let mut running = self.running.take().expect("it does not run");
        running.signal(Signal::KILL);
        running.wait();
    }

    /// Lets it and its connections fall silent, or go on.
    pub(crate) fn hang(&self, hangs: bool) {
        let signal = if hangs { Signal::STOP } else { Signal::CONT };
        for pid in self.processes() {
            signal_if_there(pid, signal);
        }
    }
}

impl Drop for SshServer<'_> {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.kill();
        }
    }
}

/// Connections come and go: one that was just seen may have ended.
fn signal_if_there(pid: u32, signal: Signal) {
    let _ = kill_process(pid_of(pid), signal);
}

/// A connection in the background.
pub(crate) struct SharedConnection<'a> {
    env: &'a TestEnv,
    socket: PathBuf,
}

impl SharedConnection<'_> {
    /// Whether there is one now.
    pub(crate) fn is_open(&self) -> bool {
        self.control("check").status.success()
    }

    fn control(&self, what: &str) -> super::process::Output {
        self.env.run(["ssh", "-F", "none", "-S", self.socket.to_str().unwrap(), "-O", what, "127.0.0.1"])
    }
}

impl Drop for SharedConnection<'_> {
    fn drop(&mut self) {
        let _ = self.control("exit");
    }
}

/// One start of OpenSSH's client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) pid: u32,
    pub(crate) has_terminal: bool,
    /// What its standard input and output are.
    pub(crate) streams: [String; 2],
    pub(crate) agent: String,
}

impl<'a> BridgeBuilder<'a> {
    /// Lets it find the client that knows the test's server.
    pub(crate) fn with_ssh(self, env: &TestEnv) -> Self {
        let path = format!("{}:{PATH}", env.folder("ssh-bin").display());
        self.var("PATH", path)
    }
}

/// Makes an engine known to podman. 4.3.1 loses the path of an `ssh://` in its own `system connection add`.
pub(crate) fn add_podman_connection(env: &TestEnv, name: &str, url: &str, identity: &Path) {
    let _ = connections(env);
    let file = env.home().join("containers.conf");
    let text = fs::read_to_string(&file).unwrap();
    let more = format!(
        "\n[engine.service_destinations.{name}]\nuri = \"{url}\"\nidentity = \"{}\"\n",
        identity.display()
    );
    env.write("home/containers.conf", text + &more);
}
