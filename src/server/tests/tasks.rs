//! Calls as tasks, in both forms.

use serde_json::{Value, json};

use super::client::Client;

/// A client of 2025-11-25 that has opened a session.
async fn older() -> Client {
    let mut client = Client::connect();
    let opened = client.initialize().await;
    let tasks = &opened["result"]["capabilities"]["tasks"];
    assert_eq!(tasks["requests"], json!({ "tools": { "call": {} } }), "{opened}");
    client
}

fn call(code: &str, task: Value) -> Value {
    json!({ "name": "run_python", "arguments": { "code": code }, "task": task })
}

/// The answer to a request, and the notifications before it.
async fn ask(client: &mut Client, id: i64, method: &str, params: Value) -> (Value, Vec<Value>) {
    client.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
    let mut before = Vec::new();
    loop {
        let message = client.receive().await;
        if message["id"] == id {
            return (message, before);
        }
        before.push(message);
    }
}

async fn begin(client: &mut Client, id: i64, code: &str, task: Value) -> Value {
    let (begun, _) = ask(client, id, "tools/call", call(code, task)).await;
    let task = begun["result"]["task"].clone();
    assert!(task["taskId"].is_string(), "{begun}");
    task
}

#[tokio::test]
async fn a_call_becomes_a_task_and_its_result_is_fetched() {
    let mut client = older().await;
    let (listed, _) = ask(&mut client, 1, "tools/list", json!({})).await;
    let tool = &listed["result"]["tools"][0];
    assert_eq!(tool["execution"], json!({ "taskSupport": "optional" }));
    assert_eq!(listed["result"].get("resultType"), None, "{listed}");

    let task = begin(&mut client, 2, "hold", json!({ "ttl": 60_000 })).await;
    assert_eq!((&task["status"], &task["ttl"]), (&json!("working"), &json!(60_000)));
    let id = json!({ "taskId": task["taskId"] });
    let (state, _) = ask(&mut client, 3, "tasks/get", id.clone()).await;
    assert_eq!(state["result"]["status"], "working");
    let (list, _) = ask(&mut client, 4, "tasks/list", json!({})).await;
    assert_eq!(list["result"]["tasks"][0]["taskId"], task["taskId"]);

    client.sessions.release.notify_one();
    let (result, mut before) = ask(&mut client, 5, "tasks/result", id.clone()).await;
    assert_eq!(result["result"]["content"][0]["text"], "released");
    let related = &result["result"]["_meta"]["io.modelcontextprotocol/related-task"];
    assert_eq!(related, &id);
    if before.is_empty() {
        before.push(client.receive().await);
    }
    assert_eq!(before[0]["method"], "notifications/tasks/status");
    assert_eq!(before[0]["params"]["status"], "completed");
    let (again, _) = ask(&mut client, 6, "tasks/result", id).await;
    assert_eq!(again["result"]["content"], result["result"]["content"], "it is kept");
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_task_interrupts_its_code_and_an_ended_one_cannot_be_cancelled() {
    let mut client = older().await;
    let task = begin(&mut client, 1, "hold", json!({})).await;
    let id = json!({ "taskId": task["taskId"] });
    let (cancelled, _) = ask(&mut client, 2, "tasks/cancel", id.clone()).await;
    assert_eq!(cancelled["result"]["status"], "cancelled", "{cancelled}");
    let (result, _) = ask(&mut client, 3, "tasks/result", id.clone()).await;
    assert_eq!(result["result"]["isError"], true);
    let (again, _) = ask(&mut client, 4, "tasks/cancel", id).await;
    assert_eq!(again["error"]["code"], -32602, "{again}");
    client.close().await.unwrap();
}

#[tokio::test]
async fn failures_are_named_and_nothing_starts_for_malformed_calls() {
    let mut client = older().await;
    let task = begin(&mut client, 1, "raise", json!({})).await;
    let id = json!({ "taskId": task["taskId"] });
    let (result, _) = ask(&mut client, 2, "tasks/result", id.clone()).await;
    assert_eq!(result["result"]["isError"], true);
    let (state, _) = ask(&mut client, 3, "tasks/get", id).await;
    assert_eq!(state["result"]["status"], "failed");
    // A bug of ours is an end as well.
    let task = begin(&mut client, 4, "panic", json!({})).await;
    let (result, _) = ask(&mut client, 5, "tasks/result", json!({ "taskId": task["taskId"] })).await;
    assert!(result["result"]["content"][0]["text"].as_str().unwrap().contains("bug in codebridge"));

    let started = client.sessions.requests.lock().unwrap().len();
    for (params, why) in [
        (call("hold", json!(5)), "'task' must be an object"),
        (call("hold", json!({ "ttl": "1h" })), "'ttl' a number of milliseconds"),
        (json!({ "name": "run_python", "task": {} }), "Missing 'code' argument"),
        (json!({ "name": "other", "task": {} }), "Unknown tool: other"),
    ] {
        let (refused, _) = ask(&mut client, 6, "tools/call", params).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(why), "{refused}");
    }
    for (method, params) in [
        ("tasks/get", json!({ "taskId": "none" })),
        ("tasks/result", json!({ "taskId": 5 })),
        ("tasks/cancel", json!({})),
    ] {
        let (refused, _) = ask(&mut client, 7, method, params).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    assert_eq!(client.sessions.requests.lock().unwrap().len(), started);
    assert!(client.is_alive().await);
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_client_finds_only_its_own_tasks() {
    let (mut one, mut other) = (older().await, older().await);
    let task = begin(&mut one, 1, "hold", json!({})).await;
    let id = json!({ "taskId": task["taskId"] });
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let (refused, _) = ask(&mut other, 1, method, id.clone()).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    let (list, _) = ask(&mut other, 2, "tasks/list", json!({})).await;
    assert_eq!(list["result"]["tasks"], json!([]));
    one.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test]
async fn older_clients_know_no_tasks() {
    let mut client = Client::connect();
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    });
    let opened = client.request(0, "initialize", params).await;
    assert_eq!(opened["result"]["capabilities"].get("tasks"), None, "{opened}");
    client.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    let listed = client.request(1, "tools/list", json!({})).await;
    assert_eq!(listed["result"]["tools"][0].get("execution"), None, "{listed}");
    let called = client.request(2, "tools/call", call("echo hi", json!({}))).await;
    assert_eq!(called["result"]["content"][0]["text"], "hi", "{called}");
    assert_eq!(called["result"].get("resultType"), None, "{called}");
    client.close().await.unwrap();
}

/// The metadata of a request of 2026-07-28.
fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

#[tokio::test]
async fn a_long_run_is_a_task_for_clients_with_the_extension() {
    let mut client = Client::connect();
    let with = meta(&json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }));
    let long = json!({ "code": "hold", "background": true });
    let params = json!({ "name": "run_python", "arguments": long, "_meta": with });
    let begun = client.request(1, "tools/call", params).await;
    assert_eq!(begun["result"]["resultType"], "task", "{begun}");
    let id = json!({ "taskId": begun["result"]["taskId"], "_meta": with });
    let state = client.request(2, "tasks/get", id.clone()).await;
    assert_eq!(state["result"]["status"], "working");
    let unknown = client.request(3, "tasks/get", json!({ "taskId": "none", "_meta": with })).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    client.sessions.release.notify_one();
    let ended = loop {
        let state = client.request(4, "tasks/get", id.clone()).await;
        if state["result"]["status"] != "working" {
            break state;
        }
    };
    assert_eq!(ended["result"]["result"]["content"][0]["text"], "released", "{ended}");

    // A short one is not, nor one of a client that does not know tasks.
    let short = json!({ "code": "echo hi", "background": true });
    let short = json!({ "name": "run_python", "arguments": short, "_meta": with });
    let answer = client.request(5, "tools/call", short).await;
    assert_eq!(answer["result"]["content"][0]["text"], "hi", "{answer}");
    client.close().await.unwrap();
}
