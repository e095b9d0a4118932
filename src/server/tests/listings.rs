//! What can be listed and read.

use serde_json::{Value, json};

use super::client::Client;
use crate::settings::{RawSettings, Settings, variables};

const CAPABILITIES: &str = "resource://mcp-server-code-execution-mode/capabilities";

fn modern() -> Value {
    json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    } })
}

/// What a model reads of the tool, and what is added to it.
fn check_length(line: &str) {
    let answer: Value = serde_json::from_str(line).unwrap();
    let tool = &answer["result"]["tools"][0];
    let fields = ["name", "description", "inputSchema"];
    let read: usize = fields.iter().map(|field| tool[field].to_string().len() + field.len() + 4).sum();
    let added = tool.to_string().len() - read;
    assert!(read <= 1000 && added <= 200, "{read} and {added} bytes: {line}");
}

#[tokio::test]
async fn the_tool_list_is_at_most_a_thousand_bytes_whatever_is_configured() {
    for (timeout, most) in [("30", "120"), ("18446744073709551615", "18446744073709551615")] {
        let mut raw = RawSettings::default();
        raw.set_flag(&variables::TIMEOUT, timeout);
        raw.set_flag(&variables::MAX_TIMEOUT, most);
        raw.set_flag(&variables::STATE_DIR, "/state");
        let settings = Settings::resolve(&raw).unwrap();
        let mut client = Client::connect_with(settings.clone());
        client.initialize().await;
        client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })).await;
        check_length(&client.line().await.unwrap());

        let mut client = Client::connect_with(settings);
        client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": modern() })).await;
        check_length(&client.line().await.unwrap());
    }
}

#[tokio::test]
async fn the_tool_is_defined_as_documented() {
    let mut client = Client::open().await;
    let tool = &client.request(1, "tools/list", json!({})).await["result"]["tools"];
    assert_eq!(tool.as_array().unwrap().len(), 1);
    let schema = &tool[0]["inputSchema"];
    let types: Vec<_> =
        schema["properties"].as_object().unwrap().iter().map(|(k, v)| (k.as_str(), &v["type"])).collect();
    assert_eq!(
        types,
        [
            ("code", &json!("string")),
            ("servers", &json!("array")),
            ("timeout", &json!("integer")),
            ("session", &json!("string")),
            ("background", &json!("boolean")),
            ("run", &json!("integer")),
            ("stop", &json!("boolean")),
        ]
    );
    assert_eq!(schema.get("required"), None, "a look has no code");
    assert_eq!(
        (&tool[0]["title"], &tool[0]["annotations"]["destructiveHint"]),
        (&json!("Run Python"), &json!(true))
    );
    assert!(tool[0]["description"].as_str().unwrap().contains("print(runtime.capability_summary())"));
    assert_eq!(schema["properties"]["timeout"]["description"], "Seconds, 1 to 120; default 30");
}

#[tokio::test]
async fn the_helper_reference_can_be_listed_and_read() {
    let mut client = Client::open().await;
    let listed = client.request(1, "resources/list", json!({})).await;
    let resources = listed["result"]["resources"].as_array().unwrap();
    assert_eq!(resources.len(), 1);
    assert_eq!(
        (&resources[0]["uri"], &resources[0]["mimeType"]),
        (&json!(CAPABILITIES), &json!("text/markdown"))
    );
    let read = client.request(2, "resources/read", json!({ "uri": CAPABILITIES })).await;
    let contents = &read["result"]["contents"][0];
    assert_eq!(contents["mimeType"], "text/markdown");
    let text = contents["text"].as_str().unwrap();
    assert!(text.contains("runtime.capability_summary()"));
    assert_eq!(resources[0]["size"], text.len());
}

#[tokio::test]
async fn kept_output_can_be_listed_and_read_part_by_part() {
    let mut client = Client::open().await;
    let output = "äöü\n".repeat(400_000);
    client.sessions.kept.lock().unwrap().extend([(3, output.clone().into_bytes()), (4, b"short".to_vec())]);
    let listed = client.request(1, "resources/list", json!({})).await;
    let uris: Vec<_> = listed["result"]["resources"].as_array().unwrap().iter().map(|r| &r["uri"]).collect();
    assert_eq!(uris, [CAPABILITIES, "codebridge://runs/3/stdout", "codebridge://runs/4/stdout"]);
    let templates = client.request(2, "resources/templates/list", json!({})).await;
    let template = &templates["result"]["resourceTemplates"][0]["uriTemplate"];
    assert_eq!(template, "codebridge://runs/{run}/{stream}{?start}");

    let mut uri = "codebridge://runs/3/stdout".to_owned();
    let mut read = String::new();
    let mut parts = 0;
    loop {
        let answer = client.request(3, "resources/read", json!({ "uri": uri })).await;
        let contents = &answer["result"]["contents"][0];
        read.push_str(contents["text"].as_str().unwrap());
        parts += 1;
        match contents["_meta"]["next"].as_str() {
            Some(next) => uri = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(parts, 3);
    assert!(read == output);
    let short = client.request(4, "resources/read", json!({ "uri": "codebridge://runs/4/stdout" })).await;
    let expected = json!({ "uri": "codebridge://runs/4/stdout", "mimeType": "text/plain", "text": "short" });
    assert_eq!(short["result"]["contents"], json!([expected]));
}

#[tokio::test]
async fn a_missing_resource_cannot_be_read() {
    let mut client = Client::open().await;
    for uri in ["codebridge://runs/3/stdout", "codebridge://runs/3", "file:///etc/passwd", ""] {
        let answer = client.request(1, "resources/read", json!({ "uri": uri })).await;
        assert_eq!(answer["error"]["code"], -32002, "{answer}");
        assert_eq!(answer["error"]["data"], json!({ "uri": uri }));
    }
}

#[tokio::test]
async fn clients_with_mcp_apps_get_a_viewer_and_others_no_word_of_it() {
    const URI: &str = "ui://codebridge/viewer";
    let apps = json!({ "io.modelcontextprotocol/ui": { "mimeTypes": ["text/html;profile=mcp-app"] } });
    let mut with = modern();
    with["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({ "extensions": apps });
    let mut client = Client::connect();
    let listed = client.request(1, "tools/list", with.clone()).await;
    assert_eq!(listed["result"]["tools"][0]["_meta"], json!({ "ui": { "resourceUri": URI } }));
    let resources = client.request(2, "resources/list", with.clone()).await;
    let viewer = &resources["result"]["resources"][1];
    assert_eq!((&viewer["uri"], &viewer["mimeType"]), (&json!(URI), &json!("text/html;profile=mcp-app")));
    with["uri"] = json!(URI);
    let read = client.request(3, "resources/read", with).await;
    let page = &read["result"]["contents"][0];
    assert_eq!(page["mimeType"], "text/html;profile=mcp-app");
    let text = page["text"].as_str().unwrap();
    assert_eq!(viewer["size"], text.len());
    // Nothing of it comes from elsewhere, and no address is allowed.
    assert!(text.contains("default-src 'none'") && !text.contains("src=\"http"));

    let listed = client.request(4, "tools/list", modern()).await;
    assert!(listed["result"]["tools"][0].get("_meta").is_none(), "{listed}");
    let resources = client.request(5, "resources/list", modern()).await;
    assert_eq!(resources["result"]["resources"].as_array().unwrap().len(), 1);
}
