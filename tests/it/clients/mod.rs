//! Clients that others have written, against the bridge: the Python SDK and the MCP Inspector.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::matrix::{Machine, prepared_command};
use crate::harness::process::{Output, Prepared};
use crate::harness::suite::ignore;
use crate::harness::{Kind, Runtime, Suite, TestEnv};
use crate::tests;

const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clients/python_sdk.py");

/// One engine and one low-level runtime: what is tried here is the other end.
const ROWS: [Runtime; 2] =
    [Runtime { kind: Kind::Podman, as_user: false }, Runtime { kind: Kind::Crun, as_user: false }];

pub(crate) fn register(suite: &mut Suite) {
    suite.on(
        &ROWS,
        "clients",
        tests![
            the_python_sdk_drives_the_server_after_initialize,
            the_python_sdk_drives_the_server_after_discover,
            the_inspector_calls_the_tool_in_both_eras,
            the_inspector_calls_the_tool_many_times,
            the_python_sdk_drives_the_server_over_http,
            the_inspector_calls_the_tool_over_http,
        ],
    );
    suite.once("clients", tests![the_inspector_finds_nothing_wrong_with_the_listings]);
}

/// A client's command, in the place and with the variables of a bridge of this test.
fn client(env: &TestEnv, name: &str) -> Prepared {
    let Some(words) = prepared_command(name) else { ignore("no clients were prepared, see tests/check") };
    let mut command = env.command(&words[0]);
    command.argv.extend(words[1..].iter().map(Into::into));
    command.env.insert("MCP_CATALOG_PATH".into(), env.folder("home").join("inspector.json").into());
    command
}

/// The words that start the bridge.
fn bridge(env: &TestEnv, with_runtime: bool) -> Vec<String> {
    let mut words = vec![env.binary().display().to_string()];
    if with_runtime {
        let runtime = env.runtime();
        let image = Machine::get().usual_image(runtime);
        words.extend(["--runtime", runtime.kind.name(), "--image", &image].map(str::to_owned));
    }
    words
}

fn drive(env: &TestEnv, beginning: &str) -> Value {
    let mut command = client(env, "CLIENT_PYTHON");
    command.argv.extend([SDK, beginning].map(Into::into));
    command.argv.extend(bridge(env, true).into_iter().map(Into::into));
    serde_json::from_str(&command.run(env.guard()).ok()).unwrap()
}

fn the_python_sdk_drives_it(env: &TestEnv, beginning: &str, version: &str) {
    check_driven(&drive(env, beginning), version);
}

/// Over HTTP, with a token. It is driven as over standard streams.
fn the_python_sdk_drives_the_server_over_http(env: &TestEnv) {
    let http = env.bridge().listen();
    let url = format!("http://{}/mcp", http.address);
    for (beginning, version) in [("initialize", "2025-11-25"), ("discover", "2026-07-28")] {
        let token = http.start_token();
        let mut command = client(env, "CLIENT_PYTHON");
        command.argv.extend([SDK, beginning, &url, &token].map(Into::into));
        check_driven(&serde_json::from_str(&command.run(env.guard()).ok()).unwrap(), version);
    }
    http.bridge.signal(Signal::TERM);
    assert_eq!(http.bridge.wait(Duration::from_secs(60)).status.code(), Some(0));
}

/// The TypeScript SDK.
fn the_inspector_calls_the_tool_over_http(env: &TestEnv) {
    let http = env.bridge().listen();
    let (url, header) =
        (format!("http://{}/mcp", http.address), format!("Authorization: Bearer {}", http.start_token()));
    for era in ["legacy", "modern"] {
        let mut command = client(env, "CLIENT_INSPECTOR");
        let words = ["--cli", &url, "--transport", "http", "--header", &header, "--protocol-era", era];
        let call = [
            "--method", "tools/call", "--tool-name", "run_python", "--tool-arg", "code=print(6 * 7)",
            "--format", "json",
        ];
        command.argv.extend(words.into_iter().chain(call).map(Into::into));
        assert_eq!(inspected(command.run(env.guard()))["content"][0]["text"], "42");
    }
    http.bridge.signal(Signal::TERM);
    assert_eq!(http.bridge.wait(Duration::from_secs(60)).status.code(), Some(0));
}

fn check_driven(told: &Value, version: &str) {
    assert_eq!(told["version"], version);
    assert_eq!(told["tools"].as_array().unwrap().len(), 1);
    assert_eq!(told["tools"][0]["name"], "run_python");
    assert_eq!(told["tools"][0]["inputSchema"]["properties"]["code"]["type"], "string");
    assert_eq!(told["resources"], json!(["resource://mcp-server-code-execution-mode/capabilities"]));
    assert!(told["resource"].as_str().unwrap().contains("save_tool"), "{}", told["resource"]);
    assert_eq!(told["run"], json!({ "text": "42", "isError": false }));
    for (what, words) in [("raise", "ZeroDivisionError"), ("refused", "'timeout' must be an integer")] {
        assert_eq!(told[what]["isError"], true, "{}", told[what]);
        assert!(told[what]["text"].as_str().unwrap().contains(words), "{}", told[what]);
    }
    // The call never ended by itself, and what it had done is still there.
    let progress = told["progress"].as_array().unwrap();
    assert!(progress.iter().all(Value::is_string), "{progress:?}");
    assert!(progress.last().unwrap().as_str().unwrap().contains("ready"), "{progress:?}");
    assert_eq!(told["after"], json!({ "text": "7", "isError": false }));
    assert_eq!(
        told["parallel"],
        json!([{ "text": "0", "isError": false }, { "text": "1", "isError": false }])
    );
}

fn the_python_sdk_drives_the_server_after_initialize(env: &TestEnv) {
    the_python_sdk_drives_it(env, "initialize", "2025-11-25");
}

fn the_python_sdk_drives_the_server_after_discover(env: &TestEnv) {
    the_python_sdk_drives_it(env, "discover", "2026-07-28");
}

fn inspect(env: &TestEnv, with_runtime: bool, words: &[&str]) -> Output {
    let mut command = client(env, "CLIENT_INSPECTOR");
    command.argv.push("--cli".into());
    command.argv.extend(bridge(env, with_runtime).into_iter().map(Into::into));
    // It takes what is behind its own words for the bridge's.
    command.argv.extend(words.iter().chain(&["--format", "json"]).map(Into::into));
    command.run(env.guard())
}

fn inspected(output: Output) -> Value {
    serde_json::from_str::<Value>(&output.ok()).unwrap()["result"].take()
}

fn the_inspector_finds_nothing_wrong_with_the_listings(env: &TestEnv) {
    for era in ["legacy", "modern"] {
        let listed = inspect(env, false, &["--protocol-era", era, "--method", "tools/list", "--strict"]);
        assert_eq!(listed.stderr, "", "{listed}");
        assert_eq!(inspected(listed)["tools"][0]["name"], "run_python");
        let resources =
            inspected(inspect(env, false, &["--protocol-era", era, "--method", "resources/list"]));
        let uri = resources["resources"][0]["uri"].as_str().unwrap();
        let read = ["--protocol-era", era, "--method", "resources/read", "--uri", uri];
        let read = inspected(inspect(env, false, &read));
        assert!(read["contents"][0]["text"].as_str().unwrap().contains("runtime"), "{read}");
    }
}

fn the_inspector_calls_the_tool_in_both_eras(env: &TestEnv) {
    for era in ["legacy", "modern"] {
        let call = ["--protocol-era", era, "--method", "tools/call", "--tool-name", "run_python"];
        let code = [&call[..], &["--tool-arg", "code=print(6 * 7)"]].concat();
        let result = inspected(inspect(env, true, &code));
        assert_eq!(result["content"][0]["text"], "42", "{result}");
    }
}

fn the_inspector_calls_the_tool_many_times(env: &TestEnv) {
    let call = ["--method", "tools/call", "--tool-name", "run_python", "--tool-arg", "code=print(1)"];
    let load = ["--load", "--load-requests", "40", "--load-concurrency", "8"];
    let summary = inspected(inspect(env, true, &[&call[..], &load].concat()));
    let counts = ["requests", "ok", "toolErrors", "errors"].map(|key| summary[key].as_i64());
    assert_eq!(counts, [Some(40), Some(40), Some(0), Some(0)], "{summary}");
}
