//! Faults of the host below a bridge: processes run out, folders are full or read-only, the runtime is
//! stopped, the clock jumps. After each there is a clear answer in bounded time, nothing is left behind, and the next call works.
//!
//! `tests/faults` does more of it.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::faults::{ANSWER, SOON, more};
use crate::harness::engines::{PodmanService, bridge_on};
use crate::harness::host::{REMOVAL, traces};
use crate::harness::matrix::which;
use crate::harness::mounted::Mounted;
use crate::harness::process::{kill, parent_of};
use crate::harness::suite::ignore;
use crate::harness::{BridgeBuilder, Kind, Runtime, Suite, TestEnv, eventually};
use crate::installs::{WithUv, wheels};
use crate::refused_calls::{assert_clear, define_server, initialized};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    let of_root = tests![
        without_processes_a_call_is_an_error,
        a_full_or_read_only_state_folder_costs_no_call,
        a_clock_that_jumps_costs_nothing_and_nobody_s_sandbox,
    ];
    let of_user = tests![a_full_folder_of_sandboxes_is_said_and_left_empty];
    let of_each = tests![a_stopped_runtime_costs_one_session];
    suite.on(&[Runtime::of_root(Kind::Runc)], "faults", of_root);
    suite.on(&[Runtime::of_user(Kind::Crun)], "faults", of_user);
    let kinds: &[Kind] = match more() {
        None => &[Kind::Runc],
        Some(_) => &[Kind::Podman, Kind::Crun, Kind::Runc],
    };
    for kind in kinds {
        suite.on(&[Runtime::of_root(*kind)], "faults", of_each);
    }
    if more().is_some() {
        let podman = [Runtime::of_root(Kind::Podman)];
        suite.on(&podman, "faults", tests![a_storage_that_somebody_else_has_locked_costs_one_call]);
    }
}

/// A control group that limits processes.
struct Group(PathBuf);

impl Group {
    fn new(env: &TestEnv) -> Self {
        let name = format!("codebridge-test-{}-{}", std::process::id(), env.number());
        let places = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(|place| Path::new(place).join(&name));
        for place in places {
            if fs::create_dir(&place).is_ok() {
                if place.join("pids.max").exists() {
                    return Self(place);
                }
                fs::remove_dir(&place).unwrap();
            }
        }
        ignore("there is no control group for processes")
    }

    fn allow(&self, most: &str) {
        fs::write(self.0.join("pids.max"), most).unwrap();
    }

    /// Has another program start the bridge in the group.
    fn around<'a>(&self, bridge: BridgeBuilder<'a>) -> BridgeBuilder<'a> {
        let enter = format!("echo $$ >'{}/cgroup.procs' && exec \"$@\"", self.0.display());
        bridge.behind(["/bin/sh", "-c", &enter, "sh"])
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn without_processes_a_call_is_an_error(env: &TestEnv) {
    let group = Group::new(env);
    // With two, it is chance whether the kernel has forgotten a thread that has ended.
    let counts: &[u32] = if more().is_some() { &[1, 3, 4, 5, 6, 7, 8] } else { &[1, 3, 5] };
    for most in counts {
        group.allow(&most.to_string());
        let bridge = group.around(env.bridge()).spawn();
        if !initialized(&bridge) {
            let log = bridge.wait(REMOVAL).log;
            let said = "error: could not start a thread: Resource temporarily unavailable";
            assert!(*most == 1 && log.contains(said) && log.contains("\nhint: "), "{most}: {log}");
            group.allow("max");
            continue;
        }
        let outcome = bridge.run("40 + 2").within(SOON);
        assert_clear(&outcome, &format!("{most} processes"));
        if outcome.error().contains("no more resources") {
            assert!(outcome.text.contains("raise the limits of processes"), "{outcome}");
        }
        group.allow("max");
        assert_eq!(bridge.run("40 + 2").within(SOON).ok(), "42", "{most}");
        let traces = traces(&bridge);
        bridge.close();
        traces.wait_until_nothing_is_left(REMOVAL);
    }
    eventually("the group is empty", REMOVAL, || fs::remove_dir(&group.0).ok());
}

const SAVES: &str = "await runtime.save_artifact('a', name='a.txt')";

fn a_full_or_read_only_state_folder_costs_no_call(env: &TestEnv) {
    let folder = Mounted::new(env, env.folder("home/MCPs"));
    // Not later: a file that is open for writing holds it.
    define_server(env);
    folder.remount("ro");
    let packages = Mounted::new(env, env.folder("home/.cache"));
    packages.remount("ro");
    let bridge = env.bridge().with_wheels(&wheels(env)).var("MCP_BRIDGE_PACKAGES", "allow").start();
    let _ = bridge.run("x = 1").expect("success");
    let saved = "def double(n: int) -> int:\n    return 2 * n\nsave_tool(double)";
    for is_full in [false, true] {
        if is_full {
            folder.fill();
            packages.fill();
        }
        assert_eq!(bridge.run("x").ok(), "1");
        // What is known of a server is kept where there is space; it is called all the same.
        let call = |code: &str| bridge.call(json!({ "code": code, "servers": ["fake"] })).within(SOON);
        let _ = call("await mcp_fake.append(line='x')").expect("success");
        assert!(call("await runtime.search_tool_docs('append a line')").ok().contains("append"));
        // A session gets its folder of packages when it starts.
        let refused = bridge.run_in("new", "runtime.install('plain')").within(SOON).expect("error");
        assert!(
            ["the package store", "the disk of the host is full"]
                .iter()
                .any(|why| refused.error().contains(why)),
            "{refused}"
        );
        for code in [saved, "await runtime.save_artifact(bytes(100_000), name='a.bin')"] {
            let refused = bridge.run(code).within(ANSWER).expect("error");
            assert!(refused.error().contains("the bridge could not "), "{refused}");
        }
        let long = bridge.run("for n in range(20_000): print('line', n)");
        assert!(long.stdout().contains("line 19999"), "{long}");
        assert_eq!(bridge.run_in("new", "6 * 7").ok(), "42");
        if is_full {
            folder.free();
            packages.free();
        } else {
            folder.remount("rw");
            packages.remount("rw");
        }
        assert_eq!(bridge.run(saved).ok(), "'Saved: double() is defined in every later session.'");
        assert!(bridge.run(SAVES).ok().contains("artifact a.txt"));
    }
    // An installation leaves the host a gigabyte.
    packages.remount("size=2g");
    assert_eq!(bridge.run_in("new", "runtime.install('plain')").ok(), "['plain 2.0']");
    assert_eq!(bridge.run("x").ok(), "1");
    let traces = traces(&bridge);
    bridge.close();
    traces.wait_until_nothing_is_left(REMOVAL);
}

fn a_full_folder_of_sandboxes_is_said_and_left_empty(env: &TestEnv) {
    let folder = Mounted::new(env, env.folder("full"));
    let state = folder.1.join("codebridge");
    let bridge = env.bridge().var("XDG_RUNTIME_DIR", &folder.1).start();
    let left = || fs::read_dir(&state).into_iter().flatten().count();
    folder.fill();
    for _ in 0..2 {
        let refused = bridge.run("40 + 2").within(SOON).expect("error").because("No space left on device");
        assert!(refused.error().contains(state.to_str().unwrap()), "{refused}");
        assert_eq!(left(), 0, "what was begun is removed");
    }
    folder.free();
    assert_eq!(bridge.run("x = 42\nx").ok(), "42");
    // Full while a session is there: another one is refused, this one goes on.
    folder.fill();
    let _ = bridge.run_in("new", "1").within(SOON).expect("error").because("No space left on device");
    assert_eq!(bridge.run("x").ok(), "42");
    folder.free();
    assert_eq!(bridge.run_in("new", "6 * 7").ok(), "42");
    bridge.close();
    assert_eq!(left(), 0);
}

/// The process that the runtime keeps for a sandbox does nothing any more: conmon, or the low-level runtime itself.
fn a_stopped_runtime_costs_one_session(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run("x = 1").expect("success");
    let mut traces = traces(&bridge);
    let first = traces.see(&bridge, "main");
    let monitor = parent_of(first.pid()).unwrap();
    kill(monitor, Signal::STOP);
    let outcome = bridge.call(json!({ "code": "x", "timeout": 1 })).within(ANSWER);
    assert!(matches!(outcome.status(), "success" | "timeout"), "{outcome}");
    assert_eq!(bridge.run_in("beside", "6 * 7").ok(), "42");
    assert_eq!(bridge.run("40 + 2").within(ANSWER).ok(), "42");
    bridge.close();
    // It may have been killed already.
    if traces.processes().is_empty() && Path::new("/proc").join(monitor.to_string()).exists() {
        kill(monitor, Signal::CONT);
    }
    traces.wait_until_nothing_is_left(REMOVAL);
}

const FAKE_TIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

fn a_clock_that_jumps_costs_nothing_and_nobody_s_sandbox(env: &TestEnv) {
    if !Path::new(FAKE_TIME).exists() {
        ignore("libfaketime is not installed");
    }
    let clock = env.write("clock", "+0");
    let jump = |to: &str| {
        env.write("clock.new", to);
        fs::rename(clock.with_extension("new"), &clock).unwrap();
    };
    let bridge = env
        .bridge()
        .var("LD_PRELOAD", FAKE_TIME)
        .var("FAKETIME_TIMESTAMP_FILE", &clock)
        .var("FAKETIME_NO_CACHE", "1")
        .var("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .start();
    let _ = bridge.run("x = 1").expect("success");
    let long = bridge.start_until_ready("long", python!("sleep", "ready"), json!({ "timeout": 100 }));
    for to in ["+10y", "-10y", "+0"] {
        jump(to);
        assert_eq!(bridge.run("x").ok(), "1", "{to}: the session is still there");
        assert!(bridge.run(SAVES).ok().contains("artifact a.txt"), "{to}");
        assert_eq!(bridge.run_in("new", "6 * 7").ok(), "42", "{to}");
        // A bridge with the right clock does not remove what this one has.
        drop(env.bridge().without("MCP_BRIDGE_LOG_LEVEL").args(&["reap"]).command().run(env.guard()));
        assert!(!long.0.is_answered(), "{to}: a time limit is none of the clock");
    }
    long.0.cancel();
    assert_eq!(bridge.run_in("long", "6 * 7").ok(), "42");
    let traces = traces(&bridge);
    bridge.close();
    traces.wait_until_nothing_is_left(REMOVAL);
    let lines =
        crate::audit::files(env).iter().map(|file| fs::read_to_string(file).unwrap()).collect::<String>();
    let years: Vec<String> = lines
        .lines()
        .filter_map(|line| Some(serde_json::from_str::<Value>(line).ok()?["time"].as_str()?[..4].to_owned()))
        .collect();
    assert!(years.iter().any(|year| *year > years[0]), "the clock did jump: {years:?}");
    crate::audit::is_in_order(env);
}

/// Locks what an engine locks for its own work, until it is killed: <https://github.com/containers/storage>.
const LOCKER: &str = "import fcntl, pathlib, signal, sys\n\
    files = [open(path, 'r+') for path in pathlib.Path(sys.argv[1]).rglob('*.lock')]\n\
    [fcntl.lockf(file, fcntl.LOCK_EX) for file in files]\n\
    pathlib.Path(sys.argv[2]).write_text(str(len(files)))\n\
    signal.pause()";

fn a_storage_that_somebody_else_has_locked_costs_one_call(env: &TestEnv) {
    let one = PodmanService::start(env, "one");
    let bridge = bridge_on(env, &one.target()).start();
    let _ = bridge.run("x = 1").expect("success");
    let locked = env.folder("flags").join("locked");
    let mut locker = env.command(which("python3").unwrap());
    locker.argv.extend(["-c", LOCKER].map(Into::into));
    locker.argv.extend([one.storage().into_os_string(), locked.clone().into_os_string()]);
    let mut locker = locker.serve(env.guard(), REMOVAL, || locked.exists().then_some(()));
    assert_ne!(fs::read_to_string(&locked).unwrap(), "0", "the engine has no locks");
    // The start, the removal and the question how the engine is wait for it in turn.
    let refused = bridge.run_in("new", "1").within(2 * ANSWER).expect("error");
    assert!(refused.error().contains("podman:one"), "{refused}");
    assert_eq!(bridge.run("x").ok(), "1");
    locker.signal(Signal::KILL);
    locker.wait();
    assert_eq!(bridge.run_in("new", "6 * 7").ok(), "42");
    bridge.close();
    eventually("nothing is left", REMOVAL, || one.containers().is_empty().then_some(()));
}
