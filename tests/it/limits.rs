//! Limits on memory and processes: the mechanism that `doctor` reports is checked on the host and tried inside.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::bridge::Bridge;
use crate::harness::host::{First, traces};
use crate::harness::matrix::Kind;
use crate::harness::suite::ignore;
use crate::harness::{BridgeBuilder, Suite, TestEnv};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime(
        "limits",
        tests![
            the_reported_mechanism_holds_memory,
            a_sandbox_out_of_memory_leaves_no_file_in_the_working_directory,
            memory_counts_for_all_processes_together,
            memory_that_processes_share_counts_once,
            files_are_limited_in_number,
            the_reported_mechanism_holds_processes,
            the_least_memory_still_starts_an_interpreter,
            processes_of_one_session_do_not_count_in_another,
            many_small_sessions_do_not_count_against_each_other,
            processor_time_is_limited_or_doctor_says_that_it_is_not,
        ],
    );
}

/// podman's monitor writes a file into the folder that it was started in.
fn a_sandbox_out_of_memory_leaves_no_file_in_the_working_directory(env: &TestEnv) {
    let visible = || {
        let entries = fs::read_dir(env.home()).unwrap().flatten().map(|entry| entry.file_name());
        entries.filter(|name| !name.to_string_lossy().starts_with('.')).collect::<BTreeSet<_>>()
    };
    // The audit log has its place there.
    env.folder("home/MCPs");
    let before = visible();
    let bridge = limited(env).start();
    let _ = bridge.run("y = [bytearray(b'x' * (8 << 20)) for _ in range(100)]").expect("error");
    bridge.close();
    assert_eq!(visible(), before);
}

const MEMORY: u64 = 128 << 20;
const PIDS: u64 = 24;
/// The kubelet limits the processes of a pod to a number of its own: `podPidsLimit` in tests/host/cluster.
const PIDS_OF_PODS: u64 = 512;

fn limited(env: &TestEnv) -> BridgeBuilder<'_> {
    env.bridge()
        .var("MCP_BRIDGE_MEMORY", "128m")
        .var("MCP_BRIDGE_PIDS", PIDS.to_string())
        .var("MCP_BRIDGE_CPUS", "0.5")
}

/// What `doctor` says of the test's runtime.
fn held(env: &TestEnv, limit: &str) -> String {
    let output = limited(env).args(&["doctor", "--json"]).command().run(env.guard());
    let said: Value = serde_json::from_str(&output.diagnosed()).unwrap();
    assert_eq!(said["ready"], true, "{said}");
    assert_eq!(said["runtimes"][0]["kind"], env.runtime().kind.name());
    said["runtimes"][0]["works"]["held"][limit].as_str().unwrap_or_else(|| panic!("{said}")).to_string()
}

fn the_reported_mechanism_holds_memory(env: &TestEnv) {
    let mechanism = held(env, "memory");
    let bridge = limited(env).start();
    let _ = bridge.run("x = 1").expect("success");
    let first = traces(&bridge).see(&bridge, "main");
    // Written to, so that it is really there.
    let greedy = "y = [bytearray(b'x' * (8 << 20)) for _ in range(100)]";
    match mechanism.as_str() {
        "cgroup" => {
            let limit = group_file(first, "memory", ["memory.limit_in_bytes", "memory.max"]);
            assert_eq!(limit, MEMORY.to_string());
            let outcome = bridge.run(greedy).expect("error").because("128 MiB");
            let outcome = outcome.because("raise it with MCP_BRIDGE_MEMORY=256m").noting("has ended");
            assert_eq!(outcome.exit(), Some(137), "{outcome}");
            assert_eq!(bridge.run("'x' in globals()").noting("is new").ok(), "False");
        }
        "watch" => {
            let code = "import resource; resource.getrlimit(resource.RLIMIT_DATA)";
            assert_eq!(bridge.run(code).ok(), format!("({MEMORY}, {MEMORY})"));
            let code = "resource.getrlimit(resource.RLIMIT_AS)[1] in range(1, 5 * 128 << 20)";
            assert_eq!(bridge.run(code).ok(), "True", "shared mappings are bounded as well");
            let outcome = bridge.run(greedy).expect("error");
            assert!(outcome.error().starts_with("MemoryError"), "{outcome}");
            assert_eq!(bridge.run("x").ok(), "1");
            // A process that has all it may is looked at several times.
            let code = python!("limits", "fill_memory");
            assert_eq!(bridge.run(code).ok(), "True");
        }
        other => panic!("memory is held by {other}"),
    }
    // What is allowed is there.
    assert_eq!(bridge.run("z = bytearray(b'x' * (48 << 20)); len(z)").ok(), (48 << 20).to_string());
    bridge.close();
}

/// Each child has less than it may, all of them have more.
pub(crate) const CHILDREN: &str = python!("limits", "children");

fn memory_counts_for_all_processes_together(env: &TestEnv) {
    let mechanism = held(env, "memory");
    let bridge = limited(env).start();
    let _ = bridge.run(CHILDREN).expect("success");
    let code = python!("limits", "largest_child");
    let outcome = bridge.run(code).expect("success");
    if mechanism == "watch" {
        let _ = outcome.noting("out of memory: the largest process of the sandbox was killed");
        // The code's own process is the largest.
        let code = python!("limits", "largest_itself");
        let outcome = bridge.run(code).expect("error").because("128 MiB");
        let outcome = outcome.because("raise it with MCP_BRIDGE_MEMORY=256m").noting("has ended");
        assert_eq!(outcome.exit(), Some(137), "{outcome}");
        assert_eq!(bridge.run("'own' in globals()").noting("is new").ok(), "False");
    } else {
        assert_eq!(outcome.ok(), "9");
    }
    bridge.close();
}

fn memory_that_processes_share_counts_once(env: &TestEnv) {
    let bridge = limited(env).start();
    let _ = bridge.run(CHILDREN).expect("success");
    // Resident in all of them, and more than they may have if it were their own.
    let code = python!("limits", "shared_pages");
    assert_eq!(bridge.run(code).ok(), (60 << 20).to_string());
    bridge.close();
}

/// Even empty files take memory of the kernel. Where podman has a control group, that counts it.
fn files_are_limited_in_number(env: &TestEnv) {
    if env.runtime().kind == Kind::Kubernetes {
        ignore("files of pods have no limit but their memory; cluster:: has what happens then");
    }
    let ended = match (env.runtime().kind, held(env, "memory").as_str()) {
        (Kind::Podman, "watch") => true,
        (Kind::Podman, _) => return,
        _ => false,
    };
    let bridge = env.bridge().start();
    // The watch counts the files of all folders together.
    let folders = if ended { &["/projects"][..] } else { &["/tmp", "/workspace", "/projects"] };
    for folder in folders {
        let code = format!("FOLDER = '{folder}'\n{}", python!("limits", "many_files"));
        let outcome = bridge.call(serde_json::json!({ "code": code, "timeout": 100 }));
        if ended {
            let _ = outcome.expect("error").because("too many files").noting("has ended");
            assert_eq!(bridge.run("'FOLDER' in globals()").noting("is new").ok(), "False");
        } else {
            assert_eq!(outcome.ok(), "'ENOSPC'", "{folder}");
        }
    }
    bridge.close();
}

fn the_reported_mechanism_holds_processes(env: &TestEnv) {
    let mechanism = held(env, "pids");
    let (most, bridge) = with_pids(env);
    let _ = bridge.run("x = 1").expect("success");
    let first = traces(&bridge).see(&bridge, "main");
    match mechanism.as_str() {
        "cgroup" => assert_eq!(group_file(first, "pids", ["pids.max", "pids.max"]), PIDS.to_string()),
        "rlimit" => {
            let code = "import resource; resource.getrlimit(resource.RLIMIT_NPROC)";
            assert_eq!(bridge.run(code).ok(), format!("({PIDS}, {PIDS})"));
        }
        "nothing" if most == PIDS_OF_PODS => {}
        other => panic!("pids are held by {other}"),
    }
    had_its_processes(&bridge.run(MANY_PROCESSES).ok(), most);
    let code = python!("limits", "end_children");
    let _ = bridge.run(code).expect("success");
    assert_eq!(bridge.run("x").ok(), "1");
    let code =
        "import threading\nt = threading.Thread(target=print, args=('a thread',)); t.start(); t.join()";
    assert_eq!(bridge.run(code).ok(), "a thread");
    bridge.close();
}

/// How many processes a sandbox may have, and a bridge whose sandboxes have the memory for them.
fn with_pids(env: &TestEnv) -> (u64, Bridge<'_>) {
    match env.runtime().kind {
        Kind::Kubernetes => (PIDS_OF_PODS, limited(env).var("MCP_BRIDGE_MEMORY", "1g").start()),
        _ => (PIDS, limited(env).start()),
    }
}

/// As many as there may be; they stay.
const MANY_PROCESSES: &str = python!("limits", "many_processes");

fn had_its_processes(said: &str, most: u64) {
    let (why, count) = said.split_once('\n').unwrap_or_else(|| panic!("nothing stopped it: {said}"));
    assert_eq!(why, "Resource temporarily unavailable");
    let count: u64 = count.parse().unwrap();
    assert!(count < most && count > most / 2, "{count}");
}

/// Where a limit counts the processes of a user, the sandboxes must not all have the same.
fn processes_of_one_session_do_not_count_in_another(env: &TestEnv) {
    let (most, bridge) = with_pids(env);
    for session in ["a", "b", "c"] {
        had_its_processes(&bridge.run_in(session, MANY_PROCESSES).ok(), most);
    }
    bridge.close();
}

fn the_least_memory_still_starts_an_interpreter(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_MEMORY", "16m").start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    bridge.close();
}

/// Also where a limit is the user's, not a group's: what others of the same user run must not count.
fn many_small_sessions_do_not_count_against_each_other(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_PIDS", "8").start();
    let calls: Vec<_> = (0..8)
        .map(|n| {
            bridge.start_call(serde_json::json!({ "code": format!("{n} + 1"), "session": format!("s{n}") }))
        })
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.outcome().ok(), (n + 1).to_string());
    }
    bridge.close();
}

fn processor_time_is_limited_or_doctor_says_that_it_is_not(env: &TestEnv) {
    let mechanism = held(env, "cpus");
    let bridge = limited(env).start();
    let _ = bridge.run("x = 1").expect("success");
    let first = traces(&bridge).see(&bridge, "main");
    match mechanism.as_str() {
        "cgroup" => {
            let quota = group_file(first, "cpu", ["cpu.cfs_quota_us", "cpu.max"]);
            assert_eq!(quota.split(' ').next(), Some("50000"), "{quota}");
        }
        "nothing" => {}
        other => panic!("cpus are held by {other}"),
    }
    bridge.close();
}

/// A file of the control group that a sandbox is in: its name on cgroup v1 and on v2.
fn group_file(first: First, controller: &str, [v1, v2]: [&str; 2]) -> String {
    let text = fs::read_to_string(format!("/proc/{}/cgroup", first.pid())).unwrap();
    let groups = text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        Some((controllers.to_string(), path.trim_start_matches('/').to_string()))
    });
    let mut places: Vec<PathBuf> = Vec::new();
    for (controllers, path) in groups {
        if controllers.split(',').any(|name| name == controller) {
            places.push(Path::new("/sys/fs/cgroup").join(&controllers).join(&path).join(v1));
            places.push(Path::new("/sys/fs/cgroup").join(controller).join(&path).join(v1));
        } else if controllers.is_empty() {
            places.push(Path::new("/sys/fs/cgroup").join(&path).join(v2));
        }
    }
    let found = places.iter().find_map(|place| fs::read_to_string(place).ok());
    found.unwrap_or_else(|| panic!("no limit in {places:?}\n{text}")).trim().to_string()
}
