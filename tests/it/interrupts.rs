//! Timeouts and cancelled calls: code that reacts to an interrupt keeps its session, other code loses it, both in
//! time.

use std::time::Duration;

use serde_json::json;

use crate::harness::{Suite, TestEnv};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime(
        "interrupts",
        tests![
            a_timeout_interrupts_and_keeps_the_variables,
            code_that_ignores_the_interrupt_loses_its_session,
            a_cancelled_call_is_interrupted_and_keeps_the_variables,
            a_cancelled_call_that_waits_never_runs,
        ],
    );
}

/// The interrupt, its second try, the grace: three seconds in all. The rest is for a loaded machine.
const ON_TIME: Duration = Duration::from_secs(30);

fn a_timeout_interrupts_and_keeps_the_variables(env: &TestEnv) {
    let cases = [
        ("sleep", "import time; time.sleep(1000)"),
        ("child", "import subprocess; subprocess.run(['sleep', '1000'])"),
        ("loop", "while True: pass"),
        ("await", "import asyncio; await asyncio.sleep(1000)"),
        // C code that holds the lock, and looks for signals from time to time.
        ("regex", "import re; re.match('(a+)+$', 'a' * 64 + 'b')"),
    ];
    let bridge = env.bridge().start();
    for (session, _) in cases {
        let _ = bridge.run_in(session, "x = 42").expect("success");
    }
    let calls = cases.map(|(session, code)| {
        (session, bridge.start_call(json!({ "code": code, "session": session, "timeout": 1 })))
    });
    for (session, call) in calls {
        let outcome = call.outcome().within(ON_TIME).expect("timeout").because("variables are kept");
        assert_eq!(outcome.exit(), None, "{session}: {outcome}");
        assert_eq!(bridge.run_in(session, "x").ok(), "42", "{session}");
    }
    let outcome =
        bridge.call(json!({ "code": "print('before', flush=True)\nwhile True: pass", "timeout": 1 }));
    assert_eq!(outcome.stdout(), "before", "what was printed is not lost: {outcome}");
    bridge.close();
}

fn code_that_ignores_the_interrupt_loses_its_session(env: &TestEnv) {
    let cases = [
        ("stubborn", python!("stubborn", "busy")),
        // C code that holds the lock and never looks for signals.
        ("gil", "sum(range(10 ** 12))"),
    ];
    let bridge = env.bridge().start();
    for (session, _) in cases {
        let _ = bridge.run_in(session, "x = 42").expect("success");
    }
    let calls = cases.map(|(session, code)| {
        (session, bridge.start_call(json!({ "code": code, "session": session, "timeout": 1 })))
    });
    // Others do not notice.
    assert_eq!(bridge.run_in("bystander", "6 * 7").ok(), "42");
    for (session, call) in calls {
        let outcome = call.outcome().within(ON_TIME).expect("timeout").because("ignored the interrupt");
        let _ = outcome.noting("has ended");
        let fresh = bridge.run_in(session, "'x' in globals()").noting("is new");
        assert_eq!(fresh.ok(), "False", "{session}");
    }
    assert_eq!(bridge.run_in("bystander", "'still here'").ok(), "'still here'");
    bridge.close();
}

fn a_cancelled_call_is_interrupted_and_keeps_the_variables(env: &TestEnv) {
    let bridge = env.bridge().start();
    let code = python!("sleep", "with_variable");
    let call = bridge.start_until_ready("main", code, json!({ "timeout": 100 }));
    call.0.cancel();
    let next = bridge.run("x").within(ON_TIME);
    assert_eq!(next.ok(), "42");
    assert!(!call.0.is_answered(), "a cancelled request gets no answer");
    // It has ended already; that is no reason for anything.
    call.0.cancel();
    assert_eq!(bridge.run("x + 1").ok(), "43");
    bridge.close();
}

fn a_cancelled_call_that_waits_never_runs(env: &TestEnv) {
    let bridge = env.bridge().start();
    let code = python!("sleep", "with_list");
    let first = bridge.start_until_ready("main", code, json!({ "timeout": 100 }));
    let second = bridge.start_call(json!({ "code": "ran.append(2)" }));
    let third = bridge.start_call(json!({ "code": "ran.append(3)" }));
    second.0.cancel();
    first.0.cancel();
    let _ = third.outcome().expect("success");
    assert_eq!(bridge.run("ran").ok(), "[3]");
    bridge.close();
}
