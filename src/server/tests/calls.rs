//! Calls of the tool: arguments, results, at the same time, cancelled, and gone wrong.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Client;

fn cancel(id: i64) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
}

#[tokio::test]
async fn the_arguments_reach_the_sessions_and_the_outcome_the_client() {
    let mut client = Client::open().await;
    let arguments = json!({ "code": "echo hi", "servers": ["a"], "timeout": 500, "session": "other" });
    let result = client.call(1, arguments).await;
    let cut = "timeout is shorter: 500 requested, limit 120 from MCP_BRIDGE_MAX_TIMEOUT";
    assert_eq!(
        result,
        json!({
            "content": [{ "type": "text", "text": format!("note: {cut}\nhi") }],
            "structuredContent": { "servers": ["a"], "stdout": ["hi"], "notices": [cut] },
            "isError": false,
        })
    );
    let requests = client.sessions.requests.lock().unwrap();
    assert_eq!(requests[0].timeout, Duration::from_secs(120));
    assert_eq!(requests[0].session, "other");
}

#[tokio::test]
async fn arguments_that_are_not_used_as_given_are_noted() {
    let mut client = Client::open().await;
    let text = |result: Value| result["content"][0]["text"].as_str().unwrap().to_owned();
    let arguments = json!({ "code": "echo hi", "servers": "a", "colour": 1 });
    assert_eq!(
        text(client.call(1, arguments).await),
        "note: unknown argument 'colour' is ignored\nnote: 'servers' is text: read as [\"a\"]\nhi"
    );
    assert_eq!(client.sessions.requests.lock().unwrap()[0].servers, ["a"]);
    assert_eq!(
        text(client.call(2, json!({ "source": "1" })).await),
        "status: validation_error\nnote: unknown argument 'source' is ignored\nerror: Missing 'code' argument"
    );
}

#[tokio::test]
async fn code_that_raises_is_an_error_result() {
    let mut client = Client::open().await;
    let result = client.call(1, json!({ "code": "raise" })).await;
    assert_eq!(result["isError"], true);
    assert_eq!(result["content"][0]["text"], "status: error\nexit: 1");
}

#[tokio::test]
async fn bad_arguments_are_error_results_and_start_nothing() {
    let mut client = Client::open().await;
    let cases = [
        (json!({ "name": "run_python" }), "Missing 'code' argument"),
        (json!({ "name": "run_python", "arguments": null }), "Missing 'code' argument"),
        (json!({ "name": "run_python", "arguments": {} }), "Missing 'code' argument"),
        (json!({ "name": "run_python", "arguments": [] }), "'arguments' must be an object"),
        (
            json!({ "name": "run_python", "arguments": { "code": "echo", "timeout": "x" } }),
            "'timeout' must be an integer",
        ),
        (
            json!({ "name": "run_python", "arguments": { "code": "echo", "servers": {} } }),
            "'servers' must be a list",
        ),
        (json!({ "name": "run_ruby", "arguments": { "code": "echo" } }), "Unknown tool: run_ruby"),
        (json!({ "name": "run_ruby", "arguments": 1 }), "Unknown tool: run_ruby"),
    ];
    for (params, message) in cases {
        let answer = client.request(1, "tools/call", params).await;
        let result = &answer["result"];
        assert_eq!(
            result["content"][0]["text"],
            format!("status: validation_error\nerror: {message}"),
            "{answer}"
        );
        assert_eq!(result["structuredContent"]["status"], "validation_error");
        assert_eq!(result["isError"], true);
    }
    assert!(client.sessions.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn malformed_parameters_are_protocol_errors() {
    let mut client = Client::open().await;
    for params in [json!({}), json!({ "name": 1 }), json!({ "name": "run_python", "_meta": 1 }), json!([])] {
        let answer = client.request(1, "tools/call", params.clone()).await;
        assert_eq!(answer["error"]["code"], -32602, "{params}");
    }
    let answer = client.request(1, "resources/read", json!({ "uri": 1 })).await;
    assert_eq!(answer["error"], json!({ "code": -32602, "message": "malformed params of resources/read" }));
    let answer = client.request(1, "logging/setLevel", json!({ "level": "loud" })).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    for method in ["no/such", "prompts/get"] {
        let answer = client.request(1, method, json!({ "name": 1 })).await;
        assert_eq!(answer["error"], json!({ "code": -32601, "message": format!("no method {method}") }));
    }
    assert!(client.is_alive().await);
}

#[tokio::test]
async fn a_panic_is_answered_and_the_server_goes_on() {
    let mut client = Client::open().await;
    client.start_call(1, json!({ "code": "panic" })).await;
    let answer = client.receive().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32603)), "{answer}");
    assert_eq!(
        client.call(2, json!({ "code": "echo still here" })).await["content"][0]["text"],
        "still here"
    );
}

#[tokio::test]
async fn a_long_call_delays_nothing_else() {
    let mut client = Client::open().await;
    client.start_running(1, "hold").await;
    assert!(client.is_alive().await);
    let listed = client.request(2, "tools/list", json!({})).await;
    assert_eq!(listed["result"]["tools"][0]["name"], "run_python");
    for id in 3..20 {
        assert_eq!(client.call(id, json!({ "code": "echo quick" })).await["content"][0]["text"], "quick");
    }
    client.sessions.release.notify_one();
    let answer = client.receive().await;
    assert_eq!(answer["id"], 1);
    assert_eq!(answer["result"]["content"][0]["text"], "released");
}

#[tokio::test]
async fn many_calls_at_once_are_all_answered() {
    let mut client = Client::open().await;
    for id in 1..=200 {
        client.start_call(id, json!({ "code": format!("echo {id}") })).await;
    }
    let mut ids = Vec::new();
    for _ in 0..200 {
        let answer = client.receive().await;
        assert_eq!(answer["result"]["content"][0]["text"], answer["id"].to_string());
        ids.push(answer["id"].as_i64().unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..=200).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_in_its_session_and_gets_no_answer() {
    let mut client = Client::open().await;
    client.start_running(1, "hold").await;
    client.start_running(2, "hold").await;
    client.send(cancel(1)).await;
    client.send(cancel(77)).await;
    while client.sessions.cancelled.load(Ordering::SeqCst) == 0 {
        assert!(client.is_alive().await);
    }
    client.sessions.release.notify_one();
    assert_eq!(client.receive().await["id"], 2, "the other call goes on, and only it is answered");
    assert_eq!(client.sessions.cancelled.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_client_that_asks_for_progress_gets_the_latest_line() {
    for token in [json!(5), json!("token")] {
        let mut client = Client::open().await;
        let meta = json!({ "progressToken": token });
        let params =
            json!({ "name": "run_python", "arguments": { "code": "report one two three" }, "_meta": meta });
        client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })).await;
        let mut seen = -1.0;
        loop {
            let told = client.receive().await;
            assert_eq!(told["method"], "notifications/progress", "{told}");
            assert_eq!(told["params"]["progressToken"], token);
            let progress = told["params"]["progress"].as_f64().unwrap();
            assert!(progress > seen, "{progress} after {seen}");
            seen = progress;
            if told["params"]["message"] == "three" {
                break;
            }
        }
        client.sessions.release.notify_one();
        assert_eq!(client.receive().await["id"], 1);
        // Nothing about the call may come after its answer.
        assert!(client.is_alive().await);
    }
}

#[tokio::test]
async fn a_client_that_does_not_ask_for_progress_gets_none() {
    let mut client = Client::open().await;
    client.start_running(1, "hold").await;
    client.sessions.release.notify_one();
    assert_eq!(client.receive().await["id"], 1);
}
