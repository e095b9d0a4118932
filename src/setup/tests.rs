//! The change of files as people have them.

use super::clients::Form;
use super::entry::Change;
use super::installation::register;

const COMMAND: &str = "/usr/local/bin/codebridge";

fn added(form: Form, text: &str) -> String {
    match register(form, text, COMMAND) {
        Ok(Change::Add { text }) => {
            // Doing it twice changes nothing.
            assert_eq!(register(form, &text, COMMAND), Ok(Change::None));
            text
        }
        other => panic!("{other:?} for {text}"),
    }
}

fn replaced(form: Form, text: &str) -> (String, String) {
    match register(form, text, COMMAND) {
        Ok(Change::Replace { text, name, .. }) => {
            assert_eq!(register(form, &text, COMMAND), Ok(Change::None));
            (name, text)
        }
        other => panic!("{other:?} for {text}"),
    }
}

fn problem(form: Form, text: &str) -> String {
    register(form, text, COMMAND).unwrap_err().to_string()
}

#[test]
fn a_new_file_contains_the_entry_in_the_form_of_its_client() {
    for (form, expected) in [
        (
            Form::McpServers,
            r#"{
  "mcpServers": {
    "codebridge": {
      "command": "/usr/local/bin/codebridge"
    }
  }
}
"#,
        ),
        (
            Form::VsCode,
            r#"{
  "servers": {
    "codebridge": {
      "type": "stdio",
      "command": "/usr/local/bin/codebridge"
    }
  }
}
"#,
        ),
        (
            Form::OpenCode,
            r#"{
  "mcp": {
    "codebridge": {
      "type": "local",
      "command": ["/usr/local/bin/codebridge"],
      "enabled": true
    }
  }
}
"#,
        ),
        (
            Form::Codex,
            "[mcp_servers.codebridge]\ncommand = \"/usr/local/bin/codebridge\"\ntool_timeout_sec = 130\n",
        ),
    ] {
        assert_eq!(added(form, ""), expected);
        assert_eq!(added(form, "\n").trim(), expected.trim());
    }
}

#[test]
fn comments_order_and_layout_of_a_json_file_stay() {
    let before = r#"// my servers
{
	"zeta": 1, // last, but first
	"mcpServers": {
		/* "old": {}, */
		"git": { "command": "uvx", "args": ["mcp-server-git"], },
	},
	"alpha": [1,2,   3],
}
// the end
"#;
    let entry = "\t\t\"codebridge\": {\n\t\t\t\"command\": \"/usr/local/bin/codebridge\",\n\t\t},\n";
    let after = before.replace("\"mcp-server-git\"], },\n", &format!("\"mcp-server-git\"], }},\n{entry}"));
    assert_eq!(added(Form::McpServers, before), after);
}

#[test]
fn line_ends_and_the_byte_order_mark_of_a_json_file_stay() {
    let text = added(Form::McpServers, "\u{feff}{\r\n  \"a\": 1\r\n}\r\n");
    assert!(text.starts_with("\u{feff}{\r\n  \"a\": 1,\r\n  \"mcpServers\": {\r\n"), "{text:?}");
    assert_eq!(text.matches('\n').count(), text.matches("\r\n").count());
}

#[test]
fn a_file_on_one_line_is_understood() {
    let text = added(Form::ClaudeCode, r#"{"mcpServers":{"a":{"command":"b"}},"x":"y"}"#);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        value,
        serde_json::json!({
            "mcpServers": {
                "a": { "command": "b" },
                "codebridge": { "type": "stdio", "command": COMMAND },
            },
            "x": "y",
        })
    );
}

#[test]
fn the_servers_of_opencode_2_are_one_level_deeper() {
    let text =
        added(Form::OpenCode, r#"{ "mcp": { "servers": { "a": { "type": "local", "command": ["b"] } } } }"#);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        value["mcp"]["servers"]["codebridge"],
        serde_json::json!({ "type": "local", "command": [COMMAND] })
    );
    // A server of opencode 1 that is called "servers".
    let text = added(Form::OpenCode, r#"{ "mcp": { "servers": { "type": "local", "command": ["b"] } } }"#);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["mcp"]["codebridge"]["command"], serde_json::json!([COMMAND]));
}

#[test]
fn another_copy_is_replaced_and_keeps_what_the_user_set() {
    let (name, text) = replaced(
        Form::McpServers,
        r#"{ "mcpServers": {
  "python": {
    "command": "~/.cargo/bin/codebridge", // by hand
    "args": ["--image", "host:"],
    "env": { "MCP_BRIDGE_MEMORY": "1g" }
  }
} }"#,
    );
    assert_eq!(name, "python");
    assert_eq!(
        text,
        r#"{ "mcpServers": {
  "python": {
    "command": "/usr/local/bin/codebridge", // by hand
    "args": ["--image", "host:"],
    "env": { "MCP_BRIDGE_MEMORY": "1g" }
  }
} }"#
    );
    let (_, text) = replaced(
        Form::OpenCode,
        r#"{"mcp":{"codebridge":{"type":"local","command":["codebridge","--pids","9"]}}}"#,
    );
    assert_eq!(
        text,
        r#"{"mcp":{"codebridge":{"type":"local","command":["/usr/local/bin/codebridge", "--pids", "9"]}}}"#
    );
}

#[test]
fn the_arguments_of_uvx_go_and_those_of_codebridge_stay() {
    let old = r#"{"mcpServers": {"py": {"command": "uvx", "args": ["--from", "git+https://example.org/x", "mcp-server-code-execution-mode", "run"], "env": {"A": "b"}}}}"#;
    let (name, text) = replaced(Form::McpServers, old);
    assert_eq!(name, "py");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let entry = serde_json::json!({ "command": COMMAND, "args": ["run"], "env": { "A": "b" } });
    assert_eq!(value, serde_json::json!({ "mcpServers": { "py": entry } }));
    let (_, text) =
        replaced(Form::Codex, "[mcp_servers.py]\ncommand = \"npx\" # old\nargs = [\"-y\", \"codebridge\"]\n");
    assert_eq!(text, "[mcp_servers.py]\ncommand = \"/usr/local/bin/codebridge\" # old\n");
    let uvx = "[mcp_servers.py]\nargs = [\"codebridge\", \"--memory\", \"1g\"]\ncommand = \"uvx\"\n";
    let (_, text) = replaced(Form::Codex, uvx);
    let kept = "[mcp_servers.py]\nargs = [\"--memory\", \"1g\"]\ncommand = \"/usr/local/bin/codebridge\"\n";
    assert_eq!(text, kept);
    let change = register(Form::Codex, uvx, COMMAND).unwrap();
    let Change::Replace { old, new, .. } = change else { panic!("{change:?}") };
    assert_eq!((&*old, &*new), ("uvx codebridge --memory 1g", "/usr/local/bin/codebridge --memory 1g"));
}

#[test]
fn an_entry_of_our_name_that_starts_something_else_is_not_touched() {
    let refused = "'codebridge' starts something else; rename it, or remove it";
    for text in [
        r#"{"servers": {"codebridge": {"type": "http", "url": "http://[::1]:1/mcp"}}}"#,
        r#"{"servers": {"codebridge": {"command": "/bin/other", "args": ["codebridge"]}}}"#,
        r#"{"servers": {"codebridge": {"command": "sh", "args": ["-c", "FOO=1 codebridge"]}}}"#,
        r#"{"servers": {"codebridge": 7}}"#,
    ] {
        assert_eq!(problem(Form::VsCode, text), refused, "{text}");
    }
    assert_eq!(problem(Form::Codex, "[mcp_servers.codebridge]\nurl = \"http://[::1]:1/mcp\"\n"), refused);
}

#[test]
fn comments_order_and_forms_of_a_toml_file_stay() {
    let entry =
        "\n[mcp_servers.codebridge]\ncommand = \"/usr/local/bin/codebridge\"\ntool_timeout_sec = 130\n";
    let before = "# mine\nmodel = \"x\"   # the best\n\n[mcp_servers.git] # versions\ncommand = \"uvx\"\n\n[tui]\na = 1\n";
    let after = added(Form::Codex, before);
    assert_eq!(after.replace(entry, ""), before, "{after}");
    for before in [
        "mcp_servers = { git = { command = \"uvx\" } }\n",
        "mcp_servers.git.command = \"uvx\"\n",
        "[mcp_servers]\ngit = { command = \"uvx\" }\n",
    ] {
        let value: toml::Table = added(Form::Codex, before).parse().unwrap();
        assert_eq!(value["mcp_servers"]["git"]["command"].as_str(), Some("uvx"));
        assert_eq!(value["mcp_servers"]["codebridge"]["command"].as_str(), Some(COMMAND));
    }
}

#[test]
fn a_file_that_is_wrong_is_refused_with_the_place() {
    for (form, text, expected) in [
        (Form::McpServers, "{\n  \"a\": 1,\n  b\n}", "line 3: "),
        (Form::McpServers, "{} {}", "line 1: "),
        (Form::McpServers, "[]", "the file must be an object"),
        (Form::McpServers, r#"{"mcpServers": []}"#, "'mcpServers' must be an object"),
        (Form::McpServers, r#"{"mcpServers": {}, "mcpServers": {}}"#, "'mcpServers' occurs twice"),
        (
            Form::McpServers,
            r#"{"mcpServers": {"a": {"command": "codebridge"}, "b": {"command": "/x/codebridge"}}}"#,
            "'a' and 'b' both start codebridge; remove one of them",
        ),
        (Form::Codex, "a = 1\nb = \n", "line 2: "),
        (Form::Codex, "mcp_servers = 1\n", "'mcp_servers' must be a table"),
        (Form::Codex, "[mcp_servers]\ncodebridge = 1\n", "'codebridge' starts something else"),
    ] {
        let problem = problem(form, text);
        assert!(problem.starts_with(expected) && !problem.contains('\n'), "{problem}");
    }
}
