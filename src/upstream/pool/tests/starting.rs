//! Servers that come up, and those that do not.

use super::*;

#[tokio::test]
async fn banners_do_not_keep_a_server_from_coming_up() {
    let bench = Bench::with(&[
        "--banner",
        "",
        "--banner",
        "Welcome {to} \"me\"",
        "--banner",
        "[INFO] x",
        "--banner",
        "no newline: \\n",
        "--banner",
        r#"{"level":30,"msg":"listening"}"#,
        "--banner",
        r#"[{"level":"info"}]"#,
    ]);
    assert_eq!(bench.tools().await.unwrap().tools.len(), 1);
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_server_that_says_little_of_itself_is_good_enough() {
    for said in [
        "{}",
        r#"{"protocolVersion":"1999-01-01","capabilities":null,"serverInfo":7}"#,
        r#"{"protocolVersion":5,"capabilities":{"tools":[],"x":1},"serverInfo":{"name":null},"instructions":"i"}"#,
    ] {
        let bench = Bench::with(&["--initialize", said]);
        assert_eq!(bench.tools().await.unwrap().tools.len(), 1, "{said}");
        bench.upstream.shutdown().await;
    }
}

#[tokio::test]
async fn a_server_without_initialize_is_asked_to_discover() {
    let bench = Bench::with(&["--modern"]);
    assert_eq!(bench.tools().await.unwrap().tools.len(), 1);
    assert_eq!(bench.structured("echo").await, json!({}));
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn one_server_is_started_however_many_ask_at_once() {
    let bench = Bench::with(&["--slow-start", "0.2", "--starts", "starts"]);
    let calls = (0..20).map(|at| bench.call("echo", json!({ "at": at })));
    for outcome in futures_join(calls).await {
        outcome.unwrap();
    }
    assert_eq!(bench.starts(), 1);
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_start_that_fails_says_why() {
    for (args, words) in [
        (
            &["--exit-at-start", "4", "--stderr", "no configuration"][..],
            &["exit status: 4", "no configuration"][..],
        ),
        (&["--refuse", "-32000"], &["it refused the handshake: not me (-32000)"]),
        (
            &["--mute", "--banner", "version 1", "--stderr", "thinking"],
            &["it was not ready within 3s", "thinking", "it printed 'version 1'"],
        ),
        (&["--initialize", "[]"], &["its first answer is unreadable: it is not an object"]),
        (
            // What is not MCP is quoted in one line, however it is written, without credentials.
            &[
                "--banner", "Usage:\u{1b}[1m x", "--banner", "{\"level\": 1}", "--banner", "it is hunter2!",
                "--banner", "not this", "--exit-at-start", "4",
            ],
            &[
                "(exit status: 4); it printed 'Usage:\u{fffd}[1m x | {\"level\": 1} | it is [A_TOKEN]' instead of MCP",
            ],
        ),
    ] {
        let is_mute = args.contains(&"--mute");
        let limit = Duration::from_secs(if is_mute { 3 } else { 60 });
        let env = json!({ "A_TOKEN": "hunter2!" });
        let setup = Setup::args(args).entry("env", env);
        let bench = setup.limits(|limits| limits.startup = limit).start();
        let error = bench.tools().await.unwrap_err();
        assert!(matches!(error, UpstreamError::Start { .. }), "{error}");
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        // A line that it printed does not hide that it needs more time.
        let wants_time = error.hint().is_some_and(|hint| hint.contains("startup_timeout_sec"));
        assert_eq!(wants_time, is_mute, "{:?}", error.hint());
        assert_eq!(bench.state(), ServerState::Failed);
        bench.upstream.shutdown().await;
    }
    for (key, value, words) in [
        (
            "command",
            json!("no such --token=hunter2!"),
            "command 'no …' not found; move its arguments to 'args'",
        ),
        ("command", json!("/etc/passwd"), "not found"),
        ("cwd", json!("nowhere"), "nowhere' does not exist"),
    ] {
        let bench = Setup::args(&[]).entry(key, value).start();
        let text = bench.tools().await.unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
        bench.upstream.shutdown().await;
    }
}

#[tokio::test]
async fn those_who_wait_for_a_start_share_its_failure_and_rests_grow() {
    let bench = Bench::with(&["--starts", "starts", "--fail-starts", "4"]);
    for outcome in futures_join((0..10).map(|_| bench.call("echo", json!({})))).await {
        assert!(matches!(outcome, Err(UpstreamError::Start { .. })), "{outcome:?}");
    }
    assert_eq!(bench.starts(), 1);
    let began = Instant::now();
    for start in 2..=4 {
        let error = bench.call("echo", json!({})).await.unwrap_err();
        assert!(matches!(error, UpstreamError::Start { .. }), "{error}");
        assert_eq!(bench.starts(), start);
    }
    assert!(began.elapsed() >= Duration::from_millis(250 + 500), "{:?}", began.elapsed());
    assert_eq!(bench.structured("echo").await, json!({}));
    bench.upstream.shutdown().await;

    let bench = Bench::with(&["--exit-at-start", "1"]);
    let mut errors = Vec::new();
    for _ in 0..6 {
        errors.push(bench.call("echo", json!({})).await.unwrap_err());
    }
    let last = errors.last().unwrap();
    assert!(matches!(last, UpstreamError::BackingOff { failures: 5, .. }), "{last}");
    assert!(last.to_string().contains("failed 5 times in a row"), "{last}");
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_start_goes_on_when_the_first_caller_leaves() {
    let bench = Bench::with(&["--slow-start", "1.5", "--starts", "starts"]);
    assert!(tokio::time::timeout(Duration::from_millis(50), bench.call("echo", json!({}))).await.is_err());
    assert_eq!(bench.state(), ServerState::Starting);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let outcome = bench.call_by("echo", Map::new(), None, &cancel).await;
    assert!(matches!(outcome, Err(UpstreamError::Cancelled { .. })), "{outcome:?}");
    assert_eq!(bench.structured("echo").await, json!({}));
    assert_eq!(bench.starts(), 1);
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let bench = Bench::with(&[]);
    let error = bench.upstream.tools("Fake", &bench.cancel).await.unwrap_err();
    assert_eq!(error.to_string(), "no server named 'Fake'; did you mean 'fake'?");
    let error = bench.upstream.tools("quite another", &bench.cancel).await.unwrap_err();
    assert_eq!(error.to_string(), "no server named 'quite another'");
    let bench = Setup::args(&[]).entry("disabled", json!(true)).start();
    let error = bench.tools().await.unwrap_err();
    assert_eq!(error.to_string(), "server 'fake' is not used: it is disabled");
    let bench = Setup::args(&[]).entry("cwd", json!("${NONE}")).start();
    let error = bench.tools().await.unwrap_err();
    assert!(error.to_string().contains("'NONE'") && error.hint().unwrap().starts_with("set NONE"), "{error}");
    assert!(Path::new(FAKE).is_file());
}
