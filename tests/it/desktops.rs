//! Docker on laptops: Docker Desktop, colima, OrbStack and Rancher Desktop, each found by its context or its socket as the
//! client finds it, described with its own words, and named with what starts it when it is stopped.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::engines::{DockerDaemon, bridge_on, need};
use crate::harness::fake_docker::FakeDocker;
use crate::harness::host::{REMOVAL, instance_of};
use crate::harness::process::{children, command_line, kill};
use crate::harness::{Bridge, BridgeBuilder, Kind, Suite, TestEnv, eventually};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "desktops",
        tests![
            each_product_runs_sessions_by_its_current_context_and_shares_the_folder,
            a_folder_that_a_product_does_not_share_is_told_with_its_own_hint,
            a_product_that_is_stopped_is_named_with_the_command_that_starts_it,
            the_engine_is_chosen_as_by_the_client,
            a_product_that_stops_in_the_middle_is_named_and_used_again_when_it_is_back,
            new_sessions_follow_the_current_context_and_others_stay,
            what_a_dead_bridge_left_is_removed_where_the_context_of_its_time_leads,
        ],
    );
}

/// Products, what they are called, and what starts each.
const PRODUCTS: [(&str, &str, &str); 5] = [
    ("docker-desktop", "Docker Desktop", "open -a Docker"),
    ("colima", "colima", "colima start"),
    ("colima-profile", "colima", "colima start work"),
    ("orbstack", "OrbStack", "orb start"),
    ("rancher-desktop", "Rancher Desktop", "rdctl start"),
];

fn diagnosis(builder: BridgeBuilder<'_>, env: &TestEnv) -> Value {
    let output = builder.args(&["doctor", "--json"]).command().run(env.guard());
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output}"))
}

/// The diagnosis for people.
fn described(builder: BridgeBuilder<'_>, env: &TestEnv) -> String {
    builder.args(&["doctor"]).command().run(env.guard()).stdout
}

fn each_product_runs_sessions_by_its_current_context_and_shares_the_folder(env: &TestEnv) {
    need(Kind::Docker);
    let laptop = FakeDocker::new(env, None);
    for (name, ..) in PRODUCTS {
        let product = laptop.install(name);
        laptop.start(&product);
        let bridge = laptop.bridge().start();
        assert_eq!(bridge.run("x = 6; x * 7").ok(), "42", "{name}");
        assert_eq!(bridge.run("x").ok(), "6");
        let (id, _) = instance_of(env, bridge.pid()).unwrap();
        let containers = laptop.daemon.containers();
        assert!(containers.len() == 1 && containers[0].contains(&id), "{name}: {containers:?}");
        bridge.close();
        assert_eq!(laptop.daemon.containers(), [""; 0]);
        let said = diagnosis(laptop.bridge(), env);
        let report = &said["runtimes"][0];
        // Its machine has another name and kernel than this one.
        assert_eq!(report["works"]["runtime"]["remote"], true, "{name}: {said:#}");
        let folder = env.home().join("MCPs");
        assert_eq!(report["share"], json!({ "folder": folder, "shared": true, "hint": null }), "{said:#}");
        assert_eq!((&said["status"], &report["own_profile"]), (&json!("ready"), &json!(true)), "{said:#}");
        let text = described(laptop.bridge(), env);
        assert!(text.contains(&format!("/docker at {} (", product.context)), "{text}");
        assert!(text.contains(&format!("the engine sees {}\n", folder.display())), "{text}");
        laptop.stop(&product);
    }
}

fn a_folder_that_a_product_does_not_share_is_told_with_its_own_hint(env: &TestEnv) {
    need(Kind::Docker);
    let hidden = env.folder("home/not shared");
    let laptop = FakeDocker::new(env, Some(hidden.clone()));
    let folder = hidden.join("MCPs");
    let quoted = format!("'{}'", folder.display());
    let bridge = || laptop.bridge().var("MCP_BRIDGE_STATE_DIR", &folder);
    for (name, hint) in [
        ("docker-desktop", format!("add {quoted} in Docker Desktop: Settings, Resources, File sharing")),
        ("colima", format!("`colima stop` and `colima start --mount \"$HOME\":w --mount {quoted}:w`")),
        (
            "colima-profile",
            format!("`colima stop work` and `colima start work --mount \"$HOME\":w --mount {quoted}:w`"),
        ),
        (
            "orbstack",
            format!("OrbStack shares the whole disk: see whether {quoted} is a link to another one"),
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
        let text = described(bridge(), env);
        assert!(text.contains(&format!("the engine does not see {}: nothing is lost", folder.display())));
        assert!(text.contains(&format!("hint: {hint}")), "{name}: {text}");
        // Each engine and each folder is asked about once.
        assert_eq!(laptop.calls_with("--mount=type=bind").len(), before + 1, "{name}");
        let seen = diagnosis(laptop.bridge(), env);
        assert_eq!(seen["runtimes"][0]["share"]["shared"], true, "{name}: {seen:#}");
        assert_eq!(laptop.calls_with("--mount=type=bind").len(), before + 2, "{name}");
        laptop.stop(&product);
    }
    assert_eq!(laptop.daemon.containers(), [""; 0]);
}

fn a_product_that_is_stopped_is_named_with_the_command_that_starts_it(env: &TestEnv) {
    need(Kind::Docker);
    let laptop = FakeDocker::new(env, None);
    for client in [None, Some("29")] {
        client.inspect(|client| laptop.speak_as(client));
        for (name, called, start) in PRODUCTS {
            let product = laptop.install(name);
            let hint = format!("start {called}: `{start}`");
            let bridge = laptop.bridge().start();
            let outcome = bridge.run("1").expect("error").because("its daemon does not answer");
            let _ = outcome.because(&product.url()).because(&format!("hint: {hint}"));
            // Once it is started, the next call goes through.
            laptop.start(&product);
            assert_eq!(bridge.run("6 * 7").ok(), "42", "{name}");
            bridge.close();
            laptop.stop(&product);
            let said = diagnosis(laptop.bridge(), env);
            let report = &said["runtimes"][0];
            assert_eq!(report["refused"]["reason"], "daemon-unreachable", "{name}: {said:#}");
            assert_eq!(report["refused"]["product"], json!({ "name": called, "start": start }), "{said:#}");
            assert_eq!(report["hint"], json!(hint), "{said:#}");
            let text = described(laptop.bridge(), env);
            assert!(text.contains(&format!("hint         {hint}\n")), "{text}");
        }
    }
}

fn the_engine_is_chosen_as_by_the_client(env: &TestEnv) {
    need(Kind::Docker);
    let laptop = FakeDocker::new(env, None);
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
    let mut laptop = FakeDocker::new(env, None);
    let colima = laptop.install("colima");
    laptop.start(&colima);
    let bridge = laptop.bridge().start();
    assert_eq!(bridge.run("x = 1; x").ok(), "1");
    let sleep = "print('ready', flush=True)\nimport time; time.sleep(1000)";
    let call = bridge.start_until_ready("main", sleep, json!({ "timeout": 100 }));
    laptop.stop(&colima);
    laptop.daemon.kill();
    let outcome = call.outcome().expect("error").within(Duration::from_secs(40));
    let _ = outcome.because("its engine is docker:colima");
    let outcome = bridge.run("1").expect("error").because("its daemon does not answer");
    let _ = outcome.because("hint: start colima: `colima start`");
    laptop.daemon.start_again();
    laptop.start(&colima);
    let again = bridge.run("'x' in globals()").expect("success").noting("its variables are gone");
    assert_eq!(again.ok(), "False");
    bridge.close();
    eventually("nothing is left", REMOVAL, || laptop.daemon.containers().is_empty().then_some(()));
}

/// Kills a bridge and its guardian, with sandboxes that cannot notice.
fn abandon(bridge: Bridge<'_>) {
    let is_guardian = |pid: &u32| command_line(*pid).iter().any(|word| word == "guardian");
    let guardian = children(bridge.pid()).into_iter().find(is_guardian).expect("there is no guardian");
    kill(guardian, Signal::KILL);
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
}

fn use_context(env: &TestEnv, name: &str) {
    let _ = env.run(["docker", "context", "use", name]).ok();
}

fn new_sessions_follow_the_current_context_and_others_stay(env: &TestEnv) {
    need(Kind::Docker);
    let (one, two) = (DockerDaemon::start(env, "one"), DockerDaemon::start(env, "two"));
    use_context(env, "one");
    let bridge = bridge_on(env, "docker").without("DOCKER_HOST").start();
    assert_eq!(bridge.run_in("a", "x = 6; x").ok(), "6");
    assert_eq!((one.containers().len(), two.containers().len()), (1, 0));
    use_context(env, "two");
    assert_eq!(bridge.run_in("b", "y = 7; y").ok(), "7");
    assert_eq!(bridge.run_in("a", "x").ok(), "6");
    assert_eq!((one.containers().len(), two.containers().len()), (1, 1));
    // What was remembered of one context does not stand for another.
    let next = bridge_on(env, "docker").without("DOCKER_HOST").start();
    assert_eq!(next.run("1").ok(), "1");
    assert_eq!((one.containers().len(), two.containers().len()), (1, 2));
    next.close();
    // Each is removed where it is: by the bridge, and by the guardian of one that was killed.
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
    eventually("both are removed", REMOVAL, || {
        (one.containers().is_empty() && two.containers().is_empty()).then_some(())
    });
    let bridge = bridge_on(env, "docker").without("DOCKER_HOST").start();
    assert_eq!(bridge.run("1").ok(), "1");
    use_context(env, "one");
    bridge.close();
    assert_eq!((one.containers().len(), two.containers().len()), (0, 0));
}

fn what_a_dead_bridge_left_is_removed_where_the_context_of_its_time_leads(env: &TestEnv) {
    need(Kind::Docker);
    let (one, two) = (DockerDaemon::start(env, "one"), DockerDaemon::start(env, "two"));
    use_context(env, "one");
    let bridge = bridge_on(env, "docker").without("DOCKER_HOST").start();
    let _ = bridge.run("1").expect("success");
    let ours = one.containers();
    assert_eq!(ours.len(), 1);
    let _ = env.run(["docker", "--context", "one", "pause", &ours[0]]).ok();
    let (_, folder) = instance_of(env, bridge.pid()).unwrap();
    use_context(env, "two");
    abandon(bridge);
    let next = bridge_on(env, "docker").without("DOCKER_HOST").start();
    let _ = next.run("1").expect("success");
    eventually("what the dead bridge left is removed", REMOVAL, || one.containers().is_empty().then_some(()));
    eventually("it is forgotten", REMOVAL, || (!folder.exists()).then_some(()));
    assert_eq!(two.containers().len(), 1);
    next.close();
    assert_eq!(two.containers(), [""; 0]);
}
