//! Images of every format on every runtime, pulled from a real registry, and the integrity of the image store.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::bridge::PendingCall;
use crate::harness::matrix::{Kind, PATH, which};
use crate::harness::process::{Output, Prepared, collect};
use crate::harness::registry::{CuttingProxy, HoldingProxy, ImageFiles, PULL, Registry, VARIABLE, store_of};
use crate::harness::suite::ignore;
use crate::harness::works::works;
use crate::harness::{Machine, Runtime, Suite, TestEnv, eventually};
use crate::{python, tests};

/// What tests run to see that it is the image, and what of it is honoured.
const CODE: &str =
    "import os, sys\nprint(sys.version_info[:2], os.environ.get('FOO'), os.getcwd(), os.getuid() != 1000)";
/// For an image of a file or a registry.
const ANSWER: &str = "(3, 14) from the image /workspace True\n";

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime(
        "image_store",
        tests![
            an_image_of_a_file_runs_on_every_runtime,
            an_image_of_podman_runs_on_every_runtime,
            an_image_of_docker_runs_on_every_runtime,
        ],
    );
    suite.kinds(
        &[Kind::Podman, Kind::Docker],
        "image_store",
        tests![an_engine_runs_its_own_images_unchanged, an_engine_pulls_from_a_registry_itself],
    );
    suite.kinds(
        &[Kind::Crun, Kind::Runc],
        "image_store",
        tests![an_image_of_a_registry_is_pulled_once_and_runs, an_image_of_an_engine_is_copied_once_and_runs],
    );
    // What the store does is the same for both programs and for both users: two rows have each of them once.
    let each_once = [Runtime::of_user(Kind::Crun), Runtime::of_root(Kind::Runc)];
    suite.on(
        &each_once,
        "image_store",
        tests![
            a_removed_or_damaged_image_is_pulled_again,
            a_name_always_means_the_same_image,
            a_call_that_waits_for_a_pull_reports_progress_and_keeps_its_time_limit,
            an_image_that_is_unavailable_says_what_was_tried,
            the_standard_library_is_compiled_once,
        ],
    );
    suite.once(
        "image_store",
        tests![
            every_kind_of_manifest_is_the_same_image,
            a_registry_that_requires_a_login_gets_one,
            a_broken_download_is_resumed,
            a_connection_may_break_at_any_byte,
            an_interrupted_pull_says_so_and_is_resumed,
            two_bridges_that_pull_the_same_image_fetch_and_unpack_it_once,
            a_full_disk_leaves_no_half_image,
            fifty_kills_leave_the_store_right,
            an_image_in_use_is_not_removed,
            a_host_without_root_certificates_says_so,
        ],
    );
}

/// The binary with a store of the test's own.
fn codebridge(env: &TestEnv, words: &[&str]) -> Prepared {
    let data = store_of(env);
    let mut command = env.bridge().var("XDG_DATA_HOME", data).var("MCP_BRIDGE_LOG_LEVEL", "warn").command();
    command.argv.extend(words.iter().map(OsString::from));
    command
}

fn run(env: &TestEnv, words: &[&str]) -> Output {
    codebridge(env, words).run(env.guard())
}

/// Runs the code in an image.
fn exec(env: &TestEnv, image: &str) -> Output {
    run(env, &["--image", image, "exec", "-c", CODE])
}

fn roots(env: &TestEnv) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(env.folder("data").join("codebridge/roots")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
}

/// Every file of an unpacked image with its size and time.
fn listing(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let size = if meta.is_dir() { 0 } else { meta.len() };
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            found.push(format!("{name} {:o} {size} {}", meta.mode(), meta.mtime()));
            if meta.is_dir() {
                todo.push(path);
            }
        }
    }
    found.sort();
    found
}

fn an_image_of_a_file_runs_on_every_runtime(env: &TestEnv) {
    let files = ImageFiles::get(env);
    for image in [files.docker_archive(), files.layout(), files.oci_archive()] {
        assert_eq!(exec(env, &image).ok(), ANSWER, "{image}");
    }
    // By the two last names it is one image; the first has the same described in docker's way.
    assert_eq!(roots(env).len(), 2);
    let list: Value = serde_json::from_str(&run(env, &["image", "ls", "--json"]).ok()).unwrap();
    let names =
        list["images"].as_array().unwrap().iter().map(|image| image["names"].as_array().unwrap().len());
    assert_eq!(names.sum::<usize>(), 3, "{list}");
}

fn an_engine_runs_its_own_images_unchanged(env: &TestEnv) {
    let transport = if env.runtime().kind == Kind::Podman { "containers-storage" } else { "docker-daemon" };
    let image = Machine::get().usual_image(env.runtime());
    let code = "import sys; print(sys.version_info[:2])";
    let own = format!("{transport}:{image}");
    assert_eq!(run(env, &["--image", &own, "exec", "-c", code]).ok(), "(3, 14)\n");
    assert_eq!(roots(env).len(), 0, "nothing had to be unpacked");
    let missing = format!("{transport}:localhost/no-such-image:1");
    let output = run(env, &["--image", &missing, "exec", "-c", code]);
    assert_eq!(output.code(), Some(72), "{output}");
}

fn an_image_of_podman_runs_on_every_runtime(env: &TestEnv) {
    let Some(image) = &Machine::get().image else { ignore("this machine is not prepared, see tests/check") };
    runs_as_the_engine_has_it(env, &format!("containers-storage:{image}"), Kind::Podman);
}

fn an_image_of_docker_runs_on_every_runtime(env: &TestEnv) {
    let Some(image) = &Machine::get().image else { ignore("this machine is not prepared, see tests/check") };
    let source = format!("docker-daemon:{image}");
    if env.user().is_none() {
        return runs_as_the_engine_has_it(env, &source, Kind::Docker);
    }
    // The daemon is root's.
    let output = run(env, &["--image", &source, "exec", "-c", "1"]);
    assert_eq!(output.code(), Some(72), "{output}");
    let expected = format!("docker has no image '{image}', or is not installed");
    assert!(output.stderr.contains(&expected), "{output}");
}

fn runs_as_the_engine_has_it(env: &TestEnv, image: &str, engine: Kind) {
    let bridge = env.bridge().var("XDG_DATA_HOME", store_of(env)).var("MCP_BRIDGE_IMAGE", image).start();
    assert_eq!(bridge.run("import sys; sys.version_info[:2]").ok(), "(3, 14)");
    bridge.close();
    // The engine itself has nothing to unpack.
    assert_eq!(roots(env).len(), usize::from(env.runtime().kind != engine));
}

fn an_engine_pulls_from_a_registry_itself(env: &TestEnv) {
    let registry = Registry::start(env);
    let image = format!("{}/python:gzip", registry.host);
    // Docker takes this very machine without TLS, podman has to be told.
    let conf = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.host);
    let conf = env.write("registries.conf", conf);
    let bridge =
        env.bridge().var("MCP_BRIDGE_IMAGE", image.as_str()).var("CONTAINERS_REGISTRIES_CONF", conf).start();
    let outcome = bridge.run(CODE);
    bridge.close();
    let _ = env.run([env.runtime().kind.name(), "rmi", "--force", &image]).ok();
    assert_eq!(format!("{}\n", outcome.ok()), ANSWER);
    assert_eq!(roots(env).len(), 0);
}

fn an_image_of_a_registry_is_pulled_once_and_runs(env: &TestEnv) {
    let registry = Registry::start(env);
    let image = format!("{}/python:many", registry.host);
    assert_eq!(exec(env, &image).ok(), ANSWER);
    assert_eq!(exec(env, &image).ok(), ANSWER);
    assert_eq!(registry.asked("/manifests/"), 2, "the index and the image for this machine, once");
    drop(registry);
    // What is here needs no registry, also when nothing is remembered of what worked.
    fs::remove_dir_all(env.home().join(".cache")).unwrap();
    assert_eq!(exec(env, &image).ok(), ANSWER);
}

fn an_image_of_an_engine_is_copied_once_and_runs(env: &TestEnv) {
    let Some(image) = &Machine::get().image else { ignore("this machine is not prepared, see tests/check") };
    let code = "import sys; print(sys.version_info[:2])";
    for _ in 0..2 {
        assert_eq!(run(env, &["--image", image, "exec", "-c", code]).ok(), "(3, 14)\n");
    }
    assert_eq!(roots(env).len(), 1);
    assert_eq!(
        run(env, &["--image", &format!("containers-storage:{image}"), "exec", "-c", code]).ok(),
        "(3, 14)\n"
    );
    assert_eq!(roots(env).len(), 1);
    // It has its name in the list, and is not taken for something that nobody uses.
    let listed = run(env, &["image", "ls"]).ok();
    assert!(listed.contains(&format!("containers-storage:{image}")), "{listed}");
    let _ = run(env, &["image", "prune"]).ok();
    assert_eq!(roots(env).len(), 1);
}

fn a_removed_or_damaged_image_is_pulled_again(env: &TestEnv) {
    let image = ImageFiles::get(env).layout();
    assert_eq!(exec(env, &image).ok(), ANSWER);
    // What works is remembered, and the image behind it is not there any more.
    let _ = run(env, &["image", "rm", &image]).ok();
    assert_eq!(roots(env).len(), 0);
    assert_eq!(exec(env, &image).ok(), ANSWER);
    fs::remove_dir_all(roots(env)[0].join("rootfs/usr/bin")).unwrap();
    assert_eq!(exec(env, &image).ok(), ANSWER);
}

fn a_name_always_means_the_same_image(env: &TestEnv) {
    let registry = Registry::start(env);
    let image = format!("{}/python:gzip", registry.host);
    assert_eq!(exec(env, &image).ok(), ANSWER);
    // Another name keeps what it stood for here.
    let _ = run(env, &["image", "pull", &format!("{}/python:many", registry.host)]).ok();
    assert_eq!(roots(env).len(), 1);
    drop(registry);
    assert_eq!(exec(env, &image).ok(), ANSWER);
    // Nor does it stand for what another store has.
    let code = "print(1)";
    let elsewhere = env.bridge().var("XDG_DATA_HOME", env.folder("another-store"));
    let elsewhere = elsewhere.args(&["--image", &image, "exec", "-c", code]).command();
    assert_eq!(elsewhere.run(env.guard()).code(), Some(72));
    let _ = run(env, &["image", "rm", &image]).ok();
    assert_eq!(run(env, &["--image", &image, "exec", "-c", code]).code(), Some(72));
    assert_eq!(roots(env).len(), 1);
}

fn a_call_that_waits_for_a_pull_reports_progress_and_keeps_its_time_limit(env: &TestEnv) {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let registry = Registry::start(env);
    let proxy = HoldingProxy::start(&registry.host, 10 << 20);
    let image = format!("{}/python:gzip", proxy.host);
    let bridge =
        env.bridge().var("XDG_DATA_HOME", store_of(env)).var("MCP_BRIDGE_IMAGE", image.as_str()).start();
    let began = Instant::now();
    let pending = PendingCall(bridge.request(
        "tools/call",
        json!({ "name": "run_python", "_meta": { "progressToken": "pull" },
            "arguments": { "code": "6 * 7", "timeout": TIMEOUT.as_secs() } }),
    ));
    let told = |what: &str| {
        bridge.unasked().iter().any(|message| {
            message["params"]["progressToken"] == "pull"
                && message["params"]["message"].as_str().is_some_and(|text| text.contains(what))
        })
    };
    eventually("half of the layer is there", env.guard().left(), || proxy.holds().then_some(()));
    // As little as the code may take, three times over.
    eventually("the time of the call has passed", env.guard().left(), || {
        (began.elapsed() > TIMEOUT * 3).then_some(())
    });
    assert!(told(&format!("pulling {image}")), "{:?}", bridge.unasked());
    eventually("the call says how much has come", env.guard().left(), || told(" MiB of ").then_some(()));
    // Others are served meanwhile.
    assert_eq!(bridge.ask("ping", json!({})), json!({}));
    proxy.release();
    assert_eq!(pending.outcome().ok(), "42");
    // Code is still held to it.
    let late = bridge.call(json!({ "code": "while True: pass", "timeout": TIMEOUT.as_secs() }));
    assert_eq!(late.status(), "timeout", "{late}");
    bridge.close();
}

fn an_image_that_is_unavailable_says_what_was_tried(env: &TestEnv) {
    let registry = Registry::start(env);
    let output = exec(env, &format!("{}/nothing:1", registry.host));
    assert_eq!(output.code(), Some(72), "{output}");
    let (image, host) = (format!("{}/nothing:1", registry.host), &registry.host);
    let said =
        format!("error: cannot pull {image}: {host} has no such image\nhint: check the name and the tag\n");
    assert!(output.stderr.ends_with(&said), "{output}");
    let output = exec(env, "127.0.0.1:1/nothing:1");
    assert_eq!(output.code(), Some(72), "{output}");
    let said =
        "error: cannot pull 127.0.0.1:1/nothing:1: 127.0.0.1:1 is unreachable\nhint: check your connection, ";
    assert!(output.stderr.contains(said), "{output}");
    assert!(output.elapsed < PULL, "{output}");
}

fn the_standard_library_is_compiled_once(env: &TestEnv) {
    let image = ImageFiles::get(env).uncompiled(env);
    let start =
        || env.bridge().var("XDG_DATA_HOME", store_of(env)).var("MCP_BRIDGE_IMAGE", image.as_str()).start();
    // A module whose compiled form is not what its source says would be seen here.
    let code = python!("images", "compiled_library");
    for compiles in [true, false] {
        let bridge = start();
        assert_eq!(bridge.run(code).ok(), "True True\nTrue");
        let log = bridge.close().log;
        assert_eq!(log.contains("compiled the modules of the image count="), compiles, "{log}");
    }
    let id = roots(env)[0].file_name().unwrap().to_str().unwrap().to_string();
    let compiled: Vec<_> = listing(&roots(env)[0].join("rootfs"));
    assert!(compiled.iter().filter(|line| line.contains(".pyc ")).count() > 300);
    assert!(!compiled.iter().any(|line| line.contains(".unfinished")), "{compiled:?}");
    // It is still the image that was unpacked, and goes as a whole.
    assert!(run(env, &["image", "rm", &id]).ok().contains("removed image"));
    assert_eq!(roots(env).len(), 0);
    // What brings its own is left as it is.
    let bridge = env
        .bridge()
        .var("XDG_DATA_HOME", store_of(env))
        .var("MCP_BRIDGE_IMAGE", ImageFiles::get(env).layout())
        .start();
    assert_eq!(bridge.run("1").ok(), "1");
    assert!(bridge.close().log.contains("compiled the modules of the image count=0"));
}

fn every_kind_of_manifest_is_the_same_image(env: &TestEnv) {
    let registry = Registry::start(env);
    let mut ids = Vec::new();
    for tag in ["gzip", "zstd", "v2s2", "many"] {
        ids.push(run(env, &["image", "pull", &format!("{}/python:{tag}", registry.host)]).ok());
    }
    ids.dedup();
    assert_eq!((ids.len(), roots(env).len()), (1, 1), "{ids:?}");
    let inspected = run(env, &["image", "inspect", &format!("{}/python:many", registry.host)]).ok();
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!(inspected["run"]["env"][1], format!("FOO={VARIABLE}"));
    assert_eq!(
        (&inspected["run"]["user"], &inspected["run"]["working_dir"]),
        (&"1000:1000".into(), &"/srv".into())
    );
    let by_digest = format!("{}/python@{}", registry.host, inspected["manifest"].as_str().unwrap());
    assert_eq!(run(env, &["image", "pull", &by_digest]).ok(), ids[0]);
    let table = run(env, &["image", "ls"]).ok();
    assert!(table.contains(&by_digest) && table.contains("on disk: "), "{table}");
    let removed = run(env, &["image", "prune", "--all"]).ok();
    assert!(removed.contains("\nfreed ") && removed.contains(" MiB"), "{removed}");
    assert_eq!(run(env, &["image", "ls"]).ok(), "no images\n");
}

fn a_registry_that_requires_a_login_gets_one(env: &TestEnv) {
    let registry = Registry::start_locked(env);
    let image = format!("{}/python:gzip", registry.host);
    let pull = |change: &dyn Fn(&mut Prepared)| {
        let mut command = codebridge(env, &["image", "pull", &image]);
        change(&mut command);
        let output = command.run(env.guard());
        let _ = run(env, &["image", "prune", "--all"]).ok();
        output
    };
    let output = pull(&|_| ());
    assert_eq!(output.code(), Some(72), "{output}");
    assert!(
        output.stderr.contains(" wants a login, or has no such image\n")
            && output.stderr.contains("podman login"),
        "{output}"
    );
    // As skopeo, podman and docker write it.
    let file = env.folder("home").join("auth.json");
    let login =
        ["skopeo", "login", "--tls-verify=false", "--username=user", "--password=password", "--authfile"];
    let _ = env.run([&login[..], &[file.to_str().unwrap(), &registry.host]].concat()).ok();
    let _ = pull(&|command| drop(command.env.insert("REGISTRY_AUTH_FILE".into(), file.clone().into()))).ok();
    // Out of a program.
    let helper = "#!/bin/sh\nread -r registry\n[ \"$1 $registry\" = 'get HOST' ] || exit 1\n\
                  echo '{\"ServerURL\":\"x\",\"Username\":\"user\",\"Secret\":\"SECRET\"}'\n";
    let helper = helper.replace("HOST", &registry.host);
    let _ = env.write(
        "home/.docker/config.json",
        format!("{{\"credHelpers\":{{\"{}\":\"tests\"}}}}", registry.host),
    );
    let path = format!("{}:{}", env.folder("bin").display(), PATH);
    for (secret, code) in [("password", 0), ("wrong", 72)] {
        let _ = env.write_program("bin/docker-credential-tests", &helper.replace("SECRET", secret));
        let output = pull(&|command| drop(command.env.insert("PATH".into(), path.clone().into())));
        assert_eq!(output.code(), Some(code), "{output}");
        assert!(!format!("{}{}", output.stdout, output.stderr).contains("password\""), "{output}");
    }
    let output = pull(&|_| ());
    assert!(
        output.stderr.contains("credential helper 'docker-credential-tests' is not installed"),
        "{output}"
    );
}

fn a_broken_download_is_resumed(env: &TestEnv) {
    let registry = Registry::start(env);
    let proxy = CuttingProxy::start(&registry.host, 10 << 20, 3);
    let image = format!("{}/python:gzip", proxy.host);
    let _ = run(env, &["image", "pull", &image]).ok();
    assert_eq!(proxy.cut(), 3);
    let straight = format!("{}/python:gzip", registry.host);
    assert_eq!(run(env, &["image", "pull", &straight]).ok(), run(env, &["image", "pull", &image]).ok());
}

fn an_interrupted_pull_says_so_and_is_resumed(env: &TestEnv) {
    let registry = Registry::start(env);
    let proxy = HoldingProxy::start(&registry.host, 10 << 20);
    let image = format!("{}/python:gzip", proxy.host);
    let command = codebridge(env, &["image", "pull", &image]);
    let mut process = command.spawn(env.guard(), Stdio::null(), Stdio::null(), Stdio::piped());
    let said = collect(process.child.stderr.take().unwrap(), process.transcript.clone());
    eventually("half of the layer is there", env.guard().left(), || proxy.holds().then_some(()));
    process.signal(Signal::INT);
    assert_eq!(process.wait().code(), Some(130));
    drop(said);
    eventually("it says so", env.guard().left(), || {
        process.transcript.text().contains("the pull was stopped; fetched layers are kept").then_some(())
    });
    proxy.release();
    assert_eq!(exec(env, &image).ok(), ANSWER);
}

fn a_connection_may_break_at_any_byte(env: &TestEnv) {
    let registry = Registry::start(env);
    let straight = format!("{}/small:1", registry.host);
    let id = run(env, &["image", "pull", &straight]).ok();
    let right = listing(&roots(env)[0].join("rootfs"));
    let mut gone_on = 0;
    // In the first answer, in the manifest, in the configuration, in the layer.
    for after in [0, 1, 100, 300, 700, 1_000, 3_000, 10_000, 15_000] {
        let _ = run(env, &["image", "prune", "--all"]).ok();
        let proxy = CuttingProxy::start(&registry.host, after, 1);
        let image = format!("{}/small:1", proxy.host);
        let output = run(env, &["image", "pull", &image]);
        if output.code() == Some(0) {
            gone_on += 1;
        } else {
            // Said clearly, with nothing half done, and the next one gets it.
            assert_eq!(output.code(), Some(72), "{after}: {output}");
            assert!(output.stderr.contains(&proxy.host), "{after}: {output}");
            assert_eq!(roots(env).len(), 0, "{after}");
            let _ = run(env, &["image", "pull", &image]).ok();
        }
        assert_eq!(run(env, &["image", "pull", &straight]).ok(), id);
        assert!(listing(&roots(env)[0].join("rootfs")) == right, "{after}");
    }
    assert!(gone_on > 0, "a layer that breaks off is gone on with");
}

fn two_bridges_that_pull_the_same_image_fetch_and_unpack_it_once(env: &TestEnv) {
    let registry = Registry::start(env);
    let image = format!("{}/python:gzip", registry.host);
    let spawn = || {
        let command = codebridge(env, &["image", "pull", &image]);
        command.spawn(env.guard(), Stdio::null(), Stdio::null(), Stdio::null())
    };
    let mut both = [spawn(), spawn(), spawn()];
    for one in &mut both {
        assert!(one.wait().success());
    }
    // The configuration and the one layer.
    assert_eq!(registry.asked("/blobs/"), 2);
    assert_eq!(roots(env).len(), 1);
}

fn a_full_disk_leaves_no_half_image(env: &TestEnv) {
    let image = ImageFiles::get(env).layout();
    let registry = Registry::start(env);
    let data = store_of(env);
    // Room for the layer and not for what is in it, then not even for the layer.
    for (size, image) in [
        ("90m", format!("{}/python:gzip", registry.host)),
        ("20m", format!("{}/python:gzip", registry.host)),
        ("60m", image),
    ] {
        let script = format!(
            "mount -t tmpfs -o size={size} none {0} && {1} image pull {image}; echo status $?; \
             find {0}/codebridge/roots {0}/codebridge/partial -mindepth 1 ! -name '*.lock'; {1} image ls; \
             du -sm {0} | cut -f 1",
            data.display(),
            env.binary().display()
        );
        let unshare = which("unshare").unwrap();
        let mut command = codebridge(env, &[]);
        command.argv =
            vec![unshare.into(), "--mount".into(), "--".into(), "sh".into(), "-c".into(), script.into()];
        let output = command.run(env.guard());
        assert!(output.stderr.contains("No space left on device"), "{output}");
        assert!(output.stderr.contains("hint: free disk space"), "{output}");
        let lines: Vec<_> = output.stdout.lines().collect();
        assert_eq!(lines[..2], ["status 72", "no images"], "{output}");
    }
}

fn fifty_kills_leave_the_store_right(env: &TestEnv) {
    let image = ImageFiles::get(env).small();
    let pull = ["image", "pull", &image];
    let prune = || run(env, &["image", "prune", "--all"]);
    // How long a whole one takes here and now.
    let whole = run(env, &pull);
    let mut longest = whole.elapsed;
    let id = whole.ok();
    let right = listing(&roots(env)[0].join("rootfs"));
    assert!(right.len() > 500);
    let mut killed = 0_u32;
    for round in 0.. {
        if killed == 50 {
            break;
        }
        assert!(round < 500, "only {killed} of them could be killed before their end");
        let _ = prune().ok();
        let mut process =
            codebridge(env, &pull).spawn(env.guard(), Stdio::null(), Stdio::null(), Stdio::null());
        // At moments spread over the whole of it.
        std::thread::sleep(longest * killed / 50);
        process.signal(Signal::KILL);
        if process.wait().success() {
            // The machine has become quicker meanwhile.
            longest = longest * 9 / 10;
        } else {
            killed += 1;
        }
        for root in roots(env) {
            let name = root.file_name().unwrap().to_str().unwrap();
            if !name.starts_with('.') {
                assert_eq!(name, id.trim());
                assert!(listing(&root.join("rootfs")) == right, "half an image in round {round}");
            }
        }
    }
    // Over what the last one left, without a removal in between.
    assert_eq!(run(env, &pull).ok(), id);
    let left = roots(env);
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(listing(&left[0].join("rootfs")) == right);
}

fn an_image_in_use_is_not_removed(env: &TestEnv) {
    let image = ImageFiles::get(env).layout();
    let data = store_of(env);
    let runc = Runtime { kind: Kind::Runc, as_user: false };
    if let Err(reason) = works(runc) {
        ignore(&reason);
    }
    let bridge = env
        .bridge()
        .var("XDG_DATA_HOME", data)
        .var("MCP_BRIDGE_RUNTIME", "runc")
        .var("MCP_BRIDGE_IMAGE", &image)
        .start();
    assert_eq!(bridge.run("import sys; sys.version_info[0]").ok(), "3");
    let output = run(env, &["image", "rm", &image]);
    assert_eq!(output.code(), Some(72), "{output}");
    assert!(output.stderr.contains("is in use"), "{output}");
    assert!(run(env, &["image", "prune", "--all"]).ok().contains("it is in use"));
    assert_eq!(bridge.run("import this, json; json.dumps(1)").text.lines().last(), Some("'1'"));
    bridge.close();
    assert!(run(env, &["image", "rm", &image]).ok().contains("removed image"));
}

fn a_host_without_root_certificates_says_so(env: &TestEnv) {
    let mut command = codebridge(env, &["image", "pull", "127.0.0.1:9/python:slim"]);
    // A minimal system has no certificates of authorities.
    let nowhere = env.folder("nowhere").into_os_string();
    command.env.insert("SSL_CERT_FILE".into(), nowhere.clone());
    command.env.insert("SSL_CERT_DIR".into(), nowhere);
    let output = command.run(env.guard());
    assert_eq!(output.code(), Some(72), "{output}");
    assert!(output.stderr.contains("No CA certificates were loaded from the system"), "{output}");
}
