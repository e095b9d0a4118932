//! `codebridge gc`: what is unused is shown, asked for and removed; what the user saved, and what is in use, stays.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::FallocateFlags;
use serde_json::{Value, json};

use crate::harness::process::Output;
use crate::harness::registry::store_of;
use crate::harness::{BridgeBuilder, Kind, Runtime, Suite, TestEnv};
use crate::reaper::leave_something;
use crate::{audit, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "gc",
        tests![
            what_is_unused_is_shown_and_nothing_else_is_removed,
            without_a_person_it_is_not_removed,
            the_person_decides,
        ],
    );
    suite.on_alone(
        Runtime::of_user(Kind::Crun),
        "gc",
        tests![dead_sandboxes_and_old_files_of_the_log_are_removed],
    );
    suite.on(&[Runtime::of_user(Kind::Crun)], "gc", tests![a_running_bridge_keeps_what_it_uses]);
}

const DAY: Duration = Duration::from_secs(24 * 3600);

fn builder<'a>(env: &'a TestEnv, words: &[&str]) -> BridgeBuilder<'a> {
    let builder = env.bridge().without("MCP_BRIDGE_LOG_LEVEL").var("XDG_DATA_HOME", store_of(env));
    let builder = builder.var("XDG_CACHE_HOME", env.folder("cache")).var("MCP_BRIDGE_ARTIFACTS_LIMIT", "1m");
    builder.args(&["gc"]).args(words)
}

fn gc(env: &TestEnv, words: &[&str]) -> Output {
    builder(env, words).command().run(env.guard())
}

fn aged(path: &Path, days: u32) {
    File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - days * DAY).unwrap();
}

fn artifact(env: &TestEnv, name: &str, version: u32, bytes: usize) {
    let folder = format!("home/MCPs/artifacts/{name}/{version}");
    let about = json!({
        "name": name, "version": version, "bytes": bytes, "sha256": "", "mimeType": "text/plain",
        "description": null, "session": null, "run": 1, "created": format!("2026-01-0{version}T00:00:00Z"),
    });
    env.write(&format!("{folder}/content"), vec![b'x'; bytes]);
    env.write(&format!("{folder}/about.json"), about.to_string());
}

fn set(env: &TestEnv, id: &str, days: u32) {
    let folder = format!("cache/codebridge/packages/sets/{id}");
    let about = json!({ "id": id, "python": "3.14", "platform": "x", "bytes": 5, "packages": [] });
    env.write(&format!("{folder}/set.json"), about.to_string());
    env.write(&format!("{folder}/files/a.py"), "a = 1");
    aged(&env.write(&format!("{folder}/used"), ""), days);
}

/// An unpacked image that no name leads to.
const UNNAMED: &str =
    "data/codebridge/roots/0000000000000000000000000000000000000000000000000000000000000001";

/// Fills the stores of a user: with what is unused, and with what has to stay. Returns what is unused.
fn fill(env: &TestEnv) -> BTreeSet<PathBuf> {
    for kept in
        ["servers.json", "policy.toml", "tools/double.py", "trust/x", "tokens/x", "workflows/0.journal"]
    {
        let content = if kept == "servers.json" { "{\"mcpServers\":{}}" } else { "" };
        aged(&env.write(&format!("home/MCPs/{kept}"), content), 1000);
    }
    artifact(env, "old", 1, 700_000);
    artifact(env, "old", 2, 700_000);
    artifact(env, "other", 1, 10);
    set(env, "00000000000000000000000000000001", 31);
    set(env, "00000000000000000000000000000002", 29);
    for (name, days) in [("gone.docs", 31), ("gone.seen", 31), ("recent.docs", 29), (".unfinished-1", 1)] {
        aged(&env.write(&format!("home/MCPs/catalog/{name}"), "{}"), days);
    }
    env.write("home/MCPs/listeners/4194999", "{}");
    env.write(&format!("home/MCPs/listeners/{}", std::process::id()), "{}");
    env.write("data/codebridge/partial/sha256-00", vec![0; 5000]);
    env.write(&format!("{UNNAMED}/rootfs/a"), "an image without a name");
    aged(&env.write("home/MCPs/registry/old.json", "{}"), 1);
    env.write("home/MCPs/registry/fresh.json", "{}");
    env.write("cache/codebridge/guest/0123456789abcdef.code", "of another version");
    let unused = [
        "home/MCPs/artifacts/old/1",
        "cache/codebridge/packages/sets/00000000000000000000000000000001",
        "home/MCPs/catalog/gone.docs",
        "home/MCPs/catalog/gone.seen",
        "home/MCPs/catalog/.unfinished-1",
        "home/MCPs/listeners/4194999",
        "data/codebridge/partial/sha256-00",
        UNNAMED,
        "home/MCPs/registry/old.json",
        "cache/codebridge/guest/0123456789abcdef.code",
    ];
    unused.iter().map(|path| root(env).join(path)).collect()
}

fn root(env: &TestEnv) -> PathBuf {
    env.home().parent().unwrap().to_owned()
}

/// The files below a folder, without locks and notes.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => {
                let name = entry.file_name();
                let is_file = !name.as_encoded_bytes().ends_with(b"lock") && name != ".last";
                all.extend(is_file.then_some(path));
            }
        }
    }
    all
}

/// The files that matter.
fn all_files(env: &TestEnv) -> BTreeSet<PathBuf> {
    ["home/MCPs", "cache/codebridge/packages/sets", "cache/codebridge/guest", "data"]
        .iter()
        .flat_map(|folder| files(&root(env).join(folder)))
        .collect()
}

fn without(files: &BTreeSet<PathBuf>, unused: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    files.iter().filter(|file| !unused.iter().any(|path| file.starts_with(path))).cloned().collect()
}

fn what_is_unused_is_shown_and_nothing_else_is_removed(env: &TestEnv) {
    let unused = fill(env);
    let before = all_files(env);
    let looked = gc(env, &["--dry-run"]);
    assert_eq!(looked.code(), Some(0), "{looked}");
    for row in [
        "images     2 ", "packages   1 ", "catalogue  2 ", "registry   1 ", "artifacts  1 ", "listeners  1 ",
        "bytecode   1 ", "total: ",
    ] {
        assert!(looked.stdout.contains(&format!("\n{row}")), "{row}: {looked}");
    }
    assert_eq!(all_files(env), before, "a look removes nothing");
    let removed = gc(env, &["--yes"]);
    assert_eq!(removed.code(), Some(0), "{removed}");
    assert!(removed.stdout.contains("removed from artifacts: 1\n"), "{removed}");
    assert!(removed.stdout.contains("\nfreed "), "{removed}");
    assert_eq!(all_files(env), without(&before, &unused));
    let report: Value = serde_json::from_str(&gc(env, &["--dry-run", "--json"]).ok()).unwrap();
    // Bridges of other tests may end at this moment.
    let is_own = |unused: &&Value| unused["place"] != "sandboxes";
    assert_eq!(report["unused"].as_array().unwrap().iter().find(is_own), None);
    assert_eq!((&report["removed"], &report["bytes"]), (&json!(false), &json!(0)));
}

/// More than the log may have.
const LARGE: u64 = 300 << 20;

fn dead_sandboxes_and_old_files_of_the_log_are_removed(env: &TestEnv) {
    let _ = env.bridge().args(&["exec", "-c", "'old'"]).command().run(env.guard()).ok();
    let old = audit::files(env).remove(0);
    let (traces, first) = leave_something(env);
    // After the last bridge: each of them keeps the log within its limits.
    let texts = old.with_extension("blobs");
    let name = texts.join("large").strip_prefix(root(env)).unwrap().display().to_string();
    let large = File::options().write(true).open(env.write(&name, "")).unwrap();
    rustix::fs::fallocate(large, FallocateFlags::empty(), 0, LARGE).unwrap();
    aged(&old, 2);
    let looked = gc(env, &["--dry-run"]);
    for row in ["audit      1       300.0 MiB", "sandboxes  1       -", "total: "] {
        assert!(looked.stdout.contains(&format!("\n{row}")), "{row}: {looked}");
    }
    assert!(old.exists() && !traces.left().is_empty(), "a look removes nothing");
    let removed = gc(env, &["--yes"]).ok();
    for place in ["audit", "sandboxes"] {
        assert!(removed.contains(&format!("removed from {place}: 1\n")), "{removed}");
    }
    traces.wait_until_gone(first);
    traces.assert_nothing_left();
    assert_eq!((old.exists(), texts.exists()), (false, false));
    audit::is_in_order(env);
    assert_eq!(gc(env, &["--dry-run"]).ok(), "nothing is unused\n");
}

fn without_a_person_it_is_not_removed(env: &TestEnv) {
    fill(env);
    let before = all_files(env);
    let refused = gc(env, &[]);
    assert_eq!(refused.code(), Some(2), "{refused}");
    assert!(
        refused.stderr.contains("\nartifacts  1 ") && refused.stderr.contains("hint: add `--yes`"),
        "{refused}"
    );
    assert_eq!(all_files(env), before);
}

fn the_person_decides(env: &TestEnv) {
    let unused = fill(env);
    let before = all_files(env);
    let answered = |answer: &[u8]| {
        let mut terminal = env.command("script");
        let binary = env.binary();
        terminal
            .argv
            .extend(["-q", "-e", "-c", &format!("{} gc", binary.display()), "/dev/null"].map(Into::into));
        terminal.env = builder(env, &[]).command().env;
        terminal.run_typing(env.guard(), "remove this? [y/N] ", answer)
    };
    assert_eq!(answered(b"n\n").code(), Some(0));
    assert_eq!(all_files(env), before);
    let removed = answered(b"y\n");
    assert!(removed.stdout.contains("removed from packages: 1"), "{removed}");
    assert_eq!(all_files(env), without(&before, &unused));
}

fn a_running_bridge_keeps_what_it_uses(env: &TestEnv) {
    let bridge = env.bridge().start();
    let saving = "x = 1\ndef double(n):\n    return 2 * n\nsave_tool(double)\nawait runtime.save_artifact('a', name='a.txt')";
    let _ = bridge.run(saving).expect("success");
    let collected = gc(env, &["--yes"]);
    assert_eq!(collected.code(), Some(0), "{collected}");
    assert_eq!(bridge.run("x, double(2)").ok(), "(1, 4)");
    assert_eq!(bridge.run_in("new", "double(1), await runtime.load_artifact('a.txt')").ok(), "(2, b'a')");
    bridge.close();
    let verified = env.bridge().args(&["audit", "verify"]).command().run(env.guard());
    assert_eq!(verified.code(), Some(0), "{verified}");
}
