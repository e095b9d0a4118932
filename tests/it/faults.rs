//! Faults at the edges: the runtime fails at one of its commands, the bridge is killed at any moment, descriptors run out.
//! After each there is a clear answer in bounded time, nothing is left behind, and the next call works.
//!
//! `tests/faults` does more of it, on all rows: `CODEBRIDGE_TEST_FAULTS` is how much more.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::engines::{PodmanService, bridge_on};
use crate::harness::host::{REMOVAL, Traces, instance_of, traces};
use crate::harness::matrix::{PATH, which};
use crate::harness::{Bridge, Kind, Runtime, Suite, TestEnv, eventually};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    let tests = tests![
        a_command_of_the_runtime_that_fails_costs_one_call,
        a_pipe_that_breaks_costs_one_call,
        a_bridge_may_be_killed_at_any_moment,
        code_that_is_stopped_is_gone_soon,
        sessions_without_number_leave_nothing,
        without_descriptors_a_call_is_an_error,
    ];
    let elsewhere = tests![a_command_of_an_engine_elsewhere_that_fails_costs_one_call];
    suite.on(&[Runtime::of_root(Kind::Podman)], "faults", elsewhere);
    match more() {
        None => suite.on(&[Runtime::of_root(Kind::Runc), Runtime::of_user(Kind::Crun)], "faults", tests),
        Some(_) => suite.each_runtime("faults", tests),
    }
}

/// How much more is done than with every change.
pub(crate) fn more() -> Option<usize> {
    let text = std::env::var("CODEBRIDGE_TEST_FAULTS").ok()?;
    Some(text.parse().expect("CODEBRIDGE_TEST_FAULTS is a number"))
}

fn times(usual: usize) -> usize {
    usual * more().unwrap_or(1)
}

/// No answer takes longer: the limits of the runtimes' commands are below it.
pub(crate) const ANSWER: Duration = Duration::from_secs(100);
/// No answer takes longer where no limit of a command is reached, also on a loaded machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// How a command of the runtime fails.
#[derive(Debug, Clone, Copy)]
enum How {
    /// It does nothing.
    Before,
    /// It does its work, and fails then.
    After,
    /// It is killed before it does anything.
    Killed,
    /// Only so many bytes of what the bridge writes reach it.
    Deaf(usize),
    /// Only so many bytes of what it writes reach the bridge.
    Mute(usize),
}

impl How {
    fn words(self) -> String {
        match self {
            Self::Deaf(bytes) => format!("Deaf {bytes}"),
            Self::Mute(bytes) => format!("Mute {bytes}"),
            other => format!("{other:?}"),
        }
    }
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
case " $* " in *" volume create "*) verb=volume-create ;; esac
for word in "$@"; do
    [ -z "$verb" ] || break
    case $word in run | create | cp | kill | delete | state | rm) verb=$word ;; esac
done
if [ -r "$folder/fault" ]; then
    read -r faulty most how bytes <"$folder/fault"
    if [ "$verb" = "$faulty" ] && [ "$(wc -l <"$folder/count")" -lt "$most" ]; then
        echo "$verb" >>"$folder/count"
        case $how in
            Killed) kill -KILL $$ ;;
            After) "$real" "$@" ;;
            Deaf) head -c "$bytes" | exec "$real" "$@" && exit ;;
            Mute) "$real" "$@" | exec head -c "$bytes" && exit ;;
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
        env.write("faults/new", format!("{verb} {most} {}\n", how.words()));
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
fn commands_of(kind: Kind) -> &'static [(&'static str, &'static str)] {
    if kind.is_engine() {
        &[("run", "1"), ("kill", STUBBORN), ("rm", "1")]
    } else {
        &[("run", "1"), ("kill", STUBBORN), ("state", STUBBORN), ("delete", "1")]
    }
}

/// How a command fails that ends.
const HOWS: [How; 3] = [How::Before, How::After, How::Killed];

/// How often a command fails.
fn often() -> &'static [usize] {
    if more().is_some() { &[1, 2, ALWAYS] } else { &[1, ALWAYS] }
}

fn a_command_of_the_runtime_that_fails_costs_one_call(env: &TestEnv) {
    let faulty = Faulty::new(env);
    for most in often() {
        let bridge =
            env.bridge().var("MCP_BRIDGE_RUNTIME", &faulty.program).var("MCP_BRIDGE_WARM", "0").start();
        let _ = bridge.run("x = 1").expect("success");
        for &(verb, code) in commands_of(env.runtime().kind) {
            let hows = if more().is_some() || *most < ALWAYS { &HOWS[..] } else { &[How::Before] };
            fail_in_each_way(&faulty, &bridge, hows, (verb, *most), code);
        }
        let traces = traces(&bridge);
        bridge.close();
        traces.wait_until_nothing_is_left(REMOVAL);
    }
}

/// Has a command fail in each way during a call: that call has an answer, and the next one and the session beside it work.
fn fail_in_each_way(
    faulty: &Faulty,
    bridge: &Bridge<'_>,
    hows: &[How],
    (verb, most): (&str, usize),
    code: &str,
) {
    for &how in hows {
        let story = format!("{verb}, {most} times, {how:?}");
        faulty.fail(bridge.env(), verb, most, how);
        let call = json!({ "code": code, "session": "new", "timeout": 1 });
        let outcome = bridge.call(call).within(SOON);
        let is_clear = ["the disk has caught fire", "was killed by signal 9"];
        let is_clear = is_clear.iter().any(|words| outcome.error().contains(words));
        assert!(outcome.status() != "error" || is_clear, "{story}: {outcome}");
        faulty.work();
        let after = bridge.call(json!({ "code": "40 + 2", "session": "new" }));
        assert_eq!(after.within(SOON).ok(), "42", "{story}");
        assert_eq!(bridge.run("x").ok(), "1", "{story}: the session beside it goes on");
    }
}

/// The commands that copy the folders of a sandbox to an engine elsewhere, and remove the copies.
fn a_command_of_an_engine_elsewhere_that_fails_costs_one_call(env: &TestEnv) {
    let service = PodmanService::start(env, "one");
    let faulty = Faulty::new(env);
    env.write("shared/file", "x");
    let path = format!("{}:{PATH}", faulty.program.parent().unwrap().display());
    let (hows, often): (&[How], _) =
        if more().is_some() { (&HOWS, often()) } else { (&[How::After], &[1][..]) };
    for most in often {
        let bridge = bridge_on(env, &service.target()).var("PATH", &path);
        let bridge = bridge.var("MCP_BRIDGE_SHARE", env.folder("shared")).start();
        let _ = bridge.run("x = 1").expect("success");
        for verb in ["volume-create", "create", "cp", "rm"] {
            fail_in_each_way(&faulty, &bridge, hows, (verb, *most), "1");
        }
        bridge.close();
        eventually("no container is left", REMOVAL, || service.containers().is_empty().then_some(()));
        assert_eq!(service.run(&["volume", "ls", "--quiet"]).ok(), "");
    }
}

/// Frames are cut off in the middle, on their way to the sandbox and back.
fn a_pipe_that_breaks_costs_one_call(env: &TestEnv) {
    let faulty = Faulty::new(env);
    let bridge = env.bridge().var("MCP_BRIDGE_RUNTIME", &faulty.program).var("MCP_BRIDGE_WARM", "0").start();
    let _ = bridge.run("x = 1").expect("success");
    let traces = traces(&bridge);
    let cuts: Vec<How> = match more() {
        // A sandbox that lives and says nothing has a minute to begin: that is for the long run.
        None => vec![How::Deaf(0), How::Deaf(1000), How::Mute(5000)],
        Some(_) => {
            let places = (0..17).step_by(4).map(|power| (1 << power) - 1);
            places.flat_map(|bytes| [How::Deaf(bytes), How::Mute(bytes)]).collect()
        }
    };
    let mut lost = 0;
    for how in cuts {
        faulty.fail(env, "run", ALWAYS, how);
        let call = json!({ "code": "print('a' * 10_000)\n'b' * 1000", "session": "new" });
        let outcome = bridge.call(call).within(ANSWER);
        assert!(!outcome.text.contains("panicked"), "{how:?}: {outcome}");
        if outcome.status() != "success" {
            assert!(!outcome.error().is_empty(), "{how:?}: {outcome}");
            lost += 1;
        }
        faulty.work();
        let after = bridge.call(json!({ "code": "40 + 2", "session": "new" }));
        assert_eq!(after.ok(), "42", "{how:?}");
        assert_eq!(bridge.run("x").ok(), "1", "{how:?}: the session beside it goes on");
    }
    assert!(lost >= 3, "the pipe was cut before it was used {lost} times only");
    bridge.close();
    traces.wait_until_nothing_is_left(REMOVAL);
}

/// What is left where removal itself always fails is found and removed by a command.
pub(crate) fn assert_all_removed(env: &TestEnv, traces: &Traces<'_>) {
    reap(env);
    traces.wait_until_nothing_is_left(REMOVAL);
}

pub(crate) fn reap(env: &TestEnv) {
    // What other tests have left may be out of its reach.
    drop(env.bridge().without("MCP_BRIDGE_LOG_LEVEL").args(&["reap"]).command().run(env.guard()));
}

/// Long runs print how long something takes.
pub(crate) fn print_times(env: &TestEnv, what: &str, mut took: Vec<Duration>) {
    if more().is_none() {
        return;
    }
    took.sort_unstable();
    let percentile = |share: usize| took[(took.len() * share).div_ceil(100).max(1) - 1];
    let [half, most] = [percentile(50), percentile(99)];
    eprintln!("{}: {what}, {} times: p50 {half:.3?}, p99 {most:.3?}", env.runtime(), took.len());
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
    let mut took = Vec::new();
    for round in 0..times(5) {
        let bridge = env.bridge().start();
        let call = bridge.start_saying_ready("main", python!("sleep", "ready"), json!({ "timeout": 100 }));
        if round == 0 {
            bridge.wait_until_ready(&call);
        } else {
            // Not a wait for anything: the moment is what is tried.
            std::thread::sleep(Duration::from_millis(scattered(round, 600)));
        }
        let seen = instance_of(env, bridge.pid()).is_some().then(|| traces(&bridge));
        let has_begun = bridge.has_said_ready(&call);
        let killed = Instant::now();
        bridge.signal(Signal::KILL);
        drop(call.0.answer_if_any());
        let pid = bridge.pid();
        let _ = bridge.wait(REMOVAL);
        eventually("its reaper has ended", REMOVAL, || match &seen {
            Some(traces) => (traces.left().is_empty() || traces.reaper().is_none()).then_some(()),
            None if instance_of(env, pid).is_none() => Some(()),
            None => {
                reap(env);
                None
            }
        });
        match seen.filter(|traces| !traces.left().is_empty()) {
            Some(traces) => {
                // Before code runs, the reaper may not know of the sandbox yet: the next bridge removes it.
                assert!(!has_begun, "round {round}: the reaper left {:#?}", traces.left());
                assert_all_removed(env, &traces);
            }
            None if has_begun => took.push(killed.elapsed()),
            None => {}
        }
    }
    print_times(env, "a kill of the bridge beside code until nothing is left", took);
    let next = env.bridge().start();
    assert_eq!(next.run("40 + 2").ok(), "42");
    next.close();
}

fn code_that_is_stopped_is_gone_soon(env: &TestEnv) {
    let bridge = env.bridge().start();
    let mut traces = {
        let _ = bridge.run("1").expect("success");
        traces(&bridge)
    };
    let (mut interrupted, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..times(1) {
        let call = bridge.start_until_ready("main", python!("sleep", "ready"), json!({ "timeout": 100 }));
        let began = Instant::now();
        call.0.cancel();
        assert_eq!(bridge.run("6 * 7").within(ANSWER).ok(), "42");
        interrupted.push(began.elapsed());
        // Code that does not obey: its sandbox is ended.
        let first = traces.see(&bridge, "stubborn");
        let code = STUBBORN.replace("while", "print('ready', flush=True)\nwhile");
        let call = bridge.start_until_ready("stubborn", &code, json!({ "timeout": 100 }));
        let began = Instant::now();
        call.0.cancel();
        traces.wait_until_gone(first);
        killed.push(began.elapsed());
    }
    print_times(env, "an interrupt until the session is free", interrupted);
    print_times(env, "an interrupt that is ignored until the sandbox is gone", killed);
    bridge.close();
    traces.wait_until_nothing_is_left(REMOVAL);
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
    let prlimit = which("prlimit").unwrap();
    // As many as it needs to begin, and no more: every further one is refused somewhere else.
    for most in [24, 32, 48] {
        let few = format!("--nofile={most}:1024");
        let bridge = env.bridge().behind([prlimit.to_str().unwrap(), &few, "--"]).start();
        let outcome = bridge.run("40 + 2").within(SOON);
        match outcome.status() {
            "success" => assert_eq!(outcome.stdout(), "42"),
            _ => assert!(!outcome.error().is_empty() && !outcome.error().contains("panicked"), "{outcome}"),
        }
        assert_eq!(bridge.ask("ping", json!({})), json!({}));
        let pid = bridge.pid();
        let of_bridge = format!("--pid={pid}");
        let _ = env.run([prlimit.to_str().unwrap(), &of_bridge, "--nofile=1024"]).ok();
        assert_eq!(bridge.run_in("new", "6 * 7").within(SOON).ok(), "42", "{most}");
        bridge.close();
        eventually("nothing is left", REMOVAL, || instance_of(env, pid).is_none().then_some(()));
    }
}
