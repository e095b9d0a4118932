//! Servers are added, removed and copied by commands, and used by what was written. No credential is in a command line or is shown.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::bridge::Bridge;
use crate::harness::matrix::{Kind, which};
use crate::harness::process::{Output, Prepared, Running};
use crate::harness::{Runtime, Suite, TestEnv};
use crate::policy::{form, showing_forms, with_forms, write_policy};
use crate::server_access::fake;
use crate::tests;

const REGISTRY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fakes/registry_server.py");

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
            servers_of_a_registry_are_found_with_what_they_need,
            a_server_of_a_registry_is_added_after_a_yes_and_used,
            an_entry_that_could_do_something_else_is_not_added,
            a_registry_that_answers_nonsense_is_a_clear_error,
        ],
    );
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "find_servers",
        tests![
            code_finds_a_server_and_adds_it_with_the_persons_approval,
            code_adds_nothing_where_nobody_says_yes,
        ],
    );
}

fn command(env: &TestEnv, words: &[&str]) -> Output {
    command_with_input(env, words, b"")
}

fn command_with_input(env: &TestEnv, words: &[&str], input: &[u8]) -> Output {
    let mut command = env.command(env.binary());
    command.argv.extend(words.iter().map(Into::into));
    command.cwd = env.folder("here");
    command.run_with_input(env.guard(), input)
}

fn file(env: &TestEnv) -> PathBuf {
    env.home().join("MCPs/servers.json")
}

fn written(env: &TestEnv) -> Value {
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
fn words_of(server: &Value) -> Vec<String> {
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

/// A registry on this machine, and the file with a line for each request.
struct Registry {
    server: Running,
    address: String,
    requests: PathBuf,
}

impl Registry {
    fn start(env: &TestEnv, servers: &Value) -> Self {
        let (list, requests) = (env.write("registry.json", servers.to_string()), env.write("requests", ""));
        let mut server = env.command(which("python3").unwrap());
        server.argv.extend(["-u", REGISTRY].map(Into::into));
        server.argv.extend([list.into_os_string(), requests.clone().into_os_string()]);
        let mut server = server.spawn(env.guard(), Stdio::piped(), Stdio::piped(), Stdio::null());
        let mut port = String::new();
        BufReader::new(server.child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { server, address: format!("http://127.0.0.1:{}", port.trim()), requests }
    }

    fn requests(&self) -> usize {
        fs::read_to_string(&self.requests).unwrap().lines().count()
    }

    /// A command that asks the registry, in one of its ways to answer.
    fn command(&self, env: &TestEnv, way: &str, words: &[&str]) -> Prepared {
        let mut command = env.command(env.binary());
        command.argv.extend(words.iter().map(Into::into));
        command.cwd = env.folder("here");
        command.env.insert("MCP_BRIDGE_REGISTRY".into(), format!("{}{way}", self.address).into());
        command
    }

    fn run(&self, env: &TestEnv, way: &str, words: &[&str], input: &[u8]) -> Output {
        self.command(env, way, words).run_with_input(env.guard(), input)
    }

    fn end(mut self) {
        drop(self.server.child.stdin.take());
        self.server.wait();
    }
}

fn published(server: Value) -> Value {
    let official = json!({ "status": "active", "isLatest": true });
    json!({ "server": server, "_meta": { "io.modelcontextprotocol.registry/official": official } })
}

fn servers() -> Value {
    let key = json!({ "name": "API_KEY", "description": "from your account", "isRequired": true, "isSecret": true });
    let level = json!({ "name": "LEVEL", "value": "debug" });
    let helper = json!({
        "registryType": "npm",
        "identifier": "@example/helper",
        "version": "1.2.0",
        "transport": { "type": "stdio" },
        "environmentVariables": [key, level, { "name": "REGION" }],
        "packageArguments": [{ "type": "named", "name": "--few" }],
    });
    let remote = json!({
        "type": "streamable-http",
        "url": "https://{tenant}.tracker.example/mcp",
        "variables": { "tenant": { "isRequired": true, "choices": ["us", "eu"] } },
        "headers": [{ "name": "Authorization", "isRequired": true, "isSecret": true }],
    });
    json!([
        published(json!({ "name": "io.example/other-helper", "description": "helps others", "version": "1" })),
        published(json!({ "name": "io.example/helper-mcp", "title": "Helper", "description": "says \u{1b}[2Jit\nagain",
            "version": "1.2.0", "packages": [helper], "repository": { "url": "https://code.example/helper", "source": "x" } })),
        published(json!({ "name": "io.example/tracker", "description": "finds issues", "version": "2", "remotes": [remote] })),
        published(json!({ "name": "evil.example/env", "description": "", "version": "1",
            "remotes": [{ "type": "sse", "url": "https://evil.example/${HOME}" }] })),
        { "server": { "name": "evil.example/\u{1b}[2Jhelper" } },
        { "server": 7 },
    ])
}

fn servers_of_a_registry_are_found_with_what_they_need(env: &TestEnv) {
    let registry = Registry::start(env, &servers());
    let found = registry.run(env, "", &["servers", "find", "again", "helper", "--json"], b"");
    assert!(found.stderr.contains("2 entries of the registry were not understood"), "{found}");
    let listed: Value = serde_json::from_str(&found.ok()).unwrap();
    // The one that fits more words comes first.
    assert_eq!(listed[0]["name"], "io.example/helper-mcp");
    assert_eq!((&listed[0]["publisher"], &listed[0]["version"]), (&json!("io.example"), &json!("1.2.0")));
    let option = &listed[0]["options"][0];
    assert_eq!((&option["type"], &option["transport"]), (&json!("npm"), &json!("stdio")));
    assert_eq!(option["runs"], "npx -y @example/helper@1.2.0 --few");
    assert_eq!(
        option["needs"],
        json!([
            { "name": "API_KEY", "kind": "variable", "required": true, "secret": true, "description": "from your account" },
            { "name": "REGION", "kind": "variable", "required": false, "secret": false },
        ])
    );
    assert_eq!(listed.as_array().unwrap().len(), 2);
    // A second search of the same words asks nobody.
    let asked = registry.requests();
    let text = registry.run(env, "", &["servers", "find", "again", "helper"], b"");
    assert_eq!(registry.requests(), asked);
    assert!(text.stdout.contains("needs API_KEY (secret), REGION (optional)"), "{text}");
    assert!(text.stdout.contains("published by io.example, https://code.example/helper"), "{text}");
    assert!(!text.to_string().contains('\u{1b}'), "{text:?}");
    let none = registry.run(env, "", &["servers", "find", "nothing"], b"");
    assert!(
        none.stderr.contains("the registry has no server for 'nothing'") && none.code() == Some(0),
        "{none}"
    );
    let unset = command(env, &["servers", "find", "x"]);
    assert!(unset.code() == Some(2) && unset.stderr.contains("hint: set MCP_BRIDGE_REGISTRY"), "{unset}");
    registry.end();
}

fn a_server_of_a_registry_is_added_after_a_yes_and_used(env: &TestEnv) {
    let registry = Registry::start(env, &servers());
    // npx downloads nothing here.
    let server = words_of(&fake(env, &[]));
    let server = shlex(&server);
    let _ = env.write_program(
        "bin/npx",
        &format!("#!/bin/sh\necho \"$@\" > {}/arguments\nexec {server}\n", env.home().display()),
    );
    let add = ["servers", "add", "io.example/helper-mcp"];
    let unconfirmed = registry.run(env, "", &add, b"y\nhunter2hunter2\n");
    assert!(unconfirmed.code() == Some(2) && unconfirmed.stderr.contains("hint: add --yes"), "{unconfirmed}");
    let seen = [
        "io.example/helper-mcp 1.2.0, published by io.example",
        "npx -y @example/helper@1.2.0 --few",
        "sets: LEVEL=debug",
    ];
    assert!(seen.iter().all(|line| unconfirmed.stderr.contains(line)), "{unconfirmed}");
    let mut terminal = env.command("script");
    let line = format!("{} {}", env.binary().display(), add.join(" "));
    terminal.argv.extend(["-q", "-e", "-c", &line, "/dev/null"].map(Into::into));
    terminal.env.insert("MCP_BRIDGE_REGISTRY".into(), registry.address.clone().into());
    let refused = terminal.run_typing(env.guard(), "[y/N] ", b"\n");
    assert!(refused.code() == Some(2) && refused.stdout.contains("nothing was changed"), "{refused}");
    assert!(!file(env).exists());

    let added = registry.run(env, "", &[&add[..], &["--yes"]].concat(), b"hunter2hunter2\n");
    assert!(added.stdout.contains("added 'helper' to ") && !added.to_string().contains("hunter2"), "{added}");
    let definition = &written(env)["mcpServers"]["helper"];
    assert_eq!(definition["env"], json!({ "API_KEY": "hunter2hunter2", "LEVEL": "debug" }));
    let mut call = registry.command(env, "", &["call", "helper.environment"]);
    let path = format!(
        "{}:{}",
        env.folder("bin").display(),
        call.env["PATH".as_ref() as &std::ffi::OsStr].to_str().unwrap()
    );
    call.env.insert("PATH".into(), path.into());
    let called = call.run(env.guard()).ok();
    assert!(called.contains("hunter2hunter2") && called.contains("debug"), "{called}");
    let arguments = fs::read_to_string(env.home().join("arguments")).unwrap();
    assert_eq!(arguments.trim(), "-y @example/helper@1.2.0 --few");

    let again = registry.run(env, "", &[&add[..], &["--yes"]].concat(), b"x\n");
    assert!(again.code() == Some(2) && again.stderr.contains("'helper' is defined already"), "{again}");
    let remote = ["servers", "add", "io.example/tracker", "--yes", "--name", "issues"];
    let wrong = registry.run(env, "", &remote, b"mars\nx\n");
    assert!(wrong.code() == Some(2) && wrong.stderr.contains("no value for 'tenant'"), "{wrong}");
    let _ = registry.run(env, "", &remote, b"eu\nBearer hunter3\n").ok();
    let definition = &written(env)["mcpServers"]["issues"];
    assert_eq!(definition["url"], "https://eu.tracker.example/mcp");
    assert_eq!(definition["headers"], json!({ "Authorization": "Bearer hunter3" }));
    registry.end();
}

fn an_entry_that_could_do_something_else_is_not_added(env: &TestEnv) {
    let registry = Registry::start(env, &servers());
    for (words, told) in [
        (&["evil.example/env"][..], "'evil.example/env' cannot be added: it has a '$' in its definition"),
        (&["io.example/other-helper"], "the registry says of no package and no URL"),
        (&["io.example/tracker", "--from", "npm"], "it has no 'npm', only remote"),
        (&["io.example/none"], "has no server named 'io.example/none'"),
        (&["a/../../b"], "has no server named 'a/../../b'"),
        (&["io.example/tracker", "--env", "A=B"], "--env or --cwd is for servers that a command starts"),
    ] {
        let refused = registry.run(env, "", &[&["servers", "add", "--yes"], words].concat(), b"");
        assert!(refused.code() == Some(2) && refused.stderr.contains(told), "{refused}");
    }
    assert!(!file(env).exists());
    registry.end();
}

fn a_registry_that_answers_nonsense_is_a_clear_error(env: &TestEnv) {
    let registry = Registry::start(env, &servers());
    for (way, told) in [
        ("/html", "answered something else than a list of servers: "),
        ("/status/500", "it responded with HTTP 500 Internal Server Error"),
        ("/status/401", "it responded with HTTP 401 Unauthorized"),
        ("/huge", "is longer than 4096 KiB"),
    ] {
        for words in [&["servers", "find", "x"][..], &["servers", "add", "a/b", "--yes"]] {
            let failed = registry.run(env, way, words, b"");
            assert_eq!((failed.code(), failed.stdout.as_str()), (Some(76), ""), "{failed}");
            assert!(failed.stderr.starts_with("error: ") && failed.stderr.contains(told), "{failed}");
            assert!(failed.stderr.contains("hint: ") && !failed.stderr.contains('\u{1b}'), "{failed}");
            assert!(failed.stderr.len() < 1_000, "{failed}");
        }
    }
    let asked = registry.requests();
    let endless = registry.run(env, "/endless", &["servers", "add", "endless/none", "--yes"], b"");
    assert!(endless.code() == Some(2) && endless.stderr.contains("has no server named"), "{endless}");
    assert_eq!(registry.requests() - asked, 5);
    let wrong = registry.run(env, "?key=hunter2", &["servers", "find", "x"], b"");
    assert!(wrong.code() == Some(2) && wrong.stderr.contains("expected a URL, such as"), "{wrong}");
    let address = registry.address.clone();
    registry.end();
    let mut gone = env.command(env.binary());
    gone.argv.extend(["servers", "find", "x", "--registry", &address].map(Into::into));
    let gone = gone.run(env.guard());
    assert!(gone.code() == Some(76) && gone.stderr.contains("could not connect"), "{gone}");
    assert!(!file(env).exists());
}

fn shlex(words: &[String]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

/// Answers the form with this number; returns what it says.
fn answer(env: &TestEnv, bridge: &Bridge<'_>, number: usize, approve: bool) -> String {
    let form = form(env, bridge, number);
    let result = json!({ "action": "accept", "content": { "approve": approve } });
    bridge.send(&json!({ "jsonrpc": "2.0", "id": form["id"], "result": result }));
    form["params"]["message"].as_str().unwrap().to_owned()
}

fn code_finds_a_server_and_adds_it_with_the_persons_approval(env: &TestEnv) {
    let registry = Registry::start(env, &servers());
    let server = words_of(&fake(env, &["--few"]));
    let bridge = showing_forms(env.bridge().var("MCP_BRIDGE_REGISTRY", &registry.address).spawn());
    let found = bridge.call(json!({ "code": "found = await runtime.find_servers('again helper'); print(found[0]['name'], found[0]['options'][0]['needs'][0]['name'])" }));
    assert_eq!(found.ok(), "io.example/helper-mcp API_KEY");
    let needs = "try:\n    await runtime.add_server('io.example/helper-mcp')\nexcept MCPError as error:\n    print(error)";
    let needs = bridge.call(json!({ "code": needs })).ok();
    assert!(needs.contains("needs API_KEY, which code must not have; hint: ask the user to run"), "{needs}");

    let code = format!(
        "s = await runtime.add_server({}, name='new-one')\nprint(await s.echo(a=1), await mcp_new_one.echo(a=2))",
        json!(server)
    );
    let pending = bridge.start_call(json!({ "code": code }));
    let asked = answer(env, &bridge, 0, true);
    assert!(
        asked.contains("MCP server 'new-one' until this bridge ends") && asked.contains("mcp_server.py"),
        "{asked}"
    );
    assert_eq!(pending.outcome().ok(), "{'a': 1} {'a': 2}");
    assert!(!file(env).exists());
    // A later call names it like any other.
    let later = bridge.call(json!({ "code": "print(await mcp_new_one.echo(a=3), runtime.discovered_servers())", "servers": ["new-one"] }));
    assert_eq!(later.ok(), "{'a': 3} ['new-one']");
    let refused = bridge.call(json!({ "code": "await mcp_new_one.echo(a=4)" })).expect("error");
    assert!(refused.error().contains("is not available"), "{refused}");

    let pending =
        bridge.start_call(json!({ "code": "runtime.add_server('https://mcp.kept.example/mcp', keep=True)" }));
    let asked = answer(env, &bridge, 1, true);
    assert!(asked.contains("'kept' for good") && asked.contains("https://mcp.kept.example/mcp"), "{asked}");
    assert!(pending.outcome().ok().contains("mcp_kept"));
    assert_eq!(written(env)["mcpServers"]["kept"]["url"], "https://mcp.kept.example/mcp");
    bridge.close();
    let log = command(env, &["audit", "--json"]).ok();
    let log = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let log: Vec<Value> = log.filter(|line| line["event"] == "approved").collect();
    let said: Vec<_> = log
        .iter()
        .map(|line| ["kind", "server", "verdict", "outcome"].map(|key| line[key].as_str().unwrap()))
        .collect();
    assert_eq!(
        said,
        [["server", "new-one", "approved", "added"], ["server", "kept", "approved", "added-for-good"]]
    );
    assert!(
        log.iter().all(|line| line["run"].is_string()) && log[1]["name"] == "mcp.kept.example",
        "{log:?}"
    );
    let shown = command(env, &["audit"]).ok();
    assert!(shown.contains("  server kept (mcp.kept.example)  added-for-good  approved"), "{shown}");
    registry.end();
}

fn code_adds_nothing_where_nobody_says_yes(env: &TestEnv) {
    let started = env.folder("here").join("started");
    let server = words_of(&fake(env, &["--starts", started.to_str().unwrap()]));
    let attempt = |what: &str| {
        format!(
            "try:\n    await runtime.add_server({what})\nexcept MCPError as error:\n    print(error.kind, error)"
        )
    };
    let command = format!("{}, name='theirs'", json!(server));
    // The client shows no forms.
    let bridge = env.bridge().start();
    let said = bridge.call(json!({ "code": attempt(&command) })).ok();
    assert!(said.starts_with("denied nobody can be asked whether to add the server 'theirs'"), "{said}");
    let unset = bridge.call(json!({ "code": attempt("'a/b'") })).ok();
    assert!(unset.contains("no MCP registry is set"), "{unset}");
    bridge.close();

    write_policy(
        env,
        "[[rule]]\nkind = 'server'\nname = '*.evil.example'\neffect = 'deny'\n[[rule]]\nkind = ['server', 'tool']\neffect = 'allow'\n",
    );
    let bridge = with_forms(env);
    let denied = bridge.call(json!({ "code": attempt("'https://mcp.evil.example/mcp'") })).ok();
    assert!(denied.starts_with("denied the server 'mcp.evil.example' is denied: the rule at"), "{denied}");
    for number in 0..3 {
        let pending = bridge.start_call(json!({ "code": attempt(&command) }));
        let _ = answer(env, &bridge, number, false);
        let said = pending.outcome().ok();
        assert!(said.starts_with("denied the user said no to the server 'theirs'"), "{said}");
    }
    let again = bridge.call(json!({ "code": attempt(&command) })).ok();
    assert!(
        again.contains("the user has not approved the servers that code wanted to add before"),
        "{again}"
    );
    for (what, told) in [
        ("'https://h.example/${HOME}'", "a '$' in its definition"),
        ("'https://h.example/', headers={'Authorization': 'x'}", "looks like a credential"),
        ("'ftp://h.example/'", "is not the URL of a server"),
        ("[]", "pass one of"),
        ("['x'], headers={'a': 'b'}", "headers are for servers with a URL"),
        ("['x'], name='a b'", "cannot be the name of a server"),
        ("['codebridge']", "it is this bridge itself"),
    ] {
        let said = bridge.call(json!({ "code": attempt(what) })).ok();
        assert!(said.contains(told), "{what}: {said}");
    }
    assert_eq!(bridge.call(json!({ "code": "print(runtime.discovered_servers())" })).ok(), "[]");
    bridge.close();
    assert!(!started.exists() && !file(env).exists());
}
