//! Kubernetes without a cluster: a kubectl that answers from a table. Each refusal names the object, the reason and the way
//! out, and comes in bounded time. `tests/cluster` has the real ones.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::fake_kubectl::{Answers, Double, gone, pod, policy, works_but, yes};
use crate::harness::{Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "pods",
        tests![
            a_context_that_does_not_exist_is_named,
            an_api_server_that_is_away_is_named_with_its_address,
            what_rbac_forbids_is_listed,
            doctor_names_a_missing_right_that_is_optional,
            a_policy_that_another_bridge_makes_counts,
            what_admission_refuses_is_no_matter_of_rights,
            a_quota_that_is_used_up_is_quoted,
            an_image_that_cannot_be_pulled_is_named,
            a_pod_without_a_node_says_why,
            a_kubectl_that_hangs_is_ended,
            a_probe_that_reaches_the_network_refuses_the_cluster,
            shares_and_images_of_this_machine_are_refused,
            a_file_of_pods_with_another_field_is_refused,
            auto_never_picks_a_cluster,
        ],
    );
}

/// What `codebridge exec` says with a kubectl that gives these answers, and how it was called.
fn exec(env: &TestEnv, answers: &Answers<'_>, args: &[&str]) -> (String, String) {
    let double = Double::new(env, answers);
    (double.exec(args), double.log())
}

pub(crate) fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
}

fn a_context_that_does_not_exist_is_named(env: &TestEnv) {
    let text = "Error in configuration: context was not found for specified context: big\n";
    let (said, _) = exec(env, &[("auth can-i", json!({ "err": text, "code": 1 }))], &[]);
    assert_says(&said, &["kubectl has no context 'big'", "hint: ", "kubectl config get-contexts"]);
}

fn an_api_server_that_is_away_is_named_with_its_address(env: &TestEnv) {
    let text =
        "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?\n";
    let (said, _) = exec(env, &[("auth can-i", json!({ "err": text, "code": 1 }))], &[]);
    assert_says(&said, &["the API server does not answer at 10.0.0.1:6443", "hint: ", "cluster-info"]);
}

fn what_rbac_forbids_is_listed(env: &TestEnv) {
    let answers = [("create --subresource=attach", json!({ "out": "no\n", "code": 1 })), yes()];
    let (said, log) = exec(env, &answers, &[]);
    assert_says(&said, &["may not create pods/attach in namespace boxes", "codebridge help kubernetes"]);
    assert!(log.lines().all(|line| line.contains("--context=big --namespace=boxes")), "{log}");
}

/// What `codebridge exec` says when `kubectl run` refuses a pod, which is there all the same.
fn refused(env: &TestEnv, text: &str) -> String {
    let double = Double::new(
        env,
        &[
            yes(),
            policy(),
            (
                "run",
                json!({ "err": format!("Error from server (Forbidden): pods \"x\" is forbidden: {text}\n"), "code": 1 }),
            ),
            ("get events", json!({ "out": "{\"items\":[]}" })),
            ("get pod", pod(&json!({ "phase": "Pending" }))),
            gone(),
        ],
    );
    let said = double.exec(&[]);
    double.assert_deleted();
    said
}

fn a_quota_that_is_used_up_is_quoted(env: &TestEnv) {
    let said = refused(env, "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1");
    assert_says(&said, &["exceeded quota: few", "hint: ", "raise the quota"]);
}

fn what_admission_refuses_is_no_matter_of_rights(env: &TestEnv) {
    for (text, hint) in [
        ("failed quota: stated: must specify limits.cpu for: sandbox", "a CPU limit with --cpus"),
        ("maximum memory usage per Container is 64Mi, but limit is 512Mi", "choose --memory and --cpus"),
        ("violates PodSecurity \"restricted:latest\": runAsNonRoot != true", "restricted profile"),
    ] {
        let said = refused(env, text);
        assert_says(&said, &["the cluster does not admit the pod", text, "hint: ", hint]);
        assert!(!said.contains("permit"), "{said}");
    }
}

/// A pod of this status, for which kubectl waits.
fn waiting(env: &TestEnv, status: &Value) -> String {
    let double = Double::new(
        env,
        &[yes(), policy(), ("run", json!({ "hang": true })), ("get pod", pod(status)), gone()],
    );
    let said = double.exec(&[]);
    double.assert_deleted();
    said
}

fn an_image_that_cannot_be_pulled_is_named(env: &TestEnv) {
    let waits = json!({ "reason": "ImagePullBackOff", "message": "no such host" });
    let container = json!({ "image": "docker.io/library/python:3.14-slim", "state": { "waiting": waits } });
    let said = waiting(env, &json!({ "phase": "Pending", "containerStatuses": [container] }));
    assert_says(
        &said,
        &["cannot pull docker.io/library/python:3.14-slim", "no such host", "imagePullSecrets"],
    );
}

fn a_pod_without_a_node_says_why(env: &TestEnv) {
    let why = "0/1 nodes are available: 1 Insufficient memory.";
    let condition =
        json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why });
    let said = waiting(env, &json!({ "phase": "Pending", "conditions": [condition] }));
    assert_says(&said, &["no node takes pod codebridge-", why, "hint: ", "--memory"]);
}

fn a_kubectl_that_hangs_is_ended(env: &TestEnv) {
    let started = Instant::now();
    let (said, _) = exec(env, &[("auth can-i", json!({ "hang": true }))], &[]);
    assert_says(&said, &["did not start in time", "auth can-i", "hint: "]);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

fn a_probe_that_reaches_the_network_refuses_the_cluster(env: &TestEnv) {
    let seen = json!({ "before": ["the node at 10.0.0.1:22"], "after": ["the node at 10.0.0.1:22"] });
    let answers = [
        yes(),
        policy(),
        ("run", json!({ "out": format!("codebridge{seen}\n") })),
        ("get pod", pod(&json!({ "phase": "Running" }))),
        gone(),
    ];
    let double = Double::new(env, &answers);
    let said = double.exec(&[]);
    double.assert_deleted();
    assert_says(&said, &["not be cut off from the network", "the node at 10.0.0.1:22", "hint: "]);
}

fn shares_and_images_of_this_machine_are_refused(env: &TestEnv) {
    let (said, _) = exec(env, &[yes()], &["--image", "host:"]);
    assert_says(&said, &["hint: name an image that the nodes can pull"]);
    let folder = env.folder("shared");
    let answers = [
        yes(),
        policy(),
        ("run", json!({ "out": "codebridge{\"before\": [], \"after\": []}\n" })),
        ("get pod --ignore-not-found", json!({})),
        gone(),
    ];
    let (said, _) = exec(env, &answers, &["--share", folder.to_str().unwrap()]);
    assert_says(&said, &["cannot be shared with a pod"]);
}

fn a_file_of_pods_with_another_field_is_refused(env: &TestEnv) {
    let file = env.write("pod.toml", "hostNetwork = true\n");
    let (said, log) = exec(env, &[], &["--pod", file.to_str().unwrap()]);
    assert_says(&said, &["pod.toml", "unknown field `hostNetwork`", "hint: ", "codebridge help kubernetes"]);
    assert_eq!(log, "", "nothing was started");
}

fn auto_never_picks_a_cluster(env: &TestEnv) {
    let (said, log) = exec(env, &[yes()], &["--runtime", "auto"]);
    assert_says(&said, &["no container runtime found (podman, docker, crun, runc)"]);
    assert_eq!(log, "");
}

fn doctor_names_a_missing_right_that_is_optional(env: &TestEnv) {
    let no = json!({ "out": "no\n", "code": 1 });
    let double = Double::new(env, &works_but(vec![("auth can-i list events", no)]));
    let said = double.command(&["doctor"]).diagnosed();
    assert_says(&said, &["this user may not list events, which is optional", "codebridge help kubernetes"]);
    assert!(!said.contains("create networkpolicies"), "{said}");
}

fn a_policy_that_another_bridge_makes_counts(env: &TestEnv) {
    let missing = "Error from server (NotFound): networkpolicies.networking.k8s.io \"codebridge-no-network\" not found\n";
    let exists = "Error from server (AlreadyExists): error when creating \"STDIN\": networkpolicies.networking.k8s.io \"codebridge-no-network\" already exists\n";
    let double = Double::new(
        env,
        &works_but(vec![
            ("get networkpolicy", json!({ "err": missing, "code": 1 })),
            ("create --filename=-", json!({ "err": exists, "code": 1 })),
        ]),
    );
    let said = double.command(&["doctor"]).diagnosed();
    assert_says(&said, &["the seccomp filter and the network policy hold"]);
}
