//! Where a root filesystem comes from: a reference, a folder, the host; and the error when there is none.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::matrix::which;
use crate::harness::suite::ignore;
use crate::harness::{BridgeBuilder, Kind, Machine, Outcome, Suite, TestEnv};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime(
        "images",
        tests![
            a_reference_runs,
            a_folder_runs_and_stays_as_it_is,
            the_oldest_python_runs,
            the_host_image_runs_and_shows_no_files_of_the_host,
            a_missing_image_is_an_error_that_says_what_to_type,
            a_folder_without_python_is_an_error_that_says_so,
        ],
    );
    suite.kinds(
        &[Kind::Podman, Kind::Crun, Kind::Runc],
        "images",
        tests![without_the_default_image_the_host_image_is_used,],
    );
    suite.kinds(&[Kind::Crun, Kind::Runc], "images", tests![a_reference_is_unpacked_once]);
    suite.kinds(
        &[Kind::Podman, Kind::Docker],
        "images",
        tests![what_an_image_wants_for_a_volume_is_read_only],
    );
}

const VERSION: &str = "import sys; print(sys.version_info >= (3, 9), sys.implementation.name)";

fn with_image<'a>(env: &'a TestEnv, image: &str) -> BridgeBuilder<'a> {
    env.bridge().var("MCP_BRIDGE_IMAGE", image)
}

fn prepared<T: Clone>(what: &Option<T>) -> T {
    what.clone().unwrap_or_else(|| ignore("this machine is not prepared, see tests/check"))
}

fn a_reference_runs(env: &TestEnv) {
    let reference = prepared(&Machine::get().image);
    let short = reference.trim_start_matches("docker.io/library/").to_string();
    for name in [reference, short] {
        let bridge = with_image(env, &name).start();
        let outcome = bridge.run(VERSION).expect("success");
        assert_eq!((outcome.stdout().as_str(), outcome.notices().as_str()), ("True cpython", ""), "{name}");
        assert_eq!(bridge.run("import subprocess; subprocess.getoutput('echo tools')").ok(), "'tools'");
        assert_eq!(
            bridge.run("open('/workspace/x', 'w').write('x'), open('/tmp/x', 'w').write('x')").ok(),
            "(1, 1)"
        );
        bridge.close();
    }
}

fn what_an_image_wants_for_a_volume_is_read_only(env: &TestEnv) {
    let from = prepared(&Machine::get().image);
    let engine = env.runtime().kind.name();
    let name = format!("localhost/codebridge-tests-volumes-{}-{}", std::process::id(), env.number());
    env.write("build/Dockerfile", format!("FROM {from}\nVOLUME /var/lib /workspace /tmp/within\n"));
    let folder = env.folder("build").display().to_string();
    let _ = env.run([engine, "build", "--tag", &name, &folder]).ok();
    let bridge = with_image(env, &name).start();
    let code = "[line.split()[4] for line in open('/proc/self/mountinfo') if line.split()[4] == '/var/lib' and line.split()[5].split(',')[0] != 'ro']";
    assert_eq!(bridge.run(code).ok(), "[]");
    // Docker can only be given something empty in its place.
    let is_there = if env.runtime().kind == Kind::Docker { "False" } else { "True" };
    assert_eq!(bridge.run("import os; os.path.isdir('/var/lib/dpkg')").ok(), is_there);
    // Our own places are as always.
    assert_eq!(bridge.run("open('/workspace/x', 'w').write('x')").ok(), "1");
    assert_eq!(
        bridge.run("os.statvfs('/workspace').f_blocks * os.statvfs('/workspace').f_frsize >> 20").ok(),
        "128"
    );
    bridge.close();
    let _ = env.run([engine, "rmi", &name]).ok();
    if env.runtime().kind == Kind::Docker {
        assert_eq!(env.run(["docker", "volume", "ls", "--quiet", "--filter=dangling=true"]).ok(), "");
    }
}

/// Everything that is known of the files of a folder without reading them.
fn state_of(folder: &Path) -> BTreeMap<PathBuf, (u64, i64, i64, u32)> {
    let mut seen = BTreeMap::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(path) = todo.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        seen.insert(path.clone(), (meta.size(), meta.ctime(), meta.ctime_nsec(), meta.mode()));
        if meta.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
        }
    }
    seen
}

fn a_folder_runs_and_stays_as_it_is(env: &TestEnv) {
    let folder = prepared(&Machine::get().rootfs_314);
    let before = state_of(&folder);
    let bridge = with_image(env, &format!("dir:{}", folder.display())).start();
    assert_eq!(bridge.run(VERSION).ok(), "True cpython");
    let code = python!("images", "write_to_the_root");
    assert_eq!(bridge.run(code).ok(), "5");
    assert_eq!(bridge.run("sorted(set(os.listdir('/')) - {'workspace', 'projects'}) != []").ok(), "True");
    bridge.close();
    assert!(before == state_of(&folder), "the folder was changed");
}

fn the_oldest_python_runs(env: &TestEnv) {
    let folder = prepared(&Machine::get().rootfs_39);
    let bridge = with_image(env, &format!("dir:{}", folder.display())).start();
    assert_eq!(bridge.run("import sys; sys.version_info[:2]").ok(), "(3, 9)");
    assert_eq!(bridge.run("import asyncio; await asyncio.sleep(0, 'awaited')").ok(), "'awaited'");
    let failed = bridge.run("def f(): 1 / 0\nf()").expect("error");
    assert!(failed.stderr().contains("def f(): 1 / 0"), "{failed}");
    bridge.close();
}

fn the_host_image_runs_and_shows_no_files_of_the_host(env: &TestEnv) {
    let bridge = with_image(env, "host:").start();
    let outcome = bridge.run(VERSION).expect("success");
    assert_eq!((outcome.stdout().as_str(), outcome.notices().as_str()), ("True cpython", ""));
    let code = "import os\n[name for name in ('home', 'root', 'var', 'srv', 'opt', 'boot', 'mnt', 'media') if os.path.exists('/' + name) and os.listdir('/' + name)]";
    assert_eq!(bridge.run(code).ok(), "[]");
    let code = "open('/etc/passwd').read().count('\\n') < 5, os.path.exists('/etc/shadow'), os.path.exists('/etc/hostname')";
    assert_eq!(bridge.run(code).ok().split(", ").take(2).collect::<Vec<_>>(), ["(True", "False"]);
    assert_eq!(bridge.run("import subprocess; subprocess.run(['ls', '/usr/bin/python3'], stdout=subprocess.DEVNULL).returncode").ok(), "0");
    bridge.close();
}

/// Neither slow nor silent.
fn refused(bridge: &crate::harness::Bridge<'_>) -> Outcome {
    bridge.run("1").within(Duration::from_secs(60)).expect("error")
}

fn a_missing_image_is_an_error_that_says_what_to_type(env: &TestEnv) {
    // Of a registry on this machine that is not there: nothing leaves the machine.
    let image = "localhost:1/nothing/here:1";
    let bridge = with_image(env, image).start();
    let said = format!("cannot pull {image}: localhost:1 is unreachable");
    let hint = "check your connection, or use --image host:";
    assert_eq!(refused(&bridge).error(), format!("{said}\nhint: {hint}"));
    bridge.close();
    let output = with_image(env, image).args(&["exec", "-c", "1"]).command().run(env.guard());
    assert_eq!(output.code(), Some(72), "{output}");
    assert!(output.stderr.contains(&format!("{said}\nhint: {hint}\n")), "{output}");
}

fn a_folder_without_python_is_an_error_that_says_so(env: &TestEnv) {
    let folder = env.folder("empty");
    let _ = env.folder("empty/usr/bin");
    let bridge = with_image(env, &format!("dir:{}", folder.display())).start();
    let said =
        format!("dir:{} has no python3\nhint: use an image with CPython 3.9 or newer", folder.display());
    assert_eq!(refused(&bridge).error(), said);
    bridge.close();
    let bridge = with_image(env, &format!("dir:{}", folder.join("not there").display())).start();
    let _ = refused(&bridge).because("not there does not exist\nhint: check the path");
    bridge.close();
    let no_root = env.folder("no root");
    let bridge = with_image(env, &format!("dir:{}", no_root.display())).start();
    let _ = refused(&bridge).because("is not a root filesystem");
    bridge.close();
}

fn without_the_default_image_the_host_image_is_used(env: &TestEnv) {
    // No registry, whatever this machine can reach.
    let registries = env.write("registries.conf", "unqualified-search-registries = []\n[[registry]]\nprefix = \"docker.io\"\nlocation = \"docker.io\"\nblocked = true\n");
    let mut builder = env.bridge().without("MCP_BRIDGE_IMAGE").var("CONTAINERS_REGISTRIES_CONF", registries);
    if env.runtime().kind == Kind::Podman {
        // A store that is empty.
        let storage = env.folder("storage");
        let conf = env.write(
            "empty-storage.conf",
            format!(
                "[storage]\ndriver = \"vfs\"\ngraphroot = \"{0}\"\nrootless_storage_path = \"{0}\"\nrunroot = \"{1}\"\n",
                storage.join("graph").display(),
                storage.join("run").display(),
            ),
        );
        builder = builder.var("CONTAINERS_STORAGE_CONF", conf);
    } else {
        // No engine whose store could have it.
        let mut names = vec![env.runtime().kind.name()];
        names.extend(["newuidmap", "newgidmap"].into_iter().filter(|name| which(name).is_ok()));
        builder = builder.var("PATH", env.programs(&names));
    }
    let bridge = builder.start();
    let outcome = bridge.run(VERSION).expect("success").noting("the Python of this machine");
    assert_eq!(outcome.stdout(), "True cpython");
    let again = bridge.run_in("other", "1").expect("success");
    assert_eq!(again.notices(), "", "it is said once");
    bridge.close();
}

fn a_reference_is_unpacked_once(env: &TestEnv) {
    let reference = prepared(&Machine::get().image);
    let unpacked = |bridge: crate::harness::Bridge<'_>| {
        assert_eq!(bridge.run(VERSION).ok(), "True cpython");
        bridge.close().log.contains("unpacking an image of an engine, once")
    };
    let first = unpacked(with_image(env, &reference).start());
    // Root's store is that of the machine, where it may be already.
    assert!(first || !env.runtime().as_user);
    assert!(!unpacked(with_image(env, &reference).start()));
    if env.runtime().as_user {
        let store = env.home().join(".local/share/codebridge");
        let mut others = fs::read_dir(&store).unwrap().flatten().map(|entry| entry.file_name());
        assert!(others.all(|name| !name.to_string_lossy().contains("new")), "a half-unpacked image stays");
    }
}
