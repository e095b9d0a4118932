//! Engines that are reached over ssh through a real sshd: podman by its own client, docker by the client of OpenSSH.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::engines::{PodmanService, bridge_on, need};
use crate::harness::host::{REMOVAL, instance_of};
use crate::harness::matrix::which;
use crate::harness::process::{Running, command_line, kill, reaper_of, start_time};
use crate::harness::ssh::{SshServer, add_podman_connection};
use crate::harness::{Bridge, BridgeBuilder, Kind, Suite, TestEnv, eventually};
use crate::remote::{runtime_of, use_it};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "remote_ssh",
        tests![
            a_podman_engine_runs_sessions_by_its_connection_and_by_the_environment,
            a_docker_engine_runs_sessions_by_its_context_and_by_the_environment,
            a_connection_that_ssh_keeps_open_serves_docker_and_outlives_the_bridge,
            a_podman_session_ends_with_its_sshd_and_the_next_one_works_when_that_is_back,
            a_docker_session_ends_with_its_sshd_and_the_next_one_works_when_that_is_back,
            a_session_whose_engine_stops_answering_keeps_its_time_limit,
            an_engine_over_ssh_and_one_beside_it_share_the_work,
            unreachable_sandboxes_of_a_killed_bridge_are_removed_by_their_labels,
            sandboxes_of_a_killed_bridge_are_removed_with_a_key_that_only_an_agent_has,
        ],
    );
}

const SLEEP: &str = python!("sleep", "ready");

/// A podman service that is reached over ssh, as the connection `far`.
pub(crate) fn podman_behind<'a>(env: &'a TestEnv, server: &SshServer<'_>) -> PodmanService<'a> {
    let service = PodmanService::start(env, "near");
    add_podman_connection(env, "far", &podman_url(server, &service), &server.identity());
    service
}

pub(crate) fn podman_url(server: &SshServer<'_>, service: &PodmanService<'_>) -> String {
    server.url(service.url().trim_start_matches("unix://"))
}

/// A bridge on the docker of the tests, which the sshd leads to.
pub(crate) fn docker_over<'a>(env: &'a TestEnv, server: &SshServer<'_>) -> BridgeBuilder<'a> {
    bridge_on(env, "docker").var("DOCKER_HOST", server.url("")).with_ssh(env)
}

/// What docker has of an instance, asked without ssh.
fn docker_has(env: &TestEnv, id: &str) -> Vec<String> {
    let filter = format!("name=codebridge-{id}-");
    let listed = env.run(["docker", "ps", "--all", "--format={{.Names}}", "--filter", &filter]);
    listed.ok().lines().map(String::from).collect()
}

fn id_of(env: &TestEnv, bridge: &Bridge<'_>) -> String {
    instance_of(env, bridge.pid()).expect("the bridge has no instance").0
}

/// Interrupted by its client, a session keeps its variables.
fn interrupt_it(bridge: &Bridge<'_>) {
    assert_eq!(bridge.run_in("cancelled", "kept = 1; kept").ok(), "1");
    bridge.start_until_ready("cancelled", SLEEP, json!({ "timeout": 100 })).0.cancel();
    assert_eq!(bridge.run_in("cancelled", "kept").ok(), "1");
    let written = "open('/tmp/a', 'w').write('b'); open('/tmp/a').read()";
    assert_eq!(bridge.run_in("cancelled", written).ok(), "'b'");
}

fn a_podman_engine_runs_sessions_by_its_connection_and_by_the_environment(env: &TestEnv) {
    need(Kind::Podman);
    let server = SshServer::start(env);
    let service = podman_behind(env, &server);
    let by_name = || bridge_on(env, "podman:far");
    let by_environment = || {
        let bridge = bridge_on(env, "podman").var("CONTAINER_HOST", podman_url(&server, &service));
        bridge.var("CONTAINER_SSHKEY", server.identity())
    };
    for builder in [by_name(), by_environment()] {
        let bridge = builder.start();
        use_it(&bridge);
        interrupt_it(&bridge);
        let id = id_of(env, &bridge);
        let containers = service.containers();
        assert!(containers.len() == 2 && containers.iter().all(|name| name.contains(&id)), "{containers:?}");
        bridge.close();
        assert_eq!(service.containers(), [""; 0]);
    }
    for builder in [by_name(), by_environment()] {
        assert_eq!(runtime_of(builder, env)["remote"], true);
    }
}

fn a_docker_engine_runs_sessions_by_its_context_and_by_the_environment(env: &TestEnv) {
    need(Kind::Docker);
    let server = SshServer::start(env);
    let host = format!("host={}", server.url(""));
    let _ = env.run(["docker", "context", "create", "far", "--docker", &host]).ok();
    let by_name = || bridge_on(env, "docker:far").with_ssh(env);
    let by_environment = || docker_over(env, &server);
    for builder in [by_name(), by_environment()] {
        let bridge = builder.var("SSH_AUTH_SOCK", "/nowhere/agent").start();
        use_it(&bridge);
        interrupt_it(&bridge);
        let id = id_of(env, &bridge);
        assert_eq!(docker_has(env, &id).len(), 2);
        let own: Vec<String> = [0, 1]
            .map(|number| fs::read_link(format!("/proc/{}/fd/{number}", bridge.pid())).unwrap())
            .map(|link| link.display().to_string())
            .into();
        bridge.close();
        assert_eq!(docker_has(env, &id), [""; 0]);
        let clients = server.clients();
        assert!(!clients.is_empty(), "no ssh was started");
        for client in clients {
            assert!(!client.has_terminal, "{client:?}");
            assert!(client.streams.iter().all(|stream| !own.contains(stream)), "{client:?} {own:?}");
            assert_eq!(client.agent, "/nowhere/agent");
            let is_ssh = || command_line(client.pid).iter().any(|word| word == "dial-stdio");
            eventually("ssh has ended", REMOVAL, || (!is_ssh()).then_some(()));
        }
    }
    for builder in [by_name(), by_environment()] {
        assert_eq!(runtime_of(builder, env)["remote"], true);
    }
}

fn a_connection_that_ssh_keeps_open_serves_docker_and_outlives_the_bridge(env: &TestEnv) {
    need(Kind::Docker);
    let server = SshServer::start(env);
    let shared = server.share_connections();
    let bridge = docker_over(env, &server).start();
    use_it(&bridge);
    let id = id_of(env, &bridge);
    bridge.close();
    assert_eq!(docker_has(env, &id), [""; 0]);
    assert!(shared.is_open());
}

/// Loses the sshd under a call: what is said, what the next call says, and what happens when it is back. `has` asks the
/// engine itself for the sandboxes of an instance, `pause` has it stop one, so that this one cannot notice and leave.
fn lose_it(
    bridge: &Bridge<'_>,
    server: &mut SshServer<'_>,
    engine: &str,
    has: &dyn Fn(&str) -> Vec<String>,
    pause: &dyn Fn(&str),
) {
    assert_eq!(bridge.run_in("idle", "1").ok(), "1");
    assert_eq!(bridge.run_in("busy", "x = 1; x").ok(), "1");
    let call = bridge.start_until_ready("busy", SLEEP, json!({ "timeout": 100 }));
    let id = id_of(bridge.env(), bridge);
    let before = has(&id);
    assert_eq!(before.len(), 2);
    before.iter().for_each(|name| pause(name));
    server.kill();
    let outcome = call.outcome().expect("error").within(Duration::from_secs(20));
    let _ = outcome.because(&format!("its engine is {engine}"));
    let outcome = bridge.run_in("busy", "x").expect("error").within(Duration::from_secs(20));
    let _ = outcome.because("does not answer").because("efused").because("hint: start the engine");
    assert!(before.iter().all(|name| has(&id).contains(name)));
    server.start_again();
    let again = bridge.run_in("busy", "'x' in globals()").expect("success");
    assert_eq!(again.noting("its variables are gone").ok(), "False");
    // That a session was lost while nobody used it shows at its next call.
    let _ = bridge.run_in("idle", "1");
    eventually("what ran there is removed", REMOVAL, || {
        has(&id).iter().all(|name| !before.contains(name)).then_some(())
    });
}

fn a_podman_session_ends_with_its_sshd_and_the_next_one_works_when_that_is_back(env: &TestEnv) {
    need(Kind::Podman);
    let mut server = SshServer::start(env);
    let service = podman_behind(env, &server);
    let bridge = bridge_on(env, "podman:far").start();
    let pause = |name: &str| drop(service.run(&["pause", name]).ok());
    lose_it(&bridge, &mut server, "podman:far", &|_| service.containers(), &pause);
    bridge.close();
    assert_eq!(service.containers(), [""; 0]);
}

fn a_docker_session_ends_with_its_sshd_and_the_next_one_works_when_that_is_back(env: &TestEnv) {
    need(Kind::Docker);
    let mut server = SshServer::start(env);
    let host = format!("host={}", server.url(""));
    let _ = env.run(["docker", "context", "create", "far", "--docker", &host]).ok();
    let bridge = bridge_on(env, "docker:far").with_ssh(env).start();
    let pause = |name: &str| drop(env.run(["docker", "pause", name]).ok());
    lose_it(&bridge, &mut server, "docker:far", &|id| docker_has(env, id), &pause);
    let id = id_of(env, &bridge);
    bridge.close();
    assert_eq!(docker_has(env, &id), [""; 0]);
}

fn a_session_whose_engine_stops_answering_keeps_its_time_limit(env: &TestEnv) {
    need(Kind::Podman);
    let server = SshServer::start(env);
    let service = podman_behind(env, &server);
    let bridge = bridge_on(env, "podman:far").start();
    let call = bridge.start_until_ready("main", SLEEP, json!({ "timeout": 3 }));
    server.hang(true);
    let _ = call.outcome().expect("timeout").within(Duration::from_secs(20));
    server.hang(false);
    eventually("the next one works", REMOVAL, || {
        (bridge.run("6 * 7").expect("success").ok() == "42").then_some(())
    });
    bridge.close();
    assert_eq!(service.containers(), [""; 0]);
}

fn an_engine_over_ssh_and_one_beside_it_share_the_work(env: &TestEnv) {
    need(Kind::Podman);
    let mut server = SshServer::start(env);
    let behind = PodmanService::start(env, "behind");
    add_podman_connection(env, "far", &podman_url(&server, &behind), &server.identity());
    let near = PodmanService::start(env, "near");
    let bridge = bridge_on(env, "podman:far,podman:near").start();
    assert_eq!(bridge.run_in("s0", "n = 0; n").ok(), "0");
    // The first session does not have to wait for the trial of the slower engine.
    eventually("both were tried", REMOVAL, || {
        let tried = |name: &str| bridge.log().contains(&format!("podman:{name} works"));
        let count = behind.containers().len() + near.containers().len();
        (tried("far") && tried("near") && count == 1).then_some(())
    });
    for n in 1..4 {
        assert_eq!(bridge.run_in(&format!("s{n}"), &format!("n = {n}; n")).ok(), n.to_string());
    }
    assert_eq!((behind.containers().len(), near.containers().len()), (2, 2));
    let calls: Vec<_> = (0..4)
        .map(|n| bridge.start_until_ready(&format!("s{n}"), SLEEP, json!({ "timeout": 100 })))
        .collect();
    // What cannot notice stays there until it is removed.
    behind.containers().iter().for_each(|name| drop(behind.run(&["pause", name]).ok()));
    server.kill();
    eventually("the sessions over ssh end", Duration::from_secs(20), || {
        (calls.iter().filter(|call| call.0.is_answered()).count() == 2).then_some(())
    });
    let (mut far, mut here) = (Vec::new(), Vec::new());
    for (n, call) in calls.into_iter().enumerate() {
        if call.0.is_answered() {
            let _ = call.outcome().expect("error").because("its engine is podman:far");
            far.push(n);
        } else {
            call.0.cancel();
            here.push(n);
        }
    }
    for n in here {
        assert_eq!(bridge.run_in(&format!("s{n}"), "n").ok(), n.to_string());
    }
    let again = bridge.run_in(&format!("s{}", far[0]), "'n' in globals()").expect("success");
    assert_eq!(again.noting("its variables are gone").ok(), "False");
    assert_eq!(bridge.run_in("new one", "6 * 7").ok(), "42");
    assert_eq!(near.containers().len(), 4);
    assert_eq!(behind.containers().len(), 2);
    server.start_again();
    eventually("what ran there is removed", REMOVAL, || behind.containers().is_empty().then_some(()));
    eventually("it is tried again", REMOVAL, || {
        let _ = bridge.run_in("new", "1").expect("success");
        bridge.log().contains("podman:far works again").then_some(())
    });
    let _ = bridge.run_in("more", "1").expect("success");
    assert!(!behind.containers().is_empty(), "a session is not where the fewest are");
    bridge.close();
    assert_eq!((behind.containers().len(), near.containers().len()), (0, 0));
}

fn unreachable_sandboxes_of_a_killed_bridge_are_removed_by_their_labels(env: &TestEnv) {
    need(Kind::Podman);
    let mut server = SshServer::start(env);
    let service = podman_behind(env, &server);
    let bridge = bridge_on(env, "podman:far").start();
    let _ = bridge.run("1").expect("success");
    let (_, folder) = instance_of(env, bridge.pid()).unwrap();
    let ours = service.containers();
    assert_eq!(ours.len(), 1);
    let _ = service.run(&["pause", &ours[0]]).ok();
    server.kill();
    let reaper = reaper_of(bridge.pid());
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
    eventually("the reaper gives up", REMOVAL, || start_time(reaper).is_none().then_some(()));
    assert_eq!(service.containers(), ours);
    // Nothing is written down any more; a bridge beside us may have been before us.
    let _ = fs::remove_dir_all(&folder);
    server.start_again();
    let next = bridge_on(env, "podman:far").start();
    let _ = next.run("1").expect("success");
    eventually("what the dead bridge left is removed", REMOVAL, || {
        (!service.containers().contains(&ours[0])).then_some(())
    });
    next.close();
    assert_eq!(service.containers(), [""; 0]);
}

/// An agent that holds a key which is in no file any more.
struct Agent {
    socket: String,
    _running: Running,
}

impl Agent {
    fn start(env: &TestEnv, server: &SshServer<'_>) -> Self {
        let socket = env.folder("agent").join("sock").display().to_string();
        let mut command = env.command(which("ssh-agent").unwrap());
        command.argv.extend(["-D".into(), "-a".into(), socket.clone().into()]);
        let running = command.spawn(env.guard(), Stdio::null(), Stdio::null(), Stdio::null());
        let mut add = env.command(which("ssh-add").unwrap());
        add.env.insert("SSH_AUTH_SOCK".into(), socket.clone().into());
        add.argv.push(server.identity().into());
        eventually("the agent takes the key", REMOVAL, || {
            add.run(env.guard()).status.success().then_some(())
        });
        fs::remove_file(server.identity()).unwrap();
        server.use_key(None);
        Self { socket, _running: running }
    }
}

fn sandboxes_of_a_killed_bridge_are_removed_with_a_key_that_only_an_agent_has(env: &TestEnv) {
    need(Kind::Docker);
    need(Kind::Podman);
    let server = SshServer::start(env);
    let service = PodmanService::start(env, "near");
    let agent = Agent::start(env, &server);
    let docker = || docker_over(env, &server).var("SSH_AUTH_SOCK", &agent.socket);
    let podman = || {
        let bridge = bridge_on(env, "podman").var("CONTAINER_HOST", podman_url(&server, &service));
        bridge.var("SSH_AUTH_SOCK", &agent.socket)
    };
    // The reaper is another process than the bridge was, and has to get in as well.
    for builder in [docker(), podman()] {
        let bridge = builder.start();
        assert_eq!(bridge.run("6 * 7").ok(), "42");
        let (id, folder) = instance_of(env, bridge.pid()).unwrap();
        let has = || [docker_has(env, &id), service.containers()].concat();
        assert_eq!(has().len(), 1);
        bridge.signal(Signal::KILL);
        let _ = bridge.wait(REMOVAL);
        eventually("the reaper has removed it", REMOVAL, || {
            (has().is_empty() && !folder.exists()).then_some(())
        });
    }
    // And so has who cleans up later, with nothing but what is written down and the agent.
    let bridge = podman().start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    let (_, folder) = instance_of(env, bridge.pid()).unwrap();
    assert_eq!(service.containers().len(), 1);
    let reaper = reaper_of(bridge.pid());
    kill(reaper, Signal::STOP);
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
    assert!(folder.exists() && start_time(reaper).is_some());
    let reap = bridge_on(env, "crun").var("SSH_AUTH_SOCK", &agent.socket).args(&["reap"]);
    // Other tests may have left what it cannot reach.
    let _ = reap.command().run(env.guard());
    assert_eq!(service.containers(), [""; 0]);
    kill(reaper, Signal::CONT);
    eventually("the reaper ends", REMOVAL, || start_time(reaper).is_none().then_some(()));
}
