//! Servers are added, removed and copied by commands, and used by what was written. No credential is in a command line or is shown.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::process::Output;
use crate::harness::{Suite, TestEnv};
use crate::server_access::fake;
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "find_servers",
        tests![
            a_server_that_was_added_is_called_and_removed,
            a_value_is_asked_for_and_never_shown,
            values_come_from_standard_input_line_by_line,
            credentials_in_a_command_line_are_refused,
            a_name_that_exists_is_refused_with_a_hint,
            what_people_wrote_stays,
            a_server_of_another_program_is_disabled_here_alone,
            a_file_that_is_wrong_is_not_changed,
            definitions_of_a_client_are_copied,
            nothing_secret_is_exported,
            with_a_profile_its_servers_are_used_alone,
            an_unknown_profile_is_an_error_that_names_the_others,
            many_changes_at_once_lose_none,
        ],
    );
}

pub(crate) fn command(env: &TestEnv, words: &[&str]) -> Output {
    command_with_input(env, words, b"")
}

pub(crate) fn command_with_input(env: &TestEnv, words: &[&str], input: &[u8]) -> Output {
    let mut command = env.command(env.binary());
    command.argv.extend(words.iter().map(Into::into));
    command.cwd = env.folder("here");
    command.run_with_input(env.guard(), input)
}

pub(crate) fn file(env: &TestEnv) -> PathBuf {
    env.home().join("MCPs/servers.json")
}

pub(crate) fn written(env: &TestEnv) -> Value {
    serde_json::from_str(&fs::read_to_string(file(env)).unwrap()).unwrap()
}

/// The state of each server, as the list says.
fn states(env: &TestEnv, more: &[&str]) -> Vec<(String, String)> {
    let listed = command(env, &[&["servers", "--json"], more].concat()).ok();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let state = |server: &Value| ["name", "state"].map(|key| server[key].as_str().unwrap().to_owned()).into();
    listed.as_array().unwrap().iter().map(state).collect()
}

/// The command line of a server that works.
pub(crate) fn words_of(server: &Value) -> Vec<String> {
    let args = server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned());
    [server["command"].as_str().unwrap().to_owned()].into_iter().chain(args).collect()
}

fn a_server_that_was_added_is_called_and_removed(env: &TestEnv) {
    let server = words_of(&fake(env, &["--few"]));
    let mut words = vec!["servers", "add", "helper", "--description", "says it again", "--"];
    words.extend(server.iter().map(String::as_str));
    let added = command(env, &words);
    assert_eq!(added.stdout, format!("added 'helper' to {}\n", file(env).display()), "{added}");
    assert!(added.stderr.contains("`codebridge servers refresh helper`"), "{added}");
    assert_eq!(fs::metadata(file(env)).unwrap().permissions().mode() & 0o777, 0o600);
    let called: Value = serde_json::from_str(&command(env, &["call", "helper.echo", "a=1"]).ok()).unwrap();
    assert_eq!(called["structuredContent"], json!({ "a": 1 }));

    let disabled = command(env, &["servers", "disable", "helper"]).ok();
    assert!(disabled.starts_with("disabled 'helper'"), "{disabled}");
    let refused = command(env, &["call", "helper.echo", "a=1"]);
    assert!(refused.code() == Some(2) && refused.stderr.contains("it is disabled"), "{refused}");
    let again = command(env, &["servers", "disable", "helper"]);
    assert!(
        again.code() == Some(2) && again.stderr.contains("`codebridge servers enable helper`"),
        "{again}"
    );
    let _ = command(env, &["servers", "enable", "helper"]).ok();
    let _ = command(env, &["call", "helper.echo", "a=1"]).ok();

    let removed = command(env, &["servers", "remove", "helper"]).ok();
    assert_eq!(removed, format!("removed 'helper' from {}\n", file(env).display()));
    assert_eq!(written(env), json!({ "mcpServers": {} }));
    let gone = command(env, &["servers", "remove", "helper"]);
    assert!(gone.code() == Some(2) && gone.stderr.contains("no server named 'helper'"), "{gone}");
}

fn a_value_is_asked_for_and_never_shown(env: &TestEnv) {
    let mut terminal = env.command("script");
    let line = format!(
        "{} servers add --header Authorization https://mcp.tracker.example/v1; stty -a | grep -o '[-]*echo '",
        env.binary().display()
    );
    terminal.argv.extend(["-q", "-e", "-c", &line, "/dev/null"].map(Into::into));
    terminal.cwd = env.folder("here");
    let asked =
        terminal.run_typing(env.guard(), "Authorization (not shown): ", b"Bearer hunter2hunter2\n").ok();
    assert!(asked.contains("added 'tracker' to ") && !asked.contains("hunter2"), "{asked}");
    assert!(asked.contains("\necho") && !asked.contains("-echo"), "the terminal shows nothing now: {asked}");
    let definition = &written(env)["mcpServers"]["tracker"];
    assert_eq!(
        *definition,
        json!({ "url": "https://mcp.tracker.example/v1", "headers": { "Authorization": "Bearer hunter2hunter2" } })
    );
    let listed = command(env, &["servers", "--json"]).ok() + &command(env, &["servers"]).ok();
    assert!(listed.contains("tracker") && !listed.contains("hunter2"), "{listed}");
}

fn values_come_from_standard_input_line_by_line(env: &TestEnv) {
    let words = [
        "servers", "add", "-e", "A_TOKEN", "-e", "LEVEL=debug", "-e", "B_KEY", "--", "npx", "-y",
        "@x/mcp-server-db@1",
    ];
    let added = command_with_input(env, &words, b"one one\ntwo\r\n");
    assert!(added.stdout.contains("added 'db'") && !added.to_string().contains("one one"), "{added}");
    assert_eq!(
        written(env)["mcpServers"]["db"],
        json!({
            "command": "npx",
            "args": ["-y", "@x/mcp-server-db@1"],
            "env": { "A_TOKEN": "one one", "LEVEL": "debug", "B_KEY": "two" },
        })
    );
    let missing =
        command_with_input(env, &["servers", "add", "-e", "TOKEN", "-e", "KEY", "x", "--", "y"], b"one\n");
    assert!(missing.code() == Some(2) && missing.stderr.contains("no value for 'KEY'"), "{missing}");
    assert_eq!(written(env)["mcpServers"].as_object().unwrap().len(), 1);
}

fn credentials_in_a_command_line_are_refused(env: &TestEnv) {
    for words in [
        &["-e", "TOKEN=hunter2", "--", "x"][..],
        &["--header", "X-Api-Key=hunter2", "https://h.example/mcp"],
        &["x", "--", "npx", "y", "--api-key", "hunter2hunter2"],
        &["https://me:hunter2@h.example/mcp"],
        &["https://h.example/mcp?token=hunter2"],
    ] {
        let refused = command(env, &[&["servers", "add"], words].concat());
        assert_eq!(refused.code(), Some(2), "{refused}");
        assert!(refused.stderr.contains("looks like a credential"), "{refused}");
        assert!(!refused.stderr.contains("hunter2") && refused.stderr.contains("hint: "), "{refused}");
    }
    assert!(!file(env).exists());
    // A reference is none. It may be set later.
    let referring = command(env, &["servers", "add", "-e", "TOKEN=${MY_TOKEN}", "y", "--", "x"]);
    assert!(referring.stderr.contains("'y' is not used yet: environment variable 'MY_TOKEN'"), "{referring}");
    for (words, told) in [
        (&["helper"][..], "'helper' is neither a URL nor a command"),
        (&["ftp://h.example/"], "is neither a URL nor a command"),
        (&["a b", "--", "x"], "'a b' cannot be the name of a server"),
        (&["--env", "A=1", "https://h.example"], "--env is for servers that a command starts"),
        (&["http://127.0.0.1:9/mcp"], "could not find a name"),
        (&["--", "codebridge", "serve"], "'codebridge' cannot be added: it is this bridge itself"),
        (&["x", "--env", "A=B", "--env", "=C", "--", "y"], "is not a valid variable name"),
    ] {
        let refused = command(env, &[&["servers", "add"], words].concat());
        assert!(refused.code() == Some(2) && refused.stderr.contains(told), "{refused}");
    }
}

fn a_name_that_exists_is_refused_with_a_hint(env: &TestEnv) {
    env.write("home/.cursor/mcp.json", json!({ "mcpServers": { "theirs": { "command": "a" } } }).to_string());
    let _ = command(env, &["servers", "add", "mine", "--", "b"]).ok();
    for (name, place) in [("theirs", ".cursor/mcp.json:1"), ("mine", "servers.json:")] {
        let refused = command(env, &["servers", "add", name, "--", "c"]);
        assert_eq!(refused.code(), Some(2), "{refused}");
        let told = format!("error: a server named '{name}' is defined already, in ");
        assert!(refused.stderr.starts_with(&told) && refused.stderr.contains(place), "{refused}");
        assert!(refused.stderr.contains("hint: choose another name with --name"), "{refused}");
    }
    assert_eq!(written(env), json!({ "mcpServers": { "mine": { "command": "b" } } }));
    // One that nobody has approved keeps no name.
    env.write("here/.mcp.json", json!({ "mcpServers": { "cloned": { "command": "a" } } }).to_string());
    let _ = command(env, &["servers", "add", "cloned", "--", "c"]).ok();
}

fn what_people_wrote_stays(env: &TestEnv) {
    const WRITTEN: &str = "// all of mine\n{\n    \"mcpServers\": {\n        \"b\": { \"command\": \"x\" }, // first\n        /* second */\n        \"a\": { \"command\": \"y\", },\n    },\n}\n";
    env.write("home/MCPs/servers.json", WRITTEN);
    let _ = command(env, &["servers", "add", "c", "--", "z"]).ok();
    let with = fs::read_to_string(file(env)).unwrap();
    assert!(WRITTEN.lines().all(|line| with.contains(line)) && with.contains("\"c\": {"), "{with}");
    let _ = command(env, &["servers", "remove", "c"]).ok();
    assert_eq!(fs::read_to_string(file(env)).unwrap(), WRITTEN);
}

fn a_server_of_another_program_is_disabled_here_alone(env: &TestEnv) {
    let theirs = json!({ "mcpServers": { "theirs": { "command": "a" } } }).to_string();
    let cursor = env.write("home/.cursor/mcp.json", &theirs);
    let refused = command(env, &["servers", "remove", "theirs"]);
    assert!(
        refused.code() == Some(2) && refused.stderr.contains("which codebridge does not change"),
        "{refused}"
    );
    assert!(refused.stderr.contains("`codebridge servers disable theirs`"), "{refused}");
    let _ = command(env, &["servers", "disable", "theirs"]).ok();
    assert!(states(env, &[]).iter().all(|(_, state)| state == "skipped"));
    let _ = command(env, &["servers", "enable", "theirs"]).ok();
    assert_eq!(states(env, &[]), [("theirs".into(), "new".into())]);
    assert_eq!(fs::read_to_string(cursor).unwrap(), theirs);
}

fn a_file_that_is_wrong_is_not_changed(env: &TestEnv) {
    env.write("home/MCPs/servers.json", "{\n  nonsense\n}\n");
    let refused = command(env, &["servers", "add", "x", "--", "y"]);
    assert!(refused.code() == Some(2) && refused.stderr.contains("servers.json': line 2: "), "{refused}");
    assert_eq!(fs::read_to_string(file(env)).unwrap(), "{\n  nonsense\n}\n");
}

fn definitions_of_a_client_are_copied(env: &TestEnv) {
    let config = "[mcp_servers.one]\ncommand = \"uvx\"\nargs = [\"x\"]\nstartup_timeout_sec = 7.5\n\
                  [mcp_servers.one.env]\nA_TOKEN = \"hunter2hunter2\"\n\
                  [mcp_servers.two]\nurl = \"https://h.example/mcp\"\nbearer_token_env_var = \"B\"\n\
                  [mcp_servers.codebridge]\ncommand = \"codebridge\"\n";
    env.write("home/.codex/config.toml", config);
    let opencode = json!({ "mcp": {
        "three": { "type": "local", "command": ["npx", "y"], "environment": { "C": "{env:D}" } },
        "four": { "type": "local", "command": ["z", "{file:/etc/key}"] },
    } });
    env.write("home/.config/opencode/opencode.json", opencode.to_string());
    let copied = command(env, &["servers", "import", "codex"]);
    assert!(copied.stdout.contains("copied 'one'") && copied.stdout.contains("copied 'two'"), "{copied}");
    assert!(copied.stderr.contains("skipped 'codebridge': it is codebridge itself"), "{copied}");
    assert!(!copied.to_string().contains("hunter2"), "{copied}");
    let copied = command(env, &["servers", "import", "opencode"]);
    assert!(copied.stdout.contains("copied 'three'") && copied.stderr.contains("skipped 'four'"), "{copied}");
    assert_eq!(
        written(env)["mcpServers"],
        json!({
            "one": { "command": "uvx", "args": ["x"], "startup_timeout_sec": 7.5, "env": { "A_TOKEN": "hunter2hunter2" } },
            "two": { "url": "https://h.example/mcp", "bearer_token_env_var": "B" },
            "three": { "type": "local", "command": ["npx", "y"], "environment": { "C": "${env:D}" } },
        })
    );
    let again = command(env, &["servers", "import", "codex", "one"]);
    assert!(again.stderr.contains("skipped 'one'") && again.stdout.is_empty(), "{again}");
    for (words, told) in
        [(&["codex", "none"][..], "Codex has no server named 'none'"), (&["codx"], "unknown client 'codx'")]
    {
        let refused = command(env, &[&["servers", "import"], words].concat());
        assert!(refused.code() == Some(2) && refused.stderr.contains(told), "{refused}");
    }
}

fn nothing_secret_is_exported(env: &TestEnv) {
    let servers = json!({
        "one": { "command": "uvx", "args": ["x", "--token", "hunter2hunter2"], "env": { "A_KEY": "hunter3", "L": "debug" } },
        "two": { "url": "https://h.example/mcp", "headers": { "Authorization": "Bearer hunter4" } },
        "off": { "command": "z", "disabled": true },
    });
    env.write("home/MCPs/all.json", json!({ "mcpServers": servers }).to_string());
    let exported = command(env, &["servers", "export"]);
    assert!(!exported.to_string().contains("hunter"), "{exported}");
    assert!(exported.stderr.contains("set A_KEY, ONE_TOKEN, TWO_AUTHORIZATION where"), "{exported}");
    let document: Value = serde_json::from_str(&exported.ok()).unwrap();
    assert_eq!(
        document,
        json!({ "mcpServers": {
            "one": { "command": "uvx", "args": ["x", "--token", "${ONE_TOKEN}"], "env": { "A_KEY": "${A_KEY}", "L": "debug" } },
            "two": { "url": "https://h.example/mcp", "headers": { "Authorization": "${TWO_AUTHORIZATION}" } },
        } })
    );
    let one: Value = serde_json::from_str(&command(env, &["servers", "export", "one"]).ok()).unwrap();
    assert_eq!(one["mcpServers"].as_object().unwrap().len(), 1);
    let off = command(env, &["servers", "export", "off"]);
    assert!(off.code() == Some(2) && off.stderr.contains("no server named 'off' is used"), "{off}");
}

const PROFILES: &str = r#"{
  "profiles": { "work": ["a", "gone"], "home": ["b"], "wrong": "a" },
  "mcpServers": { "a": { "command": "x" }, "b": { "command": "y" } }
}"#;

fn with_a_profile_its_servers_are_used_alone(env: &TestEnv) {
    env.write("home/MCPs/all.json", PROFILES);
    // A cloned folder brings no profiles.
    env.write("here/mcp-servers/x.json", r#"{"profiles": {"work": ["b"]}, "mcpServers": {}}"#);
    let state = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    assert_eq!(states(env, &[]), [state("a", "new"), state("b", "new")]);
    assert_eq!(states(env, &["--profile", "work"]), [state("a", "new"), state("b", "skipped")]);
    assert_eq!(states(env, &["--profile", "home"]), [state("b", "new"), state("a", "skipped")]);
    let listed = command(env, &["servers", "--profile", "work"]);
    assert!(listed.stderr.contains("profile 'work' has 'gone', and there is no such server"), "{listed}");
    assert!(listed.stderr.contains("profile 'wrong' must be a list of names"), "{listed}");
    assert!(listed.stdout.contains("it is not in the profile 'work'"), "{listed}");
    let bridge = env.bridge().var("MCP_BRIDGE_PROFILE", "work").args(&["call", "b.x"]).command();
    let refused = bridge.run(env.guard());
    assert!(
        refused.code() == Some(2) && refused.stderr.contains("is not in the profile 'work'"),
        "{refused}"
    );
}

fn an_unknown_profile_is_an_error_that_names_the_others(env: &TestEnv) {
    env.write("home/MCPs/all.json", PROFILES);
    let told = "error: no profile named 'wrk'; the profiles are home, work";
    for words in [&["servers"][..], &["call", "a.x"], &["tools", "search", "x"], &["servers", "export"]] {
        let refused = command(env, &[words, &["--profile", "wrk"]].concat());
        assert!(refused.code() == Some(2) && refused.stderr.contains(told), "{refused}");
    }
    let none = command(env, &["servers", "--state-dir", "elsewhere", "--profile", "wrk"]);
    assert!(none.stderr.contains("no file of definitions has 'profiles'"), "{none}");
}

fn many_changes_at_once_lose_none(env: &TestEnv) {
    let names: Vec<String> = (0..8).map(|number| format!("server{number}")).collect();
    std::thread::scope(|scope| {
        let adding = names
            .iter()
            .map(|name| scope.spawn(move || command(env, &["servers", "add", name, "--", "x"]).ok()));
        let all: Vec<_> = adding.collect();
        all.into_iter().for_each(|added| drop(added.join().unwrap()));
    });
    let written = written(env);
    assert!(names.iter().all(|name| written["mcpServers"].get(name).is_some()), "{written}");
}
