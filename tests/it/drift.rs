//! What the README says of the tool and the commands, which rooms see which outside crates, and what an idle bridge costs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::harness::{Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "drift",
        tests![
            the_readme_shows_the_arguments_of_the_tool,
            the_readme_shows_commands_that_there_are,
            outside_crates_are_used_where_they_belong,
            an_idle_bridge_stays_small,
        ],
    );
}

/// Bytes of resident memory before the first execution, of a build without optimisation.
const MOST_IDLE_MEMORY: u64 = 40 << 20;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of the table whose header this is.
fn table_of_readme(header: &str) -> Vec<String> {
    let readme = read("README.md");
    let mut lines = readme.lines().skip_while(|line| *line != header);
    let table: Vec<String> =
        lines.by_ref().take_while(|line| line.starts_with('|')).map(String::from).collect();
    assert!(table.len() > 2, "no table with the header {header}");
    table
}

/// What stands in backquotes in the first cell of each row.
fn first_cells(header: &str) -> Vec<String> {
    let rows = table_of_readme(header).into_iter().skip(2);
    rows.flat_map(|row| {
        let cell = row.split('|').nth(1).unwrap().to_string();
        cell.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>()
    })
    .collect()
}

fn the_readme_shows_the_arguments_of_the_tool(env: &TestEnv) {
    let bridge = env.bridge().start();
    let listed = bridge.ask("tools/list", json!({}));
    let properties = listed["tools"][0]["inputSchema"]["properties"].as_object().unwrap();
    let known: BTreeSet<String> = properties.keys().cloned().collect();
    assert_eq!(first_cells("| argument | type | meaning |").into_iter().collect::<BTreeSet<_>>(), known);
    bridge.close();
}

fn the_readme_shows_commands_that_there_are(env: &TestEnv) {
    let help = env.bridge().args(&["--help"]).command().run(env.guard()).ok();
    let commands = first_cells("| command | does |");
    for command in commands.iter().filter(|text| text.starts_with("codebridge ")) {
        let name = command.split(' ').nth(1).unwrap();
        assert!(help.contains(&format!("\n  {name} ")), "{name} is not in\n{help}");
    }
}

/// Which rooms may name these crates.
const FOREIGN: &[(&str, &[&str])] = &[
    ("codebridge_runtimes", &["session", "image_sources", "upstream", "doctor", "housekeeping"]),
    ("codebridge_images", &["image_sources", "session", "settings", "cli", "doctor"]),
    ("rmcp", &["server", "upstream", "wire"]),
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
