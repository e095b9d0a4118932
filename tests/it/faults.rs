//! Faults at the edges: the runtime fails at one of its commands, the bridge is killed at any moment, descriptors run out.
//! After each there is a clear answer in bounded time, nothing is left behind, and the next call works.
//!
//! `tests/faults` does more of it, on all rows: `CODEBRIDGE_TEST_FAULTS` is how much more.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::host::{REMOVAL, Traces, instance_of, traces};
use crate::harness::matrix::which;
use crate::harness::{Bridge, Kind, Runtime, Suite, TestEnv, eventually};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    let tests = tests![
        a_command_of_the_runtime_that_fails_costs_one_call,
        a_bridge_may_be_killed_at_any_moment,
        sessions_without_number_leave_nothing,
        without_descriptors_a_call_is_an_error,
    ];
    match more() {
        None => suite.on(&[Runtime::of_root(Kind::Runc), Runtime::of_user(Kind::Crun)], "faults", tests),
        Some(_) => suite.each_runtime("faults", tests),
    }
}

/// How much more is done than with every change.
fn more() -> Option<usize> {
    let text = std::env::var("CODEBRIDGE_TEST_FAULTS").ok()?;
    Some(text.parse().expect("CODEBRIDGE_TEST_FAULTS is a number"))
}

fn times(usual: usize) -> usize {
    usual * more().unwrap_or(1)
}

/// No answer takes longer: the limits of the runtimes' commands are below it.
const ANSWER: Duration = Duration::from_secs(100);

/// How a command of the runtime fails.
#[derive(Debug, Clone, Copy)]
enum How {
    /// It does nothing.
    Before,
    /// It does its work, and fails then.
    After,
    /// It is killed before it does anything.
    Killed,
}

/// A runtime whose commands fail when they are told to. The real one is behind it.
struct Faulty {
    program: PathBuf,
    folder: PathBuf,
}

/// In the folder, `fault` has a command, how often it fails and how; `count` has a line for each time it did.
const PROGRAM: &str = r#"#!/bin/sh
real=REAL
folder=FOLDER
verb=
for word in "$@"; do
    case $word in run | create | start | kill | delete | state | rm) verb=$word && break ;; esac
done
if [ -r "$folder/fault" ]; then
    read -r faulty most how <"$folder/fault"
    if [ "$verb" = "$faulty" ] && [ "$(wc -l <"$folder/count")" -lt "$most" ]; then
        echo "$verb" >>"$folder/count"
        case $how in
            Killed) kill -KILL $$ ;;
            After) "$real" "$@" ;;
        esac
        echo "the disk has caught fire" >&2
        exit 1
    fi
fi
exec "$real" "$@"
"#;

impl Faulty {
    fn new(env: &TestEnv) -> Self {
        let name = env.runtime().kind.name();
        let real = which(name).unwrap();
        let folder = env.folder("faults");
        let text =
            PROGRAM.replace("REAL", real.to_str().unwrap()).replace("FOLDER", folder.to_str().unwrap());
        let program = env.write_program(&format!("faulty/{name}"), &text);
        Self { program, folder }
    }

    /// From now on, so many calls of a command fail.
    fn fail(&self, env: &TestEnv, verb: &str, most: usize, how: How) {
        env.write("faults/count", "");
        env.write("faults/new", format!("{verb} {most} {how:?}\n"));
        std::fs::rename(self.folder.join("new"), self.folder.join("fault")).unwrap();
    }

    fn work(&self) {
        std::fs::remove_file(self.folder.join("fault")).unwrap();
    }
}

/// More often than it is called.
const ALWAYS: usize = 1000;
/// Code whose sandbox has to be killed.
const STUBBORN: &str = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [2])\nwhile True: pass";

/// The commands that a bridge uses, each with code that leads to it.
fn commands_of(kind: Kind) -> [(&'static str, &'static str); 3] {
    let removal = if kind.is_engine() { "rm" } else { "delete" };
    [("run", "1"), ("kill", STUBBORN), (removal, "1")]
}

fn a_command_of_the_runtime_that_fails_costs_one_call(env: &TestEnv) {
    let faulty = Faulty::new(env);
    let often: &[usize] = if more().is_some() { &[1, 2, ALWAYS] } else { &[ALWAYS] };
    let bridge = env.bridge().var("MCP_BRIDGE_RUNTIME", &faulty.program).var("MCP_BRIDGE_WARM", "0").start();
    let _ = bridge.run("x = 1").expect("success");
    let traces = traces(&bridge);
    for (verb, code) in commands_of(env.runtime().kind) {
        for most in often {
            for how in [How::Before, How::After, How::Killed] {
                let story = format!("{verb}, {most} times, {how:?}");
                faulty.fail(env, verb, *most, how);
                let call = json!({ "code": code, "session": "new", "timeout": 1 });
                let outcome = bridge.call(call).within(ANSWER);
                let is_clear = ["the disk has caught fire", "was killed by signal 9"];
                let is_clear = is_clear.iter().any(|words| outcome.error().contains(words));
                assert!(outcome.status() != "error" || is_clear, "{story}: {outcome}");
                faulty.work();
                let after = bridge.call(json!({ "code": "40 + 2", "session": "new" }));
                assert_eq!(after.ok(), "42", "{story}");
                assert_eq!(bridge.run("x").ok(), "1", "{story}: the session beside it goes on");
            }
        }
    }
    bridge.close();
    assert_all_removed(env, &traces);
}

/// What a fault has left is found and removed by a command, at the latest.
fn assert_all_removed(env: &TestEnv, traces: &Traces<'_>) {
    // What other tests have left may be out of its reach.
    drop(env.bridge().without("MCP_BRIDGE_LOG_LEVEL").args(&["reap"]).command().run(env.guard()));
    traces.wait_until_nothing_is_left(REMOVAL);
}

/// A number below `most`, the same in each run of the tests.
fn scattered(seed: usize, most: u64) -> u64 {
    let mut state = seed as u64 + 1;
    for _ in 0..3 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    (state >> 33) % most
}

fn a_bridge_may_be_killed_at_any_moment(env: &TestEnv) {
    for round in 0..times(5) {
        let bridge = env.bridge().start();
        let call = bridge.start_call(json!({ "code": "import time\ntime.sleep(100)", "timeout": 100 }));
        // Not a wait for anything: the moment is what is tried.
        std::thread::sleep(Duration::from_millis(scattered(round, 600)));
        let instance = instance_of(env, bridge.pid());
        let seen = instance.is_some().then(|| traces(&bridge));
        bridge.signal(Signal::KILL);
        drop(call.0.answer_if_any());
        let pid = bridge.pid();
        let _ = bridge.wait(REMOVAL);
        match seen {
            Some(traces) => traces.wait_until_nothing_is_left(REMOVAL),
            None => eventually("its reaper has ended", REMOVAL, || {
                (instance_of(env, pid).is_none()).then_some(())
            }),
        }
    }
    let next = env.bridge().start();
    assert_eq!(next.run("40 + 2").ok(), "42");
    next.close();
}

fn open_files(bridge: &Bridge<'_>) -> usize {
    std::fs::read_dir(Path::new("/proc").join(bridge.pid().to_string()).join("fd")).unwrap().count()
}

fn sessions_without_number_leave_nothing(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_WARM", "0").start();
    let throw_away = || bridge.call(json!({ "code": "6 * 7", "session": "new" })).ok();
    for _ in 0..3 {
        assert_eq!(throw_away(), "42");
    }
    let before = open_files(&bridge);
    for _ in 0..times(10) {
        assert_eq!(throw_away(), "42");
    }
    let traces = traces(&bridge);
    eventually("no descriptors are left open", REMOVAL, || (open_files(&bridge) <= before + 2).then_some(()));
    bridge.close();
    traces.assert_nothing_left();
}

fn without_descriptors_a_call_is_an_error(env: &TestEnv) {
    // As many as it needs to begin, and no more: every further one is refused somewhere else.
    for most in [24, 32, 48] {
        let limit = format!("--nofile={most}");
        let prlimit = which("prlimit").unwrap();
        let bridge = env.bridge().behind([prlimit.to_str().unwrap(), &limit, "--"]).start();
        let outcome = bridge.run("40 + 2").within(ANSWER);
        match outcome.status() {
            "success" => assert_eq!(outcome.stdout(), "42"),
            _ => assert!(!outcome.error().is_empty() && !outcome.error().contains("panicked"), "{outcome}"),
        }
        assert_eq!(bridge.ask("ping", json!({})), json!({}));
        let pid = bridge.pid();
        bridge.close();
        eventually("nothing is left", REMOVAL, || instance_of(env, pid).is_none().then_some(()));
    }
}
