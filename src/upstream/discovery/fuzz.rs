//! Any text as a file of server definitions: of the user, and of a folder that somebody else has written.

use std::collections::HashSet;
use std::fs;

use codebridge_fuzz::fuzz;

use super::*;

/// The value of a variable that definitions may refer to.
const SECRET: &str = "5ecret-value-of-a-variable";

const WORDS: [&str; 24] = [
    "${TOKEN}", "${env:TOKEN}", "${TOKEN:-", "${NONE:-${TOKEN}}", "{env:TOKEN}", "{file:/proc/self/comm}",
    "~/", "mcpServers", "servers", "mcp.servers", "mcp_servers", "command", "args", "cwd", "env", "url",
    "headers", "https://host/", "\"type\":\"local\"", "openapi", "oauth", "disabled", "timeout", "//",
];

#[test]
fn definitions_use_nothing_untrusted_and_show_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().canonicalize().unwrap();
    let environment = [("PATH", "/usr/bin:/bin"), ("TOKEN", SECRET)];
    let surroundings = Surroundings {
        state_dir: home.join("MCPs"),
        cwd: home.join("project"),
        environment: std::sync::Arc::new(environment.map(|(name, value)| (name.into(), value.into())).into()),
        home: Some(home.clone()),
        ..Surroundings::default()
    };
    fs::create_dir(&surroundings.cwd).unwrap();
    let of_project = surroundings.clone();
    let theirs = of_project.cwd.join(".mcp.json");
    let check = |snapshot: &Snapshot, text: &str| {
        let lines = text.lines().count() + 1;
        for warning in &snapshot.warnings {
            let shown = warning.to_string();
            assert!(!shown.contains(SECRET), "{shown}");
            assert!(!shown.contains(|c: char| c.is_control()), "{shown:?}");
            assert!(warning.line.is_none_or(|line| (1..=lines).contains(&line)), "{shown}");
        }
        for server in &snapshot.skipped {
            let why = server.definition.as_ref().unwrap_err().to_string();
            assert!(!why.is_empty() && !why.contains(SECRET), "{why}");
        }
        let aliases: HashSet<_> = snapshot.servers.iter().map(|server| &server.alias).collect();
        assert!(aliases.len() == snapshot.servers.len() && aliases.iter().all(|alias| !alias.is_empty()));
        for server in &snapshot.servers {
            assert!(
                server.definition.is_ok()
                    && snapshot.get(&server.name).is_some_and(|it| it.name == server.name)
            );
        }
    };
    fuzz("definitions", &WORDS, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if text.contains(SECRET) {
            return;
        }
        let form = if text.starts_with(['[', '#']) { "toml" } else { "json" };
        let file = home.join(format!("servers.{form}"));
        fs::write(&file, bytes).unwrap();
        let mine = Surroundings { servers_config: Some(file), ..surroundings.clone() };
        check(&Discovery::new(mine).snapshot(), &text);
        // Nothing is used before the user has approved it, and no variable is looked up.
        fs::write(&theirs, bytes).unwrap();
        let snapshot = Discovery::new(of_project.clone()).snapshot();
        check(&snapshot, &text);
        fs::remove_file(&theirs).unwrap();
        assert!(snapshot.servers.is_empty(), "{snapshot:?}");
        assert!(!format!("{snapshot:?}").contains(SECRET), "{snapshot:?}");
    });
}
