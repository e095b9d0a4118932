//! Floods of everything that a sandbox may send: the bridge stays small, and other sessions do not notice.

use std::time::Duration;

use serde_json::json;

use crate::harness::bridge::Bridge;
use crate::harness::matrix::Kind;
use crate::harness::outcome::Outcome;
use crate::harness::{Runtime, Suite, TestEnv};
use crate::server_access::{define, fake, run};
use crate::{python, tests};

const PRELUDE: &str = include_str!("attacks/frames_prelude.py");
/// The most memory that the bridge ever has: its own, and twice the largest message.
const MEMORY: u64 = (64 + 2 * 64) << 20;
/// Calls of other sessions hang if they take longer.
const HANG: Duration = Duration::from_secs(5);

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("floods", tests![some_of_everything]);
    suite.on(
        &[Runtime::of_root(Kind::Podman), Runtime::of_user(Kind::Crun)],
        "floods",
        tests![
            the_largest_questions,
            thousands_of_questions_of_each_kind,
            frames_without_end,
            large_results_that_nobody_reads
        ],
    );
}

fn some_of_everything(env: &TestEnv) {
    let bridge = bridge(env);
    assert_eq!(flood(&bridge, python!("floods", "some_of_everything")).ok(), "4 refused");
    // Frames beside those of the supervisor may cut one of those in two, which ends the session.
    let _ = flood(&bridge, python!("floods", "withdrawals_past_the_supervisor"));
    bridge.close();
}

fn the_largest_questions(env: &TestEnv) {
    let bridge = bridge(env);
    assert_eq!(flood(&bridge, python!("floods", "questions")).ok(), "18 answered");
    bridge.close();
}

fn thousands_of_questions_of_each_kind(env: &TestEnv) {
    let bridge = bridge(env);
    assert_eq!(flood(&bridge, python!("floods", "many_questions")).ok(), "sent");
    bridge.close();
}

fn frames_without_end(env: &TestEnv) {
    let bridge = bridge(env);
    let _ = flood(&bridge, python!("floods", "frames"));
    let _ = flood(&bridge, python!("floods", "withdrawals_past_the_supervisor"));
    bridge.close();
}

fn large_results_that_nobody_reads(env: &TestEnv) {
    let bridge = bridge(env);
    assert_eq!(flood(&bridge, python!("floods", "unread_results")).ok(), "still answered");
    bridge.close();
}

/// A bridge with a server of hundreds of tools, whose documentation is known.
fn bridge(env: &TestEnv) -> Bridge<'_> {
    define(
        env,
        &json!({ "fake": fake(env, &["--few", "--tools", "500", "--named", "big"]), "other": fake(env, &[]) }),
    );
    let bridge = env.bridge().start();
    assert_eq!(run(&bridge, &["fake"], "len(await runtime.list_tools('fake'))").ok(), "502");
    assert_eq!(run(&bridge, &["other"], "await mcp_other.echo(a=1)").ok(), "{'a': 1}");
    bridge
}

/// Calls another session as long as one sends a flood; returns how that one ended.
fn flood(bridge: &Bridge<'_>, code: &str) -> Outcome {
    let code = format!("{PRELUDE}\n{code}");
    let arguments = json!({ "code": code, "session": "flood", "servers": ["fake"], "timeout": 100 });
    let flooding = bridge.start_call(arguments);
    let mut calls = 0;
    while calls < 5 || !flooding.0.is_answered() {
        // Of another server: how fast one answers whom others keep busy is its own affair.
        let other = run(bridge, &["other"], "await mcp_other.echo(a=1)").within(HANG);
        assert_eq!(other.ok(), "{'a': 1}");
        let (_, ping) = bridge.request("ping", json!({})).answer();
        assert!(ping < HANG, "a ping took {ping:?}");
        calls += 1;
        // The flood needs the processor too.
        std::thread::sleep(Duration::from_millis(50));
    }
    let outcome = flooding.outcome();
    let memory = bridge.peak_memory();
    assert!(memory < MEMORY, "the bridge had {} MiB\n{outcome:.1000}", memory >> 20);
    outcome
}
