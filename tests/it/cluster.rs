//! What only a real cluster shows, for `tests/cluster`: refusals of the API server, and pods that end in the middle of a run.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::bridge::{Bridge, PendingCall};
use crate::harness::host::{instance_of, traces};
use crate::harness::matrix::{Kind, Machine, Runtime};
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
            what_admission_refuses_is_told_from_rights,
            doctor_names_the_rights_that_are_missing,
            sessions_start_at_once,
            an_image_that_cannot_be_pulled_is_named,
            a_pod_without_a_node_says_why,
            a_pod_that_is_deleted_ends_its_run_with_the_reason,
            a_quota_that_is_used_up_is_named,
            a_pod_that_is_evicted_ends_its_run_with_the_reason,
            a_pod_that_makes_room_for_another_ends_its_run_with_the_reason,
            nodes_can_apply_our_profile,
            packages_and_shares_are_refused_with_the_way_out,
        ],
    );
    for row in rows {
        suite.on_alone(
            row,
            "cluster",
            tests![
                an_api_server_that_restarts_costs_the_session_at_most,
                a_node_that_is_lost_ends_its_run_with_its_name,
                a_node_that_is_lost_between_calls_is_noticed_before_the_next,
                a_node_that_takes_no_pod_is_named,
                an_api_server_that_hangs_holds_up_no_call_for_long,
                a_network_that_enforces_the_policy_is_noticed,
                reap_removes_the_network_policy,
            ],
        );
    }
}

const LIMIT: Duration = Duration::from_secs(60);
/// How long a node may take to end a pod that is deleted before its program has started: until it looks at all of its pods.
const REMOVED: Duration = Duration::from_secs(180);

fn kubectl(env: &TestEnv, words: &[&str]) -> String {
    env.run(["kubectl", "--context=lab", "--namespace=sandboxes"].iter().chain(words).copied()).ok()
}

/// Creates an object, or changes it.
fn apply(env: &TestEnv, name: &str, object: &Value) {
    let file = env.write(name, object.to_string());
    let _ = kubectl(env, &["apply", &format!("--filename={}", file.display())]);
}

/// A script that changes the cluster under test.
fn cluster(env: &TestEnv, word: &str) {
    let script = std::env::var("CODEBRIDGE_TEST_CLUSTER_SCRIPT").unwrap();
    let _ = env.run([script.as_str(), word]).ok();
}

/// What `doctor` says of the walls around pods.
fn walls(env: &TestEnv, variables: &[(&str, &str)]) -> Value {
    let mut bridge = env.bridge().args(&["doctor", "--json"]);
    for (name, value) in variables {
        bridge = bridge.var(name, *value);
    }
    let output = bridge.command().run(env.guard());
    let said: Value = serde_json::from_str(&output.diagnosed()).unwrap();
    let walls = said["runtimes"][0]["works"]["walls"].clone();
    assert!(walls.is_object(), "{said}");
    walls
}

/// What a pod of this cluster reaches without the filter.
const NEIGHBOURS: [&str; 4] =
    ["the API server at 10.98.0.1", "the name server at 10.98.0.10", "the node at ", "another pod at "];

fn assert_names(names: &Value, wanted: &[&str]) {
    let names: Vec<&str> = names.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for start in wanted {
        assert!(names.iter().any(|name| name.starts_with(start)), "{start} is missing in {names:?}");
    }
}

fn doctor_says_which_walls_hold(env: &TestEnv) {
    let walls = walls(env, &[]);
    assert_eq!(
        (&walls["filter"], &walls["policy"], &walls["profile"]),
        (&json!(true), &json!(false), &json!(false))
    );
    assert_names(&walls["tried"], &NEIGHBOURS);
    assert_names(&walls["answered"], &NEIGHBOURS);
    assert!(kubectl(env, &["get", "networkpolicy"]).contains("codebridge-no-network"));
}

/// A change of the cluster under test, and the word that undoes it, whatever a test finds.
struct Changed<'a>(&'a TestEnv, &'static str);

impl<'a> Changed<'a> {
    fn by(env: &'a TestEnv, word: &str, undone_by: &'static str) -> Self {
        let changed = Self(env, undone_by);
        cluster(env, word);
        changed
    }
}

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        cluster(self.0, self.1);
    }
}

fn a_network_that_enforces_the_policy_is_noticed(env: &TestEnv) {
    let enforced = Changed::by(env, "enforce", "admit");
    let walls = walls(env, &[]);
    assert_names(&walls["tried"], &NEIGHBOURS);
    assert_eq!((&walls["policy"], &walls["answered"]), (&json!(true), &json!([])), "{walls}");
    let bridge = env.bridge().start();
    assert_eq!(bridge.run("40 + 2").ok(), "42");
    bridge.close();
    drop(enforced);
}

fn reap_removes_the_network_policy(env: &TestEnv) {
    let bridge = env.bridge().start();
    assert_eq!(bridge.run("40 + 2").ok(), "42");
    bridge.close();
    assert!(kubectl(env, &["get", "networkpolicy"]).contains("codebridge-no-network"));
    let output = env.bridge().args(&["reap", "--all"]).command().run(env.guard());
    assert!(output.status.success(), "{output:?}");
    assert!(!kubectl(env, &["get", "networkpolicy"]).contains("codebridge-no-network"));
}

fn nodes_can_apply_our_profile(env: &TestEnv) {
    let profile = env.bridge().args(&["doctor", "--seccomp-profile"]).command().run(env.guard()).ok();
    let folder = Machine::get().kubeconfig.as_ref().unwrap().with_file_name("kubelet/seccomp");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("codebridge.json"), profile).unwrap();
    let file = env.write("pod.toml", "localhostProfile = \"codebridge.json\"\n");
    let chosen = [("MCP_BRIDGE_POD", file.to_str().unwrap())];
    let walls = walls(env, &chosen);
    assert_eq!((&walls["profile"], &walls["answered"]), (&json!(true), &json!([])), "{walls}");
    let bridge = env.bridge().var("MCP_BRIDGE_POD", &file).start();
    assert_eq!(bridge.run("import subprocess; subprocess.run(['echo', '42']).returncode").ok(), "42\n0");
    let _ = bridge.run("import socket; socket.socket()").expect("error").because("no network");
    bridge.close();
    let file = env.write("other.toml", "localhostProfile = \"nosuch.json\"\n");
    let said = refusal(env, &[("MCP_BRIDGE_POD", file.to_str().unwrap())]);
    assert!(said.contains("nosuch.json") && said.contains("pod codebridge-"), "{said}");
}

/// Makes a namespace with one object in it.
fn make_namespace(env: &TestEnv, name: &str, object: &Value) {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    apply(env, &format!("{name}.json"), &namespace);
    let file = env.write("object.json", object.to_string());
    let (namespace, file) = (format!("--namespace={name}"), format!("--filename={}", file.display()));
    let _ = env.run(["kubectl", "--context=lab", &namespace, "apply", &file]).ok();
    if object["kind"] == "ResourceQuota" {
        // Without the controllers of a cluster nobody else says how much is used.
        let quota = object["metadata"]["name"].as_str().unwrap();
        let status = format!("/api/v1/namespaces/{name}/resourcequotas/{quota}/status");
        let _ = env.run(["kubectl", "--context=lab", "replace", "--raw", &status, &file]).ok();
    }
}

fn quota(namespace: &str, name: &str, hard: &Value, used: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": name, "namespace": namespace },
        "spec": { "hard": hard }, "status": { "hard": hard, "used": used },
    })
}

fn what_admission_refuses_is_told_from_rights(env: &TestEnv) {
    make_namespace(
        env,
        "stated",
        &quota("stated", "all", &json!({ "limits.cpu": "9" }), &json!({ "limits.cpu": "0" })),
    );
    let range = json!({ "type": "Container", "max": { "memory": "64Mi" } });
    let narrow = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "small" }, "spec": { "limits": [range] },
    });
    make_namespace(env, "narrow", &narrow);
    let file = env.write("pod.toml", "priorityClassName = \"nosuch\"\n");
    for (variable, value, parts) in [
        (
            "MCP_BRIDGE_RUNTIME",
            "kubernetes:lab/stated",
            ["failed quota: all: must specify limits.cpu", "--cpus"],
        ),
        (
            "MCP_BRIDGE_RUNTIME",
            "kubernetes:lab/narrow",
            ["maximum memory usage per Container is 64Mi", "kubectl describe limitrange"],
        ),
        (
            "MCP_BRIDGE_POD",
            file.to_str().unwrap(),
            ["no PriorityClass with name nosuch", "kubectl get priorityclasses"],
        ),
    ] {
        let said = refusal(env, &[(variable, value)]);
        assert!(said.contains("does not admit the pod"), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{value}: {said}");
    }
    // The way out that the hint names.
    let stated = [("MCP_BRIDGE_RUNTIME", "kubernetes:lab/stated"), ("MCP_BRIDGE_CPUS", "1")];
    let said = walls(env, &stated);
    assert_eq!(said["filter"], true, "{said}");
}

fn doctor_names_the_rights_that_are_missing(env: &TestEnv) {
    let missing = json!(["list events", "create networkpolicies.networking.k8s.io"]);
    assert_eq!(walls(env, &[("MCP_BRIDGE_RUNTIME", "kubernetes:bare")])["missing_rights"], missing);
    assert_eq!(walls(env, &[])["missing_rights"], json!([]));
}

fn sessions_start_at_once(env: &TestEnv) {
    const COUNT: usize = 20;
    let bridge = env.bridge().var("MCP_BRIDGE_MAX_SESSIONS", "20").var("MCP_BRIDGE_MEMORY", "128m").start();
    let calls: Vec<_> = (0..COUNT)
        .map(|n| {
            bridge.start_call(
                json!({ "code": format!("x = {n}; x"), "session": format!("s{n}"), "timeout": 100 }),
            )
        })
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.outcome().ok(), n.to_string());
    }
    for n in 0..COUNT {
        assert_eq!(bridge.run_in(&format!("s{n}"), "x").ok(), n.to_string());
    }
    let traces = traces(&bridge);
    assert_eq!(traces.containers().len(), COUNT);
    bridge.close();
    traces.wait_until_nothing_is_left(LIMIT);
}

fn a_quota_that_is_used_up_is_named(env: &TestEnv) {
    let hard = json!({ "pods": "0" });
    make_namespace(env, "full", &quota("full", "few", &hard, &hard));
    let said = refusal(env, &[("MCP_BRIDGE_RUNTIME", "kubernetes:lab/full")]);
    assert!(said.contains("exceeded quota: few") && said.contains("raise the quota"), "{said}");
}

/// The end of a run names the pod, and says what to do.
fn assert_hints(said: &str, hint: &str) {
    let rest = said.split_once("\nhint: ").unwrap_or_else(|| panic!("no hint: {said}")).1;
    assert!(said.contains("pod codebridge-") && rest.contains(hint), "{said}");
}

/// What a run says whose pod the cluster ends, and that the next call has a new one.
fn ended_by_the_cluster(bridge: &Bridge, call: PendingCall) -> String {
    let said = call.outcome().expect("error").error().to_string();
    assert_eq!(bridge.run("40 + 2").noting("is new").ok(), "42");
    said
}

fn a_pod_that_is_evicted_ends_its_run_with_the_reason(env: &TestEnv) {
    let bridge = env.bridge().start();
    let call =
        bridge.start_until_ready("main", python!("cluster", "too_many_files"), json!({ "timeout": 110 }));
    let said = ended_by_the_cluster(&bridge, call);
    assert!(said.contains("Evicted") && said.contains("exceeds the limit"), "{said}");
    assert_hints(&said, "write less to /tmp");
    bridge.close();
}

fn a_pod_that_makes_room_for_another_ends_its_run_with_the_reason(env: &TestEnv) {
    let words = ["get", "nodes", "--output=jsonpath={.items[0].status.allocatable.memory}"];
    let kibibytes: u64 = kubectl(env, &words).trim().trim_end_matches("Ki").parse().unwrap();
    let most = format!("{}", kibibytes / 10 * 6 * 1024);
    apply(
        env,
        "class.json",
        &json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": { "name": "codebridge-test-high" }, "value": 1000,
        }),
    );
    let bridge = env.bridge().var("MCP_BRIDGE_MEMORY", &most).start();
    let call = bridge.start_until_ready("main", python!("sleep", "ready"), json!({ "timeout": 100 }));
    let name = "greedy";
    apply(
        env,
        "greedy.json",
        &json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": {
                "priorityClassName": "codebridge-test-high", "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "x", "image": "codebridge.test/pause:1", "imagePullPolicy": "Never",
                    "resources": { "requests": { "memory": most } },
                }],
            },
        }),
    );
    let said = call.outcome().expect("error").error().to_string();
    let _ = kubectl(env, &["delete", "pod", name, "--grace-period=0", "--force"]);
    assert!(said.contains("reempt"), "{said}");
    assert_hints(&said, "the next call starts a new pod");
    bridge.close();
}

/// What a bridge says that cannot start a sandbox.
fn refusal(env: &TestEnv, variables: &[(&str, &str)]) -> String {
    let mut bridge = env.bridge();
    for (name, value) in variables {
        bridge = bridge.var(name, *value);
    }
    let bridge = bridge.start();
    let said = bridge.call(json!({ "code": "1", "timeout": 100 })).expect("error").error().to_string();
    let traces = instance_of(env, bridge.pid()).map(|_| traces(&bridge));
    bridge.close();
    if let Some(traces) = traces {
        assert_eq!(traces.containers(), [""; 0], "they are not being deleted");
        let pods = format!("--selector=codebridge.instance={}", traces.id);
        let words = ["get", "pods", "--all-namespaces", &pods, "--output=name"];
        eventually("no pod is left", REMOVED, || kubectl(env, &words).trim().is_empty().then_some(()));
    }
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
    assert_hints(&said, "kubectl get events");
    assert_eq!(bridge.run("40 + 2").noting("is new").ok(), "42");
    bridge.close();
}

fn an_api_server_that_restarts_costs_the_session_at_most(env: &TestEnv) {
    let bridge = env.bridge().start();
    let call = bridge.start_until_ready("main", python!("sleep", "ready"), json!({ "timeout": 100 }));
    cluster(env, "restart-api");
    let said = call.outcome().expect("error").error().to_string();
    assert!(said.contains("the connection to pod codebridge-") || said.contains("is out of reach"), "{said}");
    assert_hints(&said, "kubectl get pods");
    let works = || (bridge.run("40 + 2").text.trim() == "42").then_some(());
    eventually("the next call starts a new session", LIMIT, works);
    bridge.close();
}

const LOST: [&str; 2] =
    ["node codebridge-node does not answer for pod codebridge-", "kubectl describe node codebridge-node"];

fn a_node_that_is_lost_ends_its_run_with_its_name(env: &TestEnv) {
    // The second one answers nothing, and ends no connection.
    for (word, undone_by) in [("stop-node", "start-node"), ("freeze-node", "thaw-node")] {
        let bridge = env.bridge().start();
        let call = bridge.start_until_ready("main", python!("sleep", "ready"), json!({ "timeout": 100 }));
        let lost = Changed::by(env, word, undone_by);
        let began = Instant::now();
        let said = call.outcome().expect("error").error().to_string();
        assert!(LOST.iter().all(|part| said.contains(part)), "{word}: {said}");
        assert!(began.elapsed() < LIMIT, "{word}: {:?}", began.elapsed());
        drop(lost);
        let works = || (bridge.run("40 + 2").text.trim() == "42").then_some(());
        eventually("the next call starts a new session", LIMIT, works);
        bridge.close();
    }
}

fn a_node_that_is_lost_between_calls_is_noticed_before_the_next(env: &TestEnv) {
    // Longer than a session is trusted to be there.
    const UNUSED: Duration = Duration::from_secs(11);
    let bridge = env.bridge().start();
    let _ = bridge.run("x = 1").expect("success");
    std::thread::sleep(UNUSED);
    assert_eq!(bridge.run("x").ok(), "1", "a pod that was asked and is there");
    let lost = Changed::by(env, "freeze-node", "thaw-node");
    std::thread::sleep(UNUSED);
    let began = Instant::now();
    let _ = bridge.run("x").expect("error");
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    drop(lost);
    let next = eventually("the next call has a new session", LIMIT, || {
        Some(bridge.run("40 + 2")).filter(|outcome| outcome.status() == "success")
    });
    assert!(next.notices().contains("ended while it was idle (node "), "{next}");
    bridge.close();
}

fn a_node_that_takes_no_pod_is_named(env: &TestEnv) {
    let bridge = env.bridge().start();
    assert_eq!(bridge.run("40 + 2").ok(), "42");
    let lost = Changed::by(env, "stop-node", "start-node");
    let began = Instant::now();
    let said = bridge.call(json!({ "code": "1", "session": "other" })).expect("error").error().to_string();
    assert!(LOST.iter().all(|part| said.contains(part)), "{said}");
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    drop(lost);
    let works = || (bridge.run_in("other", "40 + 2").text.trim() == "42").then_some(());
    eventually("a call after that has a pod", LIMIT, works);
    bridge.close();
}

fn packages_and_shares_are_refused_with_the_way_out(env: &TestEnv) {
    let refused = "pods cannot install packages; use an image that has them";
    for name in ["MCP_BRIDGE_PACKAGES", "MCP_BRIDGE_WITH"] {
        let bridge = env.bridge().var(name, "humanize").start();
        for code in ["runtime.install('humanize')", "%pip install humanize", "import humanize"] {
            let said = bridge.run(code).text;
            assert!(said.contains(refused), "{name}, {code}: {said}");
        }
        // Code that the operator wants to have packages does not run without them.
        let works = bridge.run("40 + 2").text;
        assert_eq!(works.contains("42"), name == "MCP_BRIDGE_PACKAGES", "{name}: {works}");
        bridge.close();
    }
    let folder = env.folder("shared");
    let said = refusal(env, &[("MCP_BRIDGE_SHARE", folder.to_str().unwrap())]);
    assert!(said.contains("cannot be shared with a pod"), "{said}");
}

fn an_api_server_that_hangs_holds_up_no_call_for_long(env: &TestEnv) {
    let bridge = env.bridge().start();
    let call = bridge.start_until_ready("main", python!("sleep", "ready"), json!({ "timeout": 100 }));
    let frozen = Changed::by(env, "freeze-api", "thaw-api");
    let began = Instant::now();
    let new = bridge.start_call(json!({ "code": "1", "session": "other" }));
    let said = call.outcome().expect("error").error().to_string();
    assert!(said.contains("does not answer, and the API server does not say why"), "{said}");
    let said = new.outcome().expect("error").error().to_string();
    assert!(said.contains("kubernetes:least"), "{said}");
    assert!(began.elapsed() < 2 * LIMIT, "{:?}", began.elapsed());
    drop(frozen);
    let works = || (bridge.run("40 + 2").text.trim() == "42").then_some(());
    eventually("the next call starts a new session", LIMIT, works);
    bridge.close();
}
