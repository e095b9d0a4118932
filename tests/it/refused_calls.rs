//! Calls of the system that the kernel refuses to a bridge, at one place after the other, once, twice and from there on; and a
//! disk that becomes full there. After each there is a clear answer in bounded time and nothing is left behind, and where the
//! fault has passed, the next call works on the same bridge.
//!
//! `tests/faults` does more of it.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::faults::{SOON, assert_all_removed, more, reap};
use crate::harness::bridge::LATEST_WITH_INITIALIZE;
use crate::harness::host::{REMOVAL, instance_of, traces};
use crate::harness::matrix::which;
use crate::harness::mounted::Mounted;
use crate::harness::process::{command_line, processes};
use crate::harness::suite::ignore;
use crate::harness::{Bridge, Kind, Outcome, Runtime, Suite, TestEnv, eventually};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    let kinds: &[Kind] = match more() {
        None => &[Kind::Runc],
        Some(_) => &[Kind::Podman, Kind::Crun, Kind::Runc],
    };
    for kind in kinds {
        // A program of an ordinary user that is traced cannot become another user.
        suite.on(
            &[Runtime::of_root(*kind)],
            "faults",
            tests![
                a_call_of_the_system_that_fails_costs_one_call,
                a_disk_that_becomes_full_at_any_place_costs_one_call,
            ],
        );
    }
}

/// What the kernel refuses, with which error, and one place where it does so with every change. Not `write`: the library that
/// waits for events writes to itself, which no full disk refuses.
const REFUSED: [(&str, &str, usize); 9] = [
    ("mkdir,mkdirat", "ENOSPC", 3),
    ("open,openat", "EMFILE", 7),
    ("rename,renameat,renameat2", "ENOSPC", 1),
    ("clone,clone3,vfork", "EAGAIN", 3),
    ("unlink,unlinkat,rmdir", "EIO", 1),
    ("pipe2,socketpair", "EMFILE", 2),
    ("read", "EIO", 8),
    ("fsync,fdatasync", "EIO", 1),
    ("flock", "ENOLCK", 1),
];
/// More often than a thread of a bridge makes any of these calls while it serves a few.
const FAR: usize = 40;

/// Calls of the system that are refused to a program, counted for each of its threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    pub(crate) calls: &'static str,
    pub(crate) error: &'static str,
    /// The first one that is refused.
    pub(crate) place: usize,
    pub(crate) often: Often,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Often {
    Once,
    Twice,
    Always,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} at place {}, {:?}", self.calls, self.error, self.place, self.often)
    }
}

impl Refusal {
    /// The program that refuses them to what it starts, but not to the programs that are started by that.
    pub(crate) fn tracer(&self, env: &TestEnv) -> Vec<OsString> {
        let Ok(strace) = which("strace") else { ignore("strace is not installed") };
        let Self { calls, error, place, often } = self;
        let when = match often {
            Often::Once => place.to_string(),
            Often::Twice => format!("{place}..{}", place + 1),
            Often::Always => format!("{place}+"),
        };
        let mut tracer = vec![strace.into_os_string()];
        tracer.extend(["-D", "-q", "-f", "-b", "execve", "-o"].map(Into::into));
        tracer.push(env.write("refused", "").into());
        tracer.extend(["-e".into(), format!("trace={calls}").into()]);
        tracer.extend(["-e".into(), format!("inject={calls}:error={error}:when={when}").into()]);
        tracer
    }

    /// How often they were refused, when the program has ended.
    pub(crate) fn count(env: &TestEnv) -> usize {
        let log = fs::read_to_string(env.folder("").join("refused")).unwrap();
        log.matches("(INJECTED)").count()
    }
}

/// Refuses each of these at one place, or once, twice and always at each place that is ever reached. `refuse` returns how often
/// it was refused. Returns how many times that were.
pub(crate) fn at_each_place(
    all: &[(&'static str, &'static str, usize)],
    mut refuse: impl FnMut(Refusal) -> usize,
) -> usize {
    let mut tried = 0;
    for &(calls, error, place) in all {
        if more().is_none() {
            let refusal = Refusal { calls, error, place, often: Often::Once };
            assert!(refuse(refusal) > 0, "{refusal}: it is never reached");
            tried += 1;
            continue;
        }
        for often in [Often::Once, Often::Twice, Often::Always] {
            let places = (1..FAR).map(|place| Refusal { calls, error, place, often });
            tried += places.take_while(|refusal| refuse(*refusal) > 0).count();
        }
    }
    tried
}

fn a_call_of_the_system_that_fails_costs_one_call(env: &TestEnv) {
    let tried = at_each_place(&REFUSED, |refusal| refuse(env, refusal));
    if more().is_some() {
        eprintln!("{}: calls of the system that fail, {tried} times", env.runtime());
    }
    let next = env.bridge().start();
    assert_eq!(next.run("40 + 2").ok(), "42");
    next.close();
}

const LEDGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fakes/ledger.py");

/// Defines a server, in a state folder that has nothing else.
pub(crate) fn define_server(env: &TestEnv) {
    let folder = env.home().join("MCPs");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
    let fake = json!({ "command": "python3", "args": [LEDGER, ledger(env)], "description": "a ledger" });
    env.write("home/MCPs/servers.json", json!({ "mcpServers": { "fake": fake } }).to_string());
}

fn ledger(env: &TestEnv) -> PathBuf {
    env.folder("ledger").join("lines")
}

fn has_server(env: &TestEnv) -> bool {
    let path = ledger(env).display().to_string();
    processes().any(|pid| command_line(pid).contains(&path))
}

/// What a bridge is asked for while something fails: sessions, files, a server, its documentation.
const CALLS: [(&str, &str); 5] = [
    ("x = 40 + 2\nx", "main"),
    ("await runtime.save_artifact('a', name='a.txt')", "main"),
    ("await mcp_fake.append(line='x')", "main"),
    ("await runtime.search_tool_docs('append a line')", "main"),
    ("1", "new"),
];

/// Calls until each thread of a bridge has met a fault that passes.
const THREADS: usize = 50;

/// Serves a few calls while the kernel refuses this to the bridge, but not to the programs that it starts. Returns how often it
/// did.
fn refuse(env: &TestEnv, refusal: Refusal) -> usize {
    define_server(env);
    let passes = refusal.often != Often::Always;
    let bridge = env.bridge().behind(refusal.tracer(env)).spawn();
    if !initialized(&bridge) {
        // It never began: the linker, the start of a thread, or the pipes for signals, without which a library panics.
        let log = bridge.wait(REMOVAL).log;
        let is_of_library = refusal.calls.contains("clone") || log.contains("failed to create UnixStream");
        assert!(is_of_library || !log.contains("panicked"), "{refusal}: {log}");
        return Refusal::count(env);
    }
    if !serves(&bridge, passes, &refusal) {
        // It no longer hears its client, and goes as if the client had gone.
        let pid = bridge.pid();
        let log = bridge.wait(REMOVAL).log;
        assert!(log.contains("cannot read standard input"), "{refusal}: {log}");
        if !passes {
            reap(env);
        }
        eventually("nothing is left", REMOVAL, || instance_of(env, pid).is_none().then_some(()));
        return Refusal::count(env);
    }
    let traces = instance_of(env, bridge.pid()).is_some().then(|| traces(&bridge));
    bridge.hang_up();
    let log = bridge.wait(REMOVAL).log;
    // A library panics in a task of its own where it cannot start another thread.
    assert!(refusal.calls.contains("clone") || !log.contains("panicked"), "{refusal}: {log}");
    if refusal.calls.contains("unlink") && !passes {
        // What the kernel did not let it remove; an empty folder of an instance stays for an hour.
        let _ = fs::remove_dir_all(env.folder("tmp"));
        traces.iter().for_each(|traces| drop(fs::remove_dir(&traces.folder)));
    }
    match &traces {
        Some(traces) if passes => traces.wait_until_nothing_is_left(REMOVAL),
        Some(traces) => assert_all_removed(env, traces),
        None => {}
    }
    eventually(&format!("{refusal}: the server has ended"), REMOVAL, || (!has_server(env)).then_some(()));
    Refusal::count(env)
}

/// Asks for everything, and when the fault has passed until the next call works; false when the connection ends.
fn serves(bridge: &Bridge<'_>, passes: bool, story: &dyn fmt::Display) -> bool {
    for (code, session) in CALLS {
        let Some(outcome) = call(bridge, code, session) else { return false };
        assert_clear(&outcome, story);
    }
    let Some((pong, _)) = bridge.request("ping", json!({})).answer_if_any() else { return false };
    assert_eq!(pong["result"], json!({}), "{story}");
    for _ in 0..THREADS {
        if !passes {
            return true;
        }
        let Some(next) = call(bridge, "40 + 2", "new") else { return false };
        if next.status() == "success" {
            assert_eq!(next.ok(), "42", "{story}");
            return true;
        }
        assert_clear(&next, story);
    }
    panic!("{story}: no call works after it")
}

fn call(bridge: &Bridge<'_>, code: &str, session: &str) -> Option<Outcome> {
    let arguments = json!({ "code": code, "session": session, "servers": ["fake"], "timeout": 10 });
    let params = json!({ "name": "run_python", "arguments": arguments });
    let (answer, elapsed): (Value, Duration) = bridge.request("tools/call", params).answer_if_any()?;
    Some(Outcome::parse(&answer["result"], elapsed).within(SOON))
}

/// Begins the connection; false when the bridge has ended instead.
pub(crate) fn initialized(bridge: &Bridge<'_>) -> bool {
    let client = json!({ "name": "codebridge-tests", "version": "1" });
    let params =
        json!({ "protocolVersion": LATEST_WITH_INITIALIZE, "capabilities": {}, "clientInfo": client });
    let answered = bridge.request("initialize", params).answer_if_any().is_some();
    if answered {
        bridge.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }
    answered
}

/// It worked, or there is an error in words.
pub(crate) fn assert_clear(outcome: &Outcome, story: &dyn fmt::Display) {
    if outcome.status() != "success" {
        assert!(!outcome.error().is_empty() && !outcome.text.contains("panicked"), "{story}: {outcome}");
        assert!(!outcome.text.contains("uncategorized"), "{story}: {outcome}");
    }
}

/// Bytes of a page of memory, by which a disk in memory becomes full.
pub(crate) const PAGE: usize = 4096;

/// The home has room for so many pages and no more: everything that a bridge writes to it meets the end of the disk somewhere.
fn a_disk_that_becomes_full_at_any_place_costs_one_call(env: &TestEnv) {
    let pages: Vec<usize> = if more().is_some() { (2..FAR).collect() } else { vec![3, 6] };
    for pages in pages {
        let story = format!("a disk of {pages} pages");
        let disk = Mounted::of_size(env, env.home(), pages * PAGE);
        define_server(env);
        let bridge = env.bridge().start();
        assert!(serves(&bridge, false, &story), "{story}");
        disk.remount("size=1m");
        assert!(serves(&bridge, true, &story), "{story}");
        for (code, session) in CALLS {
            let _ = call(&bridge, code, session).expect(&story).expect("success");
        }
        let traces = traces(&bridge);
        bridge.close();
        traces.wait_until_nothing_is_left(REMOVAL);
    }
}
