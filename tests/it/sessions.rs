//! Many sessions in one bridge: calls of one session run in order, sessions run side by side, their number is
//! limited, and idle ones end.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::host::{REMOVAL, traces};
use crate::harness::matrix::Kind;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::server_access::{define, fake};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime(
        "sessions",
        tests![
            calls_of_a_session_run_in_order_and_sessions_run_side_by_side,
            the_least_recently_used_idle_session_ends_first,
            an_idle_session_ends_and_the_next_call_says_so,
            a_throw_away_session_leaves_nothing,
            without_persistence_every_call_has_a_sandbox_of_its_own,
        ],
    );
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "sessions",
        tests![a_call_that_waited_for_long_uses_the_servers_of_then],
    );
}

fn calls_of_a_session_run_in_order_and_sessions_run_side_by_side(env: &TestEnv) {
    let bridge = env.bridge().start();
    let code = python!("sleep", "with_seen");
    let long = bridge.start_until_ready("main", code, json!({ "timeout": 100 }));
    let queued: Vec<_> = (1..=10)
        .map(|n| bridge.start_call(json!({ "code": format!("seen.append({n}); print(len(seen))") })))
        .collect();
    // All of these are answered while the long call runs.
    assert_eq!(bridge.run_in("other", "6 * 7").ok(), "42");
    assert_eq!(bridge.ask("ping", json!({})), json!({}));
    assert_eq!(bridge.ask("tools/list", json!({}))["tools"][0]["name"], "run_python");
    let parallel: Vec<_> = (0..4)
        .map(|n| bridge.start_call(json!({ "code": format!("{n} + 1"), "session": format!("s{n}") })))
        .collect();
    for (n, call) in parallel.into_iter().enumerate() {
        assert_eq!(call.outcome().ok(), (n + 1).to_string());
    }
    assert!(!long.0.is_answered() && queued.iter().all(|call| !call.0.is_answered()));
    long.0.cancel();
    for (n, call) in queued.into_iter().enumerate() {
        assert_eq!(call.outcome().ok(), (n + 2).to_string());
    }
    assert_eq!(bridge.run("seen == list(range(11))").ok(), "True");
    bridge.close();
}

fn a_call_that_waited_for_long_uses_the_servers_of_then(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    let bridge = env.bridge().start();
    let busy = bridge.start_until_ready("main", python!("sleep", "ready"), json!({ "timeout": 100 }));
    let uses = |session: &str| {
        let code = "print(await mcp_fake.echo(a=1))";
        bridge.start_call(json!({ "code": code, "servers": ["fake"], "session": session }))
    };
    let (waiting, queued) = (uses("main"), Instant::now());
    // Its servers were looked up before those of a later call.
    assert_eq!(uses("other").outcome().ok(), "{'a': 1}");
    define(env, &json!({}));
    eventually("it has waited for long", REMOVAL, || {
        (queued.elapsed() > Duration::from_millis(1_500)).then_some(())
    });
    assert!(!waiting.0.is_answered());
    busy.0.cancel();
    let refused = waiting.outcome().expect("validation_error");
    assert!(refused.error().contains("fake"), "{refused}");
    bridge.close();
}

fn the_least_recently_used_idle_session_ends_first(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_MAX_SESSIONS", "2").start();
    let _ = bridge.run_in("a", "x = 'a'").expect("success");
    let mut traces = traces(&bridge);
    let of_a = traces.see(&bridge, "a");
    let _ = bridge.run_in("b", "x = 'b'").expect("success");
    let _ = bridge.run_in("a", "x").expect("success");
    let _ = bridge.run_in("c", "x = 'c'").expect("success");
    assert_eq!(bridge.run_in("a", "x").ok(), "'a'", "a was used after b");
    let back =
        bridge.run_in("b", "'x' in globals()").noting("the previous one was ended to start another session");
    assert_eq!(back.ok(), "False");
    // Now a and b live. Both busy: a third one waits for the first that becomes idle, and replaces it.
    let code = python!("sleep", "ready");
    let busy_a = bridge.start_until_ready("a", code, json!({ "timeout": 100 }));
    let busy_b = bridge.start_until_ready("b", code, json!({ "timeout": 100 }));
    let waiting = bridge.start_call(json!({ "code": "'c' + 'd'", "session": "d" }));
    assert_eq!(bridge.ask("ping", json!({})), json!({}));
    assert!(!waiting.0.is_answered());
    busy_a.0.cancel();
    assert_eq!(waiting.outcome().ok(), "'cd'");
    traces.wait_until_gone(of_a);
    assert!(!busy_b.0.is_answered(), "a busy session is not ended");
    busy_b.0.cancel();
    bridge.close();
    traces.assert_nothing_left();
}

fn an_idle_session_ends_and_the_next_call_says_so(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT", "1").start();
    let _ = bridge.run("x = 1").expect("success");
    let mut traces = traces(&bridge);
    let first = traces.see(&bridge, "main");
    traces.wait_until_gone(first);
    eventually("no container is left", REMOVAL, || {
        (traces.containers().is_empty() && traces.records().is_empty()).then_some(())
    });
    let next = bridge.run("'x' in globals()").noting("without a call");
    assert_eq!(next.ok(), "False");
    // A call that runs for longer than that is not idle.
    let long = bridge.run("import time; time.sleep(1.5); 'done'").expect("success");
    assert_eq!((long.stdout().as_str(), long.notices().as_str()), ("'done'", ""), "{long}");
    bridge.close();
    traces.assert_nothing_left();
}

fn a_throw_away_session_leaves_nothing(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run("x = 'main'").expect("success");
    let mut traces = traces(&bridge);
    let first = traces.see_throw_away(&bridge, "new");
    traces.wait_until_gone(first);
    let both: Vec<_> = (0..2)
        .map(|n| bridge.start_call(json!({ "code": format!("x = {n}; x"), "session": "new" })))
        .collect();
    for (n, call) in both.into_iter().enumerate() {
        let outcome = call.outcome().expect("success");
        assert_eq!((outcome.stdout(), outcome.notices()), (n.to_string(), String::new()));
    }
    let lost = bridge.run_in("new", "import os; os._exit(3)").expect("error");
    assert_eq!(lost.exit(), Some(3));
    eventually("only the session main is left", REMOVAL, || {
        (traces.containers().len() == 1 && traces.records().len() == 1).then_some(())
    });
    assert_eq!(bridge.run("x").ok(), "'main'");
    bridge.close();
    traces.assert_nothing_left();
}

fn without_persistence_every_call_has_a_sandbox_of_its_own(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_SESSION_PERSIST", "false").start();
    let _ = bridge.run("x = 1; open('/tmp/a', 'w').close()").expect("success");
    let mut traces = traces(&bridge);
    let next = bridge.run("import os; ('x' in globals(), os.path.exists('/tmp/a'))").expect("success");
    assert_eq!((next.stdout().as_str(), next.notices().as_str()), ("(False, False)", ""), "{next}");
    let first = traces.see_throw_away(&bridge, "main");
    traces.wait_until_gone(first);
    // Calls of one name no longer queue: nothing is shared that would need it.
    let code = python!("sleep", "ready");
    let long = bridge.start_until_ready("main", code, json!({ "timeout": 100 }));
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    assert!(!long.0.is_answered());
    bridge.signal(Signal::TERM);
    let _ = bridge.wait(REMOVAL);
    traces.assert_nothing_left();
}
