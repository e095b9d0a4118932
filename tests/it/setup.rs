//! Registers codebridge in clients, in a home folder as people have it.

use std::fs;
use std::path::PathBuf;

use codebridge::setup::CLIENTS;
use serde_json::{Value, json};

use crate::harness::process::Output;
use crate::harness::{Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "setup",
        tests![
            every_client_gets_an_entry_that_codebridge_reads_as_itself,
            the_list_says_which_clients_are_there,
            a_person_is_asked_before_a_file_changes,
            without_a_terminal_nothing_is_changed,
            the_entry_can_be_printed,
            a_file_that_is_wrong_stays_as_it_is,
            an_unknown_client_is_a_usage_error_that_names_the_nearest,
        ],
    );
}

fn setup(env: &TestEnv, args: &[&str]) -> Output {
    env.bridge().args(&["setup"]).args(args).command().run(env.guard())
}

fn in_home(env: &TestEnv, file: &str, text: &str) -> PathBuf {
    let path = env.home().join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

/// The clients and their states, as `setup --list` says.
fn states(env: &TestEnv) -> Vec<(String, String)> {
    let listed: Value = serde_json::from_str(&setup(env, &["--list", "--json"]).ok()).unwrap();
    let state =
        |client: &Value| ["client", "state"].map(|key| client[key].as_str().unwrap().to_owned()).into();
    listed.as_array().unwrap().iter().map(state).collect()
}

fn every_client_gets_an_entry_that_codebridge_reads_as_itself(env: &TestEnv) {
    for client in &CLIENTS {
        let shown = setup(env, &[client.name, "--yes"]);
        assert!(shown.stdout.contains(&format!("restart {} to use it", client.title)), "{shown}");
        let again = setup(env, &[client.name]).ok();
        assert!(again.contains("starts this codebridge already"), "{again}");
    }
    assert!(states(env).iter().all(|(_, state)| state == "registered"));
    let command = env.bridge().args(&["servers", "--json", "--allow-self-server", "1"]).command();
    let servers: Value = serde_json::from_str(&command.run(env.guard()).ok()).unwrap();
    let ours = servers.as_array().unwrap().iter().find(|server| server["name"] == "codebridge");
    assert!(ours.is_some_and(|ours| ours["source"].to_string().contains(".claude.json")), "{servers}");
}

fn the_list_says_which_clients_are_there(env: &TestEnv) {
    in_home(env, ".claude.json", r#"{"mcpServers": {}}"#);
    in_home(env, ".cursor/mcp.json", r#"{"mcpServers": {"codebridge": {"command": "/old/codebridge"}}}"#);
    in_home(env, ".gemini/settings.json", "{");
    let of = |name: &str| states(env).into_iter().find(|(client, _)| client == name).unwrap().1;
    let states = ["claude-code", "cursor", "gemini", "windsurf"].map(of);
    assert_eq!(states, ["not-registered", "other-command", "unreadable", "not-found"]);
    let shown = setup(env, &[]);
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert!(lines[0].starts_with("CLIENT") && lines.len() == CLIENTS.len() + 1, "{shown}");
    let said: Vec<&str> = shown.stderr.lines().collect();
    assert!(
        said[0].starts_with("warning: could not add codebridge to '") && said[0].contains("settings.json")
    );
    assert_eq!(said[1..], ["hint: `codebridge setup claude-code` registers codebridge in Claude Code"]);
}

fn a_person_is_asked_before_a_file_changes(env: &TestEnv) {
    let before = "{\n  // mine\n  \"mcpServers\": {}\n}\n";
    let file = in_home(env, ".cursor/mcp.json", before);
    let answer = |input: &[u8]| {
        let mut terminal = env.command("script");
        let line = format!("{} setup cursor", env.binary().display());
        terminal.argv.extend(["-q", "-e", "-c", &line, "/dev/null"].map(Into::into));
        terminal.run_with_input(env.guard(), input).ok()
    };
    let shown = answer(b"n\n");
    assert!(shown.contains("Write the file? [Y/n]") && shown.contains("nothing was changed"), "{shown}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    let shown = answer(b"\n");
    assert!(shown.contains("the old file is"), "{shown}");
    assert!(
        fs::read_to_string(&file)
            .unwrap()
            .starts_with("{\n  // mine\n  \"mcpServers\": {\n    \"codebridge\": {")
    );
    assert_eq!(fs::read_to_string(file.with_extension("json.bak")).unwrap(), before);
}

fn without_a_terminal_nothing_is_changed(env: &TestEnv) {
    let output = setup(env, &["codex"]);
    assert_eq!(output.code(), Some(2), "{output}");
    let file = env.home().join(".codex/config.toml");
    assert!(
        output.stderr.ends_with(&format!(
            "error: could not ask whether to change '{}': standard input is not a terminal\n\
             hint: add `--yes`, or print the entry with `--print`\n",
            file.display()
        )),
        "{output}"
    );
    assert!(!file.exists());
}

fn the_entry_can_be_printed(env: &TestEnv) {
    let output = setup(env, &["VS Code", "--print"]);
    let file = env.home().join(".config/Code/User/mcp.json");
    assert_eq!(output.stderr, format!("for {}:\n", file.display()));
    let entry: Value = serde_json::from_str(&output.ok()).unwrap();
    let command = env.binary().canonicalize().unwrap();
    assert_eq!(entry, json!({ "servers": { "codebridge": { "type": "stdio", "command": command } } }));
    assert!(!file.exists());
}

fn a_file_that_is_wrong_stays_as_it_is(env: &TestEnv) {
    let file = in_home(env, ".codex/config.toml", "model = \"x\"\n[mcp_servers\n");
    let output = setup(env, &["codex", "--yes"]);
    assert_eq!(output.code(), Some(2), "{output}");
    let expected = format!("error: could not add codebridge to '{}': line 2: ", file.display());
    assert!(output.stderr.starts_with(&expected), "{output}");
    assert!(
        output
            .stderr
            .ends_with("\nhint: correct the file, or print the entry with `--print` and add it by hand\n")
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "model = \"x\"\n[mcp_servers\n");
    assert!(!file.with_extension("toml.bak").exists());
}

fn an_unknown_client_is_a_usage_error_that_names_the_nearest(env: &TestEnv) {
    let output = setup(env, &["vs-code"]);
    assert_eq!(output.code(), Some(2), "{output}");
    assert_eq!(output.stderr, "error: unknown client 'vs-code'\nhint: try `codebridge setup vscode`\n");
}
