//! What only a real cluster shows, for `tests/cluster`: refusals of the API server, and pods that end in the middle of a run.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::host::instance_of;
use crate::harness::matrix::{Kind, Runtime};
use crate::harness::{Suite, TestEnv, eventually};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    let rows: Vec<Runtime> =
        Runtime::rows().iter().copied().filter(|row| row.kind == Kind::Kubernetes).collect();
    suite.on(
        &rows,
        "cluster",
        tests![
            doctor_says_which_walls_hold,
            what_the_cluster_refuses_is_named,
            an_image_that_cannot_be_pulled_is_named,
            a_pod_without_a_node_says_why,
            a_pod_that_is_deleted_ends_its_run_with_the_reason,
        ],
    );
    for row in rows {
        suite.on_alone(row, "cluster", tests![an_api_server_that_restarts_costs_the_session_at_most]);
    }
}

const LIMIT: Duration = Duration::from_secs(60);

fn kubectl(env: &TestEnv, words: &[&str]) -> String {
    env.run(["kubectl", "--context=lab", "--namespace=sandboxes"].iter().chain(words).copied()).ok()
}

fn doctor_says_which_walls_hold(env: &TestEnv) {
    let output = env.bridge().args(&["doctor", "--json"]).command().run(env.guard());
    let said: Value = serde_json::from_str(&output.diagnosed()).unwrap();
    let walls = &said["runtimes"][0]["works"]["walls"];
    assert_eq!((&walls["filter"], &walls["policy"]), (&json!(true), &json!(false)), "{said}");
    assert!(walls["answered"][0].as_str().unwrap().starts_with("the node at"), "{said}");
    assert!(kubectl(env, &["get", "networkpolicy"]).contains("codebridge-no-network"));
}

/// What a bridge says that cannot start a sandbox.
fn refusal(env: &TestEnv, variables: &[(&str, &str)]) -> String {
    let mut bridge = env.bridge();
    for (name, value) in variables {
        bridge = bridge.var(name, *value);
    }
    let bridge = bridge.start();
    let said = bridge.call(json!({ "code": "1", "timeout": 100 })).expect("error").error().to_string();
    bridge.close();
    said
}

fn what_the_cluster_refuses_is_named(env: &TestEnv) {
    for (runtime, parts) in [
        ("kubernetes:weak/sandboxes", ["may not create pods", "codebridge help kubernetes"]),
        ("kubernetes:nosuch", ["no context 'nosuch'", "get-contexts"]),
        ("kubernetes:gone", ["does not answer at 127.0.0.1:16444", "cluster-info"]),
        ("kubernetes:lab/nosuch", ["namespaces \"nosuch\" not found", "get namespaces"]),
    ] {
        let said = refusal(env, &[("MCP_BRIDGE_RUNTIME", runtime)]);
        assert!(parts.iter().all(|part| said.contains(part)), "{runtime}: {said}");
    }
}

fn an_image_that_cannot_be_pulled_is_named(env: &TestEnv) {
    let said = refusal(env, &[("MCP_BRIDGE_IMAGE", "nosuch.invalid/python:1")]);
    assert!(said.contains("cannot pull nosuch.invalid/python:1"), "{said}");
}

fn a_pod_without_a_node_says_why(env: &TestEnv) {
    let file = env.write("pod.toml", "[nodeSelector]\npool = \"nosuch\"\n");
    let said = refusal(env, &[("MCP_BRIDGE_POD", file.to_str().unwrap())]);
    assert!(said.contains("no node takes pod") && said.contains("nodes are available"), "{said}");
}

fn a_pod_that_is_deleted_ends_its_run_with_the_reason(env: &TestEnv) {
    let bridge = env.bridge().start();
    let call = bridge.start_until_ready("main", python!("sleep", "ready"), json!({ "timeout": 100 }));
    let (id, _) = instance_of(env, bridge.pid()).unwrap();
    let pods = &format!("--selector=codebridge.instance={id}");
    let names = kubectl(env, &["get", "pods", pods, "--output=name"]);
    let _ = kubectl(env, &["delete", "pods", pods, "--grace-period=1", "--wait=false"]);
    let said = call.outcome().expect("error").error().to_string();
    assert!(said.contains("was deleted"), "{names}: {said}");
    assert_eq!(bridge.run("40 + 2").noting("is new").ok(), "42");
    bridge.close();
}

fn an_api_server_that_restarts_costs_the_session_at_most(env: &TestEnv) {
    let script = std::env::var("CODEBRIDGE_TEST_CLUSTER_SCRIPT").unwrap();
    let bridge = env.bridge().start();
    let call = bridge.start_until_ready("main", python!("sleep", "ready"), json!({ "timeout": 100 }));
    let _ = env.run([script.as_str(), "restart-api"]).ok();
    let said = call.outcome().expect("error").error().to_string();
    assert!(said.contains("the sandbox went away") || said.contains("pod "), "{said}");
    let works = || (bridge.run("40 + 2").text.trim() == "42").then_some(());
    eventually("the next call starts a new session", LIMIT, works);
    bridge.close();
}
