//! Docker without root: a real daemon of an ordinary user, found by its socket and by its context.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::host::REMOVAL;
use crate::harness::rootless::RootlessDocker;
use crate::harness::{Bridge, BridgeBuilder, Suite, TestEnv, eventually};
use crate::limits::CHILDREN;
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.as_user(
        "rootless_docker",
        tests![
            rootless_docker_runs_sessions_by_its_socket_and_by_its_context,
            limits_that_it_cannot_hold_are_reported_and_held_otherwise,
            memory_is_watched_in_other_process_namespaces,
        ],
    );
}

fn use_it(bridge: &Bridge<'_>) {
    assert_eq!(bridge.run("x = 6; x * 7").ok(), "42");
    let _ = bridge.call(json!({ "code": "import time; time.sleep(1000)", "timeout": 1 })).expect("timeout");
    assert_eq!(
        bridge.run("import os; x, os.getuid(), open('/workspace/f', 'w').write('x')").ok(),
        "(6, 65534, 1)"
    );
    let _ = bridge.run("open('/etc/x', 'w')").expect("error");
    let network = bridge.run("open('/proc/net/dev').read().count(':')");
    assert_eq!(network.ok(), "1", "more than the loopback interface");
}

fn rootless_docker_runs_sessions_by_its_socket_and_by_its_context(env: &TestEnv) {
    let docker = RootlessDocker::start(env);
    let by_socket = || docker.bridge().var("DOCKER_HOST", docker.url());
    let of_this_machine = || by_socket().var("MCP_BRIDGE_IMAGE", "host:");
    let host = format!("host={}", docker.url());
    let _ = env.run(["docker", "context", "create", "rootless", "--docker", &host]).ok();
    let _ = env.run(["docker", "context", "use", "rootless"]).ok();
    for builder in [by_socket(), of_this_machine(), docker.bridge()] {
        let bridge = builder.start();
        use_it(&bridge);
        assert_eq!(docker.containers().len(), 1);
        bridge.close();
        assert_eq!(docker.containers(), [""; 0]);
    }
    let bridge = docker.bridge().start();
    assert_eq!(bridge.run("1").ok(), "1");
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
    eventually("nothing is left", REMOVAL, || docker.containers().is_empty().then_some(()));
}

fn diagnosis(builder: BridgeBuilder<'_>, env: &TestEnv, exit: i32) -> Value {
    let output = builder.args(&["doctor", "--json"]).command().run(env.guard());
    assert_eq!(output.code(), Some(exit), "{output}");
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output}"))
}

fn limits_that_it_cannot_hold_are_reported_and_held_otherwise(env: &TestEnv) {
    let mut docker = RootlessDocker::start(env);
    let builder = || docker.bridge().var("DOCKER_HOST", docker.url()).var("MCP_BRIDGE_CPUS", "1");
    // It has no control groups here: the processor limit is held by nothing, the others by what a process may set.
    let said = diagnosis(builder(), env, 10);
    let report = &said["runtimes"][0];
    let held = json!({ "memory": "watch", "sockets": "watch", "pids": "rlimit", "cpus": "nothing" });
    assert_eq!(report["works"]["held"], held, "{said:#}");
    // It is on this machine, for all that it has namespaces of its own.
    assert_eq!((&report["works"]["runtime"]["remote"], &report["share"]), (&json!(false), &Value::Null));
    assert_eq!(said["picked"]["full_limits"], false);
    let reduced = said["reduced"].to_string();
    assert!(reduced.contains("no control group enforces the limits of memory and processes"), "{said:#}");
    assert!(reduced.contains("nothing enforces the CPU limit"), "{said:#}");
    let text = builder().args(&["doctor"]).command().run(env.guard()).diagnosed();
    assert!(
        text.contains(
            "limits       memory: rlimit and watch, sockets: watch, pids: rlimit, cpus: not enforced"
        ),
        "{text}"
    );
    let bridge = builder().start();
    let _ = bridge.run("b'x' * (1 << 30)").expect("error").because("MemoryError");
    let threads = python!("limits", "many_threads");
    let _ = bridge.run_in("threads", threads).expect("error").because("can't start new thread");
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    bridge.close();
    docker.stop();
    let (host, runtime_dir) = (docker.url(), docker.runtime_dir());
    let stopped = || docker.bridge().var("DOCKER_HOST", &host).var("XDG_RUNTIME_DIR", &runtime_dir);
    let said = diagnosis(stopped(), env, 11);
    let hint = "systemctl --user start docker";
    assert_eq!(said["runtimes"][0]["hint"], hint, "{said:#}");
    let bridge = stopped().start();
    let _ = bridge.run("1").expect("error").because(&format!("hint: {hint}"));
    docker.start_again();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    bridge.close();
}

fn memory_is_watched_in_other_process_namespaces(env: &TestEnv) {
    // Six processes with less than they may, which have more together.
    let greedy = python!("limits", "largest_child");
    for apart in [false, true] {
        let docker = if apart { RootlessDocker::start_apart(env) } else { RootlessDocker::start(env) };
        let builder = docker.bridge().var("DOCKER_HOST", docker.url());
        let bridge = builder.var("MCP_BRIDGE_MEMORY", "128m").start();
        let _ = bridge.run(CHILDREN).expect("success");
        let outcome = bridge.run(greedy).expect("success");
        let outcome = outcome.noting("out of memory: the largest process of the sandbox was killed");
        assert_eq!(outcome.ok(), "9", "apart: {apart}");
        bridge.close();
    }
}
