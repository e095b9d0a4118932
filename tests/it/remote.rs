//! Remote engines, named by a connection, a context or the environment; one of them and several together.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::engines::{DockerDaemon, PodmanService, bridge_on, need};
use crate::harness::host::{REMOVAL, instance_of};
use crate::harness::matrix::which;
use crate::harness::process::{children, command_line, kill, reaper_of, start_time};
use crate::harness::{Bridge, Kind, Runtime, Suite, TestEnv, eventually};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "remote",
        tests![
            a_podman_service_runs_sessions_by_its_connection_and_by_the_environment,
            a_docker_daemon_behind_tls_runs_sessions_by_its_context_and_by_the_environment,
            an_unknown_engine_is_named,
            sandboxes_of_a_dead_bridge_are_removed_and_no_others,
            records_of_an_engine_that_is_gone_for_good_are_removed,
            sessions_are_spread_and_continue_elsewhere_when_an_engine_is_killed,
            a_killed_docker_daemon_is_cleaned_up_when_it_is_back,
            an_engine_that_hangs_is_skipped,
            an_engine_that_hangs_while_a_sandbox_starts_is_skipped,
            an_engine_that_never_answers_is_not_waited_for,
            a_bridge_ends_soon_though_its_engine_hangs,
            a_client_that_hangs_ends_after_its_killed_bridge,
            a_client_that_hangs_does_not_hide_that_its_sandbox_is_lost,
        ],
    );
    // Who does not know the engine by its name forgets what is on it.
    let podman = Runtime { kind: Kind::Podman, as_user: false };
    suite.on_alone(podman, "remote", tests![sandboxes_on_an_unreachable_engine_are_named_and_stay_recorded]);
}

const SLEEP: &str = python!("sleep", "ready");

pub(crate) fn use_it(bridge: &Bridge<'_>) {
    assert_eq!(bridge.run("x = 6; x * 7").ok(), "42");
    assert_eq!(bridge.run("x").ok(), "6");
    let late = bridge.call(json!({ "code": "import time; time.sleep(1000)", "timeout": 1 }));
    let _ = late.expect("timeout");
    assert_eq!(bridge.run("x").ok(), "6");
    let _ = bridge
        .run("import os; os.listdir('/projects'), open('/workspace/f', 'w').write('x')")
        .expect("success");
    let _ = bridge.run("open('/etc/x', 'w')").expect("error");
    assert_eq!(bridge.run("os.getuid()").ok(), "65534");
}

pub(crate) fn runtime_of(builder: crate::harness::BridgeBuilder<'_>, env: &TestEnv) -> Value {
    let output = builder.args(&["doctor", "--json"]).command().run(env.guard());
    let said: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output}"));
    said["runtimes"][0]["works"]["runtime"].clone()
}

fn a_podman_service_runs_sessions_by_its_connection_and_by_the_environment(env: &TestEnv) {
    need(Kind::Podman);
    let service = PodmanService::start(env, "one");
    let by_name = || bridge_on(env, &service.target());
    // A variable that points elsewhere does not change what the name means.
    let misled = || by_name().var("CONTAINER_HOST", "unix:///nowhere.sock");
    let by_environment = || bridge_on(env, "podman").var("CONTAINER_HOST", service.url());
    for builder in [by_name(), misled(), by_environment()] {
        let bridge = builder.start();
        use_it(&bridge);
        let (id, _) = instance_of(env, bridge.pid()).unwrap();
        let containers = service.containers();
        assert!(containers.iter().any(|name| name.contains(&id)), "{containers:?}");
        bridge.close();
        assert_eq!(service.containers(), [""; 0]);
    }
    assert_eq!(runtime_of(by_name(), env)["remote"], true);
}

fn a_docker_daemon_behind_tls_runs_sessions_by_its_context_and_by_the_environment(env: &TestEnv) {
    need(Kind::Docker);
    let daemon = DockerDaemon::start(env, "far");
    let by_name = || bridge_on(env, &daemon.target());
    let by_environment = || {
        let builder = bridge_on(env, "docker").var("DOCKER_HOST", daemon.url()).var("DOCKER_TLS_VERIFY", "1");
        builder.var("DOCKER_CERT_PATH", daemon.certificates())
    };
    for builder in [by_name(), by_environment()] {
        let bridge = builder.start();
        use_it(&bridge);
        assert_eq!(daemon.containers().len(), 1);
        bridge.close();
        assert_eq!(daemon.containers(), [""; 0]);
    }
    assert_eq!(runtime_of(by_name(), env)["remote"], true);
    let bare = bridge_on(env, "docker").var("DOCKER_HOST", daemon.url()).start();
    let _ = bare.run("1").expect("error").because("Docker does not answer");
    bare.close();
    let here = bridge_on(env, &daemon.target()).var("MCP_BRIDGE_IMAGE", "host:").start();
    let _ = here.run("1").expect("error").because("the engine runs on another");
    here.close();
}

fn an_unknown_engine_is_named(env: &TestEnv) {
    for (kind, target) in [(Kind::Podman, "podman:nobody"), (Kind::Docker, "docker:nobody")] {
        need(kind);
        let bridge = bridge_on(env, target).start();
        let outcome = bridge.run("1").expect("error").because("there is no such engine");
        let _ = outcome.because(target).because("hint: `podman system connection list`");
        bridge.close();
    }
}

/// Kills a bridge and its reaper, with a sandbox that cannot notice.
fn abandon(bridge: Bridge<'_>) {
    kill(reaper_of(bridge.pid()), Signal::KILL);
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
}

fn sandboxes_of_a_dead_bridge_are_removed_and_no_others(env: &TestEnv) {
    need(Kind::Podman);
    let service = PodmanService::start(env, "one");
    let image = crate::harness::Machine::get().image.clone().unwrap();
    let bridge = bridge_on(env, &service.target()).start();
    let _ = bridge.run("1").expect("success");
    let (_, folder) = instance_of(env, bridge.pid()).unwrap();
    let ours = service.containers();
    assert_eq!(ours.len(), 1);
    let _ = service.run(&["pause", &ours[0]]).ok();
    abandon(bridge);
    // Nothing is written down any more, by us or by a bridge beside us that knows no such engine: only the labels tell.
    let _ = std::fs::remove_dir_all(&folder);
    // The same labels, but for the machine; a pid that is dead here says nothing of a process there.
    let labels = service.run(&["container", "inspect", "--format", "{{json .Config.Labels}}", &ours[0]]).ok();
    let labels: Value = serde_json::from_str(&labels).unwrap();
    let stranger = |name: &str, key: &str, value: &str| {
        let mut args =
            vec!["create".to_string(), format!("--name=codebridge-{name}-1"), "--network=none".into()];
        args.extend(["--ulimit=nofile=64:64".into(), "--ulimit=nproc=64:64".into()]);
        for (label, said) in labels.as_object().unwrap() {
            let said = if label == key { value } else { said.as_str().unwrap() };
            args.push(format!("--label={label}={said}"));
        }
        args.extend([image.clone(), "true".into()]);
        let _ = service.run(&args.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    };
    stranger("elsewhere", "codebridge.owner-machine", "another");
    stranger("container", "codebridge.owner-pid-namespace", "1");
    let next = bridge_on(env, &service.target()).start();
    let _ = next.run("1").expect("success");
    eventually("what the dead bridge left is removed", REMOVAL, || {
        (!service.containers().contains(&ours[0])).then_some(())
    });
    let left = service.containers();
    assert!(left.contains(&"codebridge-elsewhere-1".into()), "{left:?}");
    assert!(left.contains(&"codebridge-container-1".into()), "{left:?}");
    next.close();
}

fn records_of_an_engine_that_is_gone_for_good_are_removed(env: &TestEnv) {
    need(Kind::Podman);
    let mut service = PodmanService::start(env, "one");
    let bridge = bridge_on(env, &service.target()).start();
    let _ = bridge.run("1").expect("success");
    let (_, folder) = instance_of(env, bridge.pid()).unwrap();
    service.kill();
    abandon(bridge);
    let _ = env.write("home/containers.conf", "");
    let _ = std::fs::remove_file(env.home().join("connections.json"));
    let _ = bridge_on(env, "crun").args(&["reap"]).command().run(env.guard());
    assert!(!folder.exists(), "{} is left", folder.display());
}

fn sandboxes_on_an_unreachable_engine_are_named_and_stay_recorded(env: &TestEnv) {
    need(Kind::Podman);
    let mut service = PodmanService::start(env, "one");
    let bridge = bridge_on(env, &service.target()).start();
    let _ = bridge.run("1").expect("success");
    let (id, folder) = instance_of(env, bridge.pid()).unwrap();
    service.kill();
    abandon(bridge);
    let reap = || bridge_on(env, &service.target()).args(&["reap"]).command().run(env.guard());
    let said = reap();
    assert_eq!(said.code(), Some(70), "{said}");
    let ours = said.stderr.lines().position(|line| line.contains(&id)).unwrap_or_else(|| panic!("{said}"));
    assert!(said.stderr.lines().skip(ours).any(|line| line.contains("its engine does not answer")), "{said}");
    assert!(folder.exists());
    service.start_again();
    let said = bridge_on(env, &service.target()).args(&["reap"]).command().run(env.guard());
    assert!(!folder.exists(), "{said}");
    assert_eq!(service.containers(), [""; 0]);
}

/// Waits until each of these engines has run a sandbox for the bridge, and has none any more: a first session does not wait
/// for the slower ones.
fn try_all(bridge: &Bridge<'_>, engines: &[(&str, &dyn Fn() -> usize)]) {
    let _ = bridge.run_in("new", "1").expect("success");
    eventually("all engines were tried", PATIENCE, || {
        let log = bridge.log();
        let is_ready = |(target, count): &(&str, &dyn Fn() -> usize)| {
            log.contains(&format!("{target} works")) && count() == 0
        };
        engines.iter().all(is_ready).then_some(())
    });
}

fn try_both(bridge: &Bridge<'_>, one: &PodmanService<'_>, two: &PodmanService<'_>) {
    let (of_one, of_two) = (|| one.containers().len(), || two.containers().len());
    try_all(bridge, &[("podman:one", &of_one), ("podman:two", &of_two)]);
}

fn sessions_are_spread_and_continue_elsewhere_when_an_engine_is_killed(env: &TestEnv) {
    need(Kind::Podman);
    let mut one = PodmanService::start(env, "one");
    let two = PodmanService::start(env, "two");
    let bridge = bridge_on(env, &format!("{},{}", one.target(), two.target())).start();
    try_both(&bridge, &one, &two);
    for n in 0..4 {
        assert_eq!(bridge.run_in(&format!("s{n}"), &format!("n = {n}; n")).ok(), n.to_string());
    }
    assert_eq!((one.containers().len(), two.containers().len()), (2, 2));
    // Work on all of them, and one engine goes.
    let calls: Vec<_> = (0..4)
        .map(|n| bridge.start_until_ready(&format!("s{n}"), SLEEP, json!({ "timeout": 100 })))
        .collect();
    one.kill();
    let ended: Vec<bool> = calls
        .into_iter()
        .enumerate()
        .map(|(n, call)| {
            // First and third went to the first engine, by turns.
            if n % 2 == 1 {
                call.0.cancel();
                return false;
            }
            let outcome = call.outcome().expect("error").within(Duration::from_secs(20));
            assert!(outcome.error().contains("its engine is podman:one"), "{outcome}");
            true
        })
        .collect();
    assert_eq!(ended, [true, false, true, false]);
    // Sessions on the other live on, lost ones start again on it and say so, and so do new ones.
    assert_eq!(bridge.run_in("s1", "n").ok(), "1");
    let again = bridge.run_in("s0", "'n' in globals()").expect("success").noting("its variables are gone");
    assert_eq!(again.ok(), "False");
    assert_eq!(bridge.run_in("new one", "6 * 7").ok(), "42");
    assert_eq!(two.containers().len(), 4);
    // Back again: nothing of ours is left there, and it is used again.
    one.start_again();
    eventually("what ran there is removed", REMOVAL, || one.containers().is_empty().then_some(()));
    eventually("it takes sessions again", REMOVAL, || {
        let _ = bridge.run_in("new", "1").expect("success");
        let _ = bridge.run_in("more", "1").expect("success");
        (!one.containers().is_empty()).then_some(())
    });

    bridge.close();
    assert_eq!((one.containers().len(), two.containers().len()), (0, 0));
}

fn a_killed_docker_daemon_is_cleaned_up_when_it_is_back(env: &TestEnv) {
    need(Kind::Docker);
    need(Kind::Podman);
    let mut far = DockerDaemon::start(env, "far");
    let near = PodmanService::start(env, "near");
    let bridge = bridge_on(env, &format!("{},{}", far.target(), near.target())).start();
    let (of_far, of_near) = (|| far.containers().len(), || near.containers().len());
    try_all(&bridge, &[("docker:far", &of_far), ("podman:near", &of_near)]);
    let call = bridge.start_until_ready("a", SLEEP, json!({ "timeout": 100 }));
    assert_eq!((far.containers().len(), near.containers().len()), (1, 0));
    far.kill();
    let outcome = call.outcome().expect("error").within(Duration::from_secs(30));
    let _ = outcome.because("its engine is docker:far");
    assert_eq!(bridge.run_in("a", "6 * 7").ok(), "42");
    assert_eq!(near.containers().len(), 1);
    far.start_again();
    eventually("what ran there is removed", REMOVAL, || far.containers().is_empty().then_some(()));
    bridge.close();
    assert_eq!(near.containers(), [""; 0]);
}

/// Nothing in them takes as long, also on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// How often an engine was set aside, and how many calls were answered before each time.
fn set_aside(bridge: &Bridge<'_>, target: &str) -> Vec<usize> {
    let (mut answered, mut times) = (0, Vec::new());
    for line in bridge.log().lines() {
        if line.starts_with("<- ") {
            answered += 1;
        } else if line.contains("set an engine aside") && line.contains(&format!("engine={target} ")) {
            times.push(answered);
        }
    }
    times
}

fn an_engine_that_hangs_is_skipped(env: &TestEnv) {
    need(Kind::Podman);
    let one = PodmanService::start(env, "one");
    let two = PodmanService::start(env, "two");
    let bridge = bridge_on(env, &format!("{},{}", one.target(), two.target())).start();
    try_both(&bridge, &one, &two);
    for session in ["a", "b"] {
        let _ = bridge.run_in(session, "1").expect("success");
    }
    assert_eq!((one.containers().len(), two.containers().len()), (1, 1));
    one.hang(true);
    assert_eq!(bridge.run_in("c", "6 * 7").ok(), "42");
    assert_eq!(two.containers().len(), 2);
    assert_eq!(set_aside(&bridge, "podman:one").len(), 1);
    // It is tried again after a while, and nobody waits for that.
    let times = eventually("it is tried again", PATIENCE, || {
        let _ = bridge.run_in("new", "1").expect("success");
        Some(set_aside(&bridge, "podman:one")).filter(|times| times.len() > 1)
    });
    assert!(times[1] > times[0] + 2, "{times:?}");
    one.hang(false);
    eventually("it takes sessions again", PATIENCE, || {
        let _ = bridge.run_in("new", "1").expect("success");
        bridge.log().matches("podman:one works again").count().checked_sub(1)
    });
    bridge.close();
    assert_eq!((one.containers().len(), two.containers().len()), (0, 0));
}

fn an_engine_that_hangs_while_a_sandbox_starts_is_skipped(env: &TestEnv) {
    need(Kind::Podman);
    let one = PodmanService::start(env, "one");
    let two = PodmanService::start(env, "two");
    let flag = env.folder("flags").join("hang");
    // It hangs just after it has been asked how it is.
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n'--connection one run --name'*) [ ! -e {} ] || kill -STOP {} ;;\nesac\nexec {} \"$@\"\n",
        flag.display(),
        one.pid(),
        which("podman").unwrap().display(),
    );
    let program = env.write_program("programs/podman", &script);
    let builder = bridge_on(env, &format!("{},{}", one.target(), two.target()));
    let bridge = builder.var("PATH", program.parent().unwrap()).start();
    try_both(&bridge, &one, &two);
    for session in ["a", "b"] {
        let _ = bridge.run_in(session, "1").expect("success");
    }
    std::fs::write(&flag, "").unwrap();
    assert_eq!(bridge.run_in("c", "6 * 7").ok(), "42");
    assert_eq!(two.containers().len(), 2);
    // Not after the whole time that a sandbox may take to come up.
    let log = bridge.log();
    let reason = log.lines().find(|line| line.contains("set an engine aside")).unwrap();
    assert!(reason.contains("--connection one info") && reason.contains("did not end within"), "{reason}");
    one.hang(false);
    eventually("what was begun there is removed", PATIENCE, || (one.containers().len() == 1).then_some(()));
    bridge.close();
    assert_eq!((one.containers().len(), two.containers().len()), (0, 0));
}

fn an_engine_that_never_answers_is_not_waited_for(env: &TestEnv) {
    need(Kind::Podman);
    let one = PodmanService::start(env, "one");
    let two = PodmanService::start(env, "two");
    one.hang(true);
    let bridge = bridge_on(env, &format!("{},{}", one.target(), two.target())).start();
    assert_eq!(bridge.run_in("a", "6 * 7").ok(), "42");
    assert_eq!(set_aside(&bridge, "podman:one"), [0; 0]);
    eventually("it is set aside", PATIENCE, || set_aside(&bridge, "podman:one").pop());
    one.hang(false);
    bridge.close();
    assert_eq!((one.containers().len(), two.containers().len()), (0, 0));
}

/// A client may hang for ever when its connection breaks, and it names no folder of this machine.
/// The process that connects the bridge with its latest sandbox.
fn client_of(bridge: &Bridge<'_>) -> u32 {
    let is_client = |pid: &u32| command_line(*pid).iter().any(|word| word == "run");
    let clients = children(bridge.pid()).into_iter().filter(is_client);
    clients.max_by_key(|pid| start_time(*pid)).expect("there is no client")
}

fn a_client_that_hangs_does_not_hide_that_its_sandbox_is_lost(env: &TestEnv) {
    need(Kind::Podman);
    let mut service = PodmanService::start(env, "one");
    let bridge = bridge_on(env, &service.target()).start();
    let call = bridge.start_until_ready("main", SLEEP, json!({ "timeout": 100 }));
    kill(client_of(&bridge), Signal::STOP);
    let _ = service.run(&["rm", "--force", "--time=0", &service.containers()[0]]).ok();
    let _ = call.outcome().expect("error").because("went away").within(Duration::from_secs(40));
    let call = bridge.start_until_ready("main", SLEEP, json!({ "timeout": 100 }));
    kill(client_of(&bridge), Signal::STOP);
    service.kill();
    let outcome = call.outcome().expect("error").within(Duration::from_secs(40));
    let _ = outcome.because("Podman ").because("its engine is podman:one");
    service.start_again();
    assert_eq!(bridge.run("6 * 7").expect("success").ok(), "42");
    bridge.close();
    assert_eq!(service.containers(), [""; 0]);
}

fn a_client_that_hangs_ends_after_its_killed_bridge(env: &TestEnv) {
    need(Kind::Podman);
    let service = PodmanService::start(env, "one");
    let bridge = bridge_on(env, &service.target()).start();
    let _ = bridge.run("1").expect("success");
    let client = client_of(&bridge);
    let started = start_time(client);
    kill(client, Signal::STOP);
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
    eventually("the client is gone", REMOVAL, || (start_time(client) != started).then_some(()));
    assert_eq!(service.containers(), [""; 0]);
}

fn a_bridge_ends_soon_though_its_engine_hangs(env: &TestEnv) {
    need(Kind::Podman);
    let one = PodmanService::start(env, "one");
    let bridge = bridge_on(env, &one.target()).start();
    for session in ["a", "b"] {
        let _ = bridge.run_in(session, "1").expect("success");
    }
    assert_eq!(one.containers().len(), 2);
    one.hang(true);
    bridge.hang_up();
    // Each of its commands may take twenty seconds, and there are several for each sandbox.
    let ended = bridge.wait(Duration::from_secs(45));
    assert!(ended.status.success() && ended.log.contains("left to the reaper"), "{}", ended.log);
    one.hang(false);
    eventually("they are removed all the same", PATIENCE, || one.containers().is_empty().then_some(()));
}
