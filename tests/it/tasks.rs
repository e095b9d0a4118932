//! Calls as tasks: with the TypeScript SDK, and as they go over the wire.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::bridge::LATEST_WITH_INITIALIZE;
use crate::harness::matrix::{Kind, Machine, prepared_command};
use crate::harness::suite::ignore;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::questions::modern;
use crate::server_access::{define, fake};
use crate::tests;

const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clients/tasks.cjs");

pub(crate) fn register(suite: &mut Suite) {
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "tasks",
        tests![
            the_typescript_sdk_calls_the_tool_as_a_task,
            the_typescript_sdk_calls_the_tool_as_a_task_over_http,
            a_task_is_found_again_by_its_user_and_by_nobody_else,
            a_long_run_is_a_task_that_asks_its_client,
        ],
    );
}

/// Runs the client; what it says of its tasks.
fn drive(env: &TestEnv, words: &[&str]) -> Value {
    let Some(inspector) = prepared_command("CLIENT_INSPECTOR") else {
        ignore("no clients were prepared, see tests/check")
    };
    // The SDK is a dependency of the clients.
    let modules = Path::new(&inspector[1]).ancestors().find(|path| path.ends_with("node_modules")).unwrap();
    let mut command = env.command(&inspector[0]);
    command.argv.extend([SDK.into(), modules.parent().unwrap().into()]);
    command.argv.extend(words.iter().map(Into::into));
    serde_json::from_str(&command.run(env.guard()).ok()).unwrap()
}

fn check_driven(seen: &Value) {
    let last = |what: &str| seen[what].as_array().unwrap().last().unwrap().clone();
    assert_eq!(seen["short"][0]["type"], "taskCreated", "{seen}");
    assert_eq!((&last("short")["type"], &last("short")["text"]), (&json!("result"), &json!("42")));
    // A failed task has a result, too; the client shows it, or says that the task has failed.
    assert!(["result", "error"].contains(&last("raised")["type"].as_str().unwrap()), "{seen}");
    assert_eq!(seen["asked"][0]["message"], "Which?", "{seen}");
    let task = &seen["asked"][0]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"];
    assert!(task.is_string(), "{seen}");
    let text = last("long")["text"].as_str().unwrap().to_owned();
    assert!(text.contains("'action': 'accept'") && text.ends_with("'end'"), "{seen}");
    let named = |status: &Value| status["message"].as_str().is_some_and(|text| text.starts_with("run "));
    assert!(seen["long"].as_array().unwrap().iter().any(named), "its number is said: {seen}");
    assert_eq!(seen["cancelled"], "cancelled");
    assert_eq!(seen["listed"], json!(["completed", "failed", "completed", "cancelled"]));
}

fn the_typescript_sdk_calls_the_tool_as_a_task(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &[]) }));
    let image = Machine::get().usual_image(env.runtime());
    let program = env.binary().display().to_string();
    check_driven(&drive(env, &[&program, "--runtime", env.runtime().kind.name(), "--image", &image]));
}

fn the_typescript_sdk_calls_the_tool_as_a_task_over_http(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &[]) }));
    let http = env.bridge().listen();
    check_driven(&drive(env, &[&format!("http://{}/mcp", http.address), &http.start_token()]));
    http.bridge.signal(Signal::TERM);
    assert_eq!(http.bridge.wait(Duration::from_secs(60)).status.code(), Some(0));
}

fn a_task_is_found_again_by_its_user_and_by_nobody_else(env: &TestEnv) {
    let (alice, bob) = (env.token(&["alice"]), env.token(&["bob"]));
    let http = env.bridge().listen();
    let (first, other) = (http.client(&alice), http.client(&bob));
    let code = "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.02)\n'end'";
    let arguments = json!({ "code": code, "background": true });
    let begun = first.ask(
        "tools/call",
        json!({ "name": "run_python", "arguments": arguments, "task": { "ttl": 600_000 } }),
    );
    let task = &begun["task"];
    assert_eq!((&task["status"], &task["ttl"]), (&json!("working"), &json!(600_000)), "{begun}");
    let id = json!({ "taskId": task["taskId"] });
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let refused = other.request(method, id.clone()).pop().unwrap();
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    assert_eq!(other.ask("tasks/list", json!({}))["tasks"], json!([]));
    // It is an ordinary run: its session is busy, and looks show what it prints.
    let message = eventually("its number is said", env.guard().left(), || {
        let state = first.ask("tasks/get", id.clone());
        state["statusMessage"].as_str().filter(|text| text.starts_with("run ")).map(str::to_owned)
    });
    let run: u64 = message.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(message.contains("is running in session main"), "{message}");
    assert!(first.run("1").text.contains(&format!("is busy: run {run} is running")));
    let looked = eventually("a look shows output", env.guard().left(), || {
        Some(first.call(json!({ "run": run, "timeout": 1 }))).filter(|seen| seen.text.contains("begun"))
    });
    assert_eq!(looked.status(), "running");
    // The client is gone, and comes back.
    let again = http.client(&alice);
    assert_eq!(again.ask("tasks/list", json!({}))["tasks"][0]["taskId"], task["taskId"]);
    let cancelled = again.ask("tasks/cancel", id.clone());
    assert_eq!(cancelled["status"], "cancelled");
    let result = again.ask("tasks/result", id);
    assert_eq!(result["isError"], true, "{result}");
    assert!(result["content"][0]["text"].as_str().unwrap().contains("begun"), "all of its output: {result}");
    assert_eq!(again.run("1 + 1").ok(), "2", "the session is free again");
}

fn a_long_run_is_a_task_that_asks_its_client(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &[]) }));
    let bridge = env.bridge().spawn();
    let can = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let question = "await mcp_fake.ask(method='elicitation/create', params={'message': 'Which?', 'requestedSchema': {'type': 'object', 'properties': {}}})";
    let arguments = json!({ "code": question, "servers": ["fake"], "background": true });
    let call = json!({ "name": "run_python", "arguments": arguments });
    let begun = bridge.ask("tools/call", modern(&can, call));
    assert_eq!(begun["resultType"], "task", "{begun}");
    let about = |mut params: Value| {
        params["taskId"] = begun["taskId"].clone();
        modern(&can, params)
    };
    let asks = eventually("it asks", env.guard().left(), || {
        let state = bridge.ask("tasks/get", about(json!({})));
        (state["status"] == "input_required").then_some(state)
    });
    let requests = asks["inputRequests"].as_object().unwrap();
    let (key, request) = requests.iter().next().unwrap();
    assert_eq!(request["params"]["message"], "Which?", "{asks}");
    let answers = json!({ key.as_str(): { "action": "accept", "content": { "a": 1 } } });
    let _ = bridge.ask("tasks/update", about(json!({ "inputResponses": answers })));
    let ended = eventually("it ends", env.guard().left(), || {
        let state = bridge.ask("tasks/get", about(json!({})));
        (state["status"] == "completed").then_some(state)
    });
    let text = ended["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("'action': 'accept'"), "{ended}");
    // A client of an earlier protocol speaks of tasks in its own form only.
    let older = env.bridge().spawn();
    let opened = older.initialize(LATEST_WITH_INITIALIZE);
    assert_eq!(opened["capabilities"]["tasks"]["requests"], json!({ "tools": { "call": {} } }), "{opened}");
    bridge.close();
}
