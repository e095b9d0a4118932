//! A docker daemon of this machine that is stopped or killed while it runs sandboxes.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::engines::{DockerDaemon, need};
use crate::harness::host::{REMOVAL, instance_of};
use crate::harness::matrix::Machine;
use crate::harness::process::{kill, reaper_of};
use crate::harness::{Bridge, BridgeBuilder, Kind, Suite, TestEnv, eventually};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "daemon_losses",
        tests![
            a_session_ends_with_its_stopped_daemon_and_the_next_one_works_when_that_is_back,
            a_session_ends_with_its_killed_daemon_and_the_next_one_works_when_that_is_back,
            an_idle_session_is_replaced_when_its_daemon_was_killed_meanwhile,
            reap_removes_what_a_killed_bridge_left_on_a_killed_daemon,
        ],
    );
}

/// Nobody has to wait for a timeout to learn of a loss.
const SOON: Duration = Duration::from_secs(30);

/// A bridge whose only engine listens on a socket of this machine.
fn bridge_on<'a>(env: &'a TestEnv, daemon: &DockerDaemon<'_>) -> BridgeBuilder<'a> {
    env.bridge()
        .var("MCP_BRIDGE_RUNTIME", "docker")
        .var("MCP_BRIDGE_IMAGE", Machine::get().image.as_deref().unwrap_or_default())
        .var("DOCKER_HOST", format!("unix://{}", daemon.socket().display()))
}

/// The code is lost soon, as is what comes while the daemon is down; then all is well again and nothing is left.
fn lose_it(env: &TestEnv, lose: fn(&mut DockerDaemon<'_>)) {
    need(Kind::Docker);
    let mut daemon = DockerDaemon::start(env, "own");
    let bridge = bridge_on(env, &daemon).start();
    let _ = bridge.run("x = 1").expect("success");
    let call = bridge.start_until_ready("main", python!("sleep", "ready"), json!({ "timeout": 100 }));
    lose(&mut daemon);
    let outcome = call.outcome().within(SOON).expect("error").noting("has ended");
    assert!(!outcome.error().is_empty(), "{outcome}");
    let refused = bridge.run("1").within(SOON).expect("error");
    assert!(refused.error().contains("docker"), "{refused}");
    daemon.start_again();
    let next = bridge.run("'x' in globals()").within(SOON);
    assert_eq!(next.ok(), "False");
    eventually("only the new sandbox is there", REMOVAL, || (daemon.containers().len() == 1).then_some(()));
    bridge.close();
    assert_eq!(daemon.containers(), [""; 0]);
}

fn a_session_ends_with_its_stopped_daemon_and_the_next_one_works_when_that_is_back(env: &TestEnv) {
    lose_it(env, |daemon| daemon.stop());
}

fn a_session_ends_with_its_killed_daemon_and_the_next_one_works_when_that_is_back(env: &TestEnv) {
    lose_it(env, |daemon| daemon.kill());
}

fn an_idle_session_is_replaced_when_its_daemon_was_killed_meanwhile(env: &TestEnv) {
    need(Kind::Docker);
    let mut daemon = DockerDaemon::start(env, "own");
    let bridge = bridge_on(env, &daemon).start();
    let _ = bridge.run("x = 1").expect("success");
    daemon.kill();
    daemon.start_again();
    let next = bridge.run("'x' in globals()").within(SOON);
    // The news may take a moment.
    if next.status() == "error" {
        let _ = next.noting("has ended");
    }
    assert_eq!(bridge.run("'x' in globals()").within(SOON).ok(), "False");
    eventually("only the new sandbox is there", REMOVAL, || (daemon.containers().len() == 1).then_some(()));
    bridge.close();
    assert_eq!(daemon.containers(), [""; 0]);
}

/// Kills a bridge and its reaper.
fn abandon(bridge: Bridge<'_>) {
    kill(reaper_of(bridge.pid()), Signal::KILL);
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
}

fn reap_removes_what_a_killed_bridge_left_on_a_killed_daemon(env: &TestEnv) {
    need(Kind::Docker);
    let mut daemon = DockerDaemon::start(env, "own");
    let bridge = bridge_on(env, &daemon).start();
    let _ = bridge.run("x = 1").expect("success");
    let pid = bridge.pid();
    daemon.kill();
    abandon(bridge);
    let said = bridge_on(env, &daemon).args(&["reap"]).command().run(env.guard());
    assert!(!said.status.success(), "{said}");
    assert!(instance_of(env, pid).is_some(), "what could not be removed stays recorded: {said}");
    daemon.start_again();
    let said = bridge_on(env, &daemon).args(&["reap"]).command().run(env.guard());
    let _ = said.ok();
    assert_eq!(daemon.containers(), [""; 0]);
    assert!(instance_of(env, pid).is_none());
}
