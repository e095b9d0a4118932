//! Attacks that end their session, with forged frames or by using too much.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use libtest_mimic::{Completion, Failed, Trial};
use serde_json::json;

use super::catalogue::{Attack, Mechanism};
use crate::harness::matrix::Runtime;
use crate::harness::suite::in_own_env;
use crate::harness::works::works;
use crate::harness::{Suite, TestEnv};

/// The files, and what is put before each of their attacks.
pub(super) const FILES: [(&str, &str, &str); 2] = [
    ("bombs", include_str!("bombs.py"), ""),
    ("frames", include_str!("frames.py"), include_str!("frames_prelude.py")),
];
/// The bridge grows by less than this after its first call, whatever a sandbox does: by the longest frame, which has 64 MiB,
/// and what waits beside it.
const BRIDGE_GROWTH: u64 = 72 << 20;
/// A ping is answered within this, whatever a sandbox does.
const PING: Duration = Duration::from_secs(2);

static ATTACKS: LazyLock<Vec<Vec<Arc<Attack>>>> = LazyLock::new(|| {
    FILES.map(|(_, text, _)| Attack::all_of(text).into_iter().map(Arc::new).collect()).into()
});

/// Held during attacks that take turns.
static TURNS: Mutex<()> = Mutex::new(());

/// How one attack ended.
#[derive(Debug)]
struct End {
    /// Status of the call, and all that was said with it.
    status: String,
    said: String,
    /// Status of the next call in the session.
    next: String,
    /// What the next call that was to succeed printed.
    after: String,
    ping: Duration,
}

#[derive(Debug)]
struct Report {
    ends: HashMap<String, End>,
    mechanism: Mechanism,
    growth: u64,
}

pub(crate) fn register(suite: &mut Suite) {
    for (file, (topic, ..)) in FILES.iter().enumerate() {
        for attack in &ATTACKS[file] {
            // Runtime by runtime, so that the tests that start at once do not wait for the same sandbox.
            for (place, runtime) in Runtime::rows().iter().enumerate() {
                let attack = Arc::clone(attack);
                let name = format!("{runtime}::attacks::{topic}::{}", attack.test_name());
                let trial = move || with_report(place, file, |report| check(*runtime, &attack, report));
                suite.trials.push(Trial::ignorable_test(name, trial));
            }
        }
        for (place, runtime) in Runtime::rows().iter().enumerate() {
            let name = format!("{runtime}::attacks::{topic}::the_bridge_stays_small");
            let trial = move || with_report(place, file, stays_small);
            suite.trials.push(Trial::ignorable_test(name, trial));
        }
    }
}

fn with_report(
    place: usize,
    file: usize,
    check: impl FnOnce(&Report) -> Result<(), Failed>,
) -> Result<Completion, Failed> {
    static REPORTS: [[OnceLock<Result<Report, String>>; FILES.len()]; 7] =
        [const { [const { OnceLock::new() }; FILES.len()] }; 7];
    let runtime = Runtime::rows()[place];
    if let Err(reason) = works(runtime) {
        return Ok(Completion::ignored_with(reason));
    }
    let report = REPORTS[place][file].get_or_init(|| in_own_env(Some(runtime), |env| attack_all(env, file)));
    check(report.as_ref()?).map(|()| Completion::Completed)
}

fn check(runtime: Runtime, attack: &Attack, report: &Report) -> Result<(), Failed> {
    let end = &report.ends[&attack.name];
    let expected = attack.outcome(runtime, report.mechanism);
    let fits = |one: &str| {
        let (status, said) = one.split_once(": ").unwrap_or((one, ""));
        end.status == status && end.said.contains(said)
    };
    let story = format!("expected {expected:?}\n{end:#?}\n{}", attack.code);
    for (holds, what) in [
        (expected.split(" or ").any(fits), "another end"),
        (end.next == attack.next.as_deref().unwrap_or("success"), "the next call"),
        (end.after == "42", "the session does not go on"),
        (end.ping < PING, "a ping had to wait"),
    ] {
        if !holds {
            return Err(format!("{what}: {story}").into());
        }
    }
    Ok(())
}

fn stays_small(report: &Report) -> Result<(), Failed> {
    match report.growth < BRIDGE_GROWTH {
        true => Ok(()),
        false => Err(format!("the bridge grew by {} MiB", report.growth >> 20).into()),
    }
}

/// One bridge takes all attacks of a file, each in a session of its own.
fn attack_all(env: &TestEnv, file: usize) -> Report {
    let (.., prelude) = FILES[file];
    let bridge = env.bridge().start();
    let mut ends = HashMap::new();
    let _ = bridge.run("0").expect("success");
    let before = bridge.peak_memory();
    for attack in &ATTACKS[file] {
        let _turn = attack.takes_turns.then(|| TURNS.lock().unwrap_or_else(PoisonError::into_inner));
        let session = attack.test_name();
        let _ = bridge.run_in(&session, "0").expect("success");
        let mut arguments = json!({ "code": format!("{prelude}\n{}", attack.code), "session": session });
        if let Some(timeout) = attack.timeout {
            arguments["timeout"] = timeout.into();
        }
        let call = bridge.start_call(arguments);
        let (_, ping) = bridge.request("ping", json!({})).answer();
        let outcome = call.outcome();
        let said = [outcome.error(), &outcome.notices(), &outcome.stdout()].join("\n");
        // One that is expected to wait in vain does not wait for long.
        let patience = if attack.next.is_some() { 1 } else { 30 };
        let next = || bridge.call(json!({ "code": "40 + 2", "session": session, "timeout": patience }));
        let mut after = next();
        let status_of_next = after.status().to_string();
        if status_of_next != "success" {
            after = next();
        }
        let end = End {
            status: outcome.status().into(),
            said: said.chars().take(1000).collect(),
            next: status_of_next,
            after: after.stdout().chars().take(100).collect(),
            ping,
        };
        ends.insert(attack.name.clone(), end);
    }
    let mechanism = Mechanism::of(&bridge);
    let growth = bridge.peak_memory() - before;
    let _ = bridge.close();
    Report { ends, mechanism, growth }
}
