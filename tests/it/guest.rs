//! The guest's own tests, on the oldest and the newest Python and on this machine's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::harness::matrix::which;
use crate::harness::suite::ignore;
use crate::harness::{Machine, Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "guest",
        tests![
            its_tests_pass_on_this_machines_python,
            its_tests_pass_on_python_39,
            its_tests_pass_on_python_314
        ],
    );
}

/// Gives a root filesystem what a Python needs, in a mount namespace of its own, so that the folder stays as it is.
const ENTER: &str = "
set -e
root=$1; shift
mount --bind /dev \"$root/dev\"
mount -t proc proc \"$root/proc\"
mount -t tmpfs tmpfs \"$root/tmp\"
exec \"$@\"
";

fn its_tests_pass_on_this_machines_python(env: &TestEnv) {
    run(env, None);
}

fn its_tests_pass_on_python_39(env: &TestEnv) {
    run(env, Some(&prepared(&Machine::get().rootfs_39)));
}

fn its_tests_pass_on_python_314(env: &TestEnv) {
    run(env, Some(&prepared(&Machine::get().rootfs_314)));
}

fn prepared(folder: &Option<PathBuf>) -> PathBuf {
    folder.clone().unwrap_or_else(|| ignore("this machine is not prepared, see tests/check"))
}

fn run(env: &TestEnv, rootfs: Option<&Path>) {
    let Ok(python) = which("python3") else { ignore("there is no python3 here") };
    let mut command = env.command(python);
    command.argv.extend(["-m", "unittest", "discover", "-s", "tests", "-t", "tests"].map(OsString::from));
    command.env.insert("PYTHONDONTWRITEBYTECODE".into(), "1".into());
    command.cwd = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guest");
    if let Some(rootfs) = rootfs {
        command
            .env
            .insert("GUEST_PYTHON".into(), format!("chroot {} /usr/bin/python3", rootfs.display()).into());
        let mut prefix: Vec<OsString> = vec![which("unshare").unwrap().into()];
        prefix.extend(
            ["--mount", "--propagation", "private", "--", "/bin/sh", "-c", ENTER, "enter"].map(Into::into),
        );
        prefix.push(rootfs.into());
        command = command.behind(prefix);
    }
    let output = command.run(env.guard());
    // The runner's last word: how many ran, and that none failed.
    let passed = output.stderr.lines().any(|line| line == "OK" || line.starts_with("OK ("));
    assert!(output.status.success() && passed && !output.stderr.contains("Ran 0 tests"), "{output}");
}
