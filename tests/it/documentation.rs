//! The documentation says what the code does: its tables, commands and links are compared with the program.
//! README.md stays short; everything else is a topic in src/help.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use codebridge::help::{self, TOPICS};
use serde_json::json;

use crate::harness::{Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "documentation",
        tests![
            the_tables_are_those_of_the_code,
            the_table_of_arguments_is_that_of_the_tool,
            the_table_of_commands_has_every_command,
            the_readme_is_short,
            the_readme_lists_every_topic,
            links_lead_to_files,
            the_repository_layout_names_every_folder,
            what_was_tried_is_in_the_results,
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

/// Lines of README.md, and characters of each that is no table and no link.
const README_LINES: usize = 160;
const README_WIDTH: usize = 110;

fn the_tables_are_those_of_the_code(_: &TestEnv) {
    for (path, expected) in [
        ("src/help/settings.md", codebridge::settings::variables::markdown_table()),
        ("src/help/exit-codes.md", codebridge::error::markdown_table()),
    ] {
        let expected: Vec<&str> = expected.trim().lines().collect();
        assert_eq!(table(path, expected[0]), expected, "in {path}");
    }
}

fn the_table_of_arguments_is_that_of_the_tool(env: &TestEnv) {
    let bridge = env.bridge().start();
    let listed = bridge.ask("tools/list", json!({}));
    let properties = listed["tools"][0]["inputSchema"]["properties"].as_object().unwrap();
    let known: BTreeSet<String> = properties.keys().cloned().collect();
    let documented = first_cells("src/help/clients.md", "| argument | type | meaning |");
    assert_eq!(documented.into_iter().collect::<BTreeSet<_>>(), known);
    bridge.close();
}

fn the_table_of_commands_has_every_command(env: &TestEnv) {
    let help = env.bridge().args(&["--help"]).command().run(env.guard()).ok();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let commands: BTreeSet<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() > 5, "{help}");
    let documented = first_cells("src/help/quickstart.md", "| command | does |");
    let documented: BTreeSet<&str> =
        documented.iter().filter_map(|command| command.strip_prefix("codebridge ")).collect();
    assert_eq!(documented, commands);
}

fn the_readme_is_short(_: &TestEnv) {
    let readme = read("README.md");
    let lines = readme.lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines: move something to src/help");
    for line in readme.lines() {
        let may_be_long = line.starts_with('|') || line.contains("](");
        assert!(may_be_long || line.chars().count() <= README_WIDTH, "too long for README.md: {line}");
    }
}

fn the_readme_lists_every_topic(_: &TestEnv) {
    let expected: Vec<String> = TOPICS
        .iter()
        .map(|topic| format!("| [{0}](src/help/{0}.md) | {1} |", topic.name, topic.summary()))
        .collect();
    assert_eq!(table("README.md", "| topic | what it is about |")[2..], expected);
    let files = fs::read_dir(root().join("src/help")).unwrap().flatten();
    let files = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "md"));
    assert_eq!(files.count(), TOPICS.len(), "a file in src/help is no topic");
}

/// Every link to a file of the repository, and every `codebridge help TOPIC`. Blocks of code end.
fn links_lead_to_files(_: &TestEnv) {
    let topics = TOPICS.iter().map(|topic| format!("src/help/{}.md", topic.name));
    let pages = [
        "README.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md", "tests/ATTACKS.md",
        "bench/README.md",
    ]
    .map(String::from);
    for page in topics.chain(pages) {
        let text = read(&page);
        let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
        assert!(fences % 2 == 0, "{page}: a block of code has no end");
        let folder = root().join(&page).parent().unwrap().to_path_buf();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let is_file = !link.starts_with("https://");
            assert!(!is_file || folder.join(link).exists(), "{page}: {link} does not exist");
        }
        for rest in text.split("`codebridge help ").skip(1) {
            let name = rest.split('`').next().unwrap();
            assert!(name.starts_with("TOPIC") || help::find(name).is_some(), "{page}: no topic {name}");
        }
    }
}

fn the_repository_layout_names_every_folder(_: &TestEnv) {
    let layout = read("CONTRIBUTING.md");
    for folder in fs::read_dir(root().join("src")).unwrap().flatten() {
        let name = folder.file_name().into_string().unwrap();
        if folder.path().is_dir() {
            assert!(layout.contains(&format!("`src/{name}/`")), "CONTRIBUTING.md does not name src/{name}/");
        }
    }
}

/// The numbers of a text, as they are written.
fn numbers(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_digit() && letter != '.' && letter != ',');
    words.map(|word| word.trim_matches(['.', ','])).filter(|word| !word.is_empty()).collect()
}

/// Nobody changes a number that was not measured again.
fn what_was_tried_is_in_the_results(_: &TestEnv) {
    let results = fs::read_dir(root().join("bench/results")).unwrap().map(|entry| entry.unwrap().path());
    let newest = results.filter(|path| path.to_str().unwrap().ends_with("-proof.md")).max().unwrap();
    let measured = read(&newest);
    let measured = numbers(&measured);
    for (path, header) in [
        ("README.md", "| tried | result | command |"),
        ("src/help/security.md", "| what | how often | result | command, in a checkout |"),
    ] {
        for row in table(path, header).iter().skip(2) {
            let cells = row.rsplit_once(" | ").unwrap().0;
            let unknown: Vec<_> = numbers(cells).difference(&measured).copied().collect();
            assert!(unknown.is_empty(), "{path}: {unknown:?} of {row}: not in {}", newest.display());
        }
    }
}
