//! Attacks in processes of their own: one sandbox for each runtime runs all of them, and each attack is a test.

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Arc, LazyLock, OnceLock};

use libtest_mimic::{Completion, Failed, Trial};
use serde_json::{Value, json};

use super::catalogue::{Attack, Mechanism};
use crate::harness::matrix::{Machine, Runtime, which};
use crate::harness::registry::{Registry, store_of};
use crate::harness::suite::{ignore, in_own_env};
use crate::harness::works::works;
use crate::harness::{Suite, TestEnv};
use crate::spares::{CLAIMED, ready_spare};
use crate::tests;

const PRELUDE: &str = include_str!("prelude.py");
/// Name and text of each file.
pub(super) const FILES: [(&str, &str); 6] = [
    ("system_calls", include_str!("system_calls.py")),
    ("network", include_str!("network.py")),
    ("files", include_str!("files.py")),
    ("execution", include_str!("execution.py")),
    ("processes", include_str!("processes.py")),
    ("limits", include_str!("limits.py")),
];
/// In place of an outcome, before the reason.
pub(super) const NOT_TRIED: &str = "not tried: ";
/// In the bridge's environment, and to be found nowhere in a sandbox.
const WORD: &str = "a-word-of-the-host";

/// The attacks of a file.
type Topic = (&'static str, Vec<Arc<Attack>>);

static ATTACKS: LazyLock<Vec<Topic>> = LazyLock::new(|| {
    FILES.map(|(topic, text)| (topic, Attack::all_of(text).into_iter().map(Arc::new).collect())).into()
});

/// How each attack ended, by topic and name, and what holds the limits there.
#[derive(Debug)]
struct Report {
    outcomes: HashMap<(String, String), String>,
    mechanism: Mechanism,
}

pub(crate) fn register(suite: &mut Suite) {
    for (topic, attacks) in ATTACKS.iter() {
        for attack in attacks {
            // Runtime by runtime, so that the tests that start at once do not wait for the same sandbox.
            for &runtime in Runtime::rows() {
                let (topic, attack) = ((*topic).to_string(), Arc::clone(attack));
                let name = format!("{runtime}::attacks::{topic}::{}", attack.test_name());
                suite.trials.push(Trial::ignorable_test(name, move || check(runtime, &topic, &attack)));
            }
        }
    }
    // And all of them at once in roots that come from elsewhere: an engine's own image and a folder are tried above.
    let rows = |runtimes: &[&str]| -> Vec<Runtime> {
        Runtime::rows().iter().copied().filter(|row| runtimes.contains(&row.to_string().as_str())).collect()
    };
    suite.on(
        &rows(&["crun", "crun-user", "runc"]),
        "attacks",
        tests![attacks_end_the_same_in_a_pulled_image],
    );
    suite.on(&rows(&["podman", "docker"]), "attacks", tests![attacks_end_the_same_in_a_folder]);
    suite.on(&rows(&["crun", "podman"]), "attacks", tests![attacks_end_the_same_in_the_host_image]);
    suite.on(
        &rows(&["podman", "docker", "runc", "crun-user"]),
        "attacks",
        tests![attacks_end_the_same_in_a_spare_sandbox],
    );
    for (topic, attacks) in ATTACKS.iter() {
        for attack in attacks.iter().filter(|attack| attack.differs_outside) {
            let (topic, attack) = ((*topic).to_string(), Arc::clone(attack));
            let name = format!("attacks::outside::{topic}::{}", attack.test_name());
            suite.trials.push(Trial::test(name, move || check_outside(&topic, &attack)));
        }
    }
}

fn check(runtime: Runtime, topic: &str, attack: &Attack) -> Result<Completion, Failed> {
    if let Err(reason) = works(runtime) {
        return Ok(Completion::ignored_with(reason));
    }
    static REPORTS: [OnceLock<Result<Report, String>>; 7] = [const { OnceLock::new() }; 7];
    let index = Runtime::rows().iter().position(|known| *known == runtime).unwrap();
    let report =
        REPORTS[index].get_or_init(|| in_own_env(Some(runtime), |env| inside(env, None, false))).as_ref()?;
    let expected = attack.outcome(runtime, report.mechanism);
    if let Some(why) = expected.strip_prefix(NOT_TRIED) {
        return Ok(Completion::ignored_with(why));
    }
    match report.outcomes.get(&(topic.into(), attack.name.clone())) {
        Some(outcome) if expected.split(" or ").any(|one| one == outcome.trim()) => Ok(Completion::Completed),
        outcome => Err(format!("expected {expected:?}, got {outcome:?}\n{}", attack.code).into()),
    }
}

fn attacks_end_the_same_in_a_pulled_image(env: &TestEnv) {
    let registry = Registry::start(env);
    // What the image says itself is there.
    all_end_alike(env, &format!("{}/python:gzip", registry.host), &[("the environment", "done: ['FOO']")]);
}

fn attacks_end_the_same_in_a_folder(env: &TestEnv) {
    let Some(folder) = &Machine::get().rootfs_314 else {
        ignore("this machine is not prepared, see tests/check")
    };
    all_end_alike(env, &format!("dir:{}", folder.display()), &[]);
}

fn attacks_end_the_same_in_the_host_image(env: &TestEnv) {
    // Its nsswitch.conf knows files alone.
    all_end_alike(env, "host:", &[("a name", "gaierror: [Errno -2] Name or service not known")]);
}

fn attacks_end_the_same_in_a_spare_sandbox(env: &TestEnv) {
    compare(env, &inside(env, None, true), "a spare sandbox", &[]);
}

/// Every attack ends as it does in the usual image, but for these.
fn all_end_alike(env: &TestEnv, image: &str, but: &[(&str, &str)]) {
    compare(env, &inside(env, Some(image), false), image, but);
}

fn compare(env: &TestEnv, report: &Report, place: &str, but: &[(&str, &str)]) {
    let mut others = Vec::new();
    for (topic, attacks) in ATTACKS.iter() {
        for attack in attacks {
            let expected = attack.outcome(env.runtime(), report.mechanism);
            let outcome = report.outcomes.get(&((*topic).into(), attack.name.clone()));
            let own = but.iter().find(|(name, _)| *name == attack.name).map(|(_, outcome)| *outcome);
            let as_expected = outcome.map(|outcome| outcome.trim()).is_some_and(|outcome| match own {
                Some(own) => outcome == own,
                None => expected.split(" or ").any(|one| one == outcome),
            });
            if !as_expected {
                others.push(format!("{topic}, {}: expected {expected:?}, got {outcome:?}", attack.name));
            }
        }
    }
    assert!(others.is_empty(), "in {place}:\n{}", others.join("\n"));
}

fn check_outside(topic: &str, attack: &Attack) -> Result<(), Failed> {
    static REPORT: OnceLock<Result<Report, String>> = OnceLock::new();
    let report = REPORT.get_or_init(|| in_own_env(None, outside)).as_ref()?;
    let runtime = Runtime::ALL[0];
    let refused = attack.outcome(runtime, Mechanism::Cgroup);
    match report.outcomes.get(&(topic.into(), attack.name.clone())) {
        Some(outcome) if outcome != refused => Ok(()),
        outcome => Err(format!("{outcome:?} outside of any sandbox, too\n{}", attack.code).into()),
    }
}

/// What a host has that no sandbox may reach: listeners, a file, a process.
struct Host {
    tcp: TcpListener,
    abstract_socket: UnixListener,
    socket: UnixListener,
    known: Value,
}

impl Host {
    fn new(env: &TestEnv) -> Self {
        let name = format!("codebridge-attack-{}-{}", std::process::id(), env.number());
        let path = env.folder("tmp").join("attack.sock");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let abstract_socket =
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes()).unwrap()).unwrap();
        let socket = UnixListener::bind(&path).unwrap();
        let known = json!({
            "port": tcp.local_addr().unwrap().port(),
            "abstract": name,
            "socket": path,
            "file": env.write("tmp/attack.txt", "a file of the host"),
            "pid": std::process::id(),
            "word": WORD,
        });
        Self { tcp, abstract_socket, socket, known }
    }

    /// How many have called.
    fn callers(&self) -> usize {
        self.tcp.set_nonblocking(true).unwrap();
        self.abstract_socket.set_nonblocking(true).unwrap();
        self.socket.set_nonblocking(true).unwrap();
        std::iter::from_fn(|| self.tcp.accept().ok()).count()
            + std::iter::from_fn(|| self.abstract_socket.accept().ok()).count()
            + std::iter::from_fn(|| self.socket.accept().ok()).count()
    }

    /// The prelude, and an attempt of these attacks.
    fn cell<'a>(&self, attacks: impl Iterator<Item = &'a Arc<Attack>>) -> String {
        let attacks: Vec<_> = attacks.map(|attack| (&attack.name, &attack.code)).collect();
        format!("{PRELUDE}\nHOST = {}\nattempt({})\n", self.known, json!(attacks))
    }
}

/// One line of JSON an attack: name and outcome.
fn take(topic: &str, lines: &str, outcomes: &mut HashMap<(String, String), String>) {
    for line in lines.lines() {
        let (name, outcome): (String, String) = serde_json::from_str(line).unwrap();
        outcomes.insert((topic.into(), name), outcome);
    }
}

/// Tries all of them in a sandbox of the test's runtime: in its usual image, or in this one; in one that was a spare.
fn inside(env: &TestEnv, image: Option<&str>, in_spare: bool) -> Report {
    let host = Host::new(env);
    // Whoever starts the bridge may leave descriptors open; nothing of them may reach a sandbox.
    let leaky = ["/bin/sh", "-c", "exec 7<\"$0\" && exec \"$@\"", host.known["file"].as_str().unwrap()];
    let mut bridge = env.bridge().var("CODEBRIDGE_ATTACK", WORD).behind(leaky);
    if let Some(image) = image {
        bridge = bridge.var("MCP_BRIDGE_IMAGE", image).var("XDG_DATA_HOME", store_of(env));
    }
    if in_spare {
        bridge = bridge.var("MCP_BRIDGE_WARM", "1");
    }
    let bridge = bridge.start();
    if in_spare {
        let _ = bridge.run_in("first", "1").expect("success");
        let _ = ready_spare(&bridge);
    }
    let mut outcomes = HashMap::new();
    let mechanism = Mechanism::of(&bridge);
    for (topic, attacks) in ATTACKS.iter() {
        let is_tried = |it: &&Arc<Attack>| !it.outcome(env.runtime(), mechanism).starts_with(NOT_TRIED);
        let attacks = attacks.iter().filter(is_tried);
        let output = bridge.call(json!({ "code": host.cell(attacks), "timeout": 100 })).ok();
        take(topic, &output, &mut outcomes);
    }
    assert!(!in_spare || bridge.log().contains(CLAIMED), "the session has a sandbox that was no spare");
    assert_eq!(host.callers(), 0, "somebody reached the host's listeners");
    let _ = bridge.close();
    Report { outcomes, mechanism }
}

/// As root, with its own mounts, host name and IPC so that nothing is changed whatever happens.
fn outside(env: &TestEnv) -> Report {
    let host = Host::new(env);
    let mut outcomes = HashMap::new();
    for (topic, attacks) in ATTACKS.iter() {
        let cell = host.cell(attacks.iter().filter(|attack| attack.differs_outside));
        let mut command = env.command(which("unshare").unwrap());
        let program = ["--mount", "--ipc", "--uts", "--", "/usr/bin/python3", "-I", "-"];
        command.argv.extend(program.map(Into::into));
        let output = command.run_with_input(env.guard(), cell.as_bytes()).ok();
        take(topic, &output, &mut outcomes);
    }
    assert_eq!(host.callers(), 3, "the listeners were there to be reached");
    Report { outcomes, mechanism: Mechanism::Cgroup }
}
