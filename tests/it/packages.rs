//! What `.ci/release` makes of programs; `tests/packages` installs the real files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Suite, TestEnv};
use crate::tests;

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "packages",
        tests![
            a_release_has_the_files_that_its_script_promises,
            packages_have_the_version_and_the_licence_of_the_crate,
            the_same_programs_give_the_same_files,
            the_npm_package_becomes_the_program_of_this_machine,
            a_release_has_completions_for_every_shell,
            the_workflow_runs_the_script_and_pins_its_actions,
        ],
    );
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Packs stand-ins for the programs and returns the folder of a release.
fn packed(env: &TestEnv, name: &str) -> PathBuf {
    let folder = env.folder(name);
    let script = root().join("tests/it/programs/release.py");
    let mut command = env.command("/usr/bin/python3");
    command.argv.extend([script, root(), folder.clone()].map(Into::into));
    let cargo = Path::new(env!("CARGO")).parent().unwrap();
    command.env.insert("PATH".into(), format!("{}:/usr/bin:/bin", cargo.display()).into());
    for home in ["CARGO_HOME", "RUSTUP_HOME", "HOME"] {
        command.env.extend(std::env::var_os(home).map(|path| (home.into(), path)));
    }
    let _ = command.run(env.guard()).ok();
    folder.join("dist")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(folder).unwrap().flatten();
    files.map(|file| file.file_name().into_string().unwrap()).collect()
}

fn a_release_has_the_files_that_its_script_promises(env: &TestEnv) {
    let script = read(".ci/release");
    let promised = script.lines().filter_map(|line| line.strip_prefix("    codebridge")).map(|line| {
        format!("codebridge{}", line.split_whitespace().next().unwrap()).replace("VERSION", VERSION)
    });
    let mut promised: BTreeSet<String> = promised.collect();
    // Those of the compiler, and one that the stand-ins have for macOS.
    promised.retain(|name| !name.ends_with(".whl") && !name.ends_with(".cdx.json"));
    promised.extend(["SHA256SUMS".into(), format!("codebridge-{VERSION}-aarch64-macos.tar.gz")]);
    assert_eq!(names(&packed(env, "release")), promised);
}

fn packages_have_the_version_and_the_licence_of_the_crate(env: &TestEnv) {
    let dist = packed(env, "release");
    for processor in ["amd64", "arm64"] {
        let file = dist.join(format!("codebridge_{VERSION}-1_{processor}.deb"));
        let control = env.run(["/usr/bin/dpkg-deb", "--field", file.to_str().unwrap()]).ok();
        for line in [format!("Version: {VERSION}-1"), format!("Architecture: {processor}")] {
            assert!(control.lines().any(|it| it == line), "{line}: {control}");
        }
        assert!(control.contains("\nSuggests: podman, crun, uidmap, libsecret-tools\n"), "{control}");
        assert!(!control.contains("\nDepends:"), "{control}");
    }
    let package: Value = serde_json::from_str(&unpacked(env, &dist, "package.json")).unwrap();
    assert_eq!(package["version"], VERSION);
    assert_eq!(package["license"], env!("CARGO_PKG_LICENSE"));
    assert_eq!(package["description"], env!("CARGO_PKG_DESCRIPTION"));
    assert_eq!(package["author"], env!("CARGO_PKG_AUTHORS"));
}

/// Returns a file of the npm package.
fn unpacked(env: &TestEnv, dist: &Path, name: &str) -> String {
    let folder = env.folder("npm");
    let file = dist.join(format!("codebridge-{VERSION}.tgz"));
    let words = ["/usr/bin/tar", "-xzf", file.to_str().unwrap(), "-C", folder.to_str().unwrap()];
    let _ = env.run(words).ok();
    fs::read_to_string(folder.join("package").join(name)).unwrap()
}

fn the_same_programs_give_the_same_files(env: &TestEnv) {
    let sums = |name| fs::read_to_string(packed(env, name).join("SHA256SUMS")).unwrap();
    assert_eq!(sums("release"), sums("again"));
}

fn the_npm_package_becomes_the_program_of_this_machine(env: &TestEnv) {
    let dist = packed(env, "release");
    let launcher = unpacked(env, &dist, "bin/codebridge");
    assert!(launcher.starts_with("#!/bin/sh\n"));
    // As npm installs it.
    let link = env.folder("bin").join("codebridge");
    std::os::unix::fs::symlink("../npm/package/bin/codebridge", &link).unwrap();
    let link = link.to_str().unwrap();
    let expected = format!("{}-linux a b c\n", std::env::consts::ARCH);
    assert_eq!(env.run([link, "a", "b c"]).ok(), expected);
    let program = format!("npm/package/bin/codebridge-{}-linux", std::env::consts::ARCH);
    fs::remove_file(env.folder("npm").parent().unwrap().join(program)).unwrap();
    let refused = env.run([link]);
    assert_eq!(refused.code(), Some(1), "{refused}");
    assert!(refused.stderr.contains("this npm package has no codebridge for linux on"), "{refused}");
}

fn a_release_has_completions_for_every_shell(env: &TestEnv) {
    let help = env.bridge().args(&["completions", "--help"]).command().run(env.guard()).ok();
    let shells = help.split("[possible values: ").nth(1).unwrap().split(']').next().unwrap();
    let script = read(".ci/release");
    for shell in shells.split(", ") {
        assert!(script.contains(&format!("\"{shell}\": ")), "{shell}");
        let printed = env.bridge().args(&["completions", shell]).command().run(env.guard()).ok();
        assert!(printed.contains("plain-http") && !printed.contains("machine-supervisor"), "{shell}");
    }
}

fn the_workflow_runs_the_script_and_pins_its_actions(_: &TestEnv) {
    let workflow = read(".github/workflows/release.yml");
    assert_eq!(workflow.matches("run: .ci/release\n").count(), 2);
    let mut actions = workflow.lines().filter_map(|line| line.trim().strip_prefix("- uses: "));
    assert!(actions.clone().count() > 4);
    assert!(actions.all(|action| {
        let commit = action.split(['@', ' ']).nth(1).unwrap_or_default();
        commit.len() == 40 && commit.bytes().all(|it| it.is_ascii_hexdigit()) && action.contains(" # v")
    }));
}
