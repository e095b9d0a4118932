//! Pods that end in the middle of a run, and kubectl that hangs, with a kubectl that answers from a table: each end names the
//! pod, the reason and the way out, comes in bounded time, and forgets nothing. `tests/cluster` has the real ones.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Map, Value, json};

use crate::harness::fake_kubectl::{Double, pod, works, works_but};
use crate::harness::host::REMOVAL;
use crate::harness::{Bridge, Suite, TestEnv, eventually};
use crate::pods::assert_says;
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "pod_losses",
        tests![
            a_session_that_the_cluster_ends_names_the_pod_the_reason_and_what_to_do,
            a_kubectl_that_hangs_in_mid_run_ends_the_run_with_the_pods_name,
            a_delete_that_hangs_forgets_nothing,
            a_list_that_hangs_is_no_empty_list,
            a_kubectl_that_hangs_ends_with_its_bridge,
            the_next_bridge_deletes_the_pods_of_dead_bridges_and_no_others,
            reap_deletes_the_pods_of_dead_bridges_and_no_others,
        ],
    );
}

/// Longer than a command of kubectl is waited for, and tried again.
const BOUND: Duration = Duration::from_secs(100);

const SLEEP: &str = python!("sleep", "ready");

/// A session, what kubectl answers when its connection breaks, and parts of what the run says then.
type Case<'a> = (&'a str, Vec<(&'static str, Value)>, &'a [&'a str]);

fn a_session_that_the_cluster_ends_names_the_pod_the_reason_and_what_to_do(env: &TestEnv) {
    let ended = |reason: &str, message: &str| {
        pod(&json!({ "phase": "Failed", "reason": reason, "message": message }))
    };
    let preempted = json!({ "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": "preempting to accommodate a higher priority pod" });
    let missing = json!({ "err": "Error from server (NotFound): pods \"{name}\" not found\n", "code": 1 });
    let down =
        "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?\n";
    let event = json!({ "items": [{ "reason": "TaintManagerEviction", "message": "Marking for deletion" }] });
    let cases: [Case<'_>; 6] = [
        (
            "evicted",
            vec![("get pod", ended("Evicted", "The node was low on resource: memory."))],
            &["was ended: Evicted: The node was low on resource: memory.", "write less to /tmp"],
        ),
        (
            "old",
            vec![(
                "get pod",
                ended("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"),
            )],
            &["was ended: DeadlineExceeded", "a pod ends after a day"],
        ),
        (
            "preempted",
            vec![("get pod", pod(&json!({ "phase": "Running", "conditions": [preempted] })))],
            &["was ended: PreemptionByScheduler: preempting to accommodate", "priorityClassName"],
        ),
        (
            "deleted",
            vec![
                ("get pod --output=json --ignore-not-found", json!({})),
                ("get pod", missing),
                ("get events", json!({ "out": event.to_string() })),
            ],
            &["was deleted: TaintManagerEviction: Marking for deletion", "kubectl get events"],
        ),
        (
            "restarted",
            Vec::new(),
            &["the connection to pod codebridge-", "broke: error: unexpected EOF", "kubectl get pods"],
        ),
        (
            "down",
            vec![("get pod", json!({ "err": down, "code": 1 }))],
            &[
                "is out of reach, and the API server does not say why",
                "does not answer at 10.0.0.1:6443",
                "kubectl get pods",
            ],
        ),
    ];
    let double = Double::new(env, &works());
    let bridge = double.bridge().start();
    for (session, answers, parts) in cases {
        let call = bridge.start_until_ready(session, SLEEP, json!({ "timeout": 100 }));
        double.answer(&works_but(answers));
        double.happens("error: unexpected EOF");
        let outcome = call.outcome().expect("error").noting("has ended");
        assert_says(outcome.error(), parts);
        assert_says(outcome.error(), &["pod codebridge-", "\nhint: the next call starts a new pod"]);
        double.happens("");
        double.answer(&works());
        assert_eq!(bridge.run_in(session, "40 + 2").noting("is new").ok(), "42");
    }
    bridge.close();
}

fn a_kubectl_that_hangs_in_mid_run_ends_the_run_with_the_pods_name(env: &TestEnv) {
    let double = Double::new(env, &works());
    let bridge = double.bridge().start();
    let call = bridge.start_until_ready("main", SLEEP, json!({ "timeout": 200 }));
    double.answer(&works_but(vec![("get pod", json!({ "hang": true }))]));
    double.happens("silence");
    let outcome = call.outcome().within(BOUND).expect("error").noting("has ended");
    let parts = ["pod codebridge-", "does not answer, and the API server does not say why", "hint: "];
    assert_says(outcome.error(), &parts);
    double.happens("");
    double.answer(&works());
    assert_eq!(bridge.run("40 + 2").noting("is new").ok(), "42");
    bridge.close();
    double.assert_deleted();
    double.assert_ended();
}

fn a_delete_that_hangs_forgets_nothing(env: &TestEnv) {
    let double = Double::new(env, &works());
    let bridge = double.bridge().start();
    let _ = bridge.run("1").expect("success");
    let folder = double.instance(&bridge);
    double.answer(&works_but(vec![("delete pod", json!({ "hang": true }))]));
    let began = Instant::now();
    bridge.signal(Signal::TERM);
    let _ = bridge.wait(BOUND);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    let name = double.pods("run").pop_last().unwrap();
    assert!(folder.join(format!("sandboxes/codebridge-{name}.json")).exists(), "{}", double.log());
    let said = double.command(&["reap"]);
    assert_eq!(said.code(), Some(70), "{said}");
    assert_says(
        &said.stderr,
        &[&format!("could not remove sandbox 'codebridge-{name}'"), "delete pod", "hint: "],
    );
    double.answer(&works());
    assert_says(&double.command(&["reap"]).ok(), &[&format!("removed codebridge-{name}")]);
    assert!(!folder.exists());
    double.assert_ended();
}

fn a_list_that_hangs_is_no_empty_list(env: &TestEnv) {
    let double = Double::new(env, &works_but(vec![("get pods --output=json", json!({ "hang": true }))]));
    for command in ["ps", "reap"] {
        let began = Instant::now();
        let said = double.command(&[command]);
        assert_eq!(said.code(), Some(70), "{command}: {said}");
        let parts =
            ["could not list the sandboxes of kubernetes:big/boxes", "get pods", "hint: `codebridge doctor"];
        assert_says(&said.stderr, &parts);
        assert!(began.elapsed() < BOUND, "{command}: {:?}", began.elapsed());
    }
}

/// The bridge looks for pods of dead bridges meanwhile, and nobody waits for that.
fn a_kubectl_that_hangs_ends_with_its_bridge(env: &TestEnv) {
    let double = Double::new(env, &works_but(vec![("get pods --output=json", json!({ "hang": true }))]));
    let bridge = double.bridge().start();
    let _ = bridge.run("1").expect("success");
    eventually("it lists pods", REMOVAL, || double.log().contains(" get pods ").then_some(()));
    bridge.close();
    double.assert_ended();
}

/// A bridge that runs, and a kubectl that lists a pod of it beside one of a bridge that has ended.
fn with_pods_of_others<'a>(double: &Double<'a>) -> Bridge<'a> {
    let bridge = double.bridge().start();
    let _ = bridge.run("1").expect("success");
    // It has looked for pods of dead bridges, and found none.
    eventually("it has listed pods", REMOVAL, || double.log().contains(" get pods ").then_some(()));
    let folder = double.instance(&bridge);
    let owner: Value = serde_json::from_slice(&fs::read(folder.join("owner.json")).unwrap()).unwrap();
    let pod = |instance: &str, pid: &Value| {
        let annotations: Map<String, Value> = [
            ("instance", &json!(instance)),
            ("owner-pid", pid),
            ("owner-start", &owner["start_time"]),
            ("owner-boot", &owner["boot"]),
            ("owner-pid-namespace", &owner["pid_namespace"]),
            ("owner-machine", &owner["machine"]),
            ("owner-host", &owner["host"]),
        ]
        .into_iter()
        .map(|(key, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), String::from);
            (format!("codebridge.{key}"), text.into())
        })
        .collect();
        json!({ "metadata": { "name": format!("codebridge-{instance}-1"), "annotations": annotations } })
    };
    // No process has this id.
    let items = json!({ "items": [pod("dead", &json!(u32::MAX >> 1)), pod("alive", &owner["pid"])] });
    double.answer(&works_but(vec![("get pods --output=json", json!({ "out": items.to_string() }))]));
    bridge
}

/// How often each pod was deleted that no bridge of the test has started.
fn deleted_of_others(double: &Double<'_>) -> Vec<(String, usize)> {
    let (started, log) = (double.pods("run"), double.log());
    let others = double.pods("delete pod").into_iter().filter(|name| !started.contains(name));
    let count = |name: &str| log.matches(&format!(" delete pod codebridge-{name} ")).count();
    others.map(|name| (name.clone(), count(&name))).collect()
}

fn reap_deletes_the_pods_of_dead_bridges_and_no_others(env: &TestEnv) {
    let double = Double::new(env, &works());
    let living = with_pods_of_others(&double);
    assert_eq!(double.command(&["reap"]).ok().trim(), "removed codebridge-dead-1");
    assert_eq!(deleted_of_others(&double), [("dead-1".to_owned(), 1)]);
    living.close();
}

fn the_next_bridge_deletes_the_pods_of_dead_bridges_and_no_others(env: &TestEnv) {
    let double = Double::new(env, &works());
    let living = with_pods_of_others(&double);
    let next = double.bridge().start();
    let _ = next.run("1").expect("success");
    let is_deleted = || double.pods("delete pod").contains("dead-1").then_some(());
    eventually("the dead bridge's pod is deleted", REMOVAL, is_deleted);
    next.close();
    living.close();
    assert_eq!(deleted_of_others(&double), [("dead-1".to_owned(), 1)]);
}
