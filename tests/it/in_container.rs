//! A bridge inside an unprivileged container, as in CI: it picks a runtime that works there, or says exactly why none
//! does.
//!
//! The container gets the host's `/usr`, and with it the runtimes.

use serde_json::Value;

use crate::harness::process::Output;
use crate::harness::{Kind, Machine, Runtime, Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    let as_root = |kind| Runtime { kind, as_user: false };
    suite.on(
        &[as_root(Kind::Podman), as_root(Kind::Docker)],
        "in_container",
        tests![where_nothing_works_the_reason_is_the_container, where_more_is_allowed_a_runtime_is_picked],
    );
}

/// What `doctor` says in a container with these options, and its exit status.
fn doctor_inside(env: &TestEnv, options: &[&str]) -> (Value, Option<i32>) {
    let output = run_inside(env, options, &["doctor", "--json"]);
    let said = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output}"));
    (said, output.code())
}

fn run_inside(env: &TestEnv, options: &[&str], arguments: &[&str]) -> Output {
    let image = Machine::get().image.clone().unwrap();
    let binary = format!("--volume={}:/codebridge:ro", env.binary().display());
    let mut words =
        vec![env.runtime().kind.name(), "run", "--rm", "--network=none", "--volume=/usr:/usr:ro", &binary];
    words.extend(["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--env=HOME=/tmp"]);
    words.extend(["--env=MCP_BRIDGE_IMAGE=host:", "--env=MCP_BRIDGE_LOG_LEVEL=error"]);
    words.extend(options);
    words.extend([image.as_str(), "/codebridge"]);
    words.extend(arguments);
    env.run(words)
}

/// The reason of each runtime that is refused.
fn reasons(said: &Value) -> Vec<(String, String)> {
    let runtimes = said["runtimes"].as_array().unwrap().iter();
    let refused = runtimes.filter(|it| it["refused"].is_object());
    let text = |value: &Value| value.as_str().unwrap().to_string();
    refused.map(|it| (text(&it["kind"]), text(&it["refused"]["reason"]))).collect()
}

fn where_nothing_works_the_reason_is_the_container(env: &TestEnv) {
    for user in ["--user=0", "--user=1000:1000"] {
        let (said, exit) = doctor_inside(env, &[user]);
        assert_eq!((exit, &said["picked"]), (Some(11), &Value::Null), "{user}: {said:#}");
        let fact = said["host"].as_array().unwrap().iter().find(|it| it["name"] == "container").unwrap();
        assert_eq!(fact["state"], "bad", "{said:#}");
        assert!(fact["hint"].as_str().unwrap().contains("--security-opt=seccomp=unconfined"), "{fact}");
        // What is said of the host fits the refusals: docker's filter forbids namespaces, its control groups are read-only.
        let state = |name: &str| {
            let facts = said["host"].as_array().unwrap();
            facts.iter().find(|fact| fact["name"] == name).map(|fact| fact["state"].clone())
        };
        let filtered = reasons(&said).iter().any(|(_, reason)| reason == "no-user-namespaces");
        let expected = if filtered { "bad" } else { "good" };
        assert_eq!(state("userns"), Some(expected.into()), "{said:#}");
        assert_eq!(state("cgroups"), Some("weak".into()), "{said:#}");
        for (kind, reason) in reasons(&said) {
            let exact = [
                "confined", "no-user-namespaces", "no-capability", "cgroup-denied", "not-installed",
                "daemon-unreachable",
            ];
            assert!(exact.contains(&reason.as_str()), "{user}: {kind} is refused for '{reason}': {said:#}");
        }
        assert!(
            reasons(&said).iter().any(|(kind, reason)| kind == "crun" && reason == "confined"),
            "{said:#}"
        );
    }
}

fn where_more_is_allowed_a_runtime_is_picked(env: &TestEnv) {
    let proc = match env.runtime().kind {
        Kind::Docker => "--security-opt=systempaths=unconfined",
        _ => "--security-opt=unmask=ALL",
    };
    for user in ["--user=0", "--user=1000:1000"] {
        let options = [user, "--security-opt=seccomp=unconfined", proc];
        let (said, exit) = doctor_inside(env, &options);
        assert_eq!(exit, Some(10), "{user}: {said:#}");
        assert_eq!(said["run"]["ok"], true, "{user}: {said:#}");
        assert!(said["reduced"][0].as_str().unwrap().contains("rlimits apply to each process"), "{said:#}");
        // Control groups are read-only there, for root as well.
        let crun = said["runtimes"].as_array().unwrap().iter().find(|it| it["kind"] == "crun").unwrap();
        assert_eq!(crun["works"]["held"]["memory"], "watch", "{said:#}");
        // podman needs more of a user than the container has.
        for (kind, reason) in reasons(&said).into_iter().filter(|(kind, _)| kind != "podman") {
            let exact = ["no-capability", "not-installed", "daemon-unreachable"];
            assert!(exact.contains(&reason.as_str()), "{user}: {kind} is refused for '{reason}': {said:#}");
        }
        let words = ["exec", "--runtime", "crun", "-c", "print(6 * 7)"];
        assert_eq!(run_inside(env, &options, &words).ok().trim(), "42", "{user}");
    }
}
