//! What is written down twice says the same, and what was agreed on holds: tables, folders, layers, budgets.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use codebridge::{error, settings};

use crate::harness::{Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "drift",
        tests![
            the_readme_shows_the_settings_as_they_are,
            the_readme_shows_the_exit_codes_as_they_are,
            the_readme_shows_the_arguments_of_the_tool,
            the_readme_shows_commands_that_there_are,
            the_readme_maps_the_folders,
            no_layer_uses_one_above_it,
            the_crates_keep_their_dependencies_apart,
            the_lock_file_stays_within_its_budget,
            an_idle_bridge_stays_small,
        ],
    );
}

/// Packages in Cargo.lock; who adds one thinks about it.
const MOST_PACKAGES: usize = 285;
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

fn assert_table(expected: &str) {
    let header = expected.lines().next().unwrap();
    assert_eq!(table_of_readme(header), expected.lines().collect::<Vec<_>>());
}

fn the_readme_shows_the_settings_as_they_are(_: &TestEnv) {
    assert_table(&settings::variables::markdown_table());
}

fn the_readme_shows_the_exit_codes_as_they_are(_: &TestEnv) {
    assert_table(&error::markdown_table());
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

fn the_readme_maps_the_folders(_: &TestEnv) {
    let mapped = first_cells("| folder | what lives there |");
    for place in &mapped {
        assert!(root().join(place).exists(), "{place} is not there");
    }
    let is_mapped = |path: &str| mapped.iter().any(|place| place == path || place == &format!("{path}/"));
    let rooms = fs::read_dir(root().join("src")).unwrap().flatten().filter(|entry| entry.path().is_dir());
    for room in rooms {
        let path = format!("src/{}", room.file_name().to_str().unwrap());
        assert!(is_mapped(&path), "{path} is not on the map");
    }
    for folder in ["runtimes", "images", "tests", "bench"] {
        assert!(is_mapped(folder), "{folder} is not on the map");
    }
}

/// Which rooms of the root crate each of them may use; those that are no folder stand for their file.
const LAYERS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("settings", &["settings"]),
    ("guest", &[]),
    ("wire", &["wire"]),
    ("images", &["images", "settings", "error"]),
    ("upstream", &["upstream", "wire", "settings", "error"]),
    ("session", &["session", "upstream", "images", "guest", "settings", "error"]),
    ("server", &["server", "session", "upstream", "wire", "settings", "error", "fake_sessions"]),
    ("doctor", &["session", "upstream", "settings", "error"]),
    ("housekeeping", &["session", "settings", "error"]),
    ("fake_sessions", &["session", "settings"]),
    (
        "cli",
        &[
            "cli", "server", "session", "upstream", "images", "doctor", "housekeeping", "settings", "error",
            "fake_sessions",
        ],
    ),
];
/// Which rooms may name these crates.
const FOREIGN: &[(&str, &[&str])] = &[
    ("codebridge_runtimes", &["session", "images", "upstream", "doctor", "housekeeping"]),
    ("codebridge_images", &["images", "session", "settings", "cli"]),
    ("rmcp", &["server", "upstream", "wire"]),
    ("clap", &["cli"]),
    ("indicatif", &["cli"]),
    ("toon_format", &["server"]),
];

fn no_layer_uses_one_above_it(_: &TestEnv) {
    let mut wrong = Vec::new();
    let mut rooms = BTreeSet::new();
    for path in rust_files(&root().join("src")) {
        let inside = path.strip_prefix(root().join("src")).unwrap();
        let room = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_string();
        if ["lib", "main"].contains(&room.as_str()) {
            continue;
        }
        rooms.insert(room.clone());
        let text = fs::read_to_string(&path).unwrap();
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == room) else {
            wrong.push(format!("{room} is in no layer"));
            continue;
        };
        for used in uses_of_own_rooms(&text) {
            if !allowed.contains(&used.as_str()) {
                wrong.push(format!("{} uses {used}", inside.display()));
            }
        }
        for (krate, allowed) in FOREIGN {
            if code_lines(&text).any(|line| names_crate(line, krate)) && !allowed.contains(&room.as_str()) {
                wrong.push(format!("{} uses {krate}", inside.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (room, _) in LAYERS {
        assert!(rooms.contains(*room), "{room} is no room any more");
    }
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

/// The rooms behind `crate::`, also in `use crate::{a, b::c};`.
fn uses_of_own_rooms(text: &str) -> BTreeSet<String> {
    let code: String = code_lines(text).collect::<Vec<_>>().join("\n");
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let names = match rest.strip_prefix('{') {
            Some(list) => list[..list.find(';').unwrap_or(list.len())].split(',').collect(),
            None => vec![rest],
        };
        for name in names {
            let end = name.trim_start().find(|c: char| !c.is_alphanumeric() && c != '_');
            let name = name.trim_start();
            let name = &name[..end.unwrap_or(name.len())];
            if name.starts_with(|c: char| c.is_lowercase()) {
                used.insert(name.to_string());
            }
        }
    }
    used
}

fn names_crate(line: &str, krate: &str) -> bool {
    line.match_indices(krate).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = &line[at + krate.len()..];
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_') && after.starts_with("::")
    })
}

fn the_crates_keep_their_dependencies_apart(_: &TestEnv) {
    let forbidden = [
        ("runtimes/Cargo.toml", &["rmcp", "clap", "codebridge-images", "toon-format"][..]),
        ("images/Cargo.toml", &["rmcp", "clap", "codebridge-runtimes", "oci-spec"][..]),
    ];
    for (path, names) in forbidden {
        let text = read(path);
        let dependencies = text.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
        for name in names {
            let named = dependencies.lines().any(|line| line.split(['.', ' ', '=']).next() == Some(*name));
            assert!(!named, "{path} depends on {name}");
        }
    }
}

fn the_lock_file_stays_within_its_budget(_: &TestEnv) {
    let packages = read("Cargo.lock").lines().filter(|line| *line == "[[package]]").count();
    assert!(packages <= MOST_PACKAGES, "{packages} packages");
}

fn an_idle_bridge_stays_small(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.ask("tools/list", json!({}));
    let peak = bridge.peak_memory();
    assert!(peak < MOST_IDLE_MEMORY, "{} KiB", peak >> 10);
    bridge.close();
}
