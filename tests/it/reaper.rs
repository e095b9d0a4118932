//! Bridges that are killed: their reaper cleans up, and where it is killed too, the next bridge or `codebridge reap` does.
//! What belongs to a running bridge is never touched.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::host::{First, REMOVAL, Traces, traces};
use crate::harness::process::kill;
use crate::harness::{Bridge, Kind, Runtime, Suite, TestEnv, eventually};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime(
        "reaper",
        tests![
            nothing_is_left_of_a_killed_bridge_after_seconds,
            a_reaper_ignores_the_signals_that_end_its_bridge,
        ],
    );
    suite.on(
        &[Runtime::of_root(Kind::Crun), Runtime::of_root(Kind::Runc)],
        "reaper",
        tests![a_container_that_its_runtime_has_not_recorded_is_removed],
    );
    suite.each_runtime_alone(
        "reaper",
        tests![
            the_next_bridge_removes_what_a_killed_reaper_left,
            reap_removes_what_a_killed_reaper_left_and_nothing_else,
        ],
    );
}

const SLEEP: &str = python!("sleep", "ready");

fn nothing_is_left_of_a_killed_bridge_after_seconds(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run_in("idle", "1").expect("success");
    let mut traces = traces(&bridge);
    traces.see(&bridge, "idle");
    traces.see(&bridge, "busy");
    let call = bridge.start_until_ready("busy", SLEEP, json!({ "timeout": 100 }));
    bridge.signal(Signal::KILL);
    assert!(call.0.answer_if_any().is_none());
    let _ = bridge.wait(REMOVAL);
    traces.wait_until_nothing_is_left(REMOVAL);
}

fn a_reaper_ignores_the_signals_that_end_its_bridge(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run("1").expect("success");
    let mut traces = traces(&bridge);
    traces.see(&bridge, "main");
    let reaper = traces.reaper().expect("there is no reaper");
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        kill(reaper, signal);
    }
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
    traces.wait_until_nothing_is_left(REMOVAL);
}

/// As when the runtime is killed in the middle of a start. Its first process is stopped, and does not notice by itself.
fn a_container_that_its_runtime_has_not_recorded_is_removed(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run("1").expect("success");
    let mut traces = traces(&bridge);
    let first = traces.see(&bridge, "main");
    kill(first.pid(), Signal::STOP);
    fs::remove_dir_all(traces.folder.join("oci")).unwrap();
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
    traces.wait_until_gone(first);
    traces.wait_until_nothing_is_left(REMOVAL);
}

/// A bridge that was killed together with its reaper, and a sandbox that cannot notice: it is stopped.
pub(crate) fn leave_something<'a>(env: &'a TestEnv) -> (Traces<'a>, First) {
    let bridge = env.bridge().start();
    let _ = bridge.run("x = 1").expect("success");
    let mut traces = traces(&bridge);
    let first = traces.see(&bridge, "main");
    kill(first.pid(), Signal::STOP);
    let reaper = traces.reaper().expect("there is no reaper");
    kill(reaper, Signal::KILL);
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
    eventually("the reaper is gone", REMOVAL, || traces.reaper().is_none().then_some(()));
    assert!(traces.folder.exists() && traces.processes() == [first.pid()], "{:?}", traces.left());
    assert_eq!(traces.containers().len(), 1);
    (traces, first)
}

fn the_next_bridge_removes_what_a_killed_reaper_left(env: &TestEnv) {
    let living = env.bridge().start();
    let _ = living.run("x = 'alive'").expect("success");
    let (traces, first) = leave_something(env);
    let next = env.bridge().start();
    assert_eq!(next.run("'x' in globals()").ok(), "False");
    traces.wait_until_gone(first);
    traces.wait_until_nothing_is_left(REMOVAL);
    // Whoever did the sweeping has not swept itself, nor its neighbour.
    assert_eq!(next.run("6 * 7").ok(), "42");
    assert_eq!(living.run("x").ok(), "'alive'");
    next.close();
    assert_eq!(living.run("x").ok(), "'alive'");
    living.close();
}

fn reap_removes_what_a_killed_reaper_left_and_nothing_else(env: &TestEnv) {
    let living = env.bridge().start();
    let _ = living.run("x = 'alive'").expect("success");
    let neighbour = instance(&living);
    let (traces, first) = leave_something(env);
    let listed = list(env);
    let dead = format!("codebridge-{}-", traces.id);
    assert!(owner_of(&listed, &dead).iter().all(|owner| owner == "dead"), "{listed:?}");
    assert_eq!(owner_of(&listed, &dead).len(), 1, "{listed:?}");
    assert_eq!(owner_of(&listed, &neighbour), ["alive"], "{listed:?}");
    let output = env.bridge().args(&["reap"]).command().run(env.guard());
    let said = output.ok();
    assert!(said.contains(&format!("removed {dead}")) && !said.contains(&neighbour), "{said}");
    traces.wait_until_gone(first);
    traces.assert_nothing_left();
    assert!(owner_of(&list(env), &dead).is_empty());
    assert_eq!(living.run("x").ok(), "'alive'");
    living.close();
}

/// The beginning of the names of a bridge's sandboxes.
fn instance(bridge: &Bridge<'_>) -> String {
    format!("codebridge-{}-", traces(bridge).id)
}

fn list(env: &TestEnv) -> Vec<Value> {
    let output = env.bridge().args(&["ps", "--json"]).command().run(env.guard());
    serde_json::from_str(&output.ok()).unwrap()
}

/// What is listed of the owners of sandboxes whose names begin like this.
fn owner_of(listed: &[Value], prefix: &str) -> Vec<String> {
    let ours = listed.iter().filter(|one| one["name"].as_str().unwrap().starts_with(prefix));
    ours.map(|one| one["owner"].as_str().unwrap().to_string()).collect()
}
