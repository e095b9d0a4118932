use std::path::Path;

use serde_json::json;

use super::*;

fn rules(text: &str) -> Rules {
    file::parse(Path::new("policy.toml"), text).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    file::parse(Path::new("policy.toml"), text).unwrap_err().to_string()
}

const WHO: Caller<'_> = Caller { session: Some("main"), principal: "local" };

fn call<'a>(server: &'a str, tool: &'a str, arguments: &'a str) -> ToolCall<'a> {
    ToolCall { server, tool, annotations: Annotations::of(None), arguments: arguments.as_bytes() }
}

/// Returns the effect and the line of the rule, 0 if none decided.
fn decided(rules: &Rules, server: &str, tool: &str, arguments: &str) -> (Effect, usize) {
    match rules.of_call(&call(server, tool, arguments), &WHO) {
        Verdict::Allow(rule) => (Effect::Allow, rule.line),
        Verdict::Ask(rule) => (Effect::Ask, rule.line),
        Verdict::Deny(Denial::Rule { rule } | Denial::Arguments { rule, .. }) => (Effect::Deny, rule.line),
        Verdict::Deny(Denial::NoRule(_)) => (Effect::Deny, 0),
    }
}

#[test]
fn the_first_rule_that_matches_decides_and_without_one_the_call_is_denied() {
    let rules = rules(
        r#"
[[rule]]
server = "git*"
tool = ["delete_*", "merge"]
effect = "deny"
reason = "by hand"

[[rule]]
server = "github"
effect = "allow"

[[rule]]
server = ["a", "b"]
effect = "ask"
"#,
    );
    for (server, tool, expected) in [
        ("github", "delete_repo", (Effect::Deny, 2)),
        ("gitlab", "merge", (Effect::Deny, 2)),
        ("github", "merge_all", (Effect::Allow, 8)),
        ("gitlab", "get", (Effect::Deny, 0)),
        ("b", "x", (Effect::Ask, 12)),
        ("Github", "x", (Effect::Deny, 0)),
    ] {
        assert_eq!(decided(&rules, server, tool, "{}"), expected, "{server}.{tool}");
        // As it is remembered.
        assert_eq!(decided(&rules, server, tool, "{}"), expected, "{server}.{tool}");
    }
    let Verdict::Deny(denial) = rules.of_call(&call("gitlab", "merge", "{}"), &WHO) else { panic!() };
    assert_eq!(denial.to_string(), "the rule at policy.toml:2 denies it: by hand");
    let Verdict::Deny(denial) = rules.of_call(&call("x", "y", "{}"), &WHO) else { panic!() };
    assert_eq!(denial.to_string(), "no rule of 'policy.toml' allows it");
}

#[test]
fn conditions_on_arguments_are_about_whole_values() {
    let rules = rules(
        r#"
[[rule]]
arguments."/path" = { matches = "/tmp/[a-z]*" }
effect = "allow"
[[rule]]
arguments = { "/amount" = { less_than = 100 }, "/to/0" = { equals = "me" } }
effect = "ask"
"#,
    );
    for (arguments, expected) in [
        (r#"{"path": "/tmp/x"}"#, (Effect::Allow, 2)),
        (r#"{"path": "/tmp/x/../../etc"}"#, (Effect::Deny, 0)),
        (r#"{"path": "/etc\n/tmp/x"}"#, (Effect::Deny, 0)),
        (r#"{"path": ["/tmp/x"]}"#, (Effect::Deny, 0)),
        (r#"{"amount": 99, "to": ["me"]}"#, (Effect::Ask, 5)),
        (r#"{"amount": 99}"#, (Effect::Deny, 0)),
        // A server may take the other path.
        (r#"{"path": "/etc", "path": "/tmp/x"}"#, (Effect::Deny, 2)),
    ] {
        assert_eq!(decided(&rules, "s", "t", arguments), expected, "{arguments}");
    }
}

#[test]
fn a_pattern_cannot_leave_the_group_around_it() {
    let rules = rules("[[rule]]\narguments.\"/a\" = { matches = \"x|y\" }\neffect = \"allow\"");
    assert_eq!(decided(&rules, "s", "t", r#"{"a": "xz"}"#).0, Effect::Deny);
    assert!(
        error("[[rule]]\narguments.\"/a\" = { matches = \"x)|(y\" }\neffect = \"allow\"")
            .contains("not a regular expression")
    );
}

#[test]
fn session_principal_and_annotations_narrow_a_rule() {
    let rules = rules(
        r#"
[[rule]]
annotations = { readOnlyHint = true }
effect = "allow"
[[rule]]
session = "work-*"
principal = "ada"
effect = "ask"
"#,
    );
    let decide = |annotations: serde_json::Value, session, principal| {
        let call = ToolCall { annotations: Annotations::of(Some(&annotations)), ..call("s", "t", "{}") };
        rules.of_call(&call, &Caller { session, principal }).effect()
    };
    assert_eq!(decide(json!({ "readOnlyHint": true }), None, "x"), Effect::Allow);
    assert_eq!(decide(json!({ "readOnlyHint": "true" }), None, "x"), Effect::Deny);
    assert_eq!(decide(json!({}), Some("work-1"), "ada"), Effect::Ask);
    assert_eq!(decide(json!({}), Some("main"), "ada"), Effect::Deny);
    assert_eq!(decide(json!({}), Some("work-1"), "eve"), Effect::Deny);
    assert_eq!(decide(json!({}), None, "ada"), Effect::Deny);
}

#[test]
fn annotations_have_the_defaults_of_the_protocol() {
    let of = |value: serde_json::Value| Annotations::of(Some(&value));
    let none = Annotations::of(None);
    assert!(!none.read_only && none.destructive && !none.idempotent && none.open_world);
    assert!(!of(json!({ "readOnlyHint": true })).destructive, "it has no meaning for tools that only read");
    assert!(!of(json!({ "destructiveHint": false })).destructive);
    assert_eq!(of(json!([1])), none);
}

#[test]
fn other_things_than_tools_have_rules_by_kind_and_name() {
    let rules = rules(
        r#"
[[rule]]
kind = ["package", "artifact"]
name = "p*"
effect = "allow"
[[rule]]
effect = "allow"
"#,
    );
    assert_eq!(rules.of(Kind::Package, "polars", &WHO).effect(), Effect::Allow);
    assert_eq!(rules.of(Kind::Package, "numpy", &WHO).effect(), Effect::Deny);
    assert_eq!(
        rules.of(Kind::Share, "polars", &WHO).effect(),
        Effect::Deny,
        "a rule without a kind is about tools"
    );
    assert_eq!(decided(&rules, "s", "t", "{}"), (Effect::Allow, 6));
}

#[test]
fn an_error_has_its_line_and_column() {
    for (text, expected) in [
        ("[[rule]]\nefect = \"allow\"", "policy.toml:2:1: unknown field `efect`"),
        ("[[rule]]\neffect = \"alow\"", "policy.toml:2:10: unknown variant `alow`"),
        ("[[rule]]\nserver = 5\neffect = \"deny\"", "policy.toml:2:10: expected a text or a list"),
        ("[[rule]]\n\nserver = \"\"\neffect = \"deny\"", "policy.toml:3:10: `server` is empty"),
        ("x = ", "policy.toml:1:"),
        ("[[rule]]\nserver = \"a\"", "policy.toml:1:1: missing field `effect`"),
        (
            "[[rule]]\nkind = \"packages\"\neffect = \"deny\"",
            "policy.toml:2:8: unknown kind 'packages': there are \"tool\"",
        ),
        (
            "\n[[rule]]\nkind = \"package\"\ntool = \"x\"\neffect = \"deny\"",
            "policy.toml:2:1: `tool` is for rules of tools",
        ),
        ("[[rule]]\nname = \"x\"\neffect = \"deny\"", "policy.toml:1:1: `name` is for other rules"),
        ("[[rule]]\narguments.path = { matches = \"x\" }\neffect = \"deny\"", "'path' is not a JSON pointer"),
        (
            "[[rule]]\narguments.\"/p\" = { matches = \"(\" }\neffect = \"deny\"",
            "policy.toml:2:18: '(' is not a regular expression: unclosed group",
        ),
        ("[[rule]]\narguments.\"/p\" = { }\neffect = \"deny\"", "policy.toml:2:18: a condition has one of"),
        (
            "[[rule]]\narguments.\"/p\" = { equals = 1, less_than = 2 }\neffect = \"deny\"",
            "a condition has one of",
        ),
        ("[budget.run]\nseconds = -1.0", "policy.toml:2:11: `seconds` must be"),
        ("[budget.server.x]\nconcurrency = 0", "policy.toml:2:15: `concurrency` must be at least 1"),
        ("[budget.server.x]\ncalls = 0", "policy.toml:2:1: unknown field `calls`"),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text}\n{error}\n{expected}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn the_start_file_allows_reading_and_asks_about_the_rest() {
    let rules = rules(START);
    let reads = ToolCall {
        annotations: Annotations::of(Some(&json!({ "readOnlyHint": true }))),
        ..call("s", "t", "{}")
    };
    assert_eq!(rules.of_call(&reads, &WHO).effect(), Effect::Allow);
    assert_eq!(decided(&rules, "s", "t", "{}").0, Effect::Ask);
    assert_eq!(rules.of(Kind::Share, "x", &WHO).effect(), Effect::Allow);
    // The examples in its comments hold as well.
    let uncommented = START.replace("\n# ", "\n").replace("\n#\n", "\n\n");
    let examples =
        &uncommented[uncommented.find("[[rule]]").unwrap()..uncommented.find("Tools that change").unwrap()];
    let rules = self::rules(examples);
    assert_eq!(decided(&rules, "github", "delete_repo", "{}").0, Effect::Deny);
    assert_eq!(
        decided(&rules, "filesystem", "write_file", r#"{"path":"/home/me/drafts/x"}"#).0,
        Effect::Allow
    );
    for outside in ["../x", "a/../../.ssh/authorized_keys", "/../../x", ".hidden"] {
        let arguments = format!(r#"{{"path":"/home/me/drafts/{outside}"}}"#);
        assert_eq!(decided(&rules, "filesystem", "write_file", &arguments).0, Effect::Deny, "{outside}");
    }
}

#[test]
fn the_examples_of_the_documentation_hold() {
    let page = include_str!("../help/policy.md");
    let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let [examples, budgets, expected] = blocks.collect::<Vec<_>>()[..] else { panic!("other blocks") };
    let rules = rules(&format!("{examples}{budgets}"));
    let checked = Expectations::parse(Path::new("e.toml"), expected, LOCAL).unwrap().check(&rules);
    assert!(checked.len() == 3 && checked.iter().all(Checked::holds), "{checked:?}");
}

#[test]
fn what_never_decides_and_what_is_denied_whatever_the_tool_is_are_found() {
    let text = r#"
[[rule]]
server = "*"
tool = "get_*"
effect = "allow"
[[rule]]
server = "a"
tool = "get_x"
effect = "deny"
[[rule]]
server = "a"
session = "main"
effect = "allow"
[[rule]]
server = "b"
effect = "deny"
"#;
    let rules = rules(text);
    assert_eq!(rules.unreachable(), [(6, 2)]);
    for (server, tool, denied) in
        [("a", "get_x", false), ("a", "put", false), ("b", "put", true), ("c", "put", true)]
    {
        assert_eq!(rules.denies_tool(server, tool, &WHO).is_some(), denied, "{server}.{tool}");
    }
    let servers = ["a", "b", "c"].map(|server| rules.denies_server(server, &WHO).is_some());
    assert_eq!(servers, [false, false, false], "get_* is allowed for all");
    let few = self::rules(
        "[[rule]]\nserver = \"a\"\ntool = \"x-y\"\neffect = \"allow\"\n[[rule]]\nserver = \"b\"\ntool = \"x\"\neffect = \"deny\"",
    );
    let servers = ["a", "b", "c"].map(|server| few.denies_server(server, &WHO).is_some());
    assert_eq!(servers, [false, false, true], "whether one is allowed depends on the tool");
    let reading = self::rules("[[rule]]\nannotations = { readOnlyHint = true }\neffect = \"allow\"");
    assert_eq!(reading.denies_tool("s", "t", &WHO), None, "it depends on the tool");
    let named: Vec<_> = rules.named_servers().into_iter().collect();
    assert_eq!(named, [("a".into(), 6), ("a".into(), 10), ("b".into(), 14)]);
}

#[test]
fn a_file_is_read_again_when_it_changes_and_denies_all_while_it_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.toml");
    let policy = Policy::new(Source::IfPresent(file.clone()), folder.path().join("pins"));
    assert!(policy.rules().unwrap().is_none(), "without a file everything is allowed");
    std::fs::write(&file, "[[rule]]\neffect = \"allow\"\n").unwrap();
    assert_eq!(decided(&policy.rules().unwrap().unwrap(), "s", "t", "{}").0, Effect::Allow);
    let replace = |text: &str| {
        std::fs::write(folder.path().join("new"), text).unwrap();
        std::fs::rename(folder.path().join("new"), &file).unwrap();
    };
    replace("[[rule]]\neffect = \"deny!\"\n");
    assert!(policy.rules().unwrap_err().to_string().contains("policy.toml:2:10"));
    replace("[[rule]]\neffect = \"deny\"\n");
    assert_eq!(decided(&policy.rules().unwrap().unwrap(), "s", "t", "{}"), (Effect::Deny, 1));
    std::fs::remove_file(&file).unwrap();
    assert!(policy.rules().unwrap_err().to_string().contains("it was removed"), "not: allow all");
    let named = Policy::new(Source::Named(file), folder.path().join("pins"));
    assert!(named.rules().unwrap_err().to_string().contains("there is no such file"));
}

#[test]
fn a_file_that_everybody_can_write_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.toml");
    std::fs::write(&file, "[[rule]]\neffect = \"allow\"\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    let policy = Policy::new(Source::Named(file.clone()), folder.path().join("pins"));
    assert!(policy.rules().unwrap_err().to_string().contains("can be written by everybody"));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(policy.rules().is_ok());
    let policy = Policy::new(Source::Named(folder.path().to_path_buf()), folder.path().join("pins"));
    assert!(policy.rules().is_err(), "a folder is no policy");
}

#[test]
fn a_link_to_nothing_and_a_pipe_are_errors_and_nothing_waits_for_them() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.toml");
    let policy = || Policy::new(Source::IfPresent(file.clone()), folder.path().join("pins"));
    std::os::unix::fs::symlink("nowhere", &file).unwrap();
    let dangling = policy().rules().unwrap_err().to_string();
    assert!(dangling.contains("is a link to a file that does not exist"), "{dangling}");
    std::fs::remove_file(&file).unwrap();
    mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let pipe = policy().rules().unwrap_err().to_string();
    assert!(pipe.contains("is not a file"), "{pipe}");
}

#[tokio::test]
async fn budgets_of_runs_and_servers_hold() {
    let rules = rules("[budget.run]\ncalls = 2\n[budget.server.s]\nconcurrency = 1\ncalls_per_minute = 2");
    let used = RunUse::default();
    assert!(used.begin(rules.budgets()).is_ok() && used.begin(rules.budgets()).is_ok());
    assert_eq!(used.begin(rules.budgets()), Err(Spent::Calls(2)));
    let rules = self::rules(
        "[budget.run]\nbytes = 10\nseconds = 1.5\n[budget.server.s]\nconcurrency = 1\ncalls_per_minute = 2",
    );
    let used = RunUse::default();
    used.end(10, std::time::Duration::ZERO);
    assert_eq!(used.begin(rules.budgets()), Err(Spent::Bytes(10, 10)));
    let used = RunUse::default();
    used.end(9, std::time::Duration::from_secs(2));
    assert!(matches!(used.begin(rules.budgets()), Err(Spent::Time(..))));

    let policy = Policy::new(Source::Named("x".into()), "pins".into());
    let first = policy.turn(&rules, "s").await.unwrap();
    let mut second = Box::pin(policy.turn(&rules, "s"));
    let waits =
        std::future::poll_fn(|cx| std::task::Poll::Ready(second.as_mut().poll(cx).is_pending())).await;
    assert!(waits, "the second call waits for the first");
    drop(first);
    second.await.unwrap();
    assert!(matches!(policy.turn(&rules, "s").await, Err(Spent::Rate { most: 2, .. })));
    assert!(policy.turn(&rules, "other").await.is_ok());
}

#[test]
fn expectations_are_compared_with_the_policy() {
    let rules = rules("[[rule]]\nserver = \"a\"\narguments.\"/n\" = { less_than = 5 }\neffect = \"allow\"");
    let text = r#"
[[expect]]
server = "a"
tool = "t"
arguments = { n = 4 }
effect = "allow"
[[expect]]
server = "a"
tool = "t"
arguments = { n = 5 }
effect = "allow"
[[expect]]
kind = "package"
name = "x"
effect = "deny"
"#;
    let expectations = Expectations::parse(Path::new("e.toml"), text, "local").unwrap();
    let checked = expectations.check(&rules);
    let lines: Vec<_> = checked.iter().map(|check| (check.line, check.holds())).collect();
    assert_eq!(lines, [(2, true), (7, false), (12, true)]);
    let wrong =
        Expectations::parse(Path::new("e.toml"), "[[expect]]\nserver = \"a\"\neffect = \"allow\"", "local");
    assert!(wrong.unwrap_err().to_string().starts_with("e.toml:1:1: an expectation of a call has"));
}

/// Thousands of rules cost nothing at a call, because only those about its tool are looked at.
#[test]
fn a_call_looks_at_the_rules_about_its_tool_only() {
    let many: String =
        (0..10_000).map(|n| format!("[[rule]]\nserver = \"s{n}\"\neffect = \"allow\"\n")).collect();
    let rules = rules(&many);
    assert_eq!(decided(&rules, "s9999", "t", "{}"), (Effect::Allow, 29_998));
    assert_eq!(rules.remembered("s9999", "t"), Some(1));
}
