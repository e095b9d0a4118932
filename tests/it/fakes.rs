//! Runtimes that misbehave: each one gives a clear error in bounded time and leaves nothing behind, and the next
//! runtime is used where there is a choice.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::fake::{Fake, launch};
use crate::harness::host::{REMOVAL, traces};
use crate::harness::matrix::which;
use crate::harness::process::start_time;
use crate::harness::{Bridge, Suite, TestEnv, eventually};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "fakes",
        tests![
            the_fake_passes_for_a_runtime,
            a_runtime_that_hangs_can_be_cancelled_and_delays_no_exit,
            a_runtime_that_hangs_when_asked_gives_way_to_the_next,
            a_runtime_that_dies_is_quoted,
            known_messages_have_their_own_reasons,
            garbage_in_place_of_the_guest_is_an_error_at_once,
            a_sandbox_that_dies_in_a_run_is_replaced,
            a_flood_of_error_output_costs_bounded_memory_and_text,
            a_stubborn_runtime_and_what_it_leaves_running_are_ended,
            a_sandbox_that_cannot_be_removed_is_reported_and_ends_in_time,
        ],
    );
}

/// Long before any limit of the bridge's own.
const AT_ONCE: Duration = Duration::from_secs(25);

fn the_fake_passes_for_a_runtime(env: &TestEnv) {
    let fake = Fake::crun(env, &json!({}));
    let bridge = fake.bridge(env).start();
    for _ in 0..3 {
        assert_eq!(bridge.run("1").text, "Success (no output)");
    }
    let traces = traces(&bridge);
    bridge.close();
    traces.assert_nothing_left();
    let whats: Vec<String> = fake.calls().into_iter().map(|call| call.what).collect();
    assert_eq!(whats, ["probe", "launch"]);
}

/// Everything that the fake has started is gone.
fn assert_all_gone(fake: &Fake) {
    eventually("the fake's processes are gone", REMOVAL, || {
        fake.calls().iter().all(|call| start_time(call.pid).is_none()).then_some(())
    });
}

fn wait_for_call(fake: &Fake, what: &str) {
    eventually("the fake was called", REMOVAL, || {
        fake.calls().iter().any(|call| call.what == what).then_some(())
    });
}

fn a_runtime_that_hangs_can_be_cancelled_and_delays_no_exit(env: &TestEnv) {
    let stubborn = [json!({ "ignore_term": true }), json!({ "leave_child": true }), json!({ "hang": true })];
    for what in ["probe", "launch"] {
        let fake = Fake::crun(env, &json!({ what: stubborn }));
        let bridge = fake.bridge(env).start();
        let call = bridge.start_call(json!({ "code": "1" }));
        wait_for_call(&fake, "child");
        assert_eq!(bridge.ask("ping", json!({})), json!({}));
        let traces = traces(&bridge);
        call.0.cancel();
        assert_all_gone(&fake);
        // The next one hangs as well, until the bridge is told to stop.
        let before = fake.calls().len();
        let call = bridge.start_call(json!({ "code": "1" }));
        eventually("the fake was called again", REMOVAL, || (fake.calls().len() > before).then_some(()));
        bridge.signal(Signal::TERM);
        drop(call.0.answer_if_any());
        let ended = bridge.wait(REMOVAL);
        assert_eq!(ended.status.code(), Some(0), "{what}: {}", ended.log);
        assert_all_gone(&fake);
        traces.assert_nothing_left();
        std::fs::remove_file(fake.programs().join("crun")).unwrap();
    }
}

fn a_runtime_that_hangs_when_asked_gives_way_to_the_next(env: &TestEnv) {
    let fake = Fake::named(env, "podman", &json!({ "info": [{ "complain": "thinking" }, { "hang": true }] }));
    std::os::unix::fs::symlink(which("runc").unwrap(), fake.programs().join("runc")).unwrap();
    let bridge = fake.bridge(env).start();
    let outcome = bridge.run("6 * 7").within(Duration::from_secs(60));
    if outcome.status() == "success" {
        assert_eq!(outcome.stdout(), "42");
    } else {
        // A machine without a runtime that works: the hanging one has its reason all the same.
        let _ = outcome.because("podman does not work: did not start in time");
    }
    assert_all_gone(&fake);
    bridge.close();
}

/// A probe that ends with these words.
fn dying(words: &str) -> Value {
    json!({ "probe": [{ "complain": words }, { "exit": 7 }] })
}

fn a_runtime_that_dies_is_quoted(env: &TestEnv) {
    let fake = Fake::crun(env, &dying("first line\nthe disk has caught fire\n"));
    let bridge = fake.bridge(env).start();
    let outcome = bridge.run("1").within(AT_ONCE).expect("error");
    let _ = outcome
        .because("crun does not work: failed: first line\nthe disk has caught fire")
        .because("hint: run `codebridge doctor`");
    fake.now(&json!({ "probe": [{ "exit": 9 }] }));
    let _ = bridge.run("1").within(AT_ONCE).expect("error").because("status 9 and printed nothing");
    fake.now(&json!({ "probe": [{ "say": "codebridgecodebridge" }] }));
    let _ = bridge.run("1").within(AT_ONCE).expect("error");
    // A repaired runtime is found by the next call.
    fake.now(&json!({}));
    let _ = bridge.run("1").expect("success");
    fake.now(&json!({ "launch": [{ "complain": "no more" }, { "exit": 1 }], "probe": [{ "exit": 1 }] }));
    let _ = bridge.run_in("other", "1").within(AT_ONCE).expect("error").because("no more");
    let traces = traces(&bridge);
    bridge.close();
    traces.assert_nothing_left();
}

fn known_messages_have_their_own_reasons(env: &TestEnv) {
    let cases = [
        (
            "cgroups in hybrid mode not supported, drop all controllers from cgroupv1 or unmount cgroupv2",
            "hybrid-cgroups",
        ),
        ("setrlimit `RLIMIT_NOFILE`: Operation not permitted", "rlimit-denied"),
        ("newuidmap: uid range [0-1) -> [100000-100001) not allowed", "no-subuids"),
        ("unshare: Operation not permitted", "no-user-namespaces"),
        ("executable file `python3` not found in $PATH: No such file or directory", "program-missing"),
        ("writing to cgroup.procs: Permission denied", "cgroup-denied"),
        ("what is this", "other"),
    ];
    let fake = Fake::crun(env, &json!({}));
    for (words, reason) in cases {
        fake.now(&dying(words));
        let output = fake.bridge(env).args(&["doctor", "--json"]).command().run(env.guard());
        let said: Value = serde_json::from_str(&output.stdout).unwrap();
        let crun = said["runtimes"].as_array().unwrap().iter().find(|it| it["kind"] == "crun").unwrap();
        assert_eq!(crun["refused"]["reason"], reason, "{words}: {said}");
    }
}

fn garbage_in_place_of_the_guest_is_an_error_at_once(env: &TestEnv) {
    let cases = [
        ("ff".repeat(64), "frame of unknown type"),
        // A type that only the bridge sends.
        (format!("52{}", "00".repeat(8)), "frame of unknown type"),
        ("4f00000001ffffffff".into(), "more than"),
        ("4800000000000000066e6f6e73656e".to_string() + "ff", "malformed"),
        // The hello of another version.
        ("48000000000000000a".to_string() + &hex("protocol=7"), "version 7"),
    ];
    let fake = Fake::crun(env, &json!({}));
    let bridge = fake.bridge(env).start();
    for (bytes, reason) in cases {
        fake.now(&launch(&[json!({ "bytes": bytes }), json!({ "hang": true })]));
        let outcome = bridge.run("1").within(AT_ONCE).expect("error");
        let _ = outcome.because(reason);
        assert_all_gone(&fake);
    }
    // Half a frame, and the end.
    fake.now(&launch(&[json!({ "bytes": "4f000000010000" }), json!({ "exit": 0 })]));
    let _ = bridge.run("1").within(AT_ONCE).expect("error");
    let traces = traces(&bridge);
    bridge.close();
    traces.assert_nothing_left();
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn a_sandbox_that_dies_in_a_run_is_replaced(env: &TestEnv) {
    let last_words = [
        json!({ "guest": "hello" }),
        json!({ "guest": "wait" }),
        json!({ "complain": "the host was rebooted" }),
        json!({ "exit": 1 }),
    ];
    let fake = Fake::crun(env, &launch(&last_words));
    let bridge = fake.bridge(env).start();
    let outcome = bridge.run("1").within(AT_ONCE).expect("error").because("the sandbox went away");
    let _ = outcome.because("ended with status 1").because("the host was rebooted").noting("has ended");
    fake.now(&json!({}));
    let _ = bridge.run("1").expect("success").noting("is new");
    // Frames about a run that is not there, and one of a type that does not exist.
    let forged = format!("4400000063{:08x}{}", 5, hex("ok 0\n"));
    for bytes in [forged, format!("6a{}", "00".repeat(8))] {
        fake.now(&launch(&[
            json!({ "guest": "hello" }),
            json!({ "guest": "wait" }),
            json!({ "bytes": bytes }),
            json!({ "hang": true }),
        ]));
        let _ = bridge.call(json!({ "code": "1", "session": "new" })).within(AT_ONCE).expect("error");
    }
    assert!(fake.calls().len() > 3);
    let traces = traces(&bridge);
    bridge.close();
    traces.assert_nothing_left();
    assert_all_gone(&fake);
}

fn a_flood_of_error_output_costs_bounded_memory_and_text(env: &TestEnv) {
    let flood = json!({ "flood": 64 << 20 });
    let fake = Fake::crun(env, &json!({ "probe": [flood, { "exit": 1 }] }));
    let bridge = fake.bridge(env).start();
    let idle = bridge.peak_memory();
    let outcome = bridge.run("1").expect("error");
    assert!(outcome.text.len() < 6000, "{} bytes", outcome.text.len());
    fake.now(&launch(&[
        flood.clone(),
        json!({ "guest": "hello" }),
        json!({ "guest": "done" }),
        flood,
        json!({ "guest": "done" }),
    ]));
    let _ = bridge.run("1").expect("success");
    let _ = bridge.run("1").expect("success");
    let used = bridge.peak_memory() - idle;
    assert!(used < 16 << 20, "{} MiB beside {} MiB", used >> 20, idle >> 20);
    bridge.close();
}

fn a_stubborn_runtime_and_what_it_leaves_running_are_ended(env: &TestEnv) {
    let stubborn = [
        json!({ "ignore_term": true }),
        json!({ "leave_child": true }),
        json!({ "guest": "hello" }),
        json!({ "guest": "wait" }),
        json!({ "hang": true }),
    ];
    let fake = Fake::crun(env, &launch(&stubborn));
    let bridge = fake.bridge(env).start();
    let outcome = bridge.call(json!({ "code": "1", "timeout": 1 })).within(AT_ONCE).expect("timeout");
    let _ = outcome.because("ignored the interrupt");
    assert_all_gone(&fake);
    // Killed bridges leave it to their reapers.
    let call = bridge.start_call(json!({ "code": "1", "timeout": 100 }));
    eventually("it runs", REMOVAL, || {
        fake.calls().iter().any(|call| start_time(call.pid).is_some()).then_some(())
    });
    let traces = traces(&bridge);
    bridge.signal(Signal::KILL);
    drop(call.0.answer_if_any());
    let _ = bridge.wait(REMOVAL);
    assert_all_gone(&fake);
    traces.wait_until_nothing_is_left(REMOVAL);
}

fn a_sandbox_that_cannot_be_removed_is_reported_and_ends_in_time(env: &TestEnv) {
    let steps = [
        json!({ "state": true }),
        json!({ "guest": "hello" }),
        json!({ "guest": "done" }),
        json!({ "guest": "done" }),
    ];
    let fake =
        Fake::crun(env, &json!({ "launch": steps, "delete": [{ "complain": "stuck" }, { "exit": 1 }] }));
    let bridge = fake.bridge(env).start();
    let _ = bridge.run("1").expect("success");
    let traces = traces(&bridge);
    let started = Instant::now();
    let log = end(bridge);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(log.contains("a sandbox was left behind") && log.contains("still exists"), "{log}");
    assert!(traces.folder.join("owner.json").exists(), "the next bridge can try again");
    // Its owner is dead, so everybody may remove it, once that works.
    fake.now(&json!({ "delete": [{ "remove_state": true }] }));
    let output = fake.bridge(env).args(&["reap"]).command().run(env.guard());
    let _ = output.ok();
    traces.wait_until_nothing_is_left(REMOVAL);
}

fn end(bridge: Bridge<'_>) -> String {
    bridge.hang_up();
    bridge.wait(Duration::from_secs(40)).log
}
