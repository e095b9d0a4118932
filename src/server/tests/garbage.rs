//! Whatever comes in, the connection stays up, and who can be answered is.

use serde_json::json;

use super::client::Client;

#[tokio::test]
async fn lines_that_are_not_json_are_ignored_before_and_after_the_session_is_open() {
    let garbage: [&[u8]; 9] = [
        b"\n", b"\r\n", b"   \n", b"hello\n", b"\0\0\n", b"\xff\xfe\n", b"{\n", b"5\n",
        b"Content-Length: 5\r\n",
    ];
    let mut client = Client::connect();
    for line in garbage {
        client.write(line).await;
    }
    client.initialize().await;
    for line in garbage {
        client.write(line).await;
    }
    assert!(client.is_alive().await);
    client.close().await.unwrap();
}

#[tokio::test]
async fn json_that_is_not_a_message_is_refused_and_the_session_goes_on() {
    let mut client = Client::open().await;
    for line in [
        "{}",
        "[]",
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
    ] {
        client.write(format!("{line}\n")).await;
        assert_eq!(client.receive().await["error"]["code"], -32600, "{line}");
    }
    assert!(client.is_alive().await);
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_answered() {
    let mut client = Client::open().await;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let bodies: [&[u8]; 4] = [b"\"\xff\"", b"\"\\ud83d\"", deep.as_bytes(), b"NaN"];
    for (id, body) in (1..).zip(bodies) {
        let mut line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"run_python","arguments":{{"code":"#).into_bytes();
        line.extend_from_slice(body);
        line.extend_from_slice(b"}}}\n");
        client.write(line).await;
        let answer = client.receive().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32700)), "{answer}");
    }
    assert!(client.is_alive().await);
}

#[tokio::test]
async fn a_long_line_is_read() {
    let mut client = Client::open().await;
    let code = format!("echo {}", "x".repeat(50 << 20));
    client.start_running(1, &code).await;
    let answer = client.receive().await;
    assert_eq!(answer["result"]["content"][0]["text"].as_str().unwrap().len(), 50 << 20);
    assert!(client.is_alive().await);
}

#[tokio::test]
async fn a_line_over_the_limit_is_refused_by_its_id_wherever_that_is() {
    let mut client = Client::open().await;
    let filling = vec![b'x'; 1 << 20];
    for (id, head, tail) in [
        (1, r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":""#, r#""}}"#),
        (2, r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":""#, r#""},"id":2}"#),
    ] {
        client.write(head).await;
        for _ in 0..65 {
            client.write(&filling).await;
        }
        client.write(format!("{tail}\n")).await;
        let answer = client.receive().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32600)));
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.ends_with("is longer than the limit of 67108864 bytes (64 MiB)"), "{message}");
    }
    assert!(client.is_alive().await);
}

#[tokio::test]
async fn the_last_request_needs_no_newline() {
    let mut client = Client::open().await;
    client.write(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    client.to = None;
    assert_eq!(client.receive().await["id"], 1);
    client.ended().await.unwrap();
}
