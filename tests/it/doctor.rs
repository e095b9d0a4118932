//! `doctor`: the format of its output, the guarantees that it reports as weaker, what it fixes.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::documentation::first_cells;
use crate::harness::engines::{DockerDaemon, PodmanService, bridge_on, need};
use crate::harness::fake_machine::FakeMachine;
use crate::harness::{BridgeBuilder, Kind, Runtime, Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "doctor",
        tests![
            servers_that_are_skipped_are_named,
            engines_and_their_shares_are_described,
            doctor_describes_a_machine_and_creates_none,
        ],
    );
    let as_root = |kind| Runtime { kind, as_user: false };
    suite.on(
        &[as_root(Kind::Crun)],
        "doctor",
        tests![the_json_has_the_documented_fields, weaker_guarantees_are_reported, fix_says_what_it_did],
    );
}

fn diagnosis(builder: BridgeBuilder<'_>, env: &TestEnv, exit: i32) -> Value {
    let output = builder.args(&["doctor", "--json"]).command().run(env.guard());
    assert_eq!(output.code(), Some(exit), "{output}");
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output}"))
}

/// Every path in an object, down to the objects in its lists.
fn paths(value: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = format!("{prefix}{key}");
        match value {
            Value::Object(_) => paths(value, &format!("{path}."), found),
            Value::Array(items) if items.first().is_some_and(Value::is_object) => {
                items.iter().for_each(|item| paths(item, &format!("{path}[]."), found));
            }
            _ => {}
        }
        found.insert(path);
    }
}

fn the_json_has_the_documented_fields(env: &TestEnv) {
    let broken =
        json!({ "mcpServers": { "lost": { "command": "x", "env": { "A": "${NOBODY_SETS_THIS}" } } } });
    env.write("home/MCPs/servers.json", broken.to_string());
    // A bridge that listens, so that there is one to tell of.
    let http = env.bridge().listen();
    // One that works and one that does not, so that both forms are there.
    let said = diagnosis(env.bridge().var("MCP_BRIDGE_RUNTIME", "crun,docker:nobody"), env, 0);
    assert_eq!(said["http"]["listeners"][0]["address"], json!(http.address));
    http.bridge.signal(Signal::TERM);
    assert_eq!(http.bridge.wait(Duration::from_secs(60)).status.code(), Some(0));
    let mut found = BTreeSet::new();
    paths(&said, "", &mut found);
    let documented: BTreeSet<String> =
        first_cells("src/help/doctor.md", "| field | meaning |").into_iter().collect();
    assert!(documented.len() > 20, "{documented:?}");
    let missing: Vec<_> = documented.difference(&found).collect();
    // What a healthy host without a cluster has nothing to say of.
    let absent = ["leftovers[].", "setback.", "runtimes[].refused.product", "runtimes[].works.walls."];
    let may_be_absent = |path: &str| absent.iter().any(|start| path.starts_with(start));
    let missing: Vec<_> = missing.into_iter().filter(|path| !may_be_absent(path)).collect();
    assert!(missing.is_empty(), "documented and not in the output: {missing:?}\n{said:#}");
    // The insides of a choice are for our own cache; all else is promised.
    let silent =
        |path: &&String| !path.starts_with("runtimes[].works.") || path.starts_with("runtimes[].works.held");
    let unsaid: Vec<_> = found.difference(&documented).filter(silent).collect();
    assert!(unsaid.is_empty(), "in the output and not documented: {unsaid:?}");
    assert_eq!((&said["form"], &said["status"], &said["ready"]), (&json!(1), &json!("ready"), &json!(true)));
    assert_eq!((&said["run"]["ok"], &said["servers"]["skipped"][0]["name"]), (&json!(true), &json!("lost")));
}

fn weaker_guarantees_are_reported(env: &TestEnv) {
    // The default image is unavailable without a network or an engine.
    let programs = env.programs(&["crun"]);
    let bridge = || {
        let bridge = env.bridge().without("MCP_BRIDGE_IMAGE").var("PATH", &programs);
        bridge.var("HTTPS_PROXY", "http://127.0.0.1:1").var("XDG_DATA_HOME", env.folder("data"))
    };
    let said = diagnosis(bridge(), env, 10);
    assert_eq!((&said["status"], &said["ready"]), (&json!("reduced"), &json!(true)), "{said:#}");
    assert!(said["reduced"][0].as_str().unwrap().contains("host: is used instead"), "{said:#}");
    let text = bridge().args(&["doctor"]).command().run(env.guard()).diagnosed();
    assert!(text.contains("verdict  works, with reduced guarantees"), "{text}");
    let nowhere = env.write("home/file", "").join("folder");
    let said = diagnosis(env.bridge().var("MCP_BRIDGE_STATE_DIR", nowhere), env, 10);
    assert!(
        said["reduced"][0].as_str().unwrap().contains("is not writable: tools are not saved"),
        "{said:#}"
    );
}

fn fix_says_what_it_did(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run("1").expect("success");
    bridge.close();
    let cache = env.home().join(".cache/codebridge/runtime.json");
    assert!(cache.exists());
    let output = env.bridge().args(&["doctor", "--fix", "--json"]).command().run(env.guard());
    let said: Value = serde_json::from_str(&output.diagnosed()).unwrap();
    let fixed = said["fixed"].to_string();
    assert!(fixed.contains(&format!("deleted the cache {}", cache.display())), "{fixed}");
    // Nothing is left to fix but what the diagnosis itself has remembered since.
    fs::remove_file(&cache).unwrap();
    let text = env.bridge().args(&["doctor", "--fix"]).command().run(env.guard()).diagnosed();
    assert!(!text.contains("deleted the cache"), "{text}");
}

fn servers_that_are_skipped_are_named(env: &TestEnv) {
    let servers = json!({ "mcpServers": {
        "fine": { "command": "true" }, "lost": { "command": "x", "env": { "A": "${NOBODY_SETS_THIS}" } },
    } });
    let file = env.write("home/MCPs/servers.json", servers.to_string());
    let bare = env.bridge().var("PATH", env.folder("nothing"));
    let output = bare.args(&["doctor"]).command().run(env.guard());
    assert_eq!(output.code(), Some(11), "{output}");
    assert!(output.stdout.contains("servers  1 defined, 1 skipped"), "{output}");
    assert!(output.stdout.contains(&format!("lost ({}", file.display())), "{output}");
    assert!(output.stdout.contains("NOBODY_SETS_THIS"), "{output}");
}

fn engines_and_their_shares_are_described(env: &TestEnv) {
    need(Kind::Podman);
    need(Kind::Docker);
    let hidden = env.folder("home/hidden");
    let service = PodmanService::start_hiding(env, "blind", Some(hidden.clone()));
    let daemon = DockerDaemon::start(env, "far");
    let targets = format!("{},{}", service.target(), daemon.target());
    let folder = hidden.join("MCPs");
    let bridge = || bridge_on(env, &targets).var("MCP_BRIDGE_STATE_DIR", &folder);
    let said = diagnosis(bridge(), env, 10);
    let runtimes = said["runtimes"].as_array().unwrap();
    let summary: Vec<Value> = runtimes
        .iter()
        .map(|it| json!([it["kind"], it["connection"], it["share"]["shared"], it["own_profile"]]))
        .collect();
    // docker's client carries the profile itself; podman's engine would have to see it.
    assert_eq!(summary, [json!(["podman", "blind", false, false]), json!(["docker", "far", true, true])]);
    assert!(
        runtimes[0]["share"]["hint"].as_str().unwrap().contains("podman machine init --volume"),
        "{said:#}"
    );
    assert_eq!(said["picked"]["why"], "new sessions start on the least loaded of 2 that work");
    let text = bridge().args(&["doctor"]).command().run(env.guard()).diagnosed();
    assert!(text.contains("the engine does not see ") && text.contains("at blind ("), "{text}");
    assert!(
        text.contains("reduced      the engine does not see the folder with the bridge's seccomp"),
        "{text}"
    );
}

fn doctor_describes_a_machine_and_creates_none(env: &TestEnv) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "5.8", &json!({ "exists": false }));
    let said = diagnosis(machine.bridge(), env, 11);
    assert_eq!(said["runtimes"][0]["refused"]["reason"], "machine-missing", "{said:#}");
    assert_eq!(machine.calls(), [""; 0]);
    machine.change(&json!({ "exists": true }));
    let said = diagnosis(machine.bridge(), env, 0);
    let expected = json!({ "name": "podman-machine-default", "running": true, "started_by_bridge": true });
    assert_eq!(said["runtimes"][0]["machine"], expected, "{said:#}");
    assert_eq!(said["runtimes"][0]["share"]["shared"], true);
    let text = machine.bridge().args(&["doctor"]).command().run(env.guard()).diagnosed();
    assert!(text.contains("podman-machine-default runs, started by codebridge"), "{text}");
}
