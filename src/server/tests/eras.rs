//! Both ways to open a session.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::client::Client;

fn modern(params: Value) -> Value {
    modern_with(params, json!({}))
}

fn modern_with(mut params: Value, capabilities: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    params
}

#[tokio::test]
async fn a_client_that_initializes_gets_the_version_it_asked_for() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = Client::connect();
        let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let answer = client.request(1, "initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], version);
        assert_eq!(answer["result"]["serverInfo"]["name"], "codebridge");
        let mut capabilities = json!({
            "extensions": { "io.modelcontextprotocol/tasks": {} },
            "logging": {},
            "resources": {},
            "tools": {},
        });
        if version == "2025-11-25" {
            capabilities["tasks"] =
                json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
        }
        assert_eq!(answer["result"]["capabilities"], capabilities);
        let called = client.call(2, json!({ "code": "echo hi" })).await;
        assert_eq!(called["content"], json!([{ "type": "text", "text": "hi" }]));
        assert_eq!(called.get("resultType"), None, "{called}");
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_version_that_has_no_initialize_or_is_unknown_is_answered_with_the_newest_that_has() {
    for version in ["2026-07-28", "2099-01-01"] {
        let mut client = Client::connect();
        let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let answer = client.request(1, "initialize", params.clone()).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        // A second one is answered as well, and later calls are those of the version that was agreed on.
        let again = client.request(2, "initialize", params).await;
        assert_eq!(again["result"]["protocolVersion"], "2025-11-25");
        let called = client.call(3, json!({ "code": "echo hi" })).await;
        assert_eq!(called.get("resultType"), None, "{called}");
        assert!(client.is_alive().await);
    }
}

#[tokio::test]
async fn a_client_may_discover_and_then_call_without_initialize() {
    let mut client = Client::connect();
    let discovered = client.request(1, "server/discover", modern(json!({}))).await;
    let versions = discovered["result"]["supportedVersions"].as_array().unwrap();
    assert_eq!(versions.last().unwrap(), "2026-07-28");
    let listed = client.request(2, "tools/list", modern(json!({}))).await;
    assert_eq!(listed["result"]["tools"][0]["name"], "run_python");
    assert_eq!(listed["result"]["resultType"], "complete");
    let params = modern(json!({ "name": "run_python", "arguments": { "code": "echo hi" } }));
    let called = client.request(3, "tools/call", params).await;
    assert_eq!(called["result"]["content"][0]["text"], "hi");
    assert_eq!(called["result"]["resultType"], "complete");
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_call_may_be_the_very_first_message() {
    let mut client = Client::connect();
    let params = modern(json!({ "name": "run_python", "arguments": { "code": "echo hi" } }));
    let called = client.request(1, "tools/call", params).await;
    assert_eq!(called["result"]["content"][0]["text"], "hi");
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_client_may_discover_and_then_initialize() {
    let mut client = Client::connect();
    client.request(1, "server/discover", modern(json!({}))).await;
    let initialized = client.initialize().await;
    assert_eq!(initialized["result"]["protocolVersion"], "2025-11-25");
    assert!(client.is_alive().await);
}

#[tokio::test]
async fn a_cancellation_reaches_a_call_of_the_modern_era() {
    // One that can be asked meanwhile is handled in another way.
    for capabilities in [json!({}), json!({ "elicitation": {} })] {
        let mut client = Client::connect();
        let params = json!({ "name": "run_python", "arguments": { "code": "hold" } });
        let params = modern_with(params, capabilities);
        client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })).await;
        client.sessions.started.notified().await;
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
        client.send(cancel).await;
        while client.sessions.cancelled.load(Ordering::SeqCst) == 0 {
            let listed = client.request(2, "tools/list", modern(json!({}))).await;
            assert_eq!(listed["result"]["tools"][0]["name"], "run_python");
        }
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_call_whose_client_can_be_asked_is_a_call_like_any_other() {
    let mut client = Client::connect();
    let call = |code: &str, token: Value| {
        let mut params = json!({ "name": "run_python", "arguments": { "code": code } });
        params = modern_with(params, json!({ "elicitation": {} }));
        params["_meta"]["progressToken"] = token;
        params
    };
    let answer = client.request(1, "tools/call", call("panic", json!(null))).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    let answer = client.request(2, "tools/call", call("echo still here", json!(null))).await;
    assert_eq!(answer["result"]["content"][0]["text"], "still here", "{answer}");
    let params = call("report one two", json!("t"));
    client.send(json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params })).await;
    while client.receive().await["params"]["message"] != "two" {}
    client.to = None;
    client.ended().await.unwrap();
    assert_eq!(client.sessions.cancelled.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn before_a_session_is_open_only_requests_count() {
    let mut client = Client::connect();
    for early in [
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/whatever" }),
        json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
        json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": 1, "message": "no" } }),
    ] {
        client.send(early).await;
    }
    assert!(client.is_alive().await);
    let refused = client.request(1, "tools/list", json!({})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let malformed = client.request(2, "initialize", json!({ "protocolVersion": 1 })).await;
    assert_eq!(malformed["error"]["code"], -32602);
    assert!(malformed["error"]["message"].as_str().unwrap().contains("malformed params of initialize"));
    client.initialize().await;
    assert!(client.is_alive().await);
    client.close().await.unwrap();
}
