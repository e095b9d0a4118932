//! Docker on laptops: Docker Desktop, colima, OrbStack and Rancher Desktop. Each one is found by its context or its
//! socket, described, and when it is stopped, named with the command that starts it.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::engines::{DockerDaemon, bridge_on, need};
use crate::harness::fake_docker::{FakeDocker, socket_of_the_tests};
use crate::harness::host::{REMOVAL, instance_of, with_instances_in};
use crate::harness::process::{kill, reaper_of};
use crate::harness::{Bridge, BridgeBuilder, Kind, Suite, TestEnv, eventually};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "desktops",
        tests![
            each_product_is_named_while_it_is_stopped_and_runs_sessions_when_it_is_started,
            a_folder_that_is_not_shared_is_reported_with_the_hint_of_its_product,
            a_product_that_is_stopped_is_diagnosed_in_the_words_of_every_client,
            the_engine_is_chosen_as_by_the_client,
            a_product_that_stops_in_the_middle_is_named_and_used_again_when_it_is_back,
            new_sessions_follow_the_current_context_and_others_stay,
            sandboxes_of_a_dead_bridge_are_removed_by_the_context_of_their_time,
        ],
    );
}

/// Products, what they are called, and what starts each.
const PRODUCTS: [(&str, &str, &str); 4] = [
    ("docker-desktop", "Docker Desktop", "open -a Docker"),
    ("colima", "colima", "colima start"),
    ("orbstack", "OrbStack", "orb start"),
    ("rancher-desktop", "Rancher Desktop", "rdctl start"),
];
/// One of several machines that a user has.
const PROFILE: (&str, &str, &str) = ("colima-profile", "colima", "colima start work");

fn diagnosis(builder: BridgeBuilder<'_>, env: &TestEnv) -> Value {
    let output = builder.args(&["doctor", "--json"]).command().run(env.guard());
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output}"))
}

/// The diagnosis for people.
fn described(builder: BridgeBuilder<'_>, env: &TestEnv) -> String {
    builder.args(&["doctor"]).command().run(env.guard()).stdout
}

fn each_product_is_named_while_it_is_stopped_and_runs_sessions_when_it_is_started(env: &TestEnv) {
    need(Kind::Docker);
    let laptop = FakeDocker::new(env);
    for (name, _, start) in PRODUCTS {
        let product = laptop.install(name);
        let bridge = laptop.bridge().start();
        let outcome = bridge.run("1").expect("error").because("Docker is not running at unix:///");
        let _ = outcome.because(&product.url()).because(&format!("hint: {start}"));
        laptop.start(&product);
        assert_eq!(bridge.run("x = 6; x * 7").ok(), "42", "{name}");
        assert_eq!(bridge.run("x").ok(), "6");
        let (id, _) = instance_of(env, bridge.pid()).unwrap();
        assert_eq!(near(env, &id).len(), 1, "{name}");
        bridge.close();
        assert_eq!(near(env, &id), [""; 0], "{name}");
        let said = diagnosis(laptop.bridge(), env);
        let report = &said["runtimes"][0];
        // Its machine has another name and kernel than this one.
        assert_eq!(report["works"]["runtime"]["remote"], true, "{name}: {said:#}");
        let folder = env.home().join("MCPs");
        assert_eq!(report["share"], json!({ "folder": folder, "shared": true, "hint": null }), "{said:#}");
        assert_eq!((&said["status"], &report["own_profile"]), (&json!("ready"), &json!(true)), "{said:#}");
        laptop.stop(&product);
    }
}

fn a_folder_that_is_not_shared_is_reported_with_the_hint_of_its_product(env: &TestEnv) {
    need(Kind::Docker);
    let hidden = env.folder("home/not shared");
    let daemon = DockerDaemon::start_hiding(env, "in-a-machine", Some(hidden.clone()));
    let laptop = FakeDocker::with(env, daemon.socket());
    let folder = hidden.join("MCPs");
    let quoted = format!("'{}'", folder.display());
    let bridge = || laptop.bridge().var("MCP_BRIDGE_STATE_DIR", &folder);
    for (name, hint) in [
        ("docker-desktop", format!("add {quoted} in Docker Desktop: Settings, Resources, File sharing")),
        ("colima", format!("`colima stop` and `colima start --mount \"$HOME\":w --mount {quoted}:w`")),
        (
            "orbstack",
            format!("OrbStack shares the whole disk: check whether {quoted} is a link to another disk"),
        ),
        (
            "rancher-desktop",
            format!("add {quoted} to `mounts` in Rancher Desktop's lima/_config/override.yaml"),
        ),
    ] {
        let product = laptop.install(name);
        laptop.start(&product);
        let before = laptop.calls_with("--mount=type=bind").len();
        let said = diagnosis(bridge(), env);
        let share = &said["runtimes"][0]["share"];
        assert_eq!((&share["folder"], &share["shared"]), (&json!(folder), &json!(false)), "{name}: {said:#}");
        assert!(share["hint"].as_str().unwrap().starts_with(&hint), "{name}: {share}");
        // Nothing that matters is lost: the client sends the profile, tools travel over frames.
        assert_eq!((&said["status"], &said["run"]["ok"]), (&json!("ready"), &json!(true)), "{said:#}");
        assert_eq!(laptop.calls_with("--mount=type=bind").len(), before + 1, "{name}");
        if name == "docker-desktop" {
            // Each engine and each folder is asked about once.
            let text = described(bridge(), env);
            assert!(
                text.contains(&format!(
                    "the engine does not see {}: saved functions still work",
                    folder.display()
                )),
                "{text}"
            );
            assert!(text.contains(&format!("hint: {hint}")), "{text}");
            assert_eq!(laptop.calls_with("--mount=type=bind").len(), before + 1);
            let seen = described(laptop.bridge(), env);
            assert!(seen.contains("/docker at desktop-linux ("), "{seen}");
            let folder = env.home().join("MCPs");
            assert!(seen.contains(&format!("the engine sees {}\n", folder.display())), "{seen}");
            assert_eq!(laptop.calls_with("--mount=type=bind").len(), before + 2);
        }
        laptop.stop(&product);
    }
    assert_eq!(daemon.containers(), [""; 0]);
}

fn a_product_that_is_stopped_is_diagnosed_in_the_words_of_every_client(env: &TestEnv) {
    need(Kind::Docker);
    let laptop = FakeDocker::new(env);
    for (name, called, start) in PRODUCTS.into_iter().chain([PROFILE]) {
        let _ = laptop.install(name);
        for client in [None, Some("29")] {
            laptop.speak_as(client);
            let said = diagnosis(laptop.bridge(), env);
            let report = &said["runtimes"][0];
            assert_eq!(said["status"], "not-ready", "{said:#}");
            assert_eq!(report["refused"]["reason"], "daemon-unreachable", "{name}: {said:#}");
            assert_eq!(report["refused"]["product"], json!({ "name": called, "start": start }), "{said:#}");
            assert_eq!(report["hint"], json!(start), "{said:#}");
        }
        let text = described(laptop.bridge(), env);
        assert!(text.contains(&format!("hint         {start}\n")), "{text}");
    }
    // What a killed product leaves of its socket is no engine either.
    laptop.speak_as(None);
    let product = laptop.install("colima");
    fs::create_dir_all(product.socket.parent().unwrap()).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&product.socket).unwrap());
    let said = diagnosis(laptop.bridge(), env);
    assert_eq!(said["runtimes"][0]["hint"], "colima start", "{said:#}");
}

fn the_engine_is_chosen_as_by_the_client(env: &TestEnv) {
    need(Kind::Docker);
    let laptop = FakeDocker::new(env);
    let [rancher, orbstack, colima] =
        ["rancher-desktop", "orbstack", "colima"].map(|name| laptop.install(name));
    // One product runs at a time, all else leads to nothing; in the end colima's is the current context.
    let named = format!("docker:{}", rancher.context);
    let cases = [
        (&colima, vec![]),
        (&orbstack, vec![("DOCKER_CONTEXT", orbstack.context.clone())]),
        (&rancher, vec![("DOCKER_HOST", rancher.url()), ("DOCKER_CONTEXT", orbstack.context.clone())]),
        (&colima, vec![("DOCKER_HOST", String::new()), ("DOCKER_CONTEXT", String::new())]),
        (&rancher, vec![("MCP_BRIDGE_RUNTIME", named), ("DOCKER_HOST", orbstack.url())]),
    ];
    for (product, variables) in cases {
        let bridge = || {
            variables.iter().fold(laptop.bridge(), |bridge, (name, value)| bridge.var(name, value.as_str()))
        };
        laptop.start(product);
        let running = bridge().start();
        assert_eq!(running.run("6 * 7").ok(), "42", "{variables:?}");
        running.close();
        laptop.stop(product);
        let said = diagnosis(bridge(), env);
        let message = said["runtimes"][0]["refused"]["message"].as_str().unwrap().to_string();
        assert!(message.contains(&product.url()), "{variables:?}: {message}");
    }
}

fn a_product_that_stops_in_the_middle_is_named_and_used_again_when_it_is_back(env: &TestEnv) {
    need(Kind::Docker);
    let mut daemon = DockerDaemon::start(env, "in-a-machine");
    let laptop = FakeDocker::with(env, daemon.socket());
    let colima = laptop.install("colima");
    laptop.start(&colima);
    let bridge = laptop.bridge().start();
    assert_eq!(bridge.run("x = 1; x").ok(), "1");
    let sleep = python!("sleep", "ready");
    let call = bridge.start_until_ready("main", sleep, json!({ "timeout": 100 }));
    laptop.stop(&colima);
    daemon.stop();
    let outcome = call.outcome().expect("error").within(Duration::from_secs(40));
    let _ = outcome.because("its engine is docker:colima");
    let outcome = bridge.run("1").expect("error").because("Docker is not running at unix:///");
    let _ = outcome.because("hint: colima start");
    daemon.start_again();
    laptop.start(&colima);
    let again = bridge.run("'x' in globals()").expect("success").noting("its variables are gone");
    assert_eq!(again.ok(), "False");
    bridge.close();
    eventually("nothing is left", REMOVAL, || daemon.containers().is_empty().then_some(()));
}

/// Kills a bridge and its reaper, with sandboxes that cannot notice.
fn abandon(bridge: Bridge<'_>) {
    kill(reaper_of(bridge.pid()), Signal::KILL);
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
}

/// Two contexts: `far`, a daemon of the test's own, and `near`, that of all tests.
fn two_contexts(env: &TestEnv) -> DockerDaemon<'_> {
    let far = DockerDaemon::start(env, "far");
    let host = format!("host=unix://{}", socket_of_the_tests().display());
    let _ = env.run(["docker", "context", "create", "near", "--docker", &host]).ok();
    far
}

fn use_context(env: &TestEnv, name: &str) {
    let _ = env.run(["docker", "context", "use", name]).ok();
}

/// Lets a container in `far` not notice that its bridge has gone.
fn pause(env: &TestEnv, container: &str) {
    let _ = env.run(["docker", "--context", "far", "pause", container]).ok();
}

/// What a bridge has in the daemon of the tests.
fn near(env: &TestEnv, id: &str) -> Vec<String> {
    let filter = format!("name=codebridge-{id}-");
    let listed = env.run(["docker", "ps", "--all", "--format={{.Names}}", "--filter", &filter]).ok();
    listed.lines().map(String::from).collect()
}

fn new_sessions_follow_the_current_context_and_others_stay(env: &TestEnv) {
    need(Kind::Docker);
    let far = two_contexts(env);
    use_context(env, "far");
    let bridge = bridge_on(env, "docker").without("DOCKER_HOST").start();
    assert_eq!(bridge.run_in("a", "x = 6; x").ok(), "6");
    let (id, _) = instance_of(env, bridge.pid()).unwrap();
    assert_eq!((far.containers().len(), near(env, &id).len()), (1, 0));
    use_context(env, "near");
    assert_eq!(bridge.run_in("b", "y = 7; y").ok(), "7");
    assert_eq!(bridge.run_in("a", "x").ok(), "6");
    assert_eq!((far.containers().len(), near(env, &id).len()), (1, 1));
    // What is remembered of one context does not stand for another.
    let next = bridge_on(env, "docker").without("DOCKER_HOST").start();
    assert_eq!(next.run("1").ok(), "1");
    let (next_id, _) = instance_of(env, next.pid()).unwrap();
    assert_eq!((far.containers().len(), near(env, &next_id).len()), (1, 1));
    // Each is removed where it is: by the bridge itself, and by the reaper of one that was killed.
    use_context(env, "far");
    next.close();
    assert_eq!(near(env, &next_id), [""; 0]);
    use_context(env, "near");
    pause(env, &far.containers()[0]);
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
    eventually("both are removed", REMOVAL, || {
        (far.containers().is_empty() && near(env, &id).is_empty()).then_some(())
    });
}

fn sandboxes_of_a_dead_bridge_are_removed_by_the_context_of_their_time(env: &TestEnv) {
    need(Kind::Docker);
    let far = two_contexts(env);
    let state = env.folder("state");
    let apart = || bridge_on(env, "docker").without("DOCKER_HOST").behind(with_instances_in(&state)).start();
    let instances = || fs::read_dir(&state).unwrap().count();
    use_context(env, "far");
    let bridge = apart();
    let _ = bridge.run("1").expect("success");
    let ours = far.containers();
    assert_eq!(ours.len(), 1);
    pause(env, &ours[0]);
    use_context(env, "near");
    abandon(bridge);
    assert_eq!((far.containers(), instances()), (ours, 1));
    let next = apart();
    let _ = next.run("1").expect("success");
    eventually("what the dead bridge left is removed", REMOVAL, || far.containers().is_empty().then_some(()));
    eventually("it is forgotten", REMOVAL, || (instances() == 1).then_some(()));
    next.close();
    assert_eq!(instances(), 0);
}
