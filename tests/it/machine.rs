//! podman machine with a fake podman that prints the messages of real versions: created, started, waited for, shared,
//! lost. For how a machine is stopped again see `machine_supervisor`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::engines::{PodmanService, bridge_on, need};
use crate::harness::fake_machine::FakeMachine;
use crate::harness::{Bridge, Kind, Suite, TestEnv, eventually};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "machine",
        tests![
            a_stopped_machine_of_every_version_is_started,
            a_missing_machine_is_created_and_started,
            creating_a_machine_can_be_forbidden,
            no_machine_is_created_where_another_runtime_works,
            a_machine_that_another_process_starts_is_waited_for,
            a_machine_whose_start_by_another_process_failed_is_started,
            two_bridges_create_and_start_one_machine,
            a_machine_that_does_not_start_is_reported_in_the_words_of_podman,
            a_machine_that_goes_away_is_started_again_at_the_next_call,
            a_rootful_machine_is_used_only_when_configured,
            the_seccomp_profile_reaches_the_machine_through_a_shared_folder,
            a_shared_folder_with_any_name_is_found,
            a_folder_that_is_not_shared_is_added_where_podman_can,
            a_container_is_asked_where_ssh_does_not_answer,
            a_podman_of_this_host_is_not_asked_for_machines,
        ],
    );
}

const STOPPED: Duration = Duration::from_secs(60);

fn call_with_progress(bridge: &Bridge<'_>, code: &str) -> (Value, String) {
    let result = bridge.ask(
        "tools/call",
        json!({
            "name": "run_python", "arguments": { "code": code }, "_meta": { "progressToken": "machine" },
        }),
    );
    let messages = bridge.unasked();
    let told = messages.iter().filter_map(|message| message["params"]["message"].as_str());
    (result, told.collect::<Vec<_>>().join("\n"))
}

fn a_stopped_machine_of_every_version_is_started(env: &TestEnv) {
    need(Kind::Podman);
    let mut machine = FakeMachine::new(env, "3.4", &json!({}));
    for version in ["3.4", "4.3", "4.9", "5.4", "5.8"] {
        machine.change(&json!({ "version": version, "running": false, "calls": [] }));
        let bridge = machine.bridge().start();
        let (result, told) = call_with_progress(&bridge, "6 * 7");
        assert_eq!(result["content"][0]["text"], "42", "{version}: {result}");
        assert!(told.contains("starting the podman machine podman-machine-default"), "{version}: {told}");
        assert_eq!(machine.calls(), ["start podman-machine-default"], "{version}");
        bridge.close();
    }
    // One that runs is left as it is.
    let bridge = machine.bridge().start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    bridge.close();
    assert_eq!(machine.calls(), ["start podman-machine-default"]);
    machine.service.kill();
}

fn a_missing_machine_is_created_and_started(env: &TestEnv) {
    need(Kind::Podman);
    // Before 4.2 it does not say for which system it is, and before it knew JSON it lists nothing where there is none.
    for version in ["3.4", "4.1", "4.3", "5.8"] {
        let machine = FakeMachine::new(env, version, &json!({ "exists": false }));
        let bridge = machine.bridge().start();
        let (result, told) = call_with_progress(&bridge, "6 * 7");
        assert_eq!(result["content"][0]["text"], "42", "{version}: {result}");
        assert!(told.contains("downloads gigabytes once (MCP_BRIDGE_MACHINE_INIT=0 forbids it)"), "{told}");
        assert_eq!(machine.calls(), ["init", "start podman-machine-default"]);
        assert!(bridge.close().log.contains("creating a podman machine"));
    }
}

fn creating_a_machine_can_be_forbidden(env: &TestEnv) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "5.8", &json!({ "exists": false }));
    let bridge = machine.bridge().var("MCP_BRIDGE_MACHINE_INIT", "0").start();
    let outcome = bridge.run("1").expect("error").because("podman needs a machine and there is none");
    let _ = outcome.because("unable to connect to Podman socket").because("hint: `podman machine init`");
    assert_eq!(machine.calls(), [""; 0]);
    bridge.close();
    // A podman for Linux whose engine is not there is no matter of machines.
    for version in ["3.4", "5.8"] {
        machine.change(&json!({ "os": "linux", "version": version }));
        let bridge = machine.bridge().start();
        let _ = bridge.run("1").expect("error").because("Podman ");
        assert_eq!(machine.calls(), [""; 0], "{version}");
        bridge.close();
    }
}

fn no_machine_is_created_where_another_runtime_works(env: &TestEnv) {
    need(Kind::Podman);
    need(Kind::Crun);
    let machine = FakeMachine::new(env, "5.8", &json!({ "exists": false }));
    let _ = env.programs(&["crun"]);
    let bridge = machine.bridge().var("MCP_BRIDGE_RUNTIME", "auto").var("MCP_BRIDGE_IMAGE", "host:").start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    assert_eq!(machine.calls(), [""; 0]);
    bridge.close();
}

fn a_machine_that_another_process_starts_is_waited_for(env: &TestEnv) {
    need(Kind::Podman);
    // Not within the time of this test, unless it says so.
    let machine = FakeMachine::new(env, "4.3", &json!({ "up_at": 4e9 }));
    let bridge = machine.bridge().start();
    let params = json!({
        "name": "run_python", "arguments": { "code": "6 * 7" }, "_meta": { "progressToken": "machine" },
    });
    let call = bridge.request("tools/call", params);
    eventually("the bridge waits", STOPPED, || {
        let told = Value::from(bridge.unasked()).to_string();
        told.contains("waiting for the podman machine podman-machine-default, which another program starts")
            .then_some(())
    });
    assert!(!call.is_answered());
    machine.change(&json!({ "up_at": null, "running": true }));
    assert_eq!(call.result()["content"][0]["text"], "42");
    assert_eq!(machine.calls(), [""; 0]);
    bridge.close();
}

fn a_machine_whose_start_by_another_process_failed_is_started(env: &TestEnv) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "5.8", &json!({ "up_at": 4e9 }));
    let bridge = machine.bridge().start();
    let call = bridge.start_call(json!({ "code": "6 * 7" }));
    eventually("the bridge looks again and again", STOPPED, || {
        (bridge.log().matches("machine list").count() > 4).then_some(())
    });
    assert_eq!(machine.calls(), [""; 0]);
    machine.change(&json!({ "up_at": null }));
    assert_eq!(call.outcome().ok(), "42");
    assert_eq!(machine.calls(), ["start podman-machine-default"]);
    bridge.close();
}

fn two_bridges_create_and_start_one_machine(env: &TestEnv) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "5.8", &json!({ "exists": false, "start_seconds": 2.0 }));
    let (one, two) = (machine.bridge().start(), machine.bridge().start());
    let calls = [one.start_call(json!({ "code": "6 * 7" })), two.start_call(json!({ "code": "6 * 7" }))];
    for call in calls {
        assert_eq!(call.outcome().ok(), "42");
    }
    assert_eq!(machine.calls(), ["init", "start podman-machine-default"]);
    one.close();
    two.close();
}

fn a_machine_that_does_not_start_is_reported_in_the_words_of_podman(env: &TestEnv) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "4.9", &json!({ "start_fails": true }));
    let bridge = machine.bridge().start();
    let outcome = bridge.run("1").expect("error").because("the podman machine does not start");
    let _ = outcome.because("machine did not transition into running state: ssh error: exit status 255");
    // Once it is repaired, the next call goes through.
    machine.change(&json!({ "start_fails": false }));
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    bridge.close();
}

fn a_machine_that_goes_away_is_started_again_at_the_next_call(env: &TestEnv) {
    need(Kind::Podman);
    let mut machine = FakeMachine::new(env, "5.8", &json!({}));
    let bridge = machine.bridge().start();
    assert_eq!(bridge.run("x = 6; x * 7").ok(), "42");
    let sleep = python!("sleep", "ready");
    let call = bridge.start_until_ready("main", sleep, json!({ "timeout": 100 }));
    // The laptop's lid is closed.
    machine.service.kill();
    machine.change(&json!({ "running": false }));
    machine.service.start_again();
    let _ = call.outcome().expect("error").because("its engine is podman");
    let again = bridge.run("'x' in globals()").expect("success").noting("its variables are gone");
    assert_eq!(again.ok(), "False");
    assert_eq!(machine.calls(), ["start podman-machine-default"; 2]);
    // While nothing runs, too.
    machine.service.kill();
    machine.change(&json!({ "running": false }));
    machine.service.start_again();
    let mut again = bridge.run("6 * 7");
    if again.status() != "success" {
        // The call came before the end of its sandbox was seen.
        again = again.expect("error").because("its engine is podman");
        drop(again);
        again = bridge.run("6 * 7");
    }
    assert_eq!(again.expect("success").noting("its variables are gone").ok(), "42");
    assert_eq!(machine.calls(), ["start podman-machine-default"; 3]);
    bridge.close();
    eventually("nothing is left", STOPPED, || machine.service.containers().is_empty().then_some(()));
}

fn a_rootful_machine_is_used_only_when_configured(env: &TestEnv) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "5.8", &json!({ "exists": false }));
    let bridge = machine.bridge().var("MCP_BRIDGE_MACHINE_ROOTFUL", "1").start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    let expected = ["init --rootful", "set --rootful podman-machine-default", "start podman-machine-default"];
    assert_eq!(machine.calls(), expected);
    bridge.close();
}

/// Whether sandboxes get the bridge's own seccomp profile, and the diagnosis.
fn has_own_profile(machine: &FakeMachine<'_>, env: &TestEnv) -> bool {
    let bridge = machine.bridge().start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    let log = bridge.close().log;
    let launched = log.lines().rfind(|line| line.contains("spawn") && line.contains(" run --name")).unwrap();
    let _ = env;
    launched.contains("--security-opt=seccomp=")
}

fn the_seccomp_profile_reaches_the_machine_through_a_shared_folder(env: &TestEnv) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "5.8", &json!({}));
    assert!(has_own_profile(&machine, env));
    let asked = machine.state()["calls"].as_array().unwrap().iter().filter(|call| call[0] == "ssh").count();
    assert_eq!(asked, 1);
    // It is remembered.
    assert!(has_own_profile(&machine, env));
    let again = machine.state()["calls"].as_array().unwrap().iter().filter(|call| call[0] == "ssh").count();
    assert_eq!(again, 1);
}

fn a_shared_folder_with_any_name_is_found(env: &TestEnv) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "5.8", &json!({ "shared": false, "takes_volumes": true }));
    let folder = env.home().join("MCPs, a \"state\" of m'y own $(ü)");
    for shared in [false, true] {
        machine.change(&json!({ "running": false, "calls": [] }));
        let bridge = machine.bridge().var("MCP_BRIDGE_STATE_DIR", &folder).start();
        assert_eq!(bridge.run("6 * 7").ok(), "42");
        let log = bridge.close().log;
        let asked = log.lines().find(|line| line.contains("asked whether the engine sees a folder")).unwrap();
        assert!(asked.contains(&format!("shared=Some({shared})")), "{asked}");
        // Over ssh, which was not in doubt, and no container was needed.
        assert!(!log.contains("dst=/share"), "{log}");
    }
    let set = format!("set --volume {0}:{0} podman-machine-default", folder.display());
    assert_eq!(machine.calls(), [set.as_str(), "start podman-machine-default"]);
}

fn a_folder_that_is_not_shared_is_added_where_podman_can(env: &TestEnv) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "5.8", &json!({ "shared": false }));
    assert!(!has_own_profile(&machine, env));
    // At the next start it is known to be missing; this version has no means.
    machine.change(&json!({ "running": false, "calls": [] }));
    assert!(!has_own_profile(&machine, env));
    let folder = env.home().join("MCPs");
    let set = format!("set --volume {0}:{0} podman-machine-default", folder.display());
    assert_eq!(machine.calls(), [set.as_str(), "start podman-machine-default"]);
    machine.change(&json!({ "running": false, "calls": [], "takes_volumes": true }));
    assert!(has_own_profile(&machine, env));
    assert_eq!(machine.calls(), [set.as_str(), "start podman-machine-default"]);
}

fn a_container_is_asked_where_ssh_does_not_answer(env: &TestEnv) {
    need(Kind::Podman);
    let state = env.home().join("MCPs, a \"state\" of m'y own ü");
    let hidden = env.folder("home/hidden");
    let service = PodmanService::start_hiding(env, "in-the-machine", Some(hidden.clone()));
    let machine = FakeMachine::with(env, service, "5.8", &json!({ "ssh": false }));
    for (folder, expected) in [(state, true), (hidden.join("MCPs"), false)] {
        let bridge = machine.bridge().var("MCP_BRIDGE_STATE_DIR", &folder).start();
        assert_eq!(bridge.run("6 * 7").ok(), "42");
        let log = bridge.close().log;
        let launched =
            log.lines().rfind(|line| line.contains("spawn") && line.contains(" run --name")).unwrap();
        assert_eq!(launched.contains("--security-opt=seccomp="), expected, "{launched}");
        let left: Vec<_> =
            std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
        let usual = [".codebridge", "audit", "bridges", "schema-version"];
        assert!(left.iter().all(|name| usual.iter().any(|known| name == known)), "{left:?}");
    }
    assert_eq!(machine.service.containers(), [""; 0]);
}

fn a_podman_of_this_host_is_not_asked_for_machines(env: &TestEnv) {
    need(Kind::Podman);
    let log = env.write("podman.log", "");
    let real = crate::harness::matrix::which("podman").unwrap();
    let text = format!("#!/bin/sh\necho \"$@\" >> {}\nexec {} \"$@\"\n", log.display(), real.display());
    let programs = env.write_program("programs/podman", &text).parent().unwrap().to_path_buf();
    let bridge = bridge_on(env, "podman")
        .var("PATH", format!("{}:/usr/bin:/usr/sbin:/bin", programs.display()))
        .start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    bridge.close();
    let nowhere = format!("unix://{}", env.folder("nowhere").join("podman.sock").display());
    let remote = bridge_on(env, "podman").var("PATH", &programs).var("CONTAINER_HOST", nowhere).start();
    let _ = remote.run("1").expect("error").because("Podman is not running at unix:///");
    remote.close();
    let calls = std::fs::read_to_string(log).unwrap();
    assert!(calls.lines().count() > 3 && !calls.lines().any(|line| line.contains("machine ")), "{calls}");
}
