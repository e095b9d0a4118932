//! Every way in which a bridge can end: none leaves a sandbox behind.

use rustix::process::Signal;
use serde_json::json;

use crate::harness::host::{REMOVAL, Traces, traces};
use crate::harness::{Bridge, Suite, TestEnv, eventually};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime(
        "lifecycle",
        tests![
            the_end_of_the_input_leaves_nothing,
            a_signal_leaves_nothing,
            a_call_that_ends_soon_is_answered_after_the_end_of_the_input,
            a_call_cancelled_while_its_sandbox_starts_leaves_none,
            a_bridge_that_is_told_to_stop_while_it_starts_a_sandbox_leaves_nothing,
        ],
    );
}

const SLEEP: &str = python!("sleep", "ready");

/// An idle session and one that runs code.
fn with_sessions<'a>(bridge: &Bridge<'a>) -> Traces<'a> {
    let _ = bridge.run_in("idle", "x = 1").expect("success");
    let mut traces = traces(bridge);
    traces.see(bridge, "idle");
    traces.see(bridge, "busy");
    traces
}

fn the_end_of_the_input_leaves_nothing(env: &TestEnv) {
    let bridge = env.bridge().start();
    let traces = with_sessions(&bridge);
    let call = bridge.start_until_ready("busy", SLEEP, json!({ "timeout": 100 }));
    bridge.hang_up();
    // Its answer is nobody's any more; one may come, with the word that it was cancelled.
    if let Some((answer, _)) = call.0.answer_if_any() {
        assert_eq!(answer["result"]["structuredContent"]["status"], "cancelled", "{answer}");
    }
    let ended = bridge.wait(REMOVAL);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    traces.assert_nothing_left();
}

fn a_signal_leaves_nothing(env: &TestEnv) {
    for signal in [Signal::TERM, Signal::INT] {
        let bridge = env.bridge().start();
        let traces = with_sessions(&bridge);
        let call = bridge.start_until_ready("busy", SLEEP, json!({ "timeout": 100 }));
        bridge.signal(signal);
        if let Some((answer, _)) = call.0.answer_if_any() {
            assert_eq!(answer["result"]["structuredContent"]["status"], "cancelled", "{answer}");
        }
        let ended = bridge.wait(REMOVAL);
        assert_eq!(ended.status.code(), Some(0), "{signal:?}: {}", ended.log);
        traces.assert_nothing_left();
    }
}

fn a_call_that_ends_soon_is_answered_after_the_end_of_the_input(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run("import time").expect("success");
    let traces = traces(&bridge);
    let call = bridge.start_call(json!({ "code": "time.sleep(0.2); 'last words'" }));
    bridge.hang_up();
    assert_eq!(call.outcome().ok(), "'last words'");
    let _ = bridge.wait(REMOVAL);
    traces.assert_nothing_left();
}

fn a_call_cancelled_while_its_sandbox_starts_leaves_none(env: &TestEnv) {
    let bridge = env.bridge().start();
    // Cancelled while the first call looks for a runtime, and while a later one starts its sandbox.
    for session in ["first", "later"] {
        let call = bridge.start_call(json!({ "code": "x = 1", "session": session }));
        // The answer to what was sent after it says that it is under way.
        assert_eq!(bridge.ask("ping", json!({})), json!({}));
        call.0.cancel();
        let _ = bridge.run("'main'").expect("success");
        assert!(!call.0.is_answered());
    }
    let traces = traces(&bridge);
    eventually("only the session main is left", REMOVAL, || {
        (traces.containers().len() == 1 && traces.records().len() == 1).then_some(())
    });
    assert_eq!(bridge.run_in("first", "'x' in globals()").ok(), "False");
    bridge.close();
    traces.assert_nothing_left();
}

fn a_bridge_that_is_told_to_stop_while_it_starts_a_sandbox_leaves_nothing(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run("1").expect("success");
    let traces = traces(&bridge);
    let calls: Vec<_> =
        (0..3).map(|n| bridge.start_call(json!({ "code": "1", "session": format!("s{n}") }))).collect();
    // The answer to what was sent after them says that they are under way.
    assert_eq!(bridge.ask("ping", json!({})), json!({}));
    bridge.signal(Signal::TERM);
    for call in calls {
        let _ = call.0.answer_if_any();
    }
    let ended = bridge.wait(REMOVAL);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);

    traces.assert_nothing_left();
}
