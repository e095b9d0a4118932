//! Which rooms see which outside crates, and what an idle bridge costs.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::harness::{Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once("drift", tests![outside_crates_are_used_where_they_belong, an_idle_bridge_stays_small,]);
}

/// Bytes of resident memory before the first execution, of a build without optimisation.
const MOST_IDLE_MEMORY: u64 = 40 << 20;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Which rooms may name these crates.
const FOREIGN: &[(&str, &[&str])] = &[
    ("codebridge_runtimes", &["session", "image_sources", "upstream", "doctor", "housekeeping"]),
    ("codebridge_images", &["image_sources", "session", "settings", "cli", "doctor"]),
    ("rmcp", &["server", "upstream", "mcp"]),
    ("clap", &["cli"]),
    ("indicatif", &["cli"]),
    ("toon_format", &["server"]),
];

fn outside_crates_are_used_where_they_belong(_: &TestEnv) {
    let src = root().join("src");
    let mut wrong = Vec::new();
    for path in rust_files(&src) {
        let inside = path.strip_prefix(&src).unwrap();
        let room = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        let text = fs::read_to_string(&path).unwrap();
        for (krate, allowed) in FOREIGN {
            if code_lines(&text).any(|line| names_crate(line, krate)) && !allowed.contains(&room) {
                wrong.push(format!("{} uses {krate}", inside.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with("//"))
}

fn names_crate(line: &str, krate: &str) -> bool {
    line.match_indices(krate).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = &line[at + krate.len()..];
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_') && after.starts_with("::")
    })
}

fn an_idle_bridge_stays_small(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.ask("tools/list", json!({}));
    let peak = bridge.peak_memory();
    assert!(peak < MOST_IDLE_MEMORY, "{} KiB", peak >> 10);
    bridge.close();
}
