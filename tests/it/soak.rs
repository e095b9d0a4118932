//! Mixed load for a long time: neither the memory nor the descriptors nor the processes of a bridge grow.
//!
//! `CODEBRIDGE_TEST_SOAK` is how many minutes it takes; `tests/soak --minutes N` sets it. Without it, there are a few rounds.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::host::{REMOVAL, traces};
use crate::harness::matrix::Kind;
use crate::harness::process::children;
use crate::harness::{Bridge, Runtime, Suite, TestEnv, eventually};
use crate::server_access::{define, fake};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    let tests = tests![mixed_load_does_not_let_it_grow];
    match minutes() {
        None => suite.on(&[Runtime::of_user(Kind::Crun)], "soak", tests),
        Some(_) => suite.each_runtime("soak", tests),
    }
}

fn minutes() -> Option<u32> {
    let text = std::env::var("CODEBRIDGE_TEST_SOAK").ok()?;
    Some(text.parse().expect("CODEBRIDGE_TEST_SOAK is a number of minutes"))
}

/// Rounds when no time is given.
const FEW: u32 = 3;
/// The outputs of the last runs are open files.
const KEPT: f64 = 32.0;
/// Rounds between two that kill a sandbox that cannot be interrupted: it takes its time.
const BETWEEN_KILLS: u32 = 5;
/// What one hour may add to the memory. Allocators keep what they were given, and more of it by chance.
const MEMORY_PER_HOUR: f64 = (8 << 20) as f64;
/// What one hour may add to descriptors and processes: less than one per thousand calls.
const COUNT_PER_HOUR: f64 = 3.0;

fn mixed_load_does_not_let_it_grow(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    let bridge = env
        .bridge()
        .var("MCP_BRIDGE_LOG_LEVEL", "info")
        .var("MCP_BRIDGE_ARTIFACTS_LIMIT", "10g")
        // A few rounds are counted to the last process: a spare sandbox comes and goes as it likes.
        .var("MCP_BRIDGE_WARM", if minutes().is_some() { "1" } else { "0" })
        .start();
    let began = Instant::now();
    round(&bridge, 0);
    let mut seen = traces(&bridge);
    match minutes() {
        None => {
            let before = Figures::of(&bridge);
            (1..=FEW).for_each(|number| round(&bridge, number));
            eventually("it has no more descriptors and processes than before", REMOVAL, || {
                let now = Figures::of(&bridge);
                (now.descriptors <= before.descriptors + KEPT && now.processes <= before.processes)
                    .then_some(())
            });
        }
        Some(minutes) => {
            let all = by_minute(env, &bridge, began, minutes);
            judge(env, &all);
        }
    }
    seen.see(&bridge, "main");
    bridge.close();
    seen.wait_until_nothing_is_left(REMOVAL);
}

/// Rounds until the time is over. Of each minute, the smallest figures count: what is on its way out is no growth.
fn by_minute(env: &TestEnv, bridge: &Bridge<'_>, began: Instant, minutes: u32) -> Vec<Figures> {
    let mut number = 0;
    let mut all = Vec::new();
    for minute in 1..=minutes {
        let mut least = Figures::of(bridge);
        while began.elapsed() < Duration::from_secs(60) * minute {
            number += 1;
            round(bridge, number);
            least = least.least(Figures::of(bridge));
        }
        eprintln!("{}: minute {minute}, {number} rounds: {least}", env.runtime());
        all.push(least);
    }
    all
}

/// What a bridge has of the machine.
#[derive(Debug, Clone, Copy)]
struct Figures {
    /// Bytes of resident memory, without pages of files.
    memory: f64,
    descriptors: f64,
    processes: f64,
}

impl Figures {
    fn of(bridge: &Bridge<'_>) -> Self {
        let process = Path::new("/proc").join(bridge.pid().to_string());
        let status = std::fs::read_to_string(process.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        let memory: f64 = line.trim().trim_end_matches("kB").trim().parse().unwrap();
        let descriptors = std::fs::read_dir(process.join("fd")).unwrap().count();
        Self {
            memory: memory * 1024.0,
            descriptors: descriptors as f64,
            processes: descendants(bridge.pid()) as f64,
        }
    }

    fn least(self, other: Self) -> Self {
        Self {
            memory: self.memory.min(other.memory),
            descriptors: self.descriptors.min(other.descriptors),
            processes: self.processes.min(other.processes),
        }
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { memory, descriptors, processes } = self;
        write!(
            f,
            "{:.1} MiB, {descriptors:.1} descriptors, {processes:.1} processes",
            memory / 1024.0 / 1024.0
        )
    }
}

fn descendants(of: u32) -> usize {
    let children = children(of);
    children.len() + children.into_iter().map(descendants).sum::<usize>()
}

/// The growth by the hour, by least squares over one value for each minute.
fn by_the_hour(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let middle = (count - 1.0) / 2.0;
    let mean = values.iter().sum::<f64>() / count;
    let pairs = || values.iter().enumerate().map(|(at, value)| (at as f64 - middle, value - mean));
    let spread: f64 = pairs().map(|(at, _)| at * at).sum();
    if spread == 0.0 { 0.0 } else { pairs().map(|(at, value)| at * value).sum::<f64>() / spread * 60.0 }
}

/// The first half fills what is kept on purpose: the last runs, allocators, catalogues.
fn judge(env: &TestEnv, all: &[Figures]) {
    let slopes = |part: &[Figures]| {
        let of = |figure: fn(&Figures) -> f64| by_the_hour(&part.iter().map(figure).collect::<Vec<_>>());
        Figures {
            memory: of(|it| it.memory),
            descriptors: of(|it| it.descriptors),
            processes: of(|it| it.processes),
        }
    };
    let settled = slopes(&all[all.len() / 2..]);
    eprintln!("{}: slope by the hour, all of it: {}", env.runtime(), slopes(all));
    eprintln!("{}: slope by the hour, second half: {settled}", env.runtime());
    // Fewer minutes are all chance.
    if all.len() >= 20 {
        assert!(settled.memory < MEMORY_PER_HOUR, "the memory grows: {settled}");
        assert!(settled.descriptors < COUNT_PER_HOUR, "the descriptors grow: {settled}");
        assert!(settled.processes < COUNT_PER_HOUR, "the processes grow: {settled}");
    }
}

/// One of each kind of call.
fn round(bridge: &Bridge<'_>, number: u32) {
    let _ = bridge.run(python!("soak", "names")).expect("success");
    thread::scope(|scope| {
        scope.spawn(|| prints(bridge, number));
        scope.spawn(|| asks_servers(bridge));
        scope.spawn(|| runs_in_the_background(bridge));
        scope.spawn(|| assert_eq!(bridge.run_in("new", "6 * 7").ok(), "42"));
    });
    let _ = bridge.run(python!("soak", "shows")).expect("success");
    assert_eq!(bridge.run(python!("soak", "keeps")).ok(), "100000");
    interrupts(bridge);
    loses(bridge, number);
}

fn prints(bridge: &Bridge<'_>, number: u32) {
    assert_eq!(bridge.run(&format!("print({number})")).ok(), number.to_string());
    let long = bridge.run("for line in range(20_000): print('line', line)").ok();
    assert!(long.contains("line 19999"), "{long}");
    let failed = bridge.run("1 / 0").expect("error");
    assert!(failed.error().contains("ZeroDivisionError"), "{failed}");
    let listed = bridge.ask("resources/list", json!({}));
    assert!(!listed["resources"].as_array().unwrap().is_empty(), "{listed}");
}

fn asks_servers(bridge: &Bridge<'_>) {
    let call = json!({ "code": python!("soak", "asks"), "session": "asks", "servers": ["fake"] });
    assert_eq!(bridge.call(call).ok(), "([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 1, 'MCPError')");
}

fn runs_in_the_background(bridge: &Bridge<'_>) {
    let call = json!({ "code": python!("soak", "goes_on"), "session": "background", "background": true });
    let mut outcome = bridge.call(call);
    while outcome.status() == "running" {
        let run = outcome.structured["runId"].clone();
        outcome = bridge.call(json!({ "run": run, "timeout": 10 }));
    }
    let _ = outcome.expect("success");
}

fn interrupts(bridge: &Bridge<'_>) {
    let call = bridge.start_until_ready("main", python!("sleep", "ready"), json!({ "timeout": 100 }));
    call.0.cancel();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
}

/// Sandboxes that end: by their own code, and because they do not obey.
fn loses(bridge: &Bridge<'_>, number: u32) {
    let lost = |code: &str, timeout: u32| {
        bridge.call(json!({ "code": code, "session": "lost", "timeout": timeout }))
    };
    let _ = lost("import os; os._exit(3)", 20).expect("error");
    if number.is_multiple_of(BETWEEN_KILLS) {
        let _ = lost(python!("stubborn", "sleeping"), 1).expect("timeout");
    }
    assert_eq!(lost("6 * 7", 20).ok(), "42");
}
