//! Python packages in sandboxes without a network: the host downloads them, code imports them at once, and nothing else reaches
//! the index or the host.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::harness::engines::{DockerDaemon, PodmanService, bridge_on, need};
use crate::harness::matrix::{PATH, prepared_command, which};
use crate::harness::process::Running;
use crate::harness::{BridgeBuilder, Kind, Runtime, Suite, TestEnv, suite};
use crate::{python, tests};

const PASSWORD: &str = "correct-horse-battery";

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("installs", tests![packages_can_be_imported_at_once_and_cannot_be_changed]);
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "installs",
        tests![
            without_permission_the_refusal_names_the_setting,
            a_list_and_a_lock_file_allow_what_they_name,
            only_names_and_versions_reach_the_index,
            a_hostile_wheel_changes_nothing_outside_its_folder,
            packages_of_the_operator_are_there_without_a_network,
            bridges_that_want_the_same_packages_download_them_once,
            commands_list_and_remove_packages,
            without_uv_pip_installs_the_same_wheels,
            the_password_of_an_index_stays_with_the_installer,
            processes_that_code_starts_have_the_packages,
        ],
    );
    suite.once(
        "installs",
        tests![packages_are_copied_to_a_podman_elsewhere, packages_are_copied_to_a_docker_elsewhere],
    );
}

/// The folder of uv, which was prepared.
pub(crate) fn uv() -> PathBuf {
    let Some(cache) = std::env::var_os("CODEBRIDGE_TEST_CACHE") else { suite::ignore("uv is not prepared") };
    let folder = Path::new(&cache).join("tools/uv/bin");
    assert!(folder.join("uv").is_file(), "uv is not prepared: run tests/host/prepare");
    folder
}

/// A search path without uv, whose Python has pip.
fn path_with_pip() -> OsString {
    let Some(python) = prepared_command("CLIENT_PYTHON") else { suite::ignore("no pip was prepared") };
    let folders = [Path::new(&python[0]).parent().unwrap().to_owned()];
    std::env::join_paths(folders.into_iter().chain(std::env::split_paths(PATH))).unwrap()
}

/// What the installer of this machine needs to reach the index.
pub(crate) fn network() -> impl Iterator<Item = (String, OsString)> {
    let names = [
        "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "UV_DEFAULT_INDEX",
        "UV_INDEX_URL",
    ];
    names.into_iter().filter_map(|name| Some((name.to_owned(), std::env::var_os(name)?)))
}

/// An index with the wheels of the test that wants a password.
fn private_index(env: &TestEnv, wheels: &Path) -> (Running, String) {
    let mut index = env.command(which("python3").unwrap());
    index.argv.extend(["-c".into(), include_str!("programs/index.py").into(), wheels.into()]);
    index.env.insert("SECRET".into(), PASSWORD.into());
    let mut index = index.spawn(env.guard(), Stdio::null(), Stdio::piped(), Stdio::inherit());
    let mut port = String::new();
    BufReader::new(index.child.stdout.take().unwrap()).read_line(&mut port).unwrap();
    (index, port.trim().to_owned())
}

fn path_with_uv() -> OsString {
    let folders = [uv()].into_iter().chain(std::env::split_paths(PATH));
    std::env::join_paths(folders).unwrap()
}

pub(crate) trait WithUv {
    /// With uv, and the way to the index.
    fn online(self) -> Self;
    /// With uv, and wheels of the test alone.
    fn with_wheels(self, folder: &Path) -> Self;
}

impl WithUv for BridgeBuilder<'_> {
    fn online(self) -> Self {
        let bridge = self.var("PATH", path_with_uv());
        network().fold(bridge, |bridge, (name, value)| bridge.var(&name, value))
    }

    fn with_wheels(self, folder: &Path) -> Self {
        self.var("PATH", path_with_uv()).var("UV_FIND_LINKS", folder).var("UV_OFFLINE", "1")
    }
}

/// Makes the wheels of `programs/wheels.py`.
pub(crate) fn wheels(env: &TestEnv) -> PathBuf {
    let folder = env.folder("wheels");
    let program = include_str!("programs/wheels.py");
    env.run(["python3", "-c", program, folder.to_str().unwrap()]).ok();
    folder
}

fn sets(env: &TestEnv) -> usize {
    let folder = env.home().join(".cache/codebridge/packages/sets");
    fs::read_dir(folder).map(|entries| entries.count()).unwrap_or(0)
}

fn packages_can_be_imported_at_once_and_cannot_be_changed(env: &TestEnv) {
    let bridge = env.bridge().online().var("MCP_BRIDGE_PACKAGES", "allow").start();
    let installed = bridge.run(python!("installs", "install")).ok();
    let expected = "['humanize', 'msgpack'] 1.0 GB [1]\n/packages/humanize/__init__.py True True";
    assert_eq!(installed, expected);
    assert_eq!(bridge.run(python!("installs", "sealed")).ok(), ["True"; 6].join("\n"));
    assert_eq!(bridge.run("runtime.install('humanize')").ok(), "[]", "nothing is left to do");
    assert_eq!(bridge.run("%pip install -q six\nimport six; print(six.__name__)").ok(), "six");
    let listed = bridge.run("!pip list").ok();
    assert!(["humanize ", "six "].iter().all(|name| listed.contains(name)), "{listed}");
    bridge.close();
    let sessions = env.home().join(".cache/codebridge/packages/sessions");
    assert_eq!(fs::read_dir(sessions).unwrap().count(), 0, "the folder of the session is removed");
}

fn without_permission_the_refusal_names_the_setting(env: &TestEnv) {
    let bridge = env.bridge().start();
    let refused = bridge.run("runtime.install('humanize', 'six')").because("humanize, six is not allowed");
    assert!(refused.error().contains("MCP_BRIDGE_PACKAGES is off"), "{refused}");
    assert!(
        refused.error().contains(
            "allow it with MCP_BRIDGE_PACKAGES=humanize,six, or give it to every session with MCP_BRIDGE_WITH=humanize,six"
        ),
        "{refused}"
    );
    let missing = bridge.run("import cv2").noting("does not have the package opencv-python-headless");
    assert!(missing.notices().contains("MCP_BRIDGE_PACKAGES=opencv-python-headless"), "{missing}");
    let in_image = bridge.run("import pandas");
    assert!(in_image.notices().contains("the image `data`"), "{in_image}");
    let _ = bridge.run("import os; assert not os.path.exists('/packages')").expect("success");
    bridge.close();
}

fn a_list_and_a_lock_file_allow_what_they_name(env: &TestEnv) {
    let wheels = wheels(env);
    let bridge = env.bridge().with_wheels(&wheels).var("MCP_BRIDGE_PACKAGES", "plain<2, sha*").start();
    let _ = bridge.run("runtime.install('links')").because("MCP_BRIDGE_PACKAGES allows other packages");
    assert_eq!(bridge.run("runtime.install('plain', 'shadow')").ok(), "['plain 1.0', 'shadow 1.0']");
    let other = bridge.run("runtime.install('plain==1.0'), runtime.install('plain', upgrade=True)");
    assert_eq!(other.ok(), "([], [])");
    bridge.close();
    let digest = env.run(["sha256sum", wheels.join("plain-2.0-py3-none-any.whl").to_str().unwrap()]).ok();
    let digest = digest.split_whitespace().next().unwrap();
    let lock = env.write("plain.lock", format!("plain==2.0 \\\n    --hash=sha256:{digest}\n"));
    let setting = format!("locked:{}", lock.display());
    let bridge = env.bridge().with_wheels(&wheels).var("MCP_BRIDGE_PACKAGES", &setting).start();
    assert_eq!(bridge.run("runtime.install('plain')").ok(), "['plain 2.0']");
    let _ = bridge.run("runtime.install('shadow')").because("it is not in the lock file");
    bridge.close();
    env.write("plain.lock", format!("plain==1.0 --hash=sha256:{digest}\n"));
    let bridge = env.bridge().with_wheels(&wheels).var("MCP_BRIDGE_PACKAGES", &setting).start();
    let wrong = bridge.run("runtime.install('plain')").expect("error");
    assert!(wrong.error().contains("does not match its hash"), "{wrong}");
    assert_eq!(bridge.run("1").ok(), "1");
    bridge.close();
}

fn only_names_and_versions_reach_the_index(env: &TestEnv) {
    let bridge = env.bridge().with_wheels(&wheels(env)).var("MCP_BRIDGE_PACKAGES", "allow").start();
    let _ = bridge.run(python!("installs", "refusals")).expect("success");
    for (requirement, why) in [
        ("'--index-url=http://127.0.0.1:9'", "is an option"),
        ("'-r/etc/passwd'", "is an option"),
        ("'x @ file:///etc/passwd'", "is an address or a path"),
        ("'/etc/passwd'", "is an address or a path"),
        ("'plain\\n--index-url=http://127.0.0.1:9'", "is an address or a path"),
        ("'plain\\n-e .'", "is not a package name"),
        ("'plain --hash=sha256:00'", "is not a package name"),
        ("'plain[--x]'", "is not a package name"),
        ("'plain; os_name == \"x\" --pre'", "a condition that is not understood"),
        ("*['p%d' % n for n in range(10_000)]", "10000 packages at once are too many"),
    ] {
        let refused = bridge.run(&format!("print(refusal({requirement}))")).ok();
        assert!(refused.contains(why), "{requirement}: {refused}");
    }
    let by_hand = bridge.run(python!("installs", "asked_by_hand")).ok();
    let lines: Vec<_> = by_hand.lines().collect();
    assert_eq!(lines.len(), 5, "{by_hand}");
    assert!(
        lines[..2].iter().all(|line| line.contains("no wheels for the Python of this image")),
        "{by_hand}"
    );
    assert!(lines[2].contains("cannot read this question"), "{by_hand}");
    assert!(lines[4].contains("512 are the most") && by_hand.len() < 2000, "{by_hand}");
    assert_eq!(bridge.run("runtime.install('plain')").ok(), "['plain 2.0']");
    let other = bridge.run("runtime.install('plain==1.0')").expect("error");
    assert!(other.error().contains("plain 2.0 is installed in this session"), "{other}");
    bridge.close();
    assert_eq!(sets(env), 1);
}

fn a_hostile_wheel_changes_nothing_outside_its_folder(env: &TestEnv) {
    let wheels = wheels(env);
    let bridge = env.bridge().with_wheels(&wheels).var("MCP_BRIDGE_PACKAGES", "allow").start();
    let expected = "['shadow 1.0'] installed\nFalse False\nFalse False mcp.runtime\na module True";
    assert_eq!(bridge.run(python!("installs", "shadows")).ok(), expected);
    for name in ["climbs", "absolute", "links", "data"] {
        // Whether the installer refuses the wheel or leaves the entry out, the session goes on.
        let _ = bridge.run(&format!("runtime.install('{name}')"));
        assert_eq!(bridge.run("2").ok(), "2");
    }
    let read =
        bridge.run("import os; [n for n in os.listdir('/packages') if os.path.islink('/packages/' + n)]");
    assert_eq!(read.ok(), "[]");
    bridge.close();
    let mut everything = vec![env.home(), wheels.clone()];
    while let Some(folder) = everything.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let name = entry.file_name();
            assert!(name != "climbed.py" && name != "absolute-was-here", "{}", entry.path().display());
            if entry.file_type().unwrap().is_dir() {
                everything.push(entry.path());
            }
        }
    }
}

fn packages_of_the_operator_are_there_without_a_network(env: &TestEnv) {
    let code = "import humanize; print(humanize.intcomma(1000))";
    let with = || env.bridge().var("MCP_BRIDGE_WITH", "humanize");
    let bridge = with().online().start();
    assert_eq!(bridge.run(code).ok(), "1,000");
    let _ = bridge.run("runtime.install('six')").because("MCP_BRIDGE_PACKAGES is off");
    bridge.close();
    // A cold store would need it.
    let bridge = with().online().var("HTTPS_PROXY", "http://127.0.0.1:9").var("UV_HTTP_RETRIES", "0").start();
    assert_eq!(bridge.run_in("new", code).ok(), "1,000");
    bridge.close();
    let cold = env
        .bridge()
        .online()
        .var("MCP_BRIDGE_PACKAGES", "allow")
        .var("HTTPS_PROXY", "http://127.0.0.1:9")
        .var("UV_HTTP_RETRIES", "0")
        .start();
    let offline = cold.run("runtime.install('six')").expect("error");
    assert!(offline.error().contains("the package index cannot be reached"), "{offline}");
    assert_eq!(
        cold.run(python!("installs", "script")).ok(),
        "1,000",
        "the same request as that of the operator"
    );
    cold.close();
}

fn bridges_that_want_the_same_packages_download_them_once(env: &TestEnv) {
    let wheels = wheels(env);
    let start = || env.bridge().with_wheels(&wheels).var("MCP_BRIDGE_PACKAGES", "allow").start();
    let bridges = [start(), start()];
    let code = "runtime.install('plain', 'shadow'); import plain; print(plain.value)";
    let calls = bridges.each_ref().map(|bridge| bridge.start_call(serde_json::json!({ "code": code })));
    for call in calls {
        assert_eq!(call.outcome().ok(), "2");
    }
    for bridge in bridges {
        bridge.close();
    }
    let log = env.home().join(".cache/codebridge/packages/staging");
    assert_eq!((sets(env), fs::read_dir(log).unwrap().count()), (1, 0));
}

fn commands_list_and_remove_packages(env: &TestEnv) {
    let wheels = wheels(env);
    let run = |words: &[&str]| {
        let command = env.bridge().with_wheels(&wheels).args(words).command();
        command.run(env.guard())
    };
    assert_eq!(run(&["packages", "ls"]).ok(), "no packages\n");
    assert_eq!(run(&["packages", "add", "plain"]).ok(), "plain 2.0\n");
    let lock = run(&["packages", "lock", "plain<2"]).ok();
    assert!(lock.contains("plain==1.0 \\\n    --hash=sha256:"), "{lock}");
    let list: Value = serde_json::from_str(&run(&["packages", "ls", "--json"]).ok()).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 2);
    let unknown = run(&["packages", "add", "plian"]);
    assert!(unknown.stderr.contains("error: "), "{unknown}");
    assert!(run(&["packages", "rm", "nothing"]).stderr.contains("no set of packages is or has 'nothing'"));
    assert!(run(&["packages", "rm", "plain"]).ok().starts_with("removed 2, "));
    assert_eq!(run(&["packages", "prune", "--all"]).ok(), "nothing to remove\n");
}

fn without_uv_pip_installs_the_same_wheels(env: &TestEnv) {
    let bridge = env.bridge().with_wheels(&wheels(env)).var("PATH", path_with_pip());
    let bridge = bridge.var("PIP_FIND_LINKS", env.folder("wheels")).var("PIP_NO_INDEX", "1");
    let bridge = bridge.var("MCP_BRIDGE_PACKAGES", "allow").start();
    let code = "print(runtime.install('plain<2', 'shadow')); import plain; plain.value";
    assert_eq!(bridge.run(code).ok(), "['plain 1.0', 'shadow 1.0']\n1");
    let unknown = bridge.run("runtime.install('nowhere')").expect("error");
    assert!(unknown.error().contains("nowhere is not in the index, or has no wheel for Python"), "{unknown}");
    let newer = bridge.run_in("new", "runtime.install('plain>=3')").expect("error");
    assert!(newer.error().contains("there is no plain>=3"), "{newer}");
    // pip makes a file of the link.
    let linked = bridge.run("runtime.install('links'); import os; os.path.islink('/packages/links-link')");
    assert_eq!(linked.ok(), "False");
    assert_eq!(bridge.run("plain.value").ok(), "1");
    let log = bridge.log();
    assert!(log.contains("-m pip install") && !log.contains("uv pip"), "{log}");
    bridge.close();
}

fn the_password_of_an_index_stays_with_the_installer(env: &TestEnv) {
    let wheels = wheels(env);
    let (_index, port) = private_index(env, &wheels);
    for (path, variable, wheel) in [
        (path_with_uv(), "UV_INDEX_URL", "plain"),
        (path_with_pip(), "PIP_INDEX_URL", "shadow"),
        (path_with_pip(), "PIP_EXTRA_INDEX_URL", "plain<2"),
    ] {
        let address = |password| format!("http://somebody:{password}@127.0.0.1:{port}/simple");
        let start = |password| {
            let bridge = env.bridge().var("PATH", &path).var("MCP_BRIDGE_LOG_LEVEL", "trace");
            let bridge = bridge.var("MCP_BRIDGE_PACKAGES", "allow").var(variable, address(password));
            let bridge = if variable == "PIP_EXTRA_INDEX_URL" {
                bridge.var("PIP_INDEX_URL", format!("http://127.0.0.1:{port}/open"))
            } else {
                bridge
            };
            bridge.start()
        };
        let bridge = start(PASSWORD);
        let installed = bridge.run(&format!("runtime.install('{wheel}')")).ok();
        assert!(installed.ends_with(".0']"), "{variable}: {installed}");
        let failed = bridge.run("runtime.install('nowhere')").expect("error");
        assert!(!failed.error().contains(PASSWORD), "{failed}");
        assert_eq!(bridge.run(python!("installs", "secrets")).ok(), "[]", "{variable}");
        let log = bridge.log();
        assert!(!log.contains(PASSWORD) && log.contains("the installer failed"), "{variable}: {log}");
        bridge.close();
        let bridge = start("wrong-hunter3");
        let failed = bridge.run("runtime.install('climbs')").expect("error");
        let log = bridge.log();
        assert!(!log.contains("hunter3") && !failed.error().contains("hunter3"), "{variable}: {log}");
        bridge.close();
    }
    assert!(!wheels.join("seen").exists(), "the arguments of a process had it");
}

fn processes_that_code_starts_have_the_packages(env: &TestEnv) {
    let bridge = env.bridge().with_wheels(&wheels(env)).var("MCP_BRIDGE_PACKAGES", "allow").start();
    assert_eq!(bridge.run(python!("installs", "children")).ok(), "None\n2 2\n2");
    bridge.close();
}

fn packages_are_copied_to_a_podman_elsewhere(env: &TestEnv) {
    need(Kind::Podman);
    let service = PodmanService::start(env, "one");
    copied(env, &service.target());
    assert_eq!(service.run(&["volume", "ls", "--quiet"]).ok(), "");
}

fn packages_are_copied_to_a_docker_elsewhere(env: &TestEnv) {
    need(Kind::Docker);
    let daemon = DockerDaemon::start(env, "far");
    copied(env, &daemon.target());
}

/// Installs packages on an engine that gets copies of folders.
fn copied(env: &TestEnv, target: &str) {
    let wheels = wheels(env);
    let start = || bridge_on(env, target).with_wheels(&wheels).var("MCP_BRIDGE_WITH", "shadow");
    let bridge = start().var("MCP_BRIDGE_PACKAGES", "allow").start();
    assert_eq!(bridge.run("import shadow; shadow.value").ok(), "'installed'");
    let code =
        "runtime.install('plain'); import plain, os; print(plain.value, os.path.exists(plain.__cached__))";
    assert_eq!(bridge.run(code).ok(), "2 True");
    let _ = bridge.run("open('/packages/x', 'w')").expect("error").because("Read-only file system");
    bridge.close();
}
