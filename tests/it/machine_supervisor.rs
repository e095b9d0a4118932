//! A podman machine that a bridge started is stopped when nothing has run in it for a while, by a process that
//! outlives the bridge and exits after that.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getsid};
use serde_json::{Value, json};

use crate::harness::bridge::BridgeBuilder;
use crate::harness::engines::need;
use crate::harness::fake_machine::FakeMachine;
use crate::harness::process::{kill, parent_of, pid_of};
use crate::harness::{Bridge, Kind, Machine, Suite, TestEnv, eventually};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "machine_supervisor",
        tests![
            a_machine_that_nobody_uses_is_stopped_while_its_bridge_lives,
            a_machine_is_stopped_after_its_bridge_has_ended,
            a_machine_is_stopped_after_a_bridge_that_was_killed_while_it_started_it,
            a_start_goes_on_when_the_call_is_cancelled,
            a_machine_that_another_bridge_uses_is_not_stopped,
            a_machine_in_which_something_else_runs_is_not_stopped,
            a_machine_that_the_user_started_is_not_stopped,
            a_machine_that_is_never_to_be_stopped_has_no_supervisor,
            a_supervisor_that_was_killed_is_replaced_by_the_next_bridge,
            a_supervisor_inherits_nothing_from_its_caller,
            a_supervisor_ends_with_its_task,
            a_machine_of_before_the_host_booted_is_not_stopped,
            a_machine_is_not_stopped_where_podman_cannot_tell_its_runs_apart,
        ],
    );
}

const LIMIT: Duration = Duration::from_secs(60);

/// A bridge whose sessions and machine are idle after so many seconds.
fn idle_after<'a>(machine: &FakeMachine<'a>, seconds: u32) -> BridgeBuilder<'a> {
    machine.bridge().var("MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT", seconds.to_string())
}

/// A machine that a bridge has started.
fn started<'a>(env: &'a TestEnv, idle: u32) -> (FakeMachine<'a>, Bridge<'a>) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "5.8", &json!({}));
    let bridge = idle_after(&machine, idle).start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    assert_eq!(machine.calls(), ["start podman-machine-default"]);
    (machine, bridge)
}

fn until_stopped(machine: &FakeMachine<'_>, times: usize) {
    eventually("the machine is stopped", LIMIT, || (machine.stops() == times).then_some(()));
}

fn until_no_supervisor(machine: &FakeMachine<'_>) {
    eventually("the supervisor is gone", LIMIT, || machine.supervisors().is_empty().then_some(()));
}

/// What is written down of the machine.
fn record(machine: &FakeMachine<'_>) -> PathBuf {
    machine.cache().join("machine-podman-machine-default.json")
}

fn a_machine_that_nobody_uses_is_stopped_while_its_bridge_lives(env: &TestEnv) {
    let (machine, bridge) = started(env, 1);
    until_stopped(&machine, 1);
    until_no_supervisor(&machine);
    // And up again when it is needed, by the same bridge.
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    until_stopped(&machine, 2);
    bridge.close();
    until_no_supervisor(&machine);
    assert!(!record(&machine).exists());
}

fn a_machine_is_stopped_after_its_bridge_has_ended(env: &TestEnv) {
    let idle = Duration::from_secs(3);
    let (machine, bridge) = started(env, 3);
    let ending = Instant::now();
    bridge.close();
    let closed = ending.elapsed();
    assert_eq!((machine.stops(), machine.supervisors().len()), (0, 1), "closed after {closed:?}");
    until_stopped(&machine, 1);
    assert!(ending.elapsed() >= idle, "{:?} after the end of its bridge", ending.elapsed());
    until_no_supervisor(&machine);
    // A bridge that cannot say that it ends, with a sandbox in the machine.
    let bridge = idle_after(&machine, 3).start();
    // For longer than it takes between two looks at what runs there: what comes and goes between them is not seen.
    assert_eq!(bridge.run(python!("sleep", "three_seconds")).ok(), "42");
    let ending = Instant::now();
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(LIMIT);
    until_stopped(&machine, 2);
    assert!(ending.elapsed() >= idle, "{:?} after the end of its bridge", ending.elapsed());
    until_no_supervisor(&machine);
    assert_eq!(machine.service.containers(), [""; 0]);
}

fn a_machine_is_stopped_after_a_bridge_that_was_killed_while_it_started_it(env: &TestEnv) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "5.8", &json!({ "start_seconds": 2.0 }));
    let bridge = idle_after(&machine, 1).start();
    let call = bridge.start_call(json!({ "code": "6 * 7" }));
    eventually("it is being started", LIMIT, || machine.state()["up_at"].is_number().then_some(()));
    bridge.signal(Signal::KILL);
    assert!(call.0.answer_if_any().is_none());
    let _ = bridge.wait(LIMIT);
    eventually("it runs", LIMIT, || (machine.state()["running"] == true).then_some(()));
    until_stopped(&machine, 1);
    until_no_supervisor(&machine);
}

fn a_start_goes_on_when_the_call_is_cancelled(env: &TestEnv) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "5.8", &json!({ "start_seconds": 2.0 }));
    let bridge = idle_after(&machine, 2).start();
    let call = bridge.start_call(json!({ "code": "6 * 7" }));
    eventually("it is being started", LIMIT, || machine.state()["up_at"].is_number().then_some(()));
    call.0.cancel();
    until_stopped(&machine, 1);
    assert_eq!(machine.calls(), ["start podman-machine-default", "stop podman-machine-default"]);
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    bridge.close();
}

fn a_machine_that_another_bridge_uses_is_not_stopped(env: &TestEnv) {
    let (machine, first) = started(env, 2);
    first.close();
    // It comes before the machine is stopped, and runs something for much longer than that would take.
    let second = idle_after(&machine, 2).start();
    let slept = python!("sleep", "six_seconds");
    assert_eq!(second.run(slept).ok(), "'slept'");
    assert_eq!((machine.stops(), machine.looks()), (0, 0));
    assert_eq!(machine.supervisors().len(), 1);
    second.close();
    until_stopped(&machine, 1);
    assert_eq!(machine.calls()[0], "start podman-machine-default");
    assert_eq!(machine.calls().len(), 2);
}

fn a_machine_in_which_something_else_runs_is_not_stopped(env: &TestEnv) {
    let (machine, bridge) = started(env, 1);
    let image = Machine::get().image.clone().unwrap();
    let mut container = vec!["run", "--detach", "--name=somebodys", "--network=none"];
    container.extend(["--ulimit=nofile=64:64", "--ulimit=nproc=64:64", &image, "sleep", "1000"]);
    let _ = machine.service.run(&container).ok();
    bridge.close();
    // Each time its two engines are asked.
    eventually("it was looked twice", LIMIT, || (machine.looks() >= 4).then_some(()));
    assert_eq!(machine.stops(), 0);
    let _ = machine.service.run(&["rm", "--force", "--time=0", "somebodys"]).ok();
    until_stopped(&machine, 1);
}

fn a_machine_that_the_user_started_is_not_stopped(env: &TestEnv) {
    let (machine, bridge) = started(env, 1);
    // Stopped and started by hand, under the bridge.
    machine.change(&json!({ "last_up": "2026-11-20T15:00:00Z" }));
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    until_no_supervisor(&machine);
    assert!(!record(&machine).exists());
    bridge.close();
    // One that runs already when the first bridge comes is none of ours either.
    let next = idle_after(&machine, 1).start();
    assert_eq!(next.run("6 * 7").ok(), "42");
    next.close();
    assert_eq!((machine.stops(), machine.supervisors().len()), (0, 0));
}

fn a_machine_that_is_never_to_be_stopped_has_no_supervisor(env: &TestEnv) {
    let (machine, bridge) = started(env, 0);
    assert_eq!(machine.supervisors().len(), 0);
    bridge.close();
    // What another bridge would do with those that it starts itself is no matter here.
    let next = idle_after(&machine, 1).start();
    assert_eq!(next.run("6 * 7").ok(), "42");
    assert_eq!(machine.supervisors().len(), 0);
    next.close();
    assert_eq!((machine.stops(), machine.supervisors().len()), (0, 0));
    // A diagnosis still says whose doing it is.
    let doctor = idle_after(&machine, 1).args(&["doctor", "--json"]).command().run(env.guard()).diagnosed();
    let report: Value = serde_json::from_str(&doctor).unwrap();
    let known = json!({ "name": "podman-machine-default", "running": true, "started_by_bridge": true });
    assert_eq!(report["runtimes"][0]["machine"], known);
}

fn a_supervisor_that_was_killed_is_replaced_by_the_next_bridge(env: &TestEnv) {
    let (machine, bridge) = started(env, 2);
    for supervisor in machine.supervisors() {
        kill(supervisor, Signal::KILL);
    }
    until_no_supervisor(&machine);
    bridge.close();
    let next = idle_after(&machine, 2).start();
    assert_eq!(next.run("6 * 7").ok(), "42");
    next.close();
    until_stopped(&machine, 1);
    assert_eq!(machine.calls().len(), 2);
}

fn a_supervisor_inherits_nothing_from_its_caller(env: &TestEnv) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "5.8", &json!({}));
    let leaked = env.write("leaked", "");
    let leaky = ["/bin/sh", "-c", "exec 7<\"$0\" && exec \"$@\"", leaked.to_str().unwrap()];
    let bridge = idle_after(&machine, 300).behind(leaky).start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    let supervisor = eventually("the supervisor is there by itself", LIMIT, || {
        let supervisors = machine.supervisors();
        // The process that starts it has gone.
        (supervisors.len() == 1 && parent_of(supervisors[0]) != Some(bridge.pid())).then(|| supervisors[0])
    });
    eventually("it has left its caller", LIMIT, || {
        (getsid(Some(pid_of(supervisor))).ok() == Some(pid_of(supervisor))).then_some(())
    });
    let link = |name: &str| fs::read_link(format!("/proc/{supervisor}/{name}")).unwrap();
    eventually("it works", LIMIT, || (link("cwd") == Path::new("/")).then_some(()));
    for stream in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(link(stream), Path::new("/dev/null"));
    }
    let open = || {
        let entries = fs::read_dir(format!("/proc/{supervisor}/fd")).unwrap().flatten();
        entries.filter_map(|entry| fs::read_link(entry.path()).ok()).collect::<Vec<_>>()
    };
    eventually("it holds the lock", LIMIT, || {
        open().iter().any(|path| path.ends_with("supervisor-podman-machine-default.lock")).then_some(())
    });
    let foreign = |path: &PathBuf| *path == leaked || path.to_string_lossy().starts_with("pipe:");
    assert!(!open().iter().any(foreign), "{:?}", open());
    let environment = fs::read_to_string(format!("/proc/{supervisor}/environ")).unwrap();
    assert!(!environment.contains("MCP_BRIDGE"), "{environment}");
    // Those who wait for the bridge's streams see their end.
    bridge.close();
    assert_eq!(machine.supervisors(), [supervisor]);
}

fn a_supervisor_ends_with_its_task(env: &TestEnv) {
    let (machine, bridge) = started(env, 3);
    bridge.close();
    assert_eq!(machine.supervisors().len(), 1);
    // As when the user throws the cache away.
    fs::remove_dir_all(machine.cache()).unwrap();
    until_no_supervisor(&machine);
    assert_eq!(machine.stops(), 0);
    assert!(!machine.cache().exists());
}

fn a_machine_of_before_the_host_booted_is_not_stopped(env: &TestEnv) {
    let (machine, bridge) = started(env, 4);
    bridge.close();
    // Podman does not write down that it went off with the host, so the run that somebody starts then looks like ours.
    let mut known: Value = serde_json::from_slice(&fs::read(record(&machine)).unwrap()).unwrap();
    assert!(known["run"].is_array(), "{known}");
    known["by"]["boot"] = "another".into();
    fs::write(record(&machine), known.to_string()).unwrap();
    until_no_supervisor(&machine);
    assert_eq!(machine.stops(), 0);
    assert!(!record(&machine).exists());
}

fn a_machine_is_not_stopped_where_podman_cannot_tell_its_runs_apart(env: &TestEnv) {
    need(Kind::Podman);
    let machine = FakeMachine::new(env, "3.4", &json!({}));
    let bridge = idle_after(&machine, 1).start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    until_no_supervisor(&machine);
    assert!(!record(&machine).exists());
    bridge.close();
    assert_eq!(machine.calls(), ["start podman-machine-default"]);
}
