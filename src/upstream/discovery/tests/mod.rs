//! Whole configurations of users, in homes that exist for one test.

mod trust;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::*;

type Pairs<'a> = Vec<(&'a str, &'a str)>;

/// A home and a folder in it, with nothing else of this machine.
struct Home {
    dir: tempfile::TempDir,
    surroundings: Surroundings,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let cwd = home.join("project");
        fs::create_dir(&cwd).unwrap();
        let environment = [("PATH", "/usr/bin:/bin"), ("TOKEN", "t0ken")];
        let surroundings = Surroundings {
            state_dir: home.join("MCPs"),
            trust_project: true,
            cwd,
            environment: Arc::new(environment.map(|(name, value)| (name.into(), value.into())).into()),
            home: Some(home),
            ..Surroundings::default()
        };
        Self { dir, surroundings }
    }

    /// A home whose user approves definitions one by one.
    fn careful() -> Self {
        let mut home = Self::new();
        home.surroundings.trust_project = false;
        home
    }

    fn path(&self, path: &str) -> PathBuf {
        self.surroundings.home.as_ref().unwrap().join(path)
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn discovery(&self) -> Discovery {
        Discovery::new(self.surroundings.clone())
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.discovery().snapshot()
    }
}

fn servers(name: &str, command: &str) -> String {
    format!(r#"{{"mcpServers": {{"{name}": {{"command": "{command}"}}}}}}"#)
}

fn stdio<'a>(snapshot: &'a Snapshot, name: &str) -> (&'a str, Vec<&'a str>, Pairs<'a>, Option<&'a Path>) {
    let server = snapshot.get(name).unwrap_or_else(|| panic!("no '{name}' in {snapshot:?}"));
    match &server.definition.as_ref().unwrap().launch {
        Launch::Stdio { command, args, env, cwd } => (
            command,
            args.iter().map(String::as_str).collect(),
            env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            cwd.as_deref(),
        ),
        Launch::Http { .. } | Launch::OpenApi(_) => panic!("'{name}' is reached over HTTP"),
    }
}

fn http<'a>(snapshot: &'a Snapshot, name: &str) -> (&'a str, Pairs<'a>) {
    match &snapshot.get(name).unwrap().definition.as_ref().unwrap().launch {
        Launch::Http { url, headers, .. } => {
            (url, headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect())
        }
        Launch::Stdio { .. } | Launch::OpenApi(_) => panic!("'{name}' is no MCP server over HTTP"),
    }
}

fn names(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.servers.iter().map(|server| &*server.name).collect()
}

fn warnings(snapshot: &Snapshot) -> Vec<String> {
    snapshot.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn the_servers_of_opencode_2_are_found() {
    let home = Home::new();
    home.write(".opencode.json", r#"{"mcp": {"servers": {"z": {"type": "local", "command": ["c"]}}}}"#);
    let snapshot = home.snapshot();
    assert_eq!(snapshot.servers.iter().map(|server| &*server.name).collect::<Vec<_>>(), ["z"]);
    home.write(".opencode.json", r#"{"mcp": {"servers": {"type": "local", "command": ["c"]}}}"#);
    assert_eq!(&*home.snapshot().servers[0].name, "servers");
}

#[test]
fn a_file_without_definitions_is_a_warning() {
    let home = Home::new();
    home.write("MCPs/typo.json", "{\"mcpServer\":\n{\"a\": {\"command\": \"c\"}}}");
    let warnings: Vec<String> = home.snapshot().warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].ends_with("typo.json:1: it has no 'mcpServers'"), "{warnings:?}");
    home.write("MCPs/typo.json", "{}");
    assert!(home.snapshot().warnings.is_empty());
}

#[test]
fn without_files_there_are_no_servers_and_no_warnings() {
    let home = Home::new();
    let snapshot = home.snapshot();
    assert!(snapshot.servers.is_empty() && snapshot.skipped.is_empty() && snapshot.warnings.is_empty());
}

#[test]
fn every_place_is_read_and_the_first_definition_of_a_name_wins() {
    let mut home = Home::new();
    let config = home.write("elsewhere/extra.json", &servers("s", "0"));
    home.surroundings.servers_config = Some(config);
    let files = [
        "MCPs/a.json",
        "MCPs/b.json",
        "project/mcp-servers/x.json",
        ".config/mcp/servers/x.json",
        "project/.mcp.json",
        ".claude.json",
        "project/claude_code_config.json",
        "project/claude_desktop_config.json",
        "Library/Application Support/Claude/claude_desktop_config.json",
        "Library/Application Support/Claude Code/claude_code_config.json",
        ".config/Claude/claude_desktop_config.json",
        ".cursor/mcp.json",
        "project/.cursor/mcp.json",
        ".codeium/windsurf/mcp_config.json",
        ".gemini/settings.json",
    ];
    for (at, file) in files.iter().enumerate() {
        home.write(
            file,
            &format!(r#"{{"mcpServers": {{"s": {{"command": "x"}}, "n{at}": {{"command": "c{at}"}}}}}}"#),
        );
    }
    home.write("project/.vscode/mcp.json", r#"{"servers": {"n15": {"type": "stdio", "command": "c15"}}}"#);
    home.write(
        ".config/Code/User/settings.json",
        "{\n// mine\n\"mcp\": {\"servers\": {\"n16\": {\"command\": \"c16\"}}},}",
    );
    home.write(".codex/config.toml", "model = \"x\"\n[mcp_servers.n17]\ncommand = \"c17\"\n");
    home.write(".opencode.json", r#"{"mcp": {"n18": {"type": "local", "command": ["c18"]}}}"#);
    home.write("project/opencode.json", r#"{"mcp": {"n19": {"type": "local", "command": ["c19"]}}}"#);
    home.write(
        ".config/opencode/opencode.json",
        r#"{"mcp": {"n20": {"type": "local", "command": ["c20"]}}}"#,
    );
    let snapshot = home.snapshot();
    assert_eq!(snapshot.warnings, []);
    let expected: Vec<String> =
        std::iter::once("s".into()).chain((0..=20).map(|at| format!("n{at}"))).collect();
    assert_eq!(names(&snapshot), expected);
    assert_eq!(stdio(&snapshot, "s").0, "0");
    for at in 0..=20 {
        assert_eq!(stdio(&snapshot, &format!("n{at}")).0, format!("c{at}"));
    }
    assert_eq!(*snapshot.get("n3").unwrap().source.path, home.path(files[3]));
    assert_eq!(snapshot.skipped.len(), files.len());
    let Err(Skip::Duplicate(first)) = &snapshot.skipped[0].definition else { panic!("no duplicate") };
    assert!(first.to_string().ends_with("elsewhere/extra.json:1"), "{first}");
}

#[test]
fn the_forms_of_each_program_are_read() {
    let home = Home::new();
    home.write(
        "MCPs/all.json",
        r#"{
            "description": "for all",
            "mcpServers": {
                "full": {
                    "command": "~/bin/${env:TOKEN}", "args": ["-v", 1, true, "~/x", "${NONE:-d}"],
                    "env": {"A": "${TOKEN}", "PORT": 80, "OFF": null}, "cwd": "~", "description": "its own"
                },
                "relative": {"command": "x", "cwd": "sub"},
                "remote": {"type": "streamable-http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
                "windsurf": {"serverUrl": "http://127.0.0.1:1/mcp"},
                "gemini": {"httpUrl": "http://127.0.0.1:2/mcp"},
                "old": {"type": "sse", "url": "http://127.0.0.1:3/sse"},
            },
            "servers": {"vscode": {"command": "v"}},
            "mcp.servers": {"flat": {"command": "f"}},
        }"#,
    );
    home.write(
        ".config/opencode/opencode.json",
        r#"{"mcp": {
            "oc": {"type": "local", "command": ["npx", "-y", "x"], "environment": {"K": "{env:TOKEN}"}, "enabled": true},
            "oc-remote": {"type": "remote", "url": "https://example.org/oc", "headers": {"X-Key": "{env:TOKEN}"}},
            "oc-off": {"type": "local", "command": ["x"], "enabled": false}
        }}"#,
    );
    home.write(
        ".codex/config.toml",
        r#"
        [mcp_servers.codex]
        command = "c"
        args = ["a"]
        env = { B = "1" }
        env_vars = ["TOKEN", "NONE"]
        startup_timeout_sec = 2.5
        tool_timeout_sec = 90
        [mcp_servers.codex-http]
        url = "https://example.org/c"
        bearer_token_env_var = "TOKEN"
        http_headers = { X = "1" }
        env_http_headers = { Y = "TOKEN" }
        "#,
    );
    let snapshot = home.snapshot();
    assert_eq!(snapshot.warnings, []);
    let command = home.path("bin/t0ken").display().to_string();
    let x = home.path("x").display().to_string();
    let root = home.path("");
    let (found, args, env, cwd) = stdio(&snapshot, "full");
    assert_eq!(found, command);
    assert_eq!(args, ["-v", "1", "true", &x, "d"]);
    assert_eq!(env, [("A", "t0ken"), ("PORT", "80")]);
    assert_eq!(cwd.unwrap().components().collect::<PathBuf>(), root.components().collect::<PathBuf>());
    assert_eq!(snapshot.get("full").unwrap().description.as_deref(), Some("its own"));
    assert_eq!(snapshot.get("remote").unwrap().description.as_deref(), Some("for all"));
    assert_eq!(snapshot.get("oc").unwrap().description, None);
    assert_eq!(stdio(&snapshot, "relative").3, Some(home.path("project/sub").as_path()));
    assert_eq!(
        http(&snapshot, "remote"),
        ("https://example.org/mcp", vec![("Authorization", "Bearer t0ken")])
    );
    assert_eq!(http(&snapshot, "windsurf").0, "http://127.0.0.1:1/mcp");
    assert_eq!(http(&snapshot, "gemini").0, "http://127.0.0.1:2/mcp");
    assert_eq!(http(&snapshot, "old").0, "http://127.0.0.1:3/sse");
    assert_eq!((stdio(&snapshot, "vscode").0, stdio(&snapshot, "flat").0), ("v", "f"));
    assert_eq!(stdio(&snapshot, "oc"), ("npx", vec!["-y", "x"], vec![("K", "t0ken")], None));
    assert_eq!(http(&snapshot, "oc-remote").1, [("X-Key", "t0ken")]);
    assert_eq!(snapshot.skipped("oc-off").unwrap().definition, Err(Skip::Disabled));
    assert_eq!(stdio(&snapshot, "codex"), ("c", vec!["a"], vec![("TOKEN", "t0ken"), ("B", "1")], None));
    let codex = snapshot.get("codex").unwrap().definition.as_ref().unwrap();
    assert_eq!(
        (codex.startup_timeout.unwrap().as_millis(), codex.call_timeout.unwrap().as_secs()),
        (2_500, 90)
    );
    let headers = [("X", "1"), ("Y", "t0ken"), ("Authorization", "Bearer t0ken")];
    assert_eq!(http(&snapshot, "codex-http"), ("https://example.org/c", headers.to_vec()));
}

#[test]
fn claude_code_has_servers_of_its_own_for_each_project() {
    let home = Home::new();
    let project = home.path("project").display().to_string();
    let above = home.path("").components().collect::<PathBuf>().display().to_string();
    home.write(
        ".claude.json",
        &format!(
            r#"{{"mcpServers": {{"s": {{"command": "user"}}, "u": {{"command": "u"}}}},
                "projects": {{
                    "{above}": {{"mcpServers": {{"s": {{"command": "above"}}, "a": {{"command": "a"}}}}}},
                    "{project}": {{"mcpServers": {{"s": {{"command": "here"}}}}, "history": []}},
                    "/elsewhere": {{"mcpServers": {{"e": {{"command": "e"}}}}}}
                }}}}"#
        ),
    );
    let snapshot = home.snapshot();
    assert_eq!(names(&snapshot), ["s", "a", "u"]);
    assert_eq!(stdio(&snapshot, "s").0, "here");
}

#[test]
fn an_invalid_entry_is_reported_with_its_line_and_the_others_load() {
    let home = Home::new();
    let path = home.write(
        "MCPs/a.json",
        r#"{"mcpServers": {
            "number": 1,
            "empty": {},
            "command": {"command": 7},
            "blank": {"command": " "},
            "args": {"command": "x", "args": "y"},
            "arg": {"command": "x", "args": [["y"]]},
            "env": {"command": "x", "env": ["A=1"]},
            "value": {"command": "x", "env": {"A": {}}},
            "cwd": {"command": "x", "cwd": 1},
            "disabled": {"command": "x", "disabled": "yes"},
            "type": {"type": "ws", "url": "http://x/"},
            "url": {"url": "ftp://x/"},
            "header": {"url": "http://x/", "headers": {"a b": "c"}},
            "secret": {"url": "http://x/", "headers": {"A": "hunter2\n"}},
            "no-url": {"type": "http"},
            "missing": {"command": "x", "env": {"A": "${NONE}"}},
            "": {"command": "x"},
            "input": {"command": "x", "args": ["${input:key}"]},
            "slow": {"command": "x", "startup_timeout_sec": 0},
            "good": {"command": "x"},
            "good": {"command": "y"}
        }}"#,
    );
    let snapshot = home.snapshot();
    assert_eq!(names(&snapshot), ["good"]);
    assert_eq!(stdio(&snapshot, "good").0, "x");
    let warnings = warnings(&snapshot);
    for (line, words) in [
        (2, "server 'number' is skipped: it must be an object, not a number"),
        (3, "it has neither 'command' nor 'url' nor 'openapi'"),
        (4, "'command' must be a string, not a number"),
        (5, "'command' is empty"),
        (6, "'args' must be a list of strings, not a string"),
        (7, "'args' must be a list of strings; a list is in it"),
        (8, "'env' must be an object of strings, not a list"),
        (9, "'A' in 'env' must be a string, not an object"),
        (10, "'cwd' must be a string"),
        (11, "'disabled' must be true or false, not a string"),
        (12, "transport 'ws' is not supported: use stdio, http or sse"),
        (13, "'url' must be a URL that starts with http:// or https://"),
        (14, "\"a b\" is not a valid header name"),
        (15, "header 'A' has an invalid value"),
        (16, "it is an HTTP server without 'url'"),
        (17, "environment variable 'NONE' is not set"),
        (18, "\"\" is not a valid server name"),
        (19, "only an editor has a value for '${input:key}'"),
        (20, "'startup_timeout_sec' must be a number of seconds above zero, not 0"),
        (22, "server 'good' is already defined in line 21"),
    ] {
        let start = format!("{}:{line}: ", path.display());
        let found: Vec<_> = warnings.iter().filter(|warning| warning.starts_with(&start)).collect();
        assert!(found.len() == 1 && found[0].contains(words), "line {line}: {words}: {warnings:#?}");
    }
    assert_eq!(warnings.len(), 20);
    assert!(!warnings.join("").contains("hunter2"));
}

#[test]
fn an_unreadable_file_is_reported_and_the_others_load() {
    let mut home = Home::new();
    home.write("MCPs/0-syntax.json", "{\n\"mcpServers\": {\n\"a\" {}\n}}");
    fs::create_dir_all(home.path("MCPs/1-folder.json")).unwrap();
    fs::write(home.path("MCPs/2-bytes.json"), b"{\n\"a\": \"\xff\"}").unwrap();
    symlink("/no/such/file", home.path("MCPs/3-link.json")).unwrap();
    home.write("MCPs/4-list.json", "[]");
    home.write("MCPs/5-wrong.json", "{\"mcpServers\": []}");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        home.path("MCPs/6-pipe.json"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    home.write("MCPs/7-empty.json", "");
    home.write("MCPs/8-other.json", "{\"unrelated\": true}");
    home.write("MCPs/9-good.json", &servers("good", "x"));
    home.write("MCPs/.hidden.json", &servers("hidden", "x"));
    home.write("MCPs/notes.txt", "no JSON");
    home.write(".codex/config.toml", "[mcp_servers.x]\ncommand = \n");
    home.write("project/.cursor", "a file where a folder should be");
    home.surroundings.servers_config = Some(home.path("nowhere.json"));
    let snapshot = home.snapshot();
    assert_eq!(names(&snapshot), ["good"]);
    let warnings = warnings(&snapshot);
    for words in [
        "nowhere.json: MCP_SERVERS_CONFIG names this file, which does not exist",
        "0-syntax.json:3: could not parse it: ",
        "1-folder.json: it is a folder, not a file",
        "2-bytes.json:2: it is not UTF-8",
        "3-link.json: could not read it: No such file",
        "4-list.json:1: the file must be an object, not a list",
        "5-wrong.json:1: 'mcpServers' must be an object, not a list",
        "6-pipe.json: it is a pipe or a device, not a file",
        "8-other.json:1: it has no 'mcpServers'",
        ".codex/config.toml:2: could not parse it: ",
    ] {
        assert_eq!(
            warnings.iter().filter(|warning| warning.contains(words)).count(),
            1,
            "{words}: {warnings:#?}"
        );
    }
    assert_eq!(warnings.len(), 10, "{warnings:#?}");
}

#[test]
fn an_unreadable_folder_is_reported() {
    let home = Home::new();
    symlink("MCPs", home.path("MCPs")).unwrap();
    let warnings = warnings(&home.snapshot());
    assert!(warnings.len() == 1 && warnings[0].contains("MCPs: could not read it"), "{warnings:?}");
}

#[test]
fn a_definition_of_this_bridge_is_skipped_unless_it_is_allowed() {
    let mut home = Home::new();
    home.write(
        ".claude.json",
        r#"{"mcpServers": {
            "me": {"command": "uvx", "args": ["--from", "git+https://example.org/x", "codebridge"], "env": {"X": "${NONE}"}},
            "too": {"command": "codebridge"},
            "off": {"command": "codebridge", "disabled": true}
        }}"#,
    );
    home.write("project/.cursor/mcp.json", &servers("too", "other"));
    let snapshot = home.snapshot();
    assert_eq!(snapshot.skipped("me").unwrap().definition, Err(Skip::Itself));
    assert_eq!(snapshot.skipped("off").unwrap().definition, Err(Skip::Disabled));
    assert_eq!(stdio(&snapshot, "too").0, "other");
    assert_eq!(snapshot.warnings, []);
    home.surroundings.allow_self = true;
    let snapshot = home.snapshot();
    assert_eq!(stdio(&snapshot, "too").0, "codebridge");
    assert!(matches!(snapshot.skipped("me").unwrap().definition, Err(Skip::MissingVariable(_))));
}

#[test]
fn a_server_is_found_by_its_name_before_its_alias() {
    let home = Home::new();
    home.write(
        "MCPs/a.json",
        r#"{"mcpServers": {"My Server": {"command": "1"}, "my_server": {"command": "2"}, "class": {"command": "3"}}}"#,
    );
    let snapshot = home.snapshot();
    let aliases: Vec<_> = snapshot.servers.iter().map(|server| &*server.alias).collect();
    assert_eq!(aliases, ["my_server", "my_server_2", "class_"]);
    assert_eq!(stdio(&snapshot, "my_server").0, "2");
    assert_eq!(stdio(&snapshot, "My Server").0, "1");
    assert_eq!(stdio(&snapshot, "my_server_2").0, "2");
    assert_eq!(stdio(&snapshot, "class_").0, "3");
    assert!(snapshot.get("My server").is_none());
}

#[test]
fn changed_files_are_read_again_and_others_are_not() {
    let home = Home::new();
    let discovery = home.discovery();
    let nothing = discovery.snapshot();
    assert!(Arc::ptr_eq(&nothing, &discovery.snapshot()));
    let file = home.write("MCPs/a.json", &servers("one", "x"));
    let first = discovery.snapshot();
    assert_eq!(names(&first), ["one"]);
    assert!(Arc::ptr_eq(&first, &discovery.snapshot()));
    // As long, at the same instant, in the same file: times alone would not tell.
    let time = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, servers("two", "x")).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    let second = discovery.snapshot();
    assert_eq!(names(&second), ["two"]);
    home.write("MCPs/b.json", &servers("three", "x"));
    assert_eq!(names(&discovery.snapshot()), ["two", "three"]);
    fs::remove_file(&file).unwrap();
    assert_eq!(names(&discovery.snapshot()), ["three"]);
    fs::write(home.path("MCPs/b.json"), "{").unwrap();
    let broken = discovery.snapshot();
    assert_eq!((names(&broken).len(), broken.warnings.len()), (0, 1));
}

#[test]
fn one_file_in_two_places_counts_once() {
    let mut home = Home::new();
    home.write(".mcp.json", &servers("a", "x"));
    home.write(".cursor/mcp.json", &servers("b", "x"));
    home.surroundings.cwd = home.path("");
    fs::create_dir_all(home.path("MCPs")).unwrap();
    symlink(home.path(".mcp.json"), home.path("MCPs/link.json")).unwrap();
    let snapshot = home.snapshot();
    assert_eq!(names(&snapshot), ["a", "b"]);
    assert_eq!((snapshot.skipped.len(), snapshot.warnings.len()), (0, 0));
}
