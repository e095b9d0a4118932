//! Spare sandboxes: one waits for the next new session. It is nobody's before that, and nobody's after it.

use std::collections::BTreeMap;
use std::fs;
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::host::{REMOVAL, instance_of, traces};
use crate::harness::matrix::{Kind, Runtime};
use crate::harness::process::{kill, processes, start_time};
use crate::harness::{Bridge, Suite, TestEnv, eventually};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime(
        "spares",
        tests![
            a_new_session_gets_a_spare_that_nobody_gets_again,
            a_spare_that_is_gone_is_not_missed,
            nothing_is_left_of_the_spare_of_a_killed_bridge,
        ],
    );
    let crun = [Runtime::of_root(Kind::Crun)];
    let rows: Vec<_> = Runtime::rows().iter().copied().filter(|row| crun.contains(row)).collect();
    suite.on(
        &rows,
        "spares",
        tests![
            without_the_setting_and_on_the_command_line_there_are_none,
            a_spare_ends_with_the_last_idle_session,
            sessions_that_start_at_once_get_what_there_is,
            a_spare_has_the_shared_folders_of_today,
            a_spare_has_an_empty_folder_of_packages,
            a_spare_knows_nothing_of_other_users,
            a_spare_starts_after_a_call_and_beside_a_run_in_the_background,
        ],
    );
    suite.on(&[Runtime::of_root(Kind::Docker)], "spares", tests![spares_end_when_memory_is_short]);
}

/// What the log says of a spare that starts.
const STARTED: &str = "starting a spare sandbox";
/// What the log says of a session that got a spare.
pub(crate) const CLAIMED: &str = "a session gets a spare sandbox";

/// The sandboxes of a bridge by their names, and whether each is a spare.
fn sandboxes(bridge: &Bridge<'_>) -> BTreeMap<String, bool> {
    let env = bridge.env();
    let output = env.bridge().args(&["ps", "--json"]).command().run(env.guard());
    let listed: Vec<Value> = serde_json::from_str(&output.ok()).unwrap();
    let ours = listed.iter().filter(|entry| entry["owner_pid"] == bridge.pid());
    ours.map(|entry| (entry["name"].as_str().unwrap().into(), entry["spare"].as_bool().unwrap())).collect()
}

/// Waits for the spare of a bridge; returns its name.
pub(crate) fn ready_spare(bridge: &Bridge<'_>) -> String {
    eventually("a spare is ready", bridge.env().guard().left(), || {
        sandboxes(bridge).into_iter().find_map(|(name, is_spare)| is_spare.then_some(name))
    })
}

/// All processes of this machine, with the times of their starts.
fn all_processes() -> BTreeMap<u32, u64> {
    processes().filter_map(|pid| Some((pid, start_time(pid)?))).collect()
}

/// A bridge that keeps a spare.
fn warm<'a>(env: &'a TestEnv) -> crate::harness::BridgeBuilder<'a> {
    env.bridge().var("MCP_BRIDGE_WARM", "1")
}

fn a_new_session_gets_a_spare_that_nobody_gets_again(env: &TestEnv) {
    let bridge = warm(env).start();
    let _ = bridge.ask("tools/list", json!({}));
    assert!(instance_of(env, bridge.pid()).is_none(), "something was started before the first execution");
    let random = "import random; (hash('a'), random.random(), 'x' in globals())";
    let main = bridge.run(random).ok();
    let _ = bridge.run("x = 1").expect("success");
    let mut traces = traces(&bridge);
    let mut seen = vec![main];
    let mut spares = Vec::new();
    for session in ["b", "c"] {
        spares.push(ready_spare(&bridge));
        let before = all_processes();
        let first = traces.see(&bridge, session);
        assert!(first.was_among(&before), "the session has a sandbox that was no spare");
        let spare = spares.last().unwrap();
        assert_eq!(sandboxes(&bridge).get(spare), Some(&false), "{spare} is a spare after its use");
        seen.push(bridge.run_in(session, random).ok());
    }
    // One that code has run in is removed, whether that code ended well or not.
    spares.push(ready_spare(&bridge));
    let lost = bridge.run_in("new", "import os; os._exit(3)").expect("error");
    assert_eq!(lost.exit(), Some(3));
    spares.push(ready_spare(&bridge));
    eventually("the sandbox that was used is removed", REMOVAL, || {
        (!sandboxes(&bridge).contains_key(&spares[2])).then_some(())
    });
    assert_eq!(bridge.run_in("c", "import os; os._exit(4)").expect("error").exit(), Some(4));
    let before = all_processes();
    let again = bridge.run_in("c", random).noting("exit status 4");
    assert!(again.stdout().ends_with("False)"), "{again}");
    assert!(traces.see(&bridge, "c").was_among(&before), "the call after a lost one waits for a start");
    assert_eq!(sandboxes(&bridge).get(&spares[3]), Some(&false));
    spares.sort();
    spares.dedup();
    assert_eq!(spares.len(), 4, "a spare was used twice: {spares:?}");
    assert!(seen.iter().all(|text| text.ends_with("False)")), "{seen:?}");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3, "they have the same random numbers: {seen:?}");
    bridge.close();
    traces.assert_nothing_left();
}

fn a_spare_that_is_gone_is_not_missed(env: &TestEnv) {
    let bridge = warm(env).start();
    let _ = bridge.run("x = 1").expect("success");
    let traces = traces(&bridge);
    let spare = ready_spare(&bridge);
    end_from_outside(env, &traces.folder, &spare);
    let next = bridge.run_in("b", "6 * 7").expect("success");
    assert_eq!((next.stdout().as_str(), next.notices().as_str()), ("42", ""), "{next}");
    assert_eq!(bridge.run("x").ok(), "1");
    assert_ne!(ready_spare(&bridge), spare);
    bridge.close();
    traces.assert_nothing_left();
}

/// Kills a sandbox as somebody else would, and does not wait until it has ended.
fn end_from_outside(env: &TestEnv, folder: &std::path::Path, name: &str) {
    let kind = env.runtime().kind;
    if kind.is_engine() {
        let _ = env.run([kind.name(), "kill", name]).ok();
        return;
    }
    if kind == Kind::Kubernetes {
        let _ = env.run(["kubectl", "--context=least", "delete", "pod", "--now", name]).ok();
        return;
    }
    let state = folder.join("oci").join(kind.name()).join(name);
    let (file, key) = match kind {
        Kind::Runc => ("state.json", "init_process_pid"),
        _ => ("status", "pid"),
    };
    let state: Value = serde_json::from_slice(&fs::read(state.join(file)).unwrap()).unwrap();
    kill(state[key].as_u64().unwrap().try_into().unwrap(), Signal::KILL);
}

fn nothing_is_left_of_the_spare_of_a_killed_bridge(env: &TestEnv) {
    let bridge = warm(env).start();
    let _ = bridge.run("1").expect("success");
    let mut traces = traces(&bridge);
    traces.see(&bridge, "main");
    let _ = ready_spare(&bridge);
    assert_eq!(traces.containers().len(), 2);
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
    traces.wait_until_nothing_is_left(REMOVAL);
}

fn without_the_setting_and_on_the_command_line_there_are_none(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run("1").expect("success");
    let before = all_processes();
    let mut traces = traces(&bridge);
    assert!(!traces.see(&bridge, "b").was_among(&before));
    assert_eq!(sandboxes(&bridge).into_values().collect::<Vec<_>>(), [false, false]);
    assert!(!bridge.log().contains("spare"), "{}", bridge.log());
    bridge.close();
    let code = "import time; print(7); time.sleep(1)";
    let output = warm(env).args(&["exec", "-c", code]).command().run(env.guard());
    assert!(!output.stderr.contains("spare"), "{}", output.stderr);
    assert_eq!(output.ok().trim(), "7");
    let refused = env.bridge().args(&["exec", "--warm", "1", "-c", "1"]).command().run(env.guard());
    assert_eq!(refused.code(), Some(2));
}

fn a_spare_ends_with_the_last_idle_session(env: &TestEnv) {
    let bridge = warm(env).var("MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT", "5").start();
    let _ = bridge.run("1").expect("success");
    let traces = traces(&bridge);
    let _ = ready_spare(&bridge);
    eventually("nothing runs", REMOVAL, || {
        (traces.containers().is_empty() && traces.records().is_empty()).then_some(())
    });
    let next = bridge.run("6 * 7").noting("without a call");
    assert_eq!(next.ok(), "42");
    let _ = ready_spare(&bridge);
    bridge.close();
    traces.assert_nothing_left();
}

fn sessions_that_start_at_once_get_what_there_is(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_WARM", "2").start();
    let _ = bridge.run("1").expect("success");
    eventually("two spares are ready", env.guard().left(), || {
        (sandboxes(&bridge).values().filter(|is_spare| **is_spare).count() == 2).then_some(())
    });
    let before = all_processes();
    let mut traces = traces(&bridge);
    let calls: Vec<_> = (0..4)
        .map(|n| bridge.start_call(json!({ "code": format!("x = {n}; x"), "session": format!("s{n}") })))
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.outcome().ok(), n.to_string());
    }
    let old = (0..4).filter(|n| traces.see(&bridge, &format!("s{n}")).was_among(&before)).count();
    assert_eq!(old, 2);
    for n in 0..4 {
        assert_eq!(bridge.run_in(&format!("s{n}"), "x").ok(), n.to_string());
    }
    bridge.close();
    traces.assert_nothing_left();
}

fn a_spare_has_the_shared_folders_of_today(env: &TestEnv) {
    let folder = env.folder("data");
    env.write("data/a", "1");
    let bridge = warm(env).var("MCP_BRIDGE_SHARE", folder.as_os_str()).start();
    let names = "import os; sorted(os.listdir('/shared/data'))";
    assert_eq!(bridge.run(names).ok(), "['a']");
    let spare = ready_spare(&bridge);
    env.write("data/b", "2");
    assert_eq!(bridge.run_in("b", names).ok(), "['a', 'b']");
    assert_eq!(sandboxes(&bridge).get(&spare), Some(&false));
    // A sandbox follows the folder itself, and this is another one.
    let spare = ready_spare(&bridge);
    fs::rename(&folder, folder.with_extension("old")).unwrap();
    let _ = env.folder("data");
    env.write("data/c", "3");
    assert_eq!(bridge.run_in("c", names).ok(), "['c']");
    eventually("the spare with the old folder is removed", REMOVAL, || {
        (!sandboxes(&bridge).contains_key(&spare)).then_some(())
    });
    bridge.close();
}

fn a_spare_has_an_empty_folder_of_packages(env: &TestEnv) {
    let bridge = warm(env).var("MCP_BRIDGE_PACKAGES", "allow").start();
    let _ = bridge.run("1").expect("success");
    let spare = ready_spare(&bridge);
    assert_eq!(bridge.run_in("b", "import os; os.listdir('/packages')").ok(), "[]");
    assert_eq!(sandboxes(&bridge).get(&spare), Some(&false));
    bridge.close();
}

fn a_spare_knows_nothing_of_other_users(env: &TestEnv) {
    let (alice, bob) = (env.token(&["alice"]), env.token(&["bob"]));
    let http = warm(env).listen();
    let (alice, bob) = (http.client(&alice), http.client(&bob));
    let code =
        "def mine():\n    return 'of alice'\nsave_tool(mine)\nruntime.save_artifact(b'secret', 'hers.txt')";
    let _ = alice.run(code).expect("success");
    // Started for alice's bridge, with what alice had last.
    let spare = ready_spare(&http.bridge);
    let seen = "print('mine' in globals(), [one['name'] for one in runtime.artifacts()])";
    assert_eq!(bob.run(seen).ok(), "False []");
    assert_eq!(sandboxes(&http.bridge).get(&spare), Some(&false), "bob's session has another sandbox");
    let of_alice = alice.call(json!({ "code": "mine()", "session": "second" }));
    assert_eq!(of_alice.ok(), "'of alice'");
    // Many of one user do not keep another one waiting.
    thread::scope(|scope| {
        let many: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| alice.call(json!({ "code": "1 + 1", "session": "new" })).ok()))
            .collect();
        assert_eq!(bob.call(json!({ "code": "2 + 2", "session": "new" })).ok(), "4");
        many.into_iter().for_each(|one| assert_eq!(one.join().unwrap(), "2"));
    });
    http.bridge.signal(Signal::TERM);
    let _ = http.bridge.wait(REMOVAL);
}

fn a_spare_starts_after_a_call_and_beside_a_run_in_the_background(env: &TestEnv) {
    let bridge = warm(env).start();
    let loops = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.1)";
    let long = bridge.start_until_ready("main", loops, json!({}));
    let _ = bridge.run_in("b", "1").expect("success");
    let _ = bridge.run_in("b", "import time; time.sleep(1.5)").expect("success");
    assert!(!bridge.log().contains(STARTED), "a spare starts beside a call: {}", bridge.log());
    long.0.cancel();
    let _ = ready_spare(&bridge);
    // It gets the spare, and the next one comes while it runs.
    let background = bridge.call(json!({ "code": loops, "session": "c", "background": true }));
    assert_eq!(background.status(), "running");
    let _ = ready_spare(&bridge);
    let run = &background.structured["runId"];
    assert_eq!(bridge.call(json!({ "run": run, "stop": true })).status(), "cancelled");
    bridge.close();
}

fn spares_end_when_memory_is_short(env: &TestEnv) {
    // The daemon starts the sandboxes, outside of this namespace: others cannot mount /proc below a part of it.
    let report = |available: u64| format!("MemTotal: 16777216 kB\nMemAvailable: {available} kB\n");
    let meminfo = env.write("meminfo", report(8 << 20));
    let script = format!("mount --bind '{}' /proc/meminfo && exec \"$@\"", meminfo.display());
    let bridge = warm(env).behind(["unshare", "--mount", "--", "sh", "-c", &script, "sh"]).start();
    let _ = bridge.run("1").expect("success");
    let spare = ready_spare(&bridge);
    fs::write(&meminfo, report(100 << 10)).unwrap();
    eventually("the spare ends", REMOVAL, || (!sandboxes(&bridge).contains_key(&spare)).then_some(()));
    assert_eq!(bridge.run("2").ok(), "2");
    // The start of another session takes longer than the pause before a spare.
    assert_eq!(bridge.run_in("b", "3").ok(), "3");
    let log = bridge.log();
    assert_eq!(log.matches(STARTED).count(), 1, "a spare starts although memory is short: {log}");
    fs::write(&meminfo, report(8 << 20)).unwrap();
    assert_eq!(bridge.run("4").ok(), "4");
    let _ = ready_spare(&bridge);
    bridge.close();
}
