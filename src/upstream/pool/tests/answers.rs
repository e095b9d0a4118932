//! What servers answer, however odd: results, lists, lines.

use super::*;

#[tokio::test]
async fn a_server_lists_its_tools_and_answers() {
    let bench = Bench::with(&["--tools", "2"]);
    assert_eq!(bench.state(), ServerState::Stopped);
    let tools = bench.tools().await.unwrap();
    let names: Vec<_> = tools.tools.iter().map(|tool| tool.alias.as_str()).collect();
    assert_eq!(names, ["echo", "tool_0", "tool_1"]);
    assert_eq!(tools.tools[0].description, "Says it again.");
    let properties: Vec<_> = tools.tools[0].input_schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(properties, ["zeta", "alpha"]);
    assert_eq!(bench.state(), ServerState::Running);
    let arguments: Value =
        serde_json::from_str(r#"{"z":123456789012345678901234567890,"a":0.10,"é":[1e400,null]}"#).unwrap();
    let outcome = bench.call("echo", arguments.clone()).await.unwrap();
    assert!(!outcome.is_error);
    // Python writes the floats as it sees fit; what comes from it passes as it wrote it.
    assert!(
        outcome.json.get().contains(r#""z": 123456789012345678901234567890, "a": 0.1"#),
        "{}",
        outcome.json
    );
    let outcome = bench.call("fail", json!({})).await.unwrap();
    assert!(outcome.is_error && outcome.json.get().contains("no luck"));
    let pid = bench.pid().await;
    bench.upstream.shutdown().await;
    assert!(!is_alive(pid));
    assert!(matches!(bench.call("echo", json!({})).await, Err(UpstreamError::ShuttingDown)));
}

#[tokio::test]
async fn results_pass_as_they_were_written() {
    let bench = Bench::with(&[]);
    let deep = format!("{{\"content\":{}{}}}", "[".repeat(2_000), "]".repeat(2_000));
    for result in [
        r#"{"content":[],"structuredContent":{"z":1,"a":123456789012345678901234567890,"f":0.10,"e":1e400}}"#,
        r#"{"content":[{"type":"hologram","x":1},{"type":"image","data":""},{"type":"text","text":"t","annotations":{"audience":["system"]}}]}"#,
        r#"{"content":null,"tools":[],"action":"x"}"#,
        r#"{"content":[{"type":"text","text":"\ud83d"}]}"#,
        "{}",
        "[1, 2]",
        "\"text\"",
        &deep,
    ] {
        let outcome = bench.call("raw", json!({ "result": result })).await;
        assert_eq!(outcome.unwrap().json.get(), result);
    }
    let outcome = bench.call("raw", json!({ "result": r#"{"x":[NaN,Infinity,-Infinity]}"# })).await;
    assert_eq!(outcome.unwrap().json.get(), r#"{"x":[null,1e999,-1e999]}"#);
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn no_answer_however_odd_hangs_its_call() {
    let bench = Bench::with(&[]);
    let ok = Ok(r#"{"ok":1}"#);
    let logged = |line: &str| format!("{line}\n{{\"id\":ID,\"result\":{{\"ok\":1}}}}\n");
    let logs = [
        r#"{"level":30,"time":1700000000000,"msg":"listening"}"#,
        r#"{"jsonrpc":"2.0","msg":"x"}"#,
        r#"{"level":"info","result":{"content":[]}}"#,
        r#"{"level":"info","id":ID,"error_count":0}"#,
        r#"[{"level":"info"}]"#,
        "{\n  \"level\": \"info\"\n}",
    ];
    for line in logs.map(logged) {
        assert_eq!(
            bench.call("line", json!({ "text": line })).await.unwrap().json.get(),
            r#"{"ok":1}"#,
            "{line}"
        );
    }
    let cases: [(&str, Result<&str, &str>); 19] = [
        ("{\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":null,\"result\":{\"ok\":1}}\n", ok),
        ("{\"id\":ID,\"result\":{\"ok\":1}}\n", ok),
        ("{\"jsonrpc\":\"2.0\",\"id\":\"ID\",\"result\":{\"ok\":1}}\n", ok),
        ("{\"jsonrpc\":\"2.0\",\"id\":ID.0,\"result\":{\"ok\":1}}\n", ok),
        ("{\"jsonrpc\":\"2.0\",\"result\":{\"ok\":1}}\n", ok),
        (
            "[{\"jsonrpc\":\"2.0\",\"method\":\"x\"},{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"ok\":1}}]\n",
            ok,
        ),
        ("{\n  \"jsonrpc\": \"2.0\",\n  \"id\": ID,\n  \"result\": {\"ok\":1}\n}\n", ok),
        ("{\nnoise\n{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"ok\":1}}\n", ok),
        ("\n\r\nwords\n\x00\x01\n{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"ok\":1}}\r\n", ok),
        ("calling... {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"ok\":1}}\n", ok),
        ("{\"id\":9999,\"result\":{}}\n{\"id\":ID,\"result\":{\"ok\":1}}\n", ok),
        ("{\"id\":ID,\"result\":{\"ok\":\"\u{ff}\"}}\n", Ok("{\"ok\":\"\u{fffd}\"}")),
        ("{\"id\":ID,\"result\":{\"ok\":\"a\tb\"}}\n", Ok(r#"{"ok":"a\u0009b"}"#)),
        ("{\"id\":ID,\"result\":{\"ok\":1}\n", Err("to 'line': EOF while parsing")),
        ("{\"id\":ID,\"result\":{'ok':1}}\n", Err("to 'line': key must be a string")),
        ("{\"id\":ID}\n", Err("it has neither a result nor an error")),
        ("{\"id\":ID,\"error\":\"words\"}\n", Err("refused 'line': words (-32603)")),
        ("{\"id\":ID,\"error\":{\"code\":\"-7\",\"message\":[1]}}\n", Err("(-7)")),
        (
            "{\"id\":null,\"error\":{\"code\":-32700,\"message\":\"Parse error\"}}\n",
            Err("refused 'line': Parse error (-32700)"),
        ),
    ];
    for (line, expected) in cases {
        let outcome =
            tokio::time::timeout(Duration::from_secs(20), bench.call("line", json!({ "text": line }))).await;
        let outcome = outcome.unwrap_or_else(|_| panic!("no answer to {line:?}"));
        match (outcome, expected) {
            (Ok(outcome), Ok(json)) => assert_eq!(outcome.json.get(), json, "{line:?}"),
            (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{line:?}: {error}"),
            (outcome, expected) => panic!("{line:?}: {outcome:?}, not {expected:?}"),
        }
    }
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_server_does_not_list_its_tools_for_each_one_that_it_does_not_have() {
    let bench = Setup::args(&["--named", "known"]).start();
    let ask = async |tool: &str| {
        let arguments = RawArguments::new("{}".into()).unwrap();
        bench.upstream.call("fake", tool, arguments, CallOptions::new(&bench.cancel)).await
    };
    for at in 0..50 {
        let error = ask(&format!("nope-{at}")).await.unwrap_err();
        assert!(matches!(error, UpstreamError::UnknownTool { .. }), "{error}");
    }
    let listings = bench.say("listings", json!({})).await.as_u64().unwrap();
    assert!((2..10).contains(&listings), "{listings}");
    // The server announces this change, so the list is read again.
    bench.say("change", json!({ "tools": 1 })).await;
    let error = ask("tool-0").await.unwrap_err();
    assert!(matches!(error, UpstreamError::Refused { .. }), "it was not called: {error}");
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn lists_come_in_pages_and_have_an_end() {
    let bench = Bench::with(&["--tools", "24", "--page", "10"]);
    assert_eq!(bench.tools().await.unwrap().tools.len(), 25);
    bench.tools().await.unwrap();
    assert_eq!(bench.say("listings", json!({})).await, json!(3));
    bench.upstream.shutdown().await;

    let bench = Bench::with(&["--cursor", "same"]);
    let tools = bench.tools().await.unwrap();
    assert_eq!(tools.tools.len(), 1);
    assert!(bench.say("listings", json!({})).await.as_u64().unwrap() <= 3);
    bench.upstream.shutdown().await;

    let bench = Setup::args(&["--cursor", "endless"]).limits(|limits| limits.pages = 7).start();
    assert_eq!(bench.tools().await.unwrap().tools.len(), 1);
    assert_eq!(bench.say("listings", json!({})).await, json!(7));
    bench.upstream.shutdown().await;

    let bench = Bench::with(&["--no-tools"]);
    assert_eq!(bench.tools().await.unwrap().tools, []);
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_changed_list_is_asked_for_again() {
    let bench = Bench::with(&[]);
    let mut events = bench.upstream.events();
    assert_eq!(bench.tools().await.unwrap().tools.len(), 1);
    bench.call("change", json!({ "tools": 3 })).await.unwrap();
    assert_eq!(bench.tools().await.unwrap().tools.len(), 4);
    let event = events.recv().await.unwrap();
    assert!(matches!(event, Event::ToolsChanged { ref server } if &**server == "fake"), "{event:?}");
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn large_results_arrive_whole_and_larger_ones_are_refused() {
    let bench = Bench::with(&[]);
    for megabytes in [1_usize, 20, 64] {
        let outcome = bench.call("big", json!({ "bytes": megabytes << 20 })).await.unwrap();
        assert!(outcome.json.get().len() > megabytes << 20);
    }
    let too_much = crate::upstream::pool::stdio::LONGEST_LINE + 1;
    let error = bench.call("big", json!({ "bytes": too_much })).await.unwrap_err();
    assert!(
        matches!(error, UpstreamError::Malformed { .. }) && error.to_string().contains("is the limit"),
        "{error}"
    );
    assert_eq!(bench.structured("echo").await, json!({}));
    bench.upstream.shutdown().await;
}
