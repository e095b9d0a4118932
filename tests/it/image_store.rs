//! Images of every format on every runtime, pulled from a real registry, and the integrity of the image store.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::bridge::PendingCall;
use crate::harness::matrix::Kind;
use crate::harness::process::{Output, Prepared};
use crate::harness::registry::{HoldingProxy, ImageFiles, PULL, Registry, store_of};
use crate::harness::suite::ignore;
use crate::harness::works::works;
use crate::harness::{Machine, Runtime, Suite, TestEnv, eventually};
use crate::{python, tests};

/// What tests run to see that it is the image, and what of it is honoured.
const CODE: &str =
    "import os, sys\nprint(sys.version_info[:2], os.environ.get('FOO'), os.getcwd(), os.getuid() != 1000)";
/// For an image of a file or a registry.
pub(crate) const ANSWER: &str = "(3, 14) from the image /workspace True\n";

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
    suite.once("image_store", tests![an_image_in_use_is_not_removed]);
}

/// The binary with a store of the test's own.
pub(crate) fn codebridge(env: &TestEnv, words: &[&str]) -> Prepared {
    let data = store_of(env);
    let mut command = env.bridge().var("XDG_DATA_HOME", data).var("MCP_BRIDGE_LOG_LEVEL", "warn").command();
    command.argv.extend(words.iter().map(OsString::from));
    command
}

pub(crate) fn run(env: &TestEnv, words: &[&str]) -> Output {
    codebridge(env, words).run(env.guard())
}

/// Runs the code in an image.
pub(crate) fn exec(env: &TestEnv, image: &str) -> Output {
    run(env, &["--image", image, "exec", "-c", CODE])
}

pub(crate) fn roots(env: &TestEnv) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(env.folder("data").join("codebridge/roots")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
}

/// Every file of an unpacked image with its size and time.
pub(crate) fn listing(folder: &Path) -> Vec<String> {
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
