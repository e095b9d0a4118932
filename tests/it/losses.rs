//! Interpreters and sandboxes that end unexpectedly: a clear reason, and a fresh session afterwards.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::host::{First, REMOVAL, traces};
use crate::harness::process::{children, command_line, kill, parent_of};
use crate::harness::{Bridge, Kind, Outcome, Suite, TestEnv};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime(
        "losses",
        tests![
            an_interpreter_that_ends_itself_says_how,
            a_sandbox_killed_from_outside_while_it_runs_is_an_error_at_once,
            a_sandbox_killed_from_outside_while_idle_is_replaced,
            killing_the_runtimes_client_leaves_no_sandbox_behind,
            killing_the_monitor_while_code_runs_leaves_no_sandbox_behind,
            killing_the_monitor_while_idle_leaves_no_sandbox_behind,
        ],
    );
}

/// Nobody has to wait for a timeout to learn of a loss.
const SOON: Duration = Duration::from_secs(30);

/// The next call of the session starts afresh and says so.
fn assert_fresh(bridge: &Bridge<'_>, session: &str) {
    let fresh = bridge.run_in(session, "'x' in globals()").noting("is new");
    assert_eq!(fresh.ok(), "False", "{session}");
    let again = bridge.run_in(session, "1").expect("success");
    assert_eq!(again.notices(), "", "it is said once: {again}");
}

fn an_interpreter_that_ends_itself_says_how(env: &TestEnv) {
    let cases = [
        ("abort", "import os; os.abort()", 134, "SIGABRT"),
        ("exit", "import os; os._exit(3)", 3, "exit status 3"),
        ("kill", "import os; os.kill(os.getpid(), 9)", 137, "SIGKILL"),
        ("fault", "import ctypes; ctypes.string_at(8)", 139, "SIGSEGV"),
    ];
    let bridge = env.bridge().start();
    for (session, code, exit, reason) in cases {
        let _ = bridge.run_in(session, "x = 1").expect("success");
        let code = format!("print('before', flush=True)\n{code}");
        let outcome = bridge.run_in(session, &code).within(SOON).expect("error").because(reason);
        assert_eq!(
            (outcome.exit(), outcome.stdout().as_str()),
            (Some(exit), "before"),
            "{session}: {outcome}"
        );
        let _ = outcome.noting("has ended");
        assert_fresh(&bridge, session);
    }
    bridge.close();
}

/// Starts code that would run for long.
fn busy<'a>(bridge: &'a Bridge<'_>, session: &str) -> crate::harness::bridge::PendingCall<'a> {
    let code = python!("sleep", "with_x");
    bridge.start_until_ready(session, code, json!({ "timeout": 100 }))
}

fn assert_lost(outcome: Outcome) {
    let outcome = outcome.within(SOON).expect("error").noting("has ended");
    assert!(!outcome.error().is_empty(), "{outcome}");
}

fn a_sandbox_killed_from_outside_while_it_runs_is_an_error_at_once(env: &TestEnv) {
    let bridge = env.bridge().start();
    let mut traces = traces_of(&bridge, "main");
    let first = traces.see(&bridge, "main");
    let call = busy(&bridge, "main");
    kill(first.pid(), Signal::KILL);
    let outcome = call.outcome();
    assert!(!outcome.error().contains("too many files"), "{outcome}");
    assert_lost(outcome);
    assert_fresh(&bridge, "main");
    if env.runtime().kind.carries_streams() {
        let call = busy(&bridge, "main");
        let names = traces.containers();
        assert_eq!(names.len(), 1, "{names:?}");
        let _ = match env.runtime().kind {
            Kind::Kubernetes => env.run(["kubectl", "--context=least", "delete", "pod", "--now", &names[0]]),
            engine => env.run([engine.name(), "kill", &names[0]]),
        }
        .ok();
        assert_lost(call.outcome());
        assert_fresh(&bridge, "main");
    }
    bridge.close();
    traces.assert_nothing_left();
}

fn a_sandbox_killed_from_outside_while_idle_is_replaced(env: &TestEnv) {
    let bridge = env.bridge().start();
    let mut traces = traces_of(&bridge, "main");
    let first = traces.see(&bridge, "main");
    let _ = bridge.run("x = 1").expect("success");
    kill(first.pid(), Signal::KILL);
    traces.wait_until_gone(first);
    // The news may take a moment through an engine; a call that was faster is told of the loss while it runs.
    let next = bridge.run("'x' in globals()").within(SOON);
    match next.status() {
        "success" => assert_eq!(next.noting("is new").ok(), "False"),
        _ => assert_lost(next),
    }
    assert_eq!(bridge.run("'x' in globals()").ok(), "False");
    bridge.close();
    traces.assert_nothing_left();
}

/// The client of an engine carries the sandbox's streams; the low-level runtimes' process only waits. So the session may
/// survive the loss or not, but it must not hang, and nothing may stay.
fn killing_the_runtimes_client_leaves_no_sandbox_behind(env: &TestEnv) {
    let bridge = env.bridge().start();
    let mut traces = traces_of(&bridge, "main");
    let first = traces.see(&bridge, "main");
    let _ = bridge.run("x = 1").expect("success");
    let runs = |pid: &u32| command_line(*pid).iter().any(|word| word == "run");
    let clients: Vec<u32> = children(bridge.pid()).into_iter().filter(runs).collect();
    assert_eq!(clients.len(), 1, "{clients:?}");
    kill(clients[0], Signal::KILL);
    let next = bridge.run("'x' in globals()").within(SOON);
    if next.status() != "success" {
        assert_lost(next);
    } else if next.stdout() == "False" {
        let _ = next.noting("is new");
    }
    if bridge.run("'x' in globals()").ok() == "False" {
        traces.wait_until_gone(first);
    }
    bridge.close();
    traces.assert_nothing_left();
}

/// Kills the process that the runtime keeps for a sandbox: conmon, containerd's shim, or the low-level runtime itself.
fn kill_monitor(first: First) {
    kill(parent_of(first.pid()).expect("the sandbox has ended"), Signal::KILL);
}

fn killing_the_monitor_while_code_runs_leaves_no_sandbox_behind(env: &TestEnv) {
    let bridge = env.bridge().start();
    let mut traces = traces_of(&bridge, "main");
    let first = traces.see(&bridge, "main");
    let call = busy(&bridge, "main");
    kill_monitor(first);
    if env.runtime().kind.carries_streams() {
        assert_lost(call.outcome());
        assert_fresh(&bridge, "main");
        traces.wait_until_gone(first);
    } else {
        // The streams of a low-level runtime are ours: the code goes on.
        call.0.cancel();
        assert_eq!(bridge.run("6 * 7").within(SOON).ok(), "42");
    }
    bridge.close();
    traces.wait_until_nothing_is_left(REMOVAL);
}

fn killing_the_monitor_while_idle_leaves_no_sandbox_behind(env: &TestEnv) {
    let bridge = env.bridge().start();
    let mut traces = traces_of(&bridge, "main");
    let first = traces.see(&bridge, "main");
    let _ = bridge.run("x = 1").expect("success");
    kill_monitor(first);
    let next = bridge.run("'x' in globals()").within(SOON);
    match (next.status(), next.stdout().as_str()) {
        ("success", "False") => drop(next.noting("is new")),
        ("success", _) => {}
        _ => assert_lost(next),
    }
    if bridge.run("'x' in globals()").within(SOON).ok() == "False" {
        traces.wait_until_gone(first);
    }
    bridge.close();
    traces.wait_until_nothing_is_left(REMOVAL);
}

/// What there is of a bridge that has started a sandbox for a session.
fn traces_of<'a>(bridge: &Bridge<'a>, session: &str) -> crate::harness::host::Traces<'a> {
    let _ = bridge.run_in(session, "1").expect("success");
    traces(bridge)
}
