//! A laptop whose docker engine runs in a machine of some product; see the program for what it does. The contexts are
//! real, as each product creates them. All products have one real daemon behind their sockets: that of the tests, or
//! one that can be killed and does not see every folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::bridge::BridgeBuilder;
use super::engines::bridge_on;
use super::env::TestEnv;
use super::matrix::{Machine, which};

const PROGRAM: &str = include_str!("fake_docker.py");
const FIXTURES: &str = include_str!("../../../runtimes/src/engine/desktops.txt");

/// The laptop.
pub(crate) struct FakeDocker<'a> {
    env: &'a TestEnv,
    programs: PathBuf,
    engine: PathBuf,
}

/// A product that was installed there.
#[derive(Debug, Clone)]
pub(crate) struct Installed {
    /// The context that it has made.
    pub(crate) context: String,
    /// Where it listens while it runs.
    pub(crate) socket: PathBuf,
}

impl Installed {
    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket.display())
    }
}

/// Where the daemon of the tests listens.
pub(crate) fn socket_of_the_tests() -> PathBuf {
    let url = Machine::get().docker_host.clone().unwrap_or_else(|| "unix:///var/run/docker.sock".into());
    let url = url.to_str().unwrap().to_string();
    url.strip_prefix("unix://").expect("the tests' docker is not behind a socket").into()
}

impl<'a> FakeDocker<'a> {
    /// One without a product.
    pub(crate) fn new(env: &'a TestEnv) -> Self {
        Self::with(env, socket_of_the_tests())
    }

    /// One whose products have the engine behind this socket.
    pub(crate) fn with(env: &'a TestEnv, engine: PathBuf) -> Self {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/runtimes/src/engine/desktops.txt");
        let log = env.write("docker.log", "");
        let state = env.write("docker.json", json!({ "client": null }).to_string());
        let text = PROGRAM
            .replace("PYTHON", which("python3").unwrap().to_str().unwrap())
            .replace("STATE", state.to_str().unwrap())
            .replace("LOG", log.to_str().unwrap())
            .replace("FIXTURES", fixtures)
            .replace("DOCKER", which("docker").unwrap().to_str().unwrap());
        let program = env.write_program("programs/docker", &text);
        Self { env, programs: program.parent().unwrap().into(), engine }
    }

    /// Makes the contexts that this product is documented with, its own being the current one then. It does not run yet.
    pub(crate) fn install(&self, product: &str) -> Installed {
        let list = FIXTURES.split(&format!("== contexts {product}\n")).nth(1).unwrap();
        let list = list.split("\n== ").next().unwrap();
        let mut lines = list.lines().filter(|line| !line.starts_with('#'));
        let head = lines.next().unwrap();
        let (description, endpoint) =
            (head.find("DESCRIPTION").unwrap(), head.find("DOCKER ENDPOINT").unwrap());
        let mut current = None;
        for line in lines.filter(|line| !line.trim().is_empty() && !line.starts_with("default ")) {
            let mark = line[..description].trim();
            let name = mark.trim_end_matches(" *").to_string();
            let url = line[endpoint..].split_whitespace().next().unwrap();
            let url = url.replace("/Users/ann", self.env.home().to_str().unwrap());
            self.make_context(&name, line[description..endpoint].trim(), &url);
            if mark != name {
                let socket = PathBuf::from(url.trim_start_matches("unix://"));
                current = Some(Installed { context: name, socket });
            }
        }
        let current = current.expect("no context is the current one");
        self.use_context(&current.context);
        current
    }

    fn make_context(&self, name: &str, description: &str, url: &str) {
        let known = self.env.run(["docker", "context", "ls", "--quiet"]).ok();
        let host = format!("host={url}");
        let words = ["--description", description, "--docker", &host];
        if !known.lines().any(|line| line == name) {
            let _ = self.env.run(["docker", "context", "create", name].into_iter().chain(words)).ok();
        }
    }

    /// What a user does who wants another engine from now on.
    pub(crate) fn use_context(&self, name: &str) {
        let _ = self.env.run(["docker", "context", "use", name]).ok();
    }

    /// The product runs: its socket leads to the engine.
    pub(crate) fn start(&self, product: &Installed) {
        fs::create_dir_all(product.socket.parent().unwrap()).unwrap();
        symlink(&self.engine, &product.socket).unwrap();
    }

    /// It does not.
    pub(crate) fn stop(&self, product: &Installed) {
        fs::remove_file(&product.socket).unwrap();
    }

    /// The version whose messages are printed where no engine answers; None for those of the real client.
    pub(crate) fn speak_as(&self, client: Option<&str>) {
        self.env.write("docker.json", json!({ "client": client }).to_string());
    }

    /// Every call so far whose words contain this one.
    pub(crate) fn calls_with(&self, word: &str) -> Vec<Vec<String>> {
        let log = fs::read_to_string(self.programs.parent().unwrap().join("docker.log")).unwrap();
        let calls = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let words = calls.map(|call| serde_json::from_value::<Vec<String>>(call).unwrap());
        words.filter(|words| words.iter().any(|it| it.starts_with(word))).collect()
    }

    /// A bridge that finds this docker and nothing else, without an engine in its settings.
    pub(crate) fn bridge(&self) -> BridgeBuilder<'a> {
        bridge_on(self.env, "docker").var("PATH", &self.programs).without("DOCKER_HOST")
    }
}
