//! The repository itself: budgets for memory and dependencies, and the guest's own tests on each CPython.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::harness::suite::ignore;
use crate::harness::{Machine, Suite, TestEnv};
use crate::tests;

/// The most packages that the product, its tests and its benchmarks may depend on. Each one is code that somebody has to
/// trust: a commit that raises this number says why.
const MOST_PACKAGES: usize = 375;

/// Bytes of resident memory before the first execution, of a build without optimisation.
const MOST_IDLE_MEMORY: u64 = 60 << 20;

/// The guest's test modules; each one on each interpreter is a test of its own.
const GUEST_TESTS: &[&str] = &[
    "test_artifacts", "test_async", "test_bridge", "test_cells", "test_display", "test_files",
    "test_interrupts", "test_notebook", "test_offers", "test_packages", "test_processes", "test_results",
    "test_script", "test_servers", "test_start", "test_steps", "test_tracebacks",
];

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "repository",
        tests![the_lock_file_stays_small, an_idle_bridge_stays_small, all_tests_of_the_guest_are_run],
    );
    suite.once(
        "guest_host",
        tests![
            artifacts, async_, bridge, cells, display, files, interrupts, notebook, offers, packages,
            processes, results, script, servers, start, steps, tracebacks
        ],
    );
    suite.once(
        "guest_39",
        tests![
            artifacts_39, async_39, bridge_39, cells_39, display_39, files_39, interrupts_39, notebook_39,
            offers_39, packages_39, processes_39, results_39, script_39, servers_39, start_39, steps_39,
            tracebacks_39
        ],
    );
    suite.once(
        "guest_314",
        tests![
            artifacts_314, async_314, bridge_314, cells_314, display_314, files_314, interrupts_314,
            notebook_314, offers_314, packages_314, processes_314, results_314, script_314, servers_314,
            start_314, steps_314, tracebacks_314
        ],
    );
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

fn the_lock_file_stays_small(_: &TestEnv) {
    let count = read("Cargo.lock").matches("[[package]]").count();
    assert!(count <= MOST_PACKAGES, "Cargo.lock has {count} packages, more than {MOST_PACKAGES}");
}

fn an_idle_bridge_stays_small(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.ask("tools/list", json!({}));
    let peak = bridge.peak_memory();
    assert!(peak < MOST_IDLE_MEMORY, "{} KiB", peak >> 10);
    bridge.close();
}

fn all_tests_of_the_guest_are_run(_: &TestEnv) {
    let folder = repository().join("src/guest/tests");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut modules: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".py")?.to_owned())).collect();
    modules.retain(|name| name.starts_with("test_"));
    modules.sort();
    assert_eq!(modules, GUEST_TESTS);
}

/// Runs one of the guest's test modules on an interpreter, given as a command line.
fn guest_tests(env: &TestEnv, module: &str, python: Option<String>) {
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
    artifacts artifacts_39 artifacts_314 "test_artifacts"
    async_ async_39 async_314 "test_async"
    bridge bridge_39 bridge_314 "test_bridge"
    cells cells_39 cells_314 "test_cells"
    display display_39 display_314 "test_display"
    files files_39 files_314 "test_files"
    interrupts interrupts_39 interrupts_314 "test_interrupts"
    notebook notebook_39 notebook_314 "test_notebook"
    offers offers_39 offers_314 "test_offers"
    packages packages_39 packages_314 "test_packages"
    processes processes_39 processes_314 "test_processes"
    results results_39 results_314 "test_results"
    script script_39 script_314 "test_script"
    servers servers_39 servers_314 "test_servers"
    start start_39 start_314 "test_start"
    steps steps_39 steps_314 "test_steps"
    tracebacks tracebacks_39 tracebacks_314 "test_tracebacks"
}
