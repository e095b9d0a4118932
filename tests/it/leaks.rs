//! Many abusive runs leave nothing behind: no container, process, mount, control group, folder or file.
//!
//! `CODEBRIDGE_TEST_ABUSIVE_RUNS` is the number of runs on each runtime; `tests/soak` sets 200.

use rustix::process::Signal;
use serde_json::json;

use crate::harness::bridge::PendingCall;
use crate::harness::host::{REMOVAL, Traces, traces};
use crate::harness::process::kill;
use crate::harness::{Bridge, Suite, TestEnv};
use crate::{python, tests};

/// Enough for each kind of abuse once, and again after the others.
const DEFAULT_RUNS: usize = 16;
/// Runs of one bridge before it is ended, in turns in each of the ways that a bridge can end.
const RUNS_PER_BRIDGE: usize = 8;

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("leaks", tests![abusive_runs_leave_nothing_behind]);
}

fn runs() -> usize {
    let asked = std::env::var("CODEBRIDGE_TEST_ABUSIVE_RUNS").ok();
    asked.map_or(DEFAULT_RUNS, |text| text.parse().expect("a number of runs"))
}

/// How a bridge ends.
#[derive(Debug, Clone, Copy)]
enum BridgeEnd {
    /// The client closes its end while code runs.
    Disconnect,
    /// SIGKILL while code runs: the reaper's turn.
    Kill,
    /// SIGTERM while code runs.
    Terminate,
    /// The ordinary way, with sessions idle.
    Close,
}

const ENDS: [BridgeEnd; 4] = [BridgeEnd::Disconnect, BridgeEnd::Kill, BridgeEnd::Terminate, BridgeEnd::Close];

fn abusive_runs_leave_nothing_behind(env: &TestEnv) {
    let mut left = runs();
    let mut round = 0;
    while left > 0 {
        let count = left.min(RUNS_PER_BRIDGE);
        left -= count;
        let bridge = env.bridge().start();
        let _ = bridge.run("'hello'").expect("success");
        let mut seen = traces(&bridge);
        for number in 0..count {
            abuse(&bridge, &mut seen, number + round);
        }
        end(bridge, &mut seen, ENDS[round % ENDS.len()]);
        round += 1;
    }
}

/// One abusive run in a session of its own; afterwards the bridge must go on.
fn abuse<'a>(bridge: &Bridge<'a>, seen: &mut Traces<'a>, kind: usize) {
    let session = "abused";
    let run = |code: &str, timeout: u32| {
        bridge.call(json!({ "code": code, "session": session, "timeout": timeout }))
    };
    match kind % 8 {
        0 => drop(run("import os; os.abort()", 20).expect("error")),
        1 => drop(run("import os; os._exit(7)", 20).expect("error")),
        // Interrupted, and the variables are kept.
        2 => drop(run("import time; time.sleep(100)", 1).expect("timeout")),
        // Not to be interrupted: the sandbox is killed.
        3 => drop(run(STUBBORN, 1).expect("timeout")),
        // Children that leave their process group and ignore every polite signal.
        4 => drop(run(DAEMONS, 20).expect("error")),
        5 => {
            let first = seen.see(bridge, session);
            let call = sleeping(bridge, session);
            kill(first.pid(), Signal::KILL);
            drop(call.outcome().expect("error"));
            seen.wait_until_gone(first);
        }
        6 => {
            let call = sleeping(bridge, session);
            call.0.cancel();
            drop(bridge.run_in(session, "1").expect("success"));
        }
        _ => drop(
            bridge.call(json!({ "code": "open('/tmp/x', 'wb').write(bytes(9 << 20))", "session": "new" })),
        ),
    }
    let _ = bridge.run_in(session, "'still here'").expect("success");
}

fn sleeping<'a>(bridge: &'a Bridge<'_>, session: &str) -> PendingCall<'a> {
    let code = python!("sleep", "ready");
    bridge.start_until_ready(session, code, json!({ "timeout": 100 }))
}

fn end<'a>(bridge: Bridge<'a>, seen: &mut Traces<'a>, how: BridgeEnd) {
    seen.see(&bridge, "abused");
    seen.see(&bridge, "main");
    if !matches!(how, BridgeEnd::Close) {
        // Nobody waits for its answer.
        drop(sleeping(&bridge, "main"));
        match how {
            BridgeEnd::Kill => bridge.signal(Signal::KILL),
            BridgeEnd::Terminate => bridge.signal(Signal::TERM),
            BridgeEnd::Disconnect | BridgeEnd::Close => bridge.hang_up(),
        }
        let _ = bridge.wait(REMOVAL);
    } else {
        let _ = bridge.close();
    }
    seen.wait_until_nothing_is_left(REMOVAL);
}

const STUBBORN: &str = python!("stubborn", "sleeping");

const DAEMONS: &str = python!("stubborn", "daemons");
