//! The pool against a scripted server that does what real ones should not.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Limits;
use crate::upstream::discovery::Surroundings;
use crate::upstream::questions::{Answering, Answers, NoAnswers, Offers, Question};
use crate::upstream::{CallOutcome, Event, ServerState, ToolList, Upstream, UpstreamError};

mod over_http;

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fakes/mcp_server.py");

/// One user with one server, `fake`.
struct Bench {
    dir: tempfile::TempDir,
    upstream: Upstream,
    cancel: CancellationToken,
}

/// How a bench differs from the usual one.
#[derive(Default)]
struct Setup {
    args: Vec<String>,
    entry: Map<String, Value>,
    limits: Limits,
    answers: Option<Arc<dyn Answers>>,
    guardian: Option<PathBuf>,
    environment: Vec<(&'static str, &'static str)>,
}

impl Setup {
    fn args(args: &[&str]) -> Self {
        Self { args: args.iter().map(|arg| (*arg).to_owned()).collect(), ..Self::default() }
    }

    fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }

    fn entry(mut self, key: &str, value: Value) -> Self {
        self.entry.insert(key.into(), value);
        self
    }

    fn start(self) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let mut bench = Bench {
            upstream: Upstream::with(
                Surroundings {
                    cwd: dir.path().into(),
                    state_dir: dir.path().join("MCPs"),
                    // Not that of whoever runs this: its programs may be wrappers with variables of their own.
                    environment: [("PATH", "/usr/local/bin:/usr/bin:/bin")]
                        .into_iter()
                        .chain(self.environment)
                        .map(|(name, value)| (name.to_owned(), value.into()))
                        .collect(),
                    ..Surroundings::default()
                },
                self.limits,
                self.answers.unwrap_or_else(|| Arc::new(NoAnswers)),
                self.guardian,
            ),
            dir,
            cancel: CancellationToken::new(),
        };
        bench.define(self.args, self.entry);
        bench
    }
}

impl Bench {
    fn with(args: &[&str]) -> Self {
        Setup::args(args).start()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn define(&mut self, args: Vec<String>, entry: Map<String, Value>) {
        let args: Vec<String> = ["-u".into(), FAKE.into()].into_iter().chain(args).collect();
        let mut fake = json!({ "command": "python3", "args": args });
        fake.as_object_mut().unwrap().extend(entry);
        std::fs::create_dir_all(self.path("MCPs")).unwrap();
        std::fs::write(self.path("MCPs/all.json"), json!({ "mcpServers": { "fake": fake } }).to_string())
            .unwrap();
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<CallOutcome, UpstreamError> {
        self.upstream
            .call("fake", tool, arguments.as_object().cloned().unwrap_or_default(), None, &self.cancel)
            .await
    }

    /// What a tool says in text, as JSON.
    async fn say(&self, tool: &str, arguments: Value) -> Value {
        let outcome = self.call(tool, arguments).await.unwrap();
        let text = outcome.value().unwrap()["content"][0]["text"].as_str().unwrap().to_owned();
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }

    async fn structured(&self, tool: &str) -> Value {
        self.call(tool, json!({})).await.unwrap().value().unwrap()["structuredContent"].clone()
    }

    async fn pid(&self) -> u32 {
        self.structured("pids").await["pid"].as_u64().unwrap().try_into().unwrap()
    }

    async fn tools(&self) -> Result<Arc<ToolList>, UpstreamError> {
        self.upstream.tools("fake", &self.cancel).await
    }

    fn state(&self) -> ServerState {
        self.upstream.list()[0].state
    }

    fn starts(&self) -> usize {
        std::fs::read_to_string(self.path("starts")).unwrap_or_default().lines().count()
    }
}

fn is_alive(pid: u32) -> bool {
    codebridge_runtimes::process_start_time(pid).is_some()
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

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
        ("{\"id\":ID,\"result\":{\"ok\":1}\n", Err("cannot be read: EOF while parsing")),
        ("{\"id\":ID,\"result\":{'ok':1}}\n", Err("cannot be read: key must be a string")),
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
async fn banners_do_not_keep_a_server_from_coming_up() {
    let bench = Bench::with(&[
        "--banner", "", "--banner", "Welcome {to} \"me\"", "--banner", "[INFO] x", "--banner",
        "no newline: \\n",
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
async fn calls_go_out_at_once_and_no_more_than_allowed() {
    let bench = Bench::with(&[]);
    bench.tools().await.unwrap();
    let sleep = json!({ "seconds": 0.5 });
    let began = Instant::now();
    for outcome in futures_join((0..5).map(|_| bench.call("sleep", sleep.clone()))).await {
        outcome.unwrap();
    }
    assert!(began.elapsed() < Duration::from_millis(1_000), "{:?}", began.elapsed());
    bench.upstream.shutdown().await;

    let bench = Setup::args(&[]).limits(|limits| limits.calls_at_once = 2).start();
    bench.tools().await.unwrap();
    let began = Instant::now();
    for outcome in futures_join((0..4).map(|_| bench.call("sleep", json!({ "seconds": 0.2 })))).await {
        outcome.unwrap();
    }
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_crash_is_told_to_the_calls_it_hits_and_the_next_one_works() {
    let bench = Bench::with(&["--starts", "starts"]);
    bench.tools().await.unwrap();
    let waiting = bench.call("never", json!({}));
    let crashing = async {
        tokio::task::yield_now().await;
        bench.call("crash", json!({ "status": 7, "words": "out of luck" })).await
    };
    let (waiting, crashing) = tokio::join!(waiting, crashing);
    for outcome in [waiting, crashing] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, UpstreamError::Ended { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("exit status: 7") && text.contains("out of luck"), "{text}");
    }
    assert_eq!(bench.say("listings", json!({})).await, json!(0));
    assert_eq!(bench.starts(), 2);
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_server_that_closes_its_output_has_ended() {
    let bench = Bench::with(&[]);
    let error = bench.call("close_output", json!({})).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Ended { .. }), "{error}");
    assert_eq!(bench.structured("echo").await, json!({}));
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_start_that_fails_says_why() {
    for (args, words) in [
        (
            &["--exit-at-start", "4", "--stderr", "no configuration"][..],
            &["exit status: 4", "no configuration"][..],
        ),
        (&["--refuse", "-32000"], &["it refused to begin: not me (-32000)"]),
        (&["--mute", "--stderr", "thinking"], &["it was not ready within 1s", "thinking"]),
        (&["--initialize", "[]"], &["its first answer cannot be read"]),
    ] {
        let bench = Setup::args(args).limits(|limits| limits.startup = Duration::from_secs(1)).start();
        let error = bench.tools().await.unwrap_err();
        assert!(matches!(error, UpstreamError::Start { .. }), "{error}");
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert_eq!(bench.state(), ServerState::Failed);
        bench.upstream.shutdown().await;
    }
    for (key, value, words) in [
        (
            "command",
            json!("no such program"),
            "the program 'no such program' is not to be found; its arguments belong",
        ),
        ("command", json!("/etc/passwd"), "not to be found"),
        ("cwd", json!("nowhere"), "nowhere' is not to be found"),
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
    assert!(matches!(last, UpstreamError::Resting { failures: 5, .. }), "{last}");
    assert!(last.to_string().contains("failed 5 times in a row"), "{last}");
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_call_ends_at_its_limit_and_the_server_is_told() {
    let bench = Setup::args(&[]).limits(|limits| limits.call = Duration::from_millis(300)).start();
    let error = bench.call("never", json!({})).await.unwrap_err();
    assert!(matches!(error, UpstreamError::TimedOut { .. }), "{error}");
    assert_eq!(bench.say("cancelled", json!({ "least": 1 })).await, json!(["timed out"]));
    bench.upstream.shutdown().await;
    // The user's own word counts more.
    let bench = Setup::args(&[]).entry("tool_timeout_sec", json!(0.2)).start();
    assert!(matches!(bench.call("never", json!({})).await, Err(UpstreamError::TimedOut { .. })));
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_cancelled_or_abandoned_call_is_taken_back() {
    let bench = Bench::with(&[]);
    bench.tools().await.unwrap();
    let cancel = CancellationToken::new();
    let call = bench.upstream.call("fake", "never", Map::new(), None, &cancel);
    let (outcome, ()) = tokio::join!(call, async {
        tokio::task::yield_now().await;
        cancel.cancel();
    });
    assert!(matches!(outcome, Err(UpstreamError::Cancelled { .. })), "{outcome:?}");
    assert_eq!(bench.say("cancelled", json!({ "least": 1 })).await, json!(["cancelled"]));
    assert!(tokio::time::timeout(Duration::from_millis(50), bench.call("never", json!({}))).await.is_err());
    let told = bench.say("cancelled", json!({ "least": 2 })).await;
    assert_eq!(told, json!(["cancelled", "nobody waits for it any more"]));
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_start_goes_on_when_the_first_caller_leaves() {
    let bench = Bench::with(&["--slow-start", "0.3", "--starts", "starts"]);
    assert!(tokio::time::timeout(Duration::from_millis(50), bench.call("echo", json!({}))).await.is_err());
    assert_eq!(bench.state(), ServerState::Starting);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let outcome = bench.upstream.call("fake", "echo", Map::new(), None, &cancel).await;
    assert!(matches!(outcome, Err(UpstreamError::Cancelled { .. })), "{outcome:?}");
    assert_eq!(bench.structured("echo").await, json!({}));
    assert_eq!(bench.starts(), 1);
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_server_nobody_uses_is_stopped_and_started_again() {
    let bench = Setup::args(&[]).limits(|limits| limits.idle = Some(Duration::from_millis(100))).start();
    let first = bench.pid().await;
    // In use for longer than it may be idle.
    bench.call("sleep", json!({ "seconds": 0.3 })).await.unwrap();
    assert_eq!(bench.pid().await, first);
    until("the idle server is gone", || !is_alive(first)).await;
    assert_eq!(bench.state(), ServerState::Stopped);
    let second = bench.pid().await;
    assert_ne!(first, second);
    bench.upstream.shutdown().await;
    assert!(!is_alive(second));
}

#[tokio::test]
async fn a_definition_that_changes_gets_another_process() {
    let mut bench = Bench::with(&[]);
    let first = bench.pid().await;
    bench.define(vec!["--tools".into(), "1".into()], Map::new());
    let second = bench.pid().await;
    assert_ne!(first, second);
    assert_eq!(bench.tools().await.unwrap().tools.len(), 2);
    until("the old one is gone", || !is_alive(first)).await;
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_server_that_ignores_everything_is_ended_with_its_children() {
    let bench = Bench::with(&["--ignore-eof", "--ignore-term", "--grandchild"]);
    let pids = bench.structured("pids").await;
    let pids: Vec<u32> =
        ["pid", "grandchild"].map(|key| pids[key].as_u64().unwrap().try_into().unwrap()).into();
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    let began = Instant::now();
    bench.upstream.shutdown().await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    until("they are gone", || !pids.iter().any(|pid| is_alive(*pid))).await;
}

#[tokio::test]
async fn the_guardian_knows_every_server_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (program, heard) = (dir.path().join("guardian"), dir.path().join("heard"));
    std::fs::write(&program, format!("#!/bin/sh\necho $1 > {0}\ncat >> {0}\n", heard.display())).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let bench = Setup { guardian: Some(program), ..Setup::args(&["--ignore-eof"]) }.start();
    let first = bench.pid().await;
    bench.call("crash", json!({})).await.unwrap_err();
    let second = bench.pid().await;
    bench.upstream.shutdown().await;
    let heard = std::fs::read_to_string(heard).unwrap();
    let lines: Vec<&str> = heard.lines().collect();
    let expected = [
        "server-guardian",
        &format!("+{first}"),
        &format!("-{first}"),
        &format!("+{second}"),
        &format!("-{second}"),
    ];
    assert_eq!(lines, expected);
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
    let too_much = super::stdio::LONGEST_LINE + 1;
    let error = bench.call("big", json!({ "bytes": too_much })).await.unwrap_err();
    assert!(
        matches!(error, UpstreamError::Malformed { .. }) && error.to_string().contains("is the limit"),
        "{error}"
    );
    assert_eq!(bench.structured("echo").await, json!({}));
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn progress_and_words_of_a_server_are_passed_on() {
    let bench = Setup::args(&[]).entry("env", json!({ "API_TOKEN": "hunter2!" })).start();
    let mut events = bench.upstream.events();
    let (sender, mut progress) = mpsc::channel(100);
    let steps = json!({ "steps": 5 }).as_object().cloned().unwrap();
    bench.upstream.call("fake", "progress", steps, Some(sender), &bench.cancel).await.unwrap();
    let mut seen = Vec::new();
    while let Some(step) = progress.recv().await {
        seen.push((step.progress, step.total, step.message.unwrap()));
    }
    let expected: Vec<_> = (1..=5).map(|at| (f64::from(at), Some(5.0), format!("step {at}"))).collect();
    assert_eq!(seen, expected);
    let words = json!({ "level": "warning", "logger": "l", "data": { "b": 1, "a": "hunter2! said" } });
    bench.call("log", words).await.unwrap();
    let Event::Log { server, level, logger, data } = events.recv().await.unwrap() else { panic!("no log") };
    assert_eq!((&*server, level.as_str(), logger.as_deref()), ("fake", "warning", Some("l")));
    assert_eq!(data.to_string(), r#"{"b":1,"a":"[API_TOKEN] said"}"#);
    bench.call("log", json!({ "data": "x".repeat(1 << 20) })).await.unwrap();
    let Event::Log { level, data, .. } = events.recv().await.unwrap() else { panic!("no log") };
    assert_eq!((level.as_str(), data.as_str().unwrap().len() < 20_000), ("info", true));
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn questions_are_refused_unless_somebody_answers() {
    let bench = Bench::with(&[]);
    for method in ["elicitation/create", "sampling/createMessage", "roots/list", "x/y"] {
        let answer = bench.say("ask", json!({ "method": method, "params": { "message": 1 } })).await;
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        assert!(
            answer["error"]["message"].as_str().unwrap().contains(&format!("'{method}' is not supported"))
        );
    }
    assert_eq!(bench.say("ask", json!({ "method": "ping" })).await, json!({ "result": {} }));
    bench.upstream.shutdown().await;

    #[derive(Debug, Default)]
    struct Everything(AtomicUsize);
    impl Answers for Everything {
        fn offers(&self) -> Offers {
            Offers { elicitation: true, sampling: true, roots: true }
        }
        fn answer(&self, question: Question) -> Answering<'_> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                Ok(json!({ "of": question.method, "to": &*question.server, "with": question.params }))
            })
        }
    }
    let answers = Arc::new(Everything::default());
    let bench = Setup { answers: Some(Arc::clone(&answers) as Arc<dyn Answers>), ..Setup::default() }.start();
    let params = json!({ "z": 1, "message": { "odd": ["schema"] } });
    let answer = bench.say("ask", json!({ "method": "elicitation/create", "params": params })).await;
    assert_eq!(answer["result"], json!({ "of": "elicitation/create", "to": "fake", "with": params }));
    assert_eq!(answers.0.load(Ordering::SeqCst), 1);
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_server_gets_its_own_environment_and_no_credential_leaks() {
    let setup = Setup {
        environment: vec![
            ("HOME", "/h"),
            ("LANG", "C.UTF-8"),
            ("GITHUB_TOKEN", "not for all"),
            ("SECRET", "hunter3!"),
        ],
        ..Setup::args(&["--stderr", "starting with hunter2! and hunter3!", "--password", "x"])
    };
    let entry = json!({ "A_TOKEN": "hunter2!", "B_KEY": "${SECRET}", "LANG": "de" });
    let bench = setup.entry("env", entry).start();
    let error = bench.tools().await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.contains("unrecognized arguments"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("hunter3"), "{text}");
    bench.upstream.shutdown().await;

    let setup = Setup {
        environment: vec![("HOME", "/h"), ("LANG", "C.UTF-8"), ("GITHUB_TOKEN", "not for all")],
        ..Setup::args(&["--stderr", "starting with hunter2!"])
    };
    let bench = setup
        .entry("env", json!({ "A_TOKEN": "hunter2!", "B_TOKEN": "hunter4!", "LANG": "de" }))
        .entry("cwd", json!("/usr"))
        .start();
    let said = bench.structured("environment").await;
    assert_eq!(said["cwd"], "/usr");
    let mut env = said["env"].as_object().unwrap().clone();
    env.remove("PATH").unwrap();
    env.remove("LC_CTYPE");
    assert_eq!(
        Value::Object(env),
        json!({ "A_TOKEN": "hunter2!", "B_TOKEN": "hunter4!", "HOME": "/h", "LANG": "de" })
    );
    // What `ps` shows.
    assert!(!said["argv"].to_string().contains("hunter4"));
    let error = bench.call("crash", json!({ "words": "hunter2! is to blame" })).await.unwrap_err();
    assert!(error.to_string().contains("[A_TOKEN] is to blame"), "{error}");
    assert!(!format!("{:?}", bench.upstream).contains("hunter2"));
    let error = bench.call("line", json!({ "text": "{\"id\":ID,\"error\":{\"code\":1,\"message\":\"no hunter2!\",\"data\":[\"hunter2!\"]}}\n" })).await;
    assert!(!format!("{:?}", error.unwrap_err()).contains("hunter2"));
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let bench = Bench::with(&[]);
    let error = bench.upstream.tools("Fake", &bench.cancel).await.unwrap_err();
    assert_eq!(error.to_string(), "no server is called 'Fake'; did you mean 'fake'?");
    let error = bench.upstream.tools("quite another", &bench.cancel).await.unwrap_err();
    assert_eq!(error.to_string(), "no server is called 'quite another'");
    let bench = Setup::args(&[]).entry("disabled", json!(true)).start();
    let error = bench.tools().await.unwrap_err();
    assert_eq!(error.to_string(), "the server 'fake' is not used: it is disabled");
    let bench = Setup::args(&[]).entry("cwd", json!("${NONE}")).start();
    let error = bench.tools().await.unwrap_err();
    assert!(error.to_string().contains("'NONE'") && error.hint().unwrap().starts_with("set NONE"), "{error}");
    assert!(Path::new(FAKE).is_file());
}

/// Awaits them all at once, in order.
async fn futures_join<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut pending: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_ready = true;
        for (future, outcome) in &mut pending {
            if outcome.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *outcome = Some(value),
                    std::task::Poll::Pending => is_ready = false,
                }
            }
        }
        if is_ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    pending.into_iter().filter_map(|(_, outcome)| outcome).collect()
}
