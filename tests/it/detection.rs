//! How a runtime is chosen: candidates are tried in order and once, the result is cached and dropped when it fails,
//! and each runtime that is not chosen has a typed reason.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::matrix::which;
use crate::harness::suite::ignore;
use crate::harness::{BridgeBuilder, Kind, Machine, Runtime, Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once("detection", tests![without_any_runtime_each_is_named_with_its_reason]);
    suite.kinds(
        &[Kind::Crun],
        "detection",
        tests![
            the_first_runtime_that_works_is_chosen_and_the_others_keep_their_reasons,
            concurrent_first_calls_probe_once,
            a_good_choice_is_remembered_and_dropped_when_it_fails,
            a_runtime_that_does_not_launch_gives_way_to_the_next,
            a_program_can_be_named_by_its_path,
        ],
    );
    suite.kinds(&[Kind::Docker], "detection", tests![a_client_without_its_daemon_is_named]);
    let as_root = |kind| Runtime { kind, as_user: false };
    suite.on(&[as_root(Kind::Crun)], "detection", tests![a_hybrid_host_is_named]);
    suite.on(&[as_root(Kind::Podman)], "detection", tests![on_a_hybrid_host_podman_is_told_to_use_runc]);
}

/// What `doctor` says.
fn diagnosis(builder: BridgeBuilder<'_>, env: &TestEnv) -> Value {
    let output = builder.args(&["doctor", "--json"]).command().run(env.guard());
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output}"))
}

fn without_any_runtime_each_is_named_with_its_reason(env: &TestEnv) {
    let bare = || env.bridge().var("PATH", env.folder("nothing"));
    let bridge = bare().start();
    let outcome = bridge.run("1").expect("error");
    // The tests run on Debian.
    let expected = "no container runtime found (podman, docker, crun, runc)\nhint: apt-get install podman";
    assert_eq!(outcome.error(), expected, "{outcome}");
    bridge.close();
    let output = bare().args(&["exec", "-c", "1"]).command().run(env.guard());
    assert_eq!(output.code(), Some(69), "{output}");
    let output = bare().args(&["doctor"]).command().run(env.guard());
    assert_eq!(output.code(), Some(11), "{output}");
    assert!(output.stdout.contains("verdict  cannot run code"), "{output}");
    let said = diagnosis(bare(), env);
    assert_eq!((&said["ready"], &said["picked"]), (&json!(false), &Value::Null));
    let reasons: Vec<&Value> =
        said["runtimes"].as_array().unwrap().iter().map(|it| &it["refused"]["reason"]).collect();
    assert_eq!(reasons, ["not-installed"; 4]);
}

/// The programs that an OCI runtime needs beside itself.
fn helpers(env: &TestEnv, names: &[&str]) -> PathBuf {
    let helpers = ["newuidmap", "newgidmap"].into_iter().filter(|name| which(name).is_ok());
    env.programs(&names.iter().copied().chain(helpers).collect::<Vec<_>>())
}

/// A stand-in for crun in the programs' folder: it writes down its arguments and runs `script` before the real one.
fn crun_behind(env: &TestEnv, script: &str) -> PathBuf {
    let log = env.write("crun.log", "");
    let real = which("crun").unwrap();
    let text = format!(
        "#!/bin/sh\nfor last; do :; done\necho \"$@\" >> {log}\ncase \" $* \" in *\" run \"*)\n{script}\n;; esac\nexec {real} \"$@\"\n",
        log = log.display(),
        real = real.display(),
    );
    env.write_program("programs/crun", &text);
    log
}

fn runs(log: &Path) -> usize {
    fs::read_to_string(log).unwrap().lines().filter(|line| format!(" {line} ").contains(" run ")).count()
}

/// The folder image, so that no engine has to be asked for one.
fn auto<'a>(env: &'a TestEnv, programs: &Path) -> BridgeBuilder<'a> {
    let image = match &Machine::get().rootfs_314 {
        Some(folder) => format!("dir:{}", folder.display()),
        None => "host:".into(),
    };
    env.bridge().without("MCP_BRIDGE_RUNTIME").var("MCP_BRIDGE_IMAGE", image).var("PATH", programs)
}

fn the_first_runtime_that_works_is_chosen_and_the_others_keep_their_reasons(env: &TestEnv) {
    let programs = helpers(env, &["crun", "runc"]);
    env.write_program("programs/podman", "#!/bin/sh\necho 'Error: the store is on fire' >&2\nexit 125\n");
    env.write("programs/docker", "not executable");
    let said = diagnosis(auto(env, &programs), env);
    assert_eq!(said["picked"]["runtime"], "crun", "{said}");
    let runtimes = said["runtimes"].as_array().unwrap();
    assert_eq!(
        runtimes.iter().map(|it| it["kind"].as_str().unwrap()).collect::<Vec<_>>(),
        ["podman", "docker", "crun", "runc"]
    );
    assert_eq!(runtimes[0]["refused"]["reason"], "other", "{said}");
    assert!(runtimes[0]["refused"]["message"].as_str().unwrap().contains("the store is on fire"), "{said}");
    assert_eq!(runtimes[1]["refused"]["reason"], "not-installed", "{said}");
    assert!(runtimes[2]["version"].as_str().unwrap().starts_with("crun version"), "{said}");
    assert!(runtimes[3]["works"].is_object(), "all are tried: {said}");
    let text = auto(env, &programs).args(&["doctor"]).command().run(env.guard()).diagnosed();
    assert!(text.contains("the store is on fire") && text.contains("picked   crun"), "{text}");
    let bridge = auto(env, &programs).start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    bridge.close();
}

fn concurrent_first_calls_probe_once(env: &TestEnv) {
    let programs = helpers(env, &["runc"]);
    let log = crun_behind(env, "");
    let bridge = auto(env, &programs).start();
    let calls: Vec<_> = (0..4)
        .map(|n| bridge.start_call(json!({ "code": format!("{n} + 1"), "session": format!("s{n}") })))
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.outcome().ok(), (n + 1).to_string());
    }
    bridge.close();
    assert_eq!(runs(&log), 1 + 4, "{}", fs::read_to_string(&log).unwrap());
}

fn a_good_choice_is_remembered_and_dropped_when_it_fails(env: &TestEnv) {
    let programs = helpers(env, &[]);
    let broken = env.folder("switch").join("broken");
    let log = crun_behind(
        env,
        &format!("[ -e {} ] && {{ echo 'crun is out of order' >&2; exit 1; }}", broken.display()),
    );
    let run_once = |expected: &str| {
        let before = runs(&log);
        let bridge = auto(env, &programs).start();
        let outcome = bridge.run("6 * 7").expect(expected);
        bridge.close();
        (outcome, runs(&log) - before)
    };
    assert_eq!(run_once("success").1, 2, "a probe and a launch");
    assert_eq!(run_once("success").1, 1, "the choice is remembered");
    fs::write(&broken, "").unwrap();
    let (outcome, tried) = run_once("error");
    // Root's crun is looked at with and without control groups.
    assert!((2..=3).contains(&tried), "the launch that failed, and a new look: {tried}");
    let _ = outcome.because("crun does not work: failed: crun is out of order");
    fs::remove_file(&broken).unwrap();
    assert_eq!(run_once("success").1, 2, "what failed is not remembered");
    assert_eq!(run_once("success").1, 1);
}

fn a_runtime_that_does_not_launch_gives_way_to_the_next(env: &TestEnv) {
    let programs = helpers(env, &["runc"]);
    // The probe runs, nothing else does.
    let count = env.write("count", "");
    let log = crun_behind(
        env,
        &format!(
            "echo >> {0}; n=0; while read -r _; do n=$((n + 1)); done < {0}\n\
             [ $n -gt 1 ] && {{ echo 'crun has lost its way' >&2; exit 1; }}",
            count.display()
        ),
    );
    let bridge = auto(env, &programs).start();
    let calls: Vec<_> = (0..3)
        .map(|n| bridge.start_call(json!({ "code": format!("{n} + 1"), "session": format!("s{n}") })))
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.outcome().ok(), (n + 1).to_string());
    }
    let tried = runs(&log);
    assert!((2..=4).contains(&tried), "{tried}");
    assert_eq!(bridge.run_in("later", "6 * 7").ok(), "42");
    assert_eq!(runs(&log), tried, "it is not tried again");
    let log_of_bridge = bridge.close().log;
    assert_eq!(
        log_of_bridge.matches("trying the next runtime").count(),
        1,
        "it is said once: {log_of_bridge}"
    );
    let text = auto(env, &programs).args(&["doctor"]).command().run(env.guard()).diagnosed();
    assert!(
        text.contains("crun passed its probe and later failed to launch") && text.contains("lost its way"),
        "{text}"
    );
}

fn a_program_can_be_named_by_its_path(env: &TestEnv) {
    let programs = helpers(env, &[]);
    let log = crun_behind(env, "");
    let elsewhere = env.folder("elsewhere").join("crun-1.8");
    fs::rename(programs.join("crun"), &elsewhere).unwrap();
    let bridge = auto(env, &programs).var("MCP_BRIDGE_RUNTIME", &elsewhere).start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    bridge.close();
    assert_eq!(runs(&log), 2);
    let missing = env.folder("elsewhere").join("runc-nowhere");
    let bridge = auto(env, &programs).var("MCP_BRIDGE_RUNTIME", &missing).start();
    let _ = bridge.run("1").expect("error").because("not installed");
    bridge.close();
}

fn a_client_without_its_daemon_is_named(env: &TestEnv) {
    let nowhere = format!("unix://{}", env.folder("nowhere").join("docker.sock").display());
    let said = diagnosis(env.bridge().var("DOCKER_HOST", &nowhere), env);
    assert_eq!(said["runtimes"][0]["refused"]["reason"], "daemon-unreachable", "{said}");
    let bridge = env.bridge().var("DOCKER_HOST", &nowhere).start();
    let _ = bridge
        .run("1")
        .expect("error")
        .because(&format!("Docker is not running at {nowhere}"))
        .because("hint: start the engine");
    bridge.close();
}

/// Mounts a cgroup v2 hierarchy beside the v1 controllers, in a mount namespace of the bridge's own.
const HYBRID: &str = r#"
set -e
new=$1; shift
path=$PATH; PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t tmpfs -o mode=755 tmpfs "$new"
for name in /sys/fs/cgroup/*; do
    if [ -L "$name" ]; then cp -P "$name" "$new/"; else
        mkdir "$new/${name##*/}"
        mountpoint -q "$name" && mount --bind "$name" "$new/${name##*/}"
    fi
done
mkdir -p "$new/unified"
mount -t cgroup2 none "$new/unified"
mount --move "$new" /sys/fs/cgroup
PATH=$path exec "$@"
"#;

fn on_a_hybrid_host<'a>(env: &'a TestEnv, builder: BridgeBuilder<'a>) -> BridgeBuilder<'a> {
    if !Path::new("/sys/fs/cgroup/memory").is_dir() {
        ignore("this machine has no cgroup v1 controllers");
    }
    let unshare = which("unshare").unwrap();
    let mut prefix: Vec<std::ffi::OsString> = vec![unshare.into()];
    prefix.extend(
        ["--mount", "--propagation", "private", "--", "/bin/sh", "-c", HYBRID, "hybrid"].map(Into::into),
    );
    prefix.push(env.folder("cgroup").into());
    builder.behind(prefix)
}

fn a_hybrid_host_is_named(env: &TestEnv) {
    let said = diagnosis(on_a_hybrid_host(env, env.bridge()), env);
    assert_eq!(said["runtimes"][0]["refused"]["reason"], "hybrid-cgroups", "{said}");
    let bridge = on_a_hybrid_host(env, env.bridge()).start();
    let _ = bridge
        .run("1")
        .expect("error")
        .because("mixes cgroup v1 and v2 (hybrid)")
        .because("hint: use `--runtime runc`, which works here");
    bridge.close();
    // And runc takes over, when nobody insists on crun.
    let programs = helpers(env, &["crun", "runc"]);
    let bridge = on_a_hybrid_host(env, auto(env, &programs)).start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    bridge.close();
    let said = diagnosis(on_a_hybrid_host(env, auto(env, &programs)), env);
    assert_eq!(said["picked"]["runtime"], "runc", "{said}");
}

fn on_a_hybrid_host_podman_is_told_to_use_runc(env: &TestEnv) {
    let said = diagnosis(on_a_hybrid_host(env, env.bridge()), env);
    let runc = which("runc").unwrap();
    assert_eq!(said["runtimes"][0]["works"]["runtime"]["oci_runtime"], runc.to_str().unwrap(), "{said}");
    let bridge = on_a_hybrid_host(env, env.bridge()).start();
    assert_eq!(bridge.run("open('x', 'w').write('six'), 6 * 7").ok(), "(3, 42)");
    bridge.close();
}
