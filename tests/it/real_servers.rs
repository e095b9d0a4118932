//! Real MCP servers through the bridge's pool: each one lists its tools and is called.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::matrix::{prepared_command, which};
use crate::harness::suite::ignore;
use crate::harness::{Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once("real_servers", tests![filesystem, everything, memory, git, time, sqlite]);
}

/// A user with one server.
struct User<'a> {
    env: &'a TestEnv,
    server: &'a str,
}

impl<'a> User<'a> {
    /// One whose server gets these words and variables beside its own.
    fn of(env: &'a TestEnv, server: &'a str, words: &[&str], variables: Value) -> Self {
        let name = format!("SERVER_{}", server.to_uppercase());
        let Some(mut command) = prepared_command(&name) else {
            ignore("no servers were prepared, see tests/check")
        };
        command.extend(words.iter().map(|word| (*word).to_owned()));
        let entry = json!({ "command": command[0], "args": command[1..], "env": variables });
        env.write("home/MCPs/all.json", json!({ "mcpServers": { server: entry } }).to_string());
        Self { env, server }
    }

    fn json(&self, words: &[&str]) -> Value {
        let mut command = self.env.command(self.env.binary());
        command.argv.extend(words.iter().map(Into::into));
        serde_json::from_str(&command.run(self.env.guard()).ok()).unwrap()
    }

    /// How many tools it says that it has.
    fn tools(&self) -> Value {
        self.json(&["servers", "refresh", "--json"])[0]["tools"].take()
    }

    /// The text of a tool's result.
    fn call(&self, tool: &str, arguments: Value) -> String {
        let name = format!("{}.{tool}", self.server);
        let result = self.json(&["call", &name, &arguments.to_string()]);
        assert_ne!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}")).to_owned()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn filesystem(env: &TestEnv) {
    let folder = env.folder("data");
    let user = User::of(env, "filesystem", &[text(&folder)], json!({}));
    assert_eq!(user.tools(), 14);
    let path = folder.join("note.txt");
    user.call("write_file", json!({ "path": path, "content": "grüße\n" }));
    assert_eq!(user.call("read_text_file", json!({ "path": path })), "grüße\n");
}

fn everything(env: &TestEnv) {
    let user = User::of(env, "everything", &[], json!({}));
    // One more for clients that have roots to tell of.
    assert_eq!(user.tools(), 13);
    assert_eq!(user.call("echo", json!({ "message": "hello" })), "Echo: hello");
    assert!(user.call("get_sum", json!({ "a": 20, "b": 22 })).contains("42"));
}

fn memory(env: &TestEnv) {
    let file = env.folder("data").join("memory.json");
    let user = User::of(env, "memory", &[], json!({ "MEMORY_FILE_PATH": file }));
    assert_eq!(user.tools(), 9);
    let entity = json!({ "name": "Ada", "entityType": "person", "observations": ["counts"] });
    user.call("create_entities", json!({ "entities": [entity] }));
    let found: Value = serde_json::from_str(&user.call("search_nodes", json!({ "query": "ada" }))).unwrap();
    assert_eq!(found["entities"][0]["observations"], json!(["counts"]));
}

fn git(env: &TestEnv) {
    let folder = env.folder("repository");
    let git = which("git").unwrap();
    env.run([text(&git), "init", "--quiet", "--initial-branch", "trunk", text(&folder)]).ok();
    env.write("repository/new.txt", "new");
    let user = User::of(env, "git", &["--repository", text(&folder)], json!({}));
    assert_eq!(user.tools(), 12);
    let status = user.call("git_status", json!({ "repo_path": folder }));
    assert!(status.contains("On branch trunk") && status.contains("new.txt"), "{status}");
}

fn time(env: &TestEnv) {
    let user = User::of(env, "time", &["--local-timezone", "UTC"], json!({}));
    assert_eq!(user.tools(), 2);
    let arguments = json!({ "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo" });
    let converted = user.call("convert_time", arguments);
    assert!(converted.contains("T21:00:00+09:00"), "{converted}");
}

fn sqlite(env: &TestEnv) {
    let file = env.folder("data").join("test.db");
    let user = User::of(env, "sqlite", &["--db-path", text(&file)], json!({}));
    assert_eq!(user.tools(), 6);
    user.call("create_table", json!({ "query": "CREATE TABLE t (n INTEGER)" }));
    user.call("write_query", json!({ "query": "INSERT INTO t VALUES (41), (1)" }));
    let sum = user.call("read_query", json!({ "query": "SELECT SUM(n) AS sum FROM t" }));
    assert!(sum.contains("42"), "{sum}");
}
