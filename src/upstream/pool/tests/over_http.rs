//! The pool against a scripted server elsewhere, that is, on the loopback interface.

use codebridge_runtimes::exec::{CommandLine, group_of, spawn_piped, terminate};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::*;

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fakes/mcp_http_server.py");

/// The server's process, and a user who has a definition of it.
pub(super) struct Web {
    child: Child,
    pub(super) bench: Bench,
}

impl Web {
    pub(super) async fn with(path: &str, entry: Value) -> Self {
        Self::within(path, entry, Limits::default()).await
    }

    async fn within(path: &str, mut entry: Value, limits: Limits) -> Self {
        let mut child = spawn_piped(&CommandLine::new("/usr/bin/python3").args(["-u", FAKE])).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
        let bench = Setup { limits, ..Setup::default() }.start();
        entry["url"] = format!("http://127.0.0.1:{}{path}", line.trim()).into();
        let all = json!({ "mcpServers": { "fake": entry } });
        std::fs::write(bench.path("MCPs/all.json"), all.to_string()).unwrap();
        Self { child, bench }
    }

    pub(super) async fn end(mut self) {
        self.bench.upstream.shutdown().await;
        let group = group_of(&self.child);
        terminate(&mut self.child, group, Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_server_elsewhere_is_asked_with_the_users_headers() {
    for path in ["/json", "/events", "/session", "/redirect/307", "/redirect/308"] {
        let headers = json!({
            "X-Key": "key-123456", "Accept": "no", "Content-Type": "no", "MCP-Protocol-Version": "no"
        });
        let web = Web::with(path, json!({ "headers": headers })).await;
        let tools = web.bench.tools().await.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!((tools.tools[0].name.as_str(), &tools.tools[0].raw["x"]), ("echo", &json!(1)), "{path}");
        let outcome = web.bench.call("echo", json!({ "z": 1, "a": 2 })).await.unwrap();
        let said = &outcome.value().unwrap()["structuredContent"];
        assert_eq!(said["arguments"].to_string(), r#"{"z":1,"a":2}"#, "{path}");
        let header = |name: &str| {
            let headers = said["headers"].as_object().unwrap();
            headers
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.as_str().unwrap())
        };
        // The fake server reports the first of several headers of a name: those of the definition are replaced.
        assert_eq!(header("X-Key"), Some("key-123456"));
        assert_eq!(header("Accept"), Some("application/json, text/event-stream"));
        assert_eq!(header("Content-Type"), Some("application/json"));
        assert_eq!(header("MCP-Protocol-Version"), Some("2025-11-25"));
        web.end().await;
    }
}

#[tokio::test]
async fn answers_over_http_pass_as_they_were_written_and_none_hangs() {
    for path in ["/json", "/events"] {
        let web = Web::with(path, json!({})).await;
        let deep = format!("{{\"x\":{}{}}}", "[".repeat(1_000), "]".repeat(1_000));
        for result in [
            r#"{"z":123456789012345678901234567890,"a":0.10}"#,
            r#"{"content":[{"type":"x"}],"y":"\ud83d"}"#,
            "{}",
            &deep,
        ] {
            let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":ID,\n\"result\":{result}}}");
            let outcome = web.bench.call("raw", json!({ "text": text })).await;
            assert_eq!(outcome.unwrap().json.get(), result, "{path}");
        }
        for (text, words) in [
            ("{\"id\":ID,\"result\":{'a':1}}", "could not read the answer"),
            ("{\"id\":ID,\"error\":{\"code\":-5,\"message\":\"no\"}}", "no (-5)"),
        ] {
            let error = web.bench.call("raw", json!({ "text": text })).await.unwrap_err();
            assert!(error.to_string().contains(words), "{path}: {error}");
        }
        let limit = Duration::from_secs(20);
        let outcome = tokio::time::timeout(limit, web.bench.call("none", json!({}))).await;
        let error = outcome.unwrap_or_else(|_| panic!("{path}: no answer hangs")).unwrap_err();
        assert!(
            matches!(
                error,
                UpstreamError::Malformed { .. }
                    | UpstreamError::Refused { .. }
                    | UpstreamError::Unreachable { .. }
                    | UpstreamError::Ended { .. }
            ),
            "{path}: {error}"
        );
        assert!(web.bench.call("echo", json!({})).await.is_ok(), "{path}");
        web.end().await;
    }
}

#[tokio::test]
async fn progress_and_changes_come_over_http() {
    for path in ["/session", "/older"] {
        let web = Web::with(path, json!({})).await;
        let (sender, mut progress) = mpsc::channel(10);
        web.bench.call_by("progress", Map::new(), Some(sender), &web.bench.cancel).await.unwrap();
        let mut seen = Vec::new();
        while let Some(step) = progress.recv().await {
            seen.push(step.progress);
        }
        assert_eq!(seen, [1.0, 2.0, 3.0], "{path}");
        web.end().await;
    }
    let web = Web::with("/session", json!({})).await;
    let mut events = web.bench.upstream.events();
    web.bench.call("announce", json!({})).await.unwrap();
    let event = tokio::time::timeout(Duration::from_secs(20), events.recv()).await.unwrap().unwrap();
    assert!(matches!(event, Event::ToolsChanged { .. }), "{event:?}");
    web.end().await;
}

#[tokio::test]
async fn questions_over_http_are_answered() {
    let web = Web::with("/events", json!({})).await;
    let answer = web.bench.call("ask", json!({ "method": "elicitation/create" })).await.unwrap();
    let answer = &answer.value().unwrap()["structuredContent"]["arguments"];
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("'elicitation/create' is not supported"));
    web.end().await;
}

#[tokio::test]
async fn a_session_that_expired_is_begun_anew_and_ended_at_the_end() {
    let web = Web::with("/session", json!({})).await;
    web.bench.call("expire", json!({})).await.unwrap();
    assert!(web.bench.call("echo", json!({})).await.is_ok());
    let requests = web.bench.structured("requests").await["requests"].clone();
    let count =
        |method: &str| requests.as_array().unwrap().iter().filter(|request| request[2] == method).count();
    assert_eq!(count("initialize"), 2);
    web.end().await;
}

#[tokio::test]
async fn the_older_transport_is_spoken_where_it_is_wanted_or_all_there_is() {
    for entry in [json!({ "type": "sse" }), json!({ "type": "http" }), json!({})] {
        let web = Web::with("/older", entry.clone()).await;
        assert_eq!(web.bench.tools().await.unwrap().tools.len(), 1, "{entry}");
        let outcome =
            web.bench.call("raw", json!({ "text": "{\"id\":ID,\"result\":{\"a\":0.10}}" })).await.unwrap();
        assert_eq!(outcome.json.get(), r#"{"a":0.10}"#);
        web.end().await;
    }
    // The other way round: it only says that it is of the older one.
    let web = Web::with("/json", json!({ "type": "sse" })).await;
    assert_eq!(web.bench.tools().await.unwrap().tools.len(), 1);
    web.end().await;
}

#[tokio::test]
async fn a_server_elsewhere_that_says_no_is_quoted_without_credentials() {
    for (path, words) in [
        (
            "/refuse/500",
            r#"server 'fake' failed (HTTP 500 Internal Server Error from URL): {"error": "no, not with [X-Key]"}"#,
        ),
        ("/refuse/403", "server 'fake' denies access (HTTP 403 Forbidden from URL)"),
        ("/refuse/404", "server 'fake' has no MCP at its URL (HTTP 404 Not Found from URL)"),
        ("/refuse/503", "server 'fake' failed (HTTP 503 Service Unavailable from URL)"),
        ("/page", "it responded with 'text/html' instead of a message"),
        ("/redirect/302", "server 'fake' refused the request (HTTP 302 Found from URL)"),
        ("/auth", "server 'fake' wants a login (HTTP 401 Unauthorized from URL)"),
    ] {
        let web = Web::with(path, json!({ "headers": { "X-Key": "key-123456" } })).await;
        let error = web.bench.tools().await.unwrap_err();
        let text = format!("{error} {error:?}");
        let (start, end) = words.split_once("URL)").unwrap_or((words, ""));
        assert!(text.contains(start) && text.contains(end), "{path}: {text}");
        assert!(text.contains(path) && !text.contains("key-123456"), "{path}: {text}");
        web.end().await;
    }
    let web = Web::with("/auth", json!({ "headers": { "Authorization": "Bearer good" } })).await;
    assert_eq!(web.bench.tools().await.unwrap().tools.len(), 1);
    web.end().await;
}

#[tokio::test]
async fn a_server_that_wants_a_login_is_given_one_in_its_definition() {
    for (headers, hint) in [
        (json!({}), "run `codebridge servers login fake`, or put a token into \"headers\" of its definition"),
        (json!({ "Authorization": "Bearer key-123456" }), "check the token in \"headers\" of its definition"),
    ] {
        let web = Web::with("/auth?key=key-123456", json!({ "headers": headers })).await;
        let error = web.bench.tools().await.unwrap_err();
        assert!(error.hint().unwrap().starts_with(hint), "{}", error.with_hint());
        assert!(!format!("{} {error:?}", error.with_hint()).contains("key-123456"), "{error:?}");
        web.end().await;
    }
}

#[tokio::test]
async fn a_server_elsewhere_that_is_gone_is_an_error_and_not_a_wait() {
    let mut web = Web::with("/json?key=key-123456", json!({})).await;
    web.bench.tools().await.unwrap();
    let group = group_of(&web.child);
    terminate(&mut web.child, group, Duration::ZERO).await;
    for _ in 0..2 {
        let error = web.bench.call("echo", json!({})).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("refused") || text.contains("connection"), "{text}");
        assert!(!text.contains("key-123456"), "{text}");
    }
    web.bench.upstream.shutdown().await;
    let web = Web::within("/json", json!({}), Limits::default()).await;
    std::fs::write(
        web.bench.path("MCPs/all.json"),
        r#"{"mcpServers":{"fake":{"url":"https://127.0.0.1:9/mcp"}}}"#,
    )
    .unwrap();
    let error = web.bench.tools().await.unwrap_err();
    assert!(error.to_string().contains("could not connect: Connection refused"), "{error}");
    web.end().await;
}
