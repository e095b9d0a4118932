//! The documentation says what the code does: its tables, commands and links are compared with the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::harness::{Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "documentation",
        tests![
            the_tables_are_those_of_the_code,
            the_table_of_arguments_is_that_of_the_tool,
            every_documented_command_exists,
            the_repository_layout_names_every_folder,
        ],
    );
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the lines of the table that starts with `header`.
fn table(path: &str, header: &str) -> Vec<String> {
    let text = read(path);
    let lines = text.lines().skip_while(|line| *line != header);
    let table: Vec<String> = lines.take_while(|line| line.starts_with('|')).map(String::from).collect();
    assert!(table.len() > 2, "{path} has no table with the header {header}");
    table
}

/// Returns the words in backquotes in the first cell of each row.
pub(crate) fn first_cells(path: &str, header: &str) -> Vec<String> {
    let rows = table(path, header).into_iter().skip(2);
    rows.flat_map(|row| {
        let cell = row.split('|').nth(1).unwrap().to_string();
        cell.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>()
    })
    .collect()
}

fn the_tables_are_those_of_the_code(_: &TestEnv) {
    for expected in [codebridge::settings::variables::markdown_table(), codebridge::error::markdown_table()] {
        let expected: Vec<&str> = expected.trim().lines().collect();
        assert_eq!(table("README.md", expected[0]), expected);
    }
}

fn the_table_of_arguments_is_that_of_the_tool(env: &TestEnv) {
    let bridge = env.bridge().start();
    let listed = bridge.ask("tools/list", json!({}));
    let properties = listed["tools"][0]["inputSchema"]["properties"].as_object().unwrap();
    let known: BTreeSet<String> = properties.keys().cloned().collect();
    let documented = first_cells("README.md", "| argument | type | meaning |");
    assert_eq!(documented.into_iter().collect::<BTreeSet<_>>(), known);
    bridge.close();
}

fn every_documented_command_exists(env: &TestEnv) {
    let help = env.bridge().args(&["--help"]).command().run(env.guard()).ok();
    let commands = first_cells("README.md", "| command | does |");
    for command in commands.iter().filter(|text| text.starts_with("codebridge ")) {
        let name = command.split(' ').nth(1).unwrap();
        assert!(help.contains(&format!("\n  {name} ")), "{name} is not in\n{help}");
    }
}

fn the_repository_layout_names_every_folder(_: &TestEnv) {
    let readme = read("README.md");
    for folder in fs::read_dir(root().join("src")).unwrap().flatten() {
        let name = folder.file_name().into_string().unwrap();
        if folder.path().is_dir() {
            assert!(readme.contains(&format!("`src/{name}/`")), "README.md does not name src/{name}/");
        }
    }
}
