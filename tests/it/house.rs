//! The repository itself: layers that look one way, budgets, and the guest's own tests on each CPython that there is.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::suite::ignore;
use crate::harness::{Machine, Suite, TestEnv};
use crate::tests;

/// What a room of the root package may use of the others; rooms that are not named may use all.
const LAYERS: &[(&str, &[&str])] = &[
    ("settings", &[]),
    ("guest", &[]),
    ("error", &[]),
    ("session", &["settings", "guest", "upstream", "image_sources", "error"]),
    ("upstream", &["settings", "error", "mcp"]),
    ("image_sources", &["settings", "error"]),
    ("server", &["session", "upstream", "settings", "error", "mcp", "fake_sessions"]),
    ("doctor", &["session", "settings", "error", "upstream", "image_sources", "housekeeping"]),
    ("housekeeping", &["settings", "error"]),
];

/// Packages that the product may pull in, with those of its tests and benchmarks. Each one is code that somebody has to
/// trust: who raises this number says in the commit what for.
const MOST_PACKAGES: usize = 290;

/// The guest's test modules; each one on each interpreter is a test of its own.
const GUEST_TESTS: &[&str] = &[
    "test_async", "test_bridge", "test_cells", "test_interrupts", "test_processes", "test_servers",
    "test_start",
];

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "house",
        tests![layers_look_one_way, the_crates_keep_to_their_layers, the_lock_file_stays_small,],
    );
    suite.once("guest_host", tests![async_, bridge, cells, interrupts, processes, servers, start]);
    suite.once(
        "guest_39",
        tests![async_39, bridge_39, cells_39, interrupts_39, processes_39, servers_39, start_39],
    );
    suite.once(
        "guest_314",
        tests![async_314, bridge_314, cells_314, interrupts_314, processes_314, servers_314, start_314],
    );
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The rooms that a file uses: the word after each `crate::`.
fn rooms_used(text: &str) -> Vec<&str> {
    let word = |rest: &'static str, text: &str| text.strip_prefix(rest).is_some();
    let code = text.lines().filter(|line| !word("//", line.trim_start()));
    code.flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default())
        .collect()
}

fn layers_look_one_way(_: &TestEnv) {
    let src = repository().join("src");
    let rooms: Vec<String> = fs::read_dir(&src)
        .unwrap()
        .flatten()
        .map(|entry| entry.path().file_stem().unwrap().to_str().unwrap().to_string())
        .collect();
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut looked_at = 0;
    for file in files {
        let inside = file.strip_prefix(&src).unwrap().components().next().unwrap();
        let room = Path::new(inside.as_os_str()).file_stem().unwrap().to_str().unwrap().to_string();
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == room) else { continue };
        let text = fs::read_to_string(&file).unwrap();
        for used in rooms_used(&text) {
            looked_at += 1;
            let is_room = rooms.iter().any(|name| name == used);
            let fine = !is_room || used == room || allowed.contains(&used);
            assert!(fine, "{}: {room} must not use {used}", file.display());
        }
    }
    assert!(looked_at > 10, "only {looked_at} uses were found: the scan has gone blind");
}

fn the_crates_keep_to_their_layers(_: &TestEnv) {
    for (manifest, forbidden) in [
        ("runtimes/Cargo.toml", &["rmcp", "clap", "codebridge ="][..]),
        ("images/Cargo.toml", &["rmcp", "clap", "codebridge-runtimes", "codebridge ="][..]),
    ] {
        let text = read(manifest);
        for name in forbidden {
            let used = text.lines().any(|line| line.trim_start().starts_with(name));
            assert!(!used, "{manifest} depends on {name}");
        }
    }
}

fn the_lock_file_stays_small(_: &TestEnv) {
    let count = read("Cargo.lock").matches("[[package]]").count();
    assert!(count <= MOST_PACKAGES, "Cargo.lock has {count} packages, more than {MOST_PACKAGES}");
}

/// Runs one of the guest's test modules on an interpreter, given as a command line.
fn guest_tests(env: &TestEnv, module: &str, python: Option<String>) {
    assert!(GUEST_TESTS.contains(&module));
    let mut command = env.command("/usr/bin/python3");
    for word in ["-B", "-m", "unittest", "discover", "-s", "tests", "-t", "tests", "-p"] {
        command.argv.push(word.into());
    }
    command.argv.push(format!("{module}.py").into());
    command.cwd = repository().join("src/guest");
    if let Some(python) = python {
        command.env.insert("GUEST_PYTHON".into(), python.into());
    }
    let ended = command.run(env.guard());
    // unittest reports on standard error; a module without tests must not pass for one with.
    assert!(ended.stderr.contains("\nOK") && !ended.stderr.contains("Ran 0 tests"), "{ended}");
    drop(ended.ok());
}

/// A program that is the Python of a root filesystem: its own mounts, so that the folder stays as it is.
fn python_in(env: &TestEnv, root: Option<&PathBuf>) -> String {
    let Some(root) = root.map(|root| root.display()) else {
        ignore("no root filesystem with this Python was prepared, see tests/check")
    };
    let script = format!(
        "#!/bin/sh\nexec unshare --mount --propagation private sh -c '\n\
         mount --rbind /dev {root}/dev && mount --rbind /sys {root}/sys && mount -t proc proc {root}/proc && mount --bind /tmp {root}/tmp || exit 1\n\
         exec chroot {root} /usr/bin/env PATH=/usr/local/bin:/usr/bin:/bin python3 \"$@\"' sh \"$@\"\n"
    );
    env.write_program("python", &script).display().to_string()
}

macro_rules! guest_tests {
    ($($name:ident $name_39:ident $name_314:ident $module:literal)+) => {$(
        fn $name(env: &TestEnv) {
            guest_tests(env, $module, None);
        }

        fn $name_39(env: &TestEnv) {
            guest_tests(env, $module, Some(python_in(env, Machine::get().rootfs_39.as_ref())));
        }

        fn $name_314(env: &TestEnv) {
            guest_tests(env, $module, Some(python_in(env, Machine::get().rootfs_314.as_ref())));
        }
    )+};
}

guest_tests! {
    async_ async_39 async_314 "test_async"
    bridge bridge_39 bridge_314 "test_bridge"
    cells cells_39 cells_314 "test_cells"
    interrupts interrupts_39 interrupts_314 "test_interrupts"
    processes processes_39 processes_314 "test_processes"
    servers servers_39 servers_314 "test_servers"
    start start_39 start_314 "test_start"
}
