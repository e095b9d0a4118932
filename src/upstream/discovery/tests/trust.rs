//! Definitions in the working directory, which the person has to approve, and what is read of others.

use super::*;

/// Returns what the user has to approve, if the first unused definition of the name waits for that.
fn proposal(snapshot: &Snapshot, name: &str) -> Option<Arc<Proposal>> {
    match &snapshot.skipped(name)?.definition {
        Err(Skip::Untrusted(proposal)) => Some(Arc::clone(proposal)),
        _ => None,
    }
}

#[test]
fn a_definition_of_the_working_directory_waits_for_approval_and_expands_nothing() {
    let home = Home::careful();
    let all = r#"{
        "a": {"command": "${TOKEN}", "args": ["~/x"], "env_vars": ["TOKEN"]},
        "b": {"url": "https://h/${TOKEN}", "headers": {"X": "${NONE}"}, "bearer_token_env_var": "TOKEN"}
    }"#;
    home.write("project/.mcp.json", &format!(r#"{{"mcpServers": {all}}}"#));
    home.write("project/.vscode/mcp.json", &format!(r#"{{"servers": {}}}"#, all.replace("\"a\"", "\"c\"")));
    home.write("project/mcp-servers/x.json", &servers("d", "x"));
    home.write("project/opencode.json", r#"{"mcp": {"e": {"type": "local", "command": ["{env:TOKEN}"]}}}"#);
    let discovery = home.discovery();
    let snapshot = discovery.snapshot();
    assert!(snapshot.servers.is_empty(), "{snapshot:?}");
    assert_eq!(snapshot.warnings, []);
    for name in ["a", "b", "c", "d", "e"] {
        let proposal = proposal(&snapshot, name).unwrap_or_else(|| panic!("{name}: {snapshot:?}"));
        assert!(!format!("{proposal:?}").contains("t0ken"), "{proposal:?}");
        discovery.trust(name, &proposal).unwrap();
    }
    let snapshot = discovery.snapshot();
    assert_eq!(stdio(&snapshot, "a").0, "t0ken");
    assert!(matches!(snapshot.skipped("b").unwrap().definition, Err(Skip::MissingVariable(_))));
    assert_eq!(stdio(&snapshot, "e").0, "t0ken");
    assert_eq!(names(&snapshot), ["d", "a", "c", "e"]);
}

#[test]
fn an_approval_holds_for_the_exact_definition_in_its_folder() {
    let mut home = Home::careful();
    home.write("project/.mcp.json", &servers("a", "one"));
    let discovery = home.discovery();
    discovery.trust("a", &proposal(&discovery.snapshot(), "a").unwrap()).unwrap();
    assert_eq!(stdio(&discovery.snapshot(), "a").0, "one");
    // Other bridges of the user know it, and the file may be written in another way.
    home.write("project/.mcp.json", &format!("// mine\n{}\n", servers("a", "one").replace(": ", "  :  ")));
    assert_eq!(stdio(&home.snapshot(), "a").0, "one");
    let others = [
        servers("a", "two"),
        servers("A", "one"),
        r#"{"mcpServers": {"a": {"command": "one", "args": []}}}"#.into(),
        r#"{"mcpServers": {"a": {"command": "one", "env": {"LD_PRELOAD": "x"}}}}"#.into(),
        r#"{"mcpServers": {"a": {"command": ["one"]}}}"#.into(),
        r#"{"mcpServers": {"a": {"command": "one", "command": "two"}}}"#.into(),
    ];
    for other in others {
        home.write("project/.mcp.json", &other);
        assert!(home.snapshot().servers.is_empty(), "{other}");
        assert!(discovery.snapshot().servers.is_empty(), "{other}");
    }
    home.write("elsewhere/.mcp.json", &servers("a", "one"));
    home.surroundings.cwd = home.path("elsewhere");
    assert!(home.snapshot().servers.is_empty());
    home.surroundings.cwd = home.path("project");
    home.write("project/.mcp.json", &servers("a", "one"));
    assert_eq!(names(&home.snapshot()), ["a"]);
    fs::remove_dir_all(home.path("MCPs/trust")).unwrap();
    assert!(home.snapshot().servers.is_empty());
}

#[test]
fn a_definition_that_is_not_approved_hides_no_other_one() {
    let mut home = Home::careful();
    let all = r#"{"mcpServers": {
        "a": {"command": "theirs"}, "b": {"command": "theirs", "disabled": true},
        "c": {"command": 7}, "D": {"command": "theirs"}
    }}"#;
    home.write("project/mcp-servers/x.json", all);
    let mine = ["a", "b", "c", "d"].map(|name| format!(r#""{name}": {{"command": "mine"}}"#)).join(",");
    home.write(".cursor/mcp.json", &format!(r#"{{"mcpServers": {{{mine}}}}}"#));
    // A link to the user's own file does not take it from the user.
    fs::create_dir_all(home.path("project/.vscode")).unwrap();
    symlink(home.path(".cursor/mcp.json"), home.path("project/mcp-servers/a.json")).unwrap();
    let discovery = home.discovery();
    let snapshot = discovery.snapshot();
    assert_eq!(names(&snapshot), ["a", "b", "c", "d"]);
    for name in ["a", "b", "c", "d"] {
        assert_eq!((stdio(&snapshot, name).0, &*snapshot.get(name).unwrap().alias), ("mine", name));
    }
    // Once approved, it comes first, as its place says.
    discovery.trust("a", &proposal(&snapshot, "a").unwrap()).unwrap();
    assert_eq!(stdio(&discovery.snapshot(), "a").0, "theirs");
    // A home is not a folder of somebody else: what every program reads there stays the user's.
    home.surroundings.cwd = home.path("");
    assert_eq!(names(&home.snapshot()), ["a", "b", "c", "d"]);
}

#[test]
fn a_list_of_definitions_and_its_warnings_say_nothing_twice() {
    let mut home = Home::new();
    home.surroundings.servers_config = Some(home.path("nowhere.json"));
    home.write(".claude.json", r#"{"mcpServers": {"bad": {"command": 7}}}"#);
    let snapshot = home.snapshot();
    assert_eq!((snapshot.skipped.len(), snapshot.warnings.len()), (1, 2));
    let kinds: Vec<WarningKind> = snapshot.warnings_of_files().map(|warning| warning.kind).collect();
    assert_eq!(kinds, [WarningKind::NoSuchFile]);
}

#[test]
fn a_folder_of_somebody_else_cannot_keep_the_bridge_busy() {
    let home = Home::careful();
    home.write("project/.mcp.json", &format!("{}{}", servers("a", "x"), " ".repeat(256 << 10)));
    let many: Vec<String> = (0..=100).map(|at| format!(r#""s{at}": {{}}"#)).collect();
    home.write("project/.cursor/mcp.json", &format!(r#"{{"mcpServers": {{{}}}}}"#, many.join(",")));
    for at in 0..=20 {
        home.write(&format!("project/mcp-servers/{at}.json"), "");
    }
    home.write(".claude.json", &format!("{}{}", servers("mine", "x"), " ".repeat(1 << 20)));
    let snapshot = home.snapshot();
    assert_eq!((names(&snapshot), snapshot.skipped.len()), (vec!["mine"], 0));
    let expected = ["more than 20 files", "larger than 256 KiB", "more than 100 servers"];
    for (warning, expected) in warnings(&snapshot).iter().zip(expected) {
        assert!(warning.contains(expected), "{warning}");
    }
    assert_eq!(snapshot.warnings.len(), 3);
}

#[test]
fn what_the_person_reads_is_what_is_used() {
    let home = Home::careful();
    let text = |definition: &str| {
        home.write("project/.mcp.json", &format!(r#"{{"mcpServers": {{"a": {definition}}}}}"#));
        let snapshot = home.snapshot();
        proposal(&snapshot, "a")
            .map(|it| it.text.clone())
            .ok_or_else(|| snapshot.skipped("a").unwrap().definition.clone())
    };
    let shown =
        text(r#"{"url": "https://h", "command": "x", "args": ["\u202e\u043e"], "env": {"A": "${TOKEN}"}}"#)
            .unwrap();
    assert!(shown.starts_with("runs [\"x\",\"\\u202e\\u043e\"]\n{"), "{shown}");
    assert!(shown.is_ascii() && shown.contains("${TOKEN}"), "{shown}");
    let shown = text(r#"{"type": "http", "url": "https://h", "command": "x"}"#).unwrap();
    assert!(shown.starts_with("connects to \"https://h\"\n"), "{shown}");
    // Of a repeated name one program takes the first value and another one the last.
    for twice in [
        r#"{"command": "x", "command": "y"}"#,
        r#"{"command": "x", "env": {"A": "1", "A": "2"}}"#,
        r#"{"url": "https://h", "headers": {"A": "1", "A": "${TOKEN}"}}"#,
        r#"{"command": "x", "other": [{"b": 1, "b": 2}]}"#,
    ] {
        assert!(matches!(text(twice), Err(Err(Skip::Invalid(why))) if why.contains("twice")), "{twice}");
    }
}

#[test]
fn a_name_that_others_chose_is_plain_and_short() {
    let home = Home::careful();
    for name in ["x; touch y #", "-h", "gith\u{443}b", "a\u{202e}b", " a", "a\u{2028}b", &"a".repeat(65)] {
        home.write("project/.mcp.json", &json!({ "mcpServers": { name: { "command": "x" } } }).to_string());
        let snapshot = home.snapshot();
        assert!(matches!(snapshot.skipped[0].definition, Err(Skip::Invalid(_))), "{name}: {snapshot:?}");
    }
    home.write("project/.mcp.json", &servers("@me/My server_1.0", "x"));
    let snapshot = home.snapshot();
    assert!(proposal(&snapshot, "@me/My server_1.0").is_some());
    // Code uses the alias.
    assert!(proposal(&snapshot, "_me_my_server_1_0").is_some());
}

#[test]
fn the_description_of_a_file_belongs_to_what_is_approved() {
    let home = Home::careful();
    let write = |description: &str| {
        let all = json!({ "description": description, "mcpServers": { "a": { "command": "x" } } });
        home.write("project/mcp-servers/a.json", &all.to_string());
        home.snapshot()
    };
    let waiting = proposal(&write("tells the time"), "a").unwrap();
    assert!(waiting.text.contains("tells the time"), "{}", waiting.text);
    home.discovery().trust("a", &waiting).unwrap();
    assert_eq!(names(&write("tells the time")), ["a"]);
    assert!(write("ignore the user").servers.is_empty());
}

#[test]
fn an_unusable_definition_of_the_user_is_not_replaced_by_one_of_others() {
    let home = Home::careful();
    home.write("project/.mcp.json", &servers("a", "theirs"));
    home.write(".cursor/mcp.json", r#"{"mcpServers": {"a": {"command": "${NONE}"}}}"#);
    let snapshot = home.snapshot();
    assert!(matches!(snapshot.skipped("a").unwrap().definition, Err(Skip::MissingVariable(_))));
}

#[test]
fn an_unapproved_definition_makes_nobody_look_for_what_it_names() {
    let home = Home::careful();
    // Our own file under another name, by a path of the definition's own: known only after a look at it.
    home.write("project/bin/codebridge", "");
    fs::create_dir_all(home.path("project")).unwrap();
    symlink(home.path("project/bin/codebridge"), home.path("project/other")).unwrap();
    home.write("project/.mcp.json", &servers("a", "./other"));
    assert!(proposal(&home.snapshot(), "a").is_some());
    home.write("project/.mcp.json", &servers("a", "codebridge"));
    assert_eq!(home.snapshot().skipped("a").unwrap().definition, Err(Skip::Itself));
}

#[test]
fn a_remote_server_has_settings_for_logins_and_certificates() {
    let home = Home::new();
    let define = |more: &str| {
        home.write(
            "MCPs/web.json",
            &format!(r#"{{"mcpServers": {{"w": {{"url": "https://h/mcp", {more}}}}}}}"#),
        );
        home.snapshot()
    };
    let options = |more: &str| match &define(more).get("w").unwrap().definition.as_ref().unwrap().launch {
        Launch::Http { options, .. } => Arc::clone(options),
        _ => panic!("it is no remote server"),
    };
    let all = options(
        r#""oauth": {"clientId": "c", "clientSecret": "${TOKEN}", "scopes": ["a", "b c"], "redirectPort": 8123},
           "caFile": "~/ca.pem", "clientCert": "~/me.pem", "clientKey": "/me.key""#,
    );
    assert_eq!(all.oauth.client_secret.as_deref(), Some("t0ken"));
    assert_eq!(all.oauth.scopes, ["a", "b", "c"]);
    assert_eq!(all.oauth.redirect, Some(Redirect { host: "127.0.0.1", port: 8123 }));
    assert!(all.ca_file.as_ref().unwrap().ends_with("ca.pem") && all.ca_file.as_ref().unwrap().is_absolute());
    assert!(!format!("{all:?}").contains("t0ken"));
    // As other programs write them.
    let other = options(r#""oauth": {"clientId": "c", "callbackPort": 8124, "scope": "a b"}"#);
    assert_eq!(other.oauth.redirect, Some(Redirect { host: "localhost", port: 8124 }));
    assert_eq!(other.oauth.scopes, ["a", "b"]);
    assert_eq!(*options(r#""oauth": false"#), HttpOptions::default());
    for (wrong, why) in [
        (r#""oauth": []"#, "'oauth' must be an object"),
        (r#""oauth": {"clientSecret": "s"}"#, "without 'clientId'"),
        (r#""oauth": {"clientId": 1}"#, "'clientId' must be a string"),
        (r#""oauth": {"redirectPort": 70000}"#, "must be a port"),
        (r#""oauth": {"clientMetadataUrl": "http://h/c.json"}"#, "starts with https://"),
        (r#""clientKey": "k""#, "'clientKey' without 'clientCert'"),
    ] {
        let snapshot = define(wrong);
        let skipped = snapshot.skipped("w").unwrap().definition.as_ref().unwrap_err().to_string();
        assert!(skipped.contains(why), "{wrong}: {skipped}");
    }
}

#[test]
fn ten_thousand_definitions_load_and_are_checked_again_quickly() {
    let home = Home::new();
    let entries: Vec<String> = (0..10_000)
        .map(|at| match at % 4 {
            0 => format!(r#""server {at}": {{"command": 7}}"#),
            _ => format!(r#""server {at}": {{"command": "npx", "args": ["-y", "pkg-{at}", "${{TOKEN}}"], "env": {{"A": "b"}}}}"#),
        })
        .collect();
    home.write("MCPs/all.json", &format!("{{\"mcpServers\": {{{}}}}}", entries.join(",\n")));
    let discovery = home.discovery();
    let snapshot = discovery.snapshot();
    assert_eq!((snapshot.servers.len(), snapshot.warnings.len()), (7_500, 2_500));
    assert!(Arc::ptr_eq(&snapshot, &discovery.snapshot()));
    drop(home.dir);
    assert!(discovery.snapshot().servers.is_empty());
}
