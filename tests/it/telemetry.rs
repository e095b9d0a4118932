//! Traces and metrics, as a real collector gets them; and that nothing is sent, shown or delayed that should not be.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::bridge::Bridge;
use crate::harness::collector::{Collector, Point, Span};
use crate::harness::matrix::Kind;
use crate::harness::process::free_port;
use crate::harness::{BridgeBuilder, Runtime, Suite, TestEnv};
use crate::questions::modern;
use crate::server_access::{SECRET, define, fake};
use crate::tests;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00f067aa0ba902b7";
const HEADER: &str = "hunter2-of-collector";

pub(crate) fn register(suite: &mut Suite) {
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "telemetry",
        tests![
            runs_and_calls_are_spans_of_the_clients_trace,
            a_client_without_a_handshake_has_traces_too,
            metrics_say_how_runs_and_calls_ended,
            commands_send_what_they_did_before_they_exit,
            a_dead_collector_delays_little_and_is_warned_about_once,
            nothing_is_sent_when_it_is_off_or_before_the_first_run,
            doctor_says_where_it_goes_and_what_cannot_work,
        ],
    );
    suite.on(
        &[Runtime::of_root(Kind::Crun)],
        "telemetry",
        tests![a_run_that_is_killed_for_its_memory_is_counted],
    );
}

fn traced() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

/// A bridge that sends to this address.
fn sending<'a>(env: &'a TestEnv, endpoint: &str) -> BridgeBuilder<'a> {
    env.bridge()
        .var("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .var("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization=Bearer%20{HEADER}"))
        .var("OTEL_RESOURCE_ATTRIBUTES", "team=data")
}

/// Runs code as a part of the client's trace; returns the result.
fn run_traced(bridge: &Bridge<'_>, code: &str) -> Value {
    let arguments = json!({ "code": code, "servers": ["fake"] });
    let meta = json!({ "traceparent": traced(), "tracestate": "vendor=1" });
    bridge.ask("tools/call", json!({ "name": "run_python", "arguments": arguments, "_meta": meta }))
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no span {name}: {spans:#?}"))
}

/// The value of the point of a metric with these attributes.
fn value(points: &[Point], metric: &str, attributes: &[(&str, &str)]) -> Option<f64> {
    let has = |point: &&Point| {
        point.metric == metric
            && attributes
                .iter()
                .all(|(key, value)| point.attributes.get(*key).is_some_and(|known| known == value))
    };
    // Later exports have the later values.
    points.iter().rev().find(has).map(|point| point.value)
}

fn assert_no_secrets(text: &str) {
    for secret in [SECRET, HEADER, "the-code", "the-argument", "no luck"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

const CODE: &str = "
the_code = 'the-code'
meta = (await mcp_fake.environment())['meta']
for call in [lambda: mcp_fake.echo(n='the-argument'), lambda: mcp_fake.fail(), lambda: runtime.call_tool('fake', 'nothing', {})]:
    try:
        await call()
    except Exception as error:
        pass
print(meta['traceparent'], meta['tracestate'])
";

fn runs_and_calls_are_spans_of_the_clients_trace(env: &TestEnv) {
    let collector = Collector::start(env);
    define(env, &json!({ "fake": fake(env, &[]) }));
    let bridge = sending(env, &collector.endpoint()).start();
    let result = run_traced(&bridge, CODE);
    let _ = bridge.run_in("other", "raise ValueError('the-code')").expect("error");
    let ended = bridge.close();
    let spans = collector.spans(6);
    let run = spans.iter().find(|span| span.parent == PARENT).unwrap_or_else(|| panic!("{spans:#?}"));
    assert_eq!((run.name.as_str(), run.kind.as_str()), ("tools/call run_python", "SPAN_KIND_SERVER"));
    assert_eq!((run.trace.as_str(), run.get("error.type")), (TRACE, None));
    assert_eq!(
        (run.get("codebridge.session.name"), run.get("codebridge.run.outcome")),
        (Some("main"), Some("success"))
    );
    for (name, error) in [
        ("tools/call environment", None),
        ("tools/call echo", None),
        ("tools/call fail", Some("tool_error")),
        ("tools/call", Some("unknown_tool")),
    ] {
        let call = named(&spans, name);
        assert_eq!((&call.trace, &call.parent), (&run.trace, &run.id), "{call:?}");
        assert_eq!((call.get("error.type"), call.kind.as_str()), (error, "SPAN_KIND_CLIENT"), "{call:?}");
        assert_eq!(call.get("codebridge.server.name"), Some("fake"), "{call:?}");
    }
    // The server got the span of its own call.
    let seen = result["content"][0]["text"].as_str().unwrap().trim();
    let call = named(&spans, "tools/call environment");
    assert_eq!(seen, format!("00-{TRACE}-{}-01 vendor=1", call.id));
    let other = spans.iter().find(|span| span.get("codebridge.session.name") == Some("other")).unwrap();
    assert!(other.trace != TRACE && other.get("error.type") == Some("tool_error"), "{other:?}");
    assert!(other.status.contains("ERROR"), "{other:?}");
    assert_no_secrets(&collector.text());
    assert!(!ended.log.contains(HEADER), "{}", ended.log);
}

fn a_client_without_a_handshake_has_traces_too(env: &TestEnv) {
    let collector = Collector::start(env);
    let bridge = sending(env, &collector.endpoint()).spawn();
    let call = json!({ "name": "run_python", "arguments": { "code": "1" } });
    let mut call = modern(&json!({ "elicitation": {} }), call);
    call["_meta"]["traceparent"] = traced().into();
    let _ = bridge.ask("tools/call", call);
    bridge.close();
    let spans = collector.spans(1);
    assert_eq!((spans[0].trace.as_str(), spans[0].parent.as_str()), (TRACE, PARENT), "{spans:#?}");
}

fn metrics_say_how_runs_and_calls_ended(env: &TestEnv) {
    let collector = Collector::start(env);
    define(env, &json!({ "fake": fake(env, &[]) }));
    // Nobody can be asked.
    let rules = "[[rule]]\ntool = 'echo'\neffect = 'ask'\n[[rule]]\neffect = 'allow'\n";
    env.write("home/MCPs/policy.toml", rules);
    let bridge = sending(env, &collector.endpoint())
        .var("OTEL_TRACES_EXPORTER", "none")
        .var("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        .var("OTEL_METRIC_EXPORT_INTERVAL", "200")
        .start();
    let long = "s".repeat(64);
    let _ = bridge.run_in(&long, "print('12345')").expect("success");
    let _ = bridge.run("import sys; sys.exit(3)").expect("error");
    let _ = bridge.call(json!({ "code": CODE, "servers": ["fake"] })).expect("error");
    // While it runs, by the interval.
    let points = collector.points("codebridge.sessions.open");
    assert!(value(&points, "codebridge.sessions.open", &[]) > Some(0.0), "{points:#?}");
    let points = collector.points("codebridge.servers.connected");
    assert!(value(&points, "codebridge.servers.connected", &[]) > Some(0.0), "{points:#?}");
    let _ = bridge.call(json!({ "code": "1", "servers": ["nobody"] })).expect("validation_error");
    bridge.close();
    let points = collector.points("mcp.client.operation.duration");
    let is = |metric, attributes: &[(&str, &str)], expected| {
        assert_eq!(
            value(&points, metric, attributes),
            Some(expected),
            "{metric} {attributes:?}: {points:#?}"
        );
    };
    is("codebridge.runs", &[("codebridge.run.outcome", "success")], 1.0);
    is("codebridge.runs", &[("codebridge.run.outcome", "error")], 2.0);
    is("codebridge.runs", &[("codebridge.run.outcome", "refused")], 1.0);
    is("codebridge.sessions.open", &[], 0.0);
    is("codebridge.servers.connected", &[], 0.0);
    is("codebridge.sandbox.start.duration", &[("codebridge.runtime", "crun")], 2.0);
    is("codebridge.output", &[("codebridge.stream", "stdout")], 6.0);
    is("mcp.server.operation.duration", &[("error.type", "tool_error")], 3.0);
    is("mcp.client.operation.duration", &[("gen_ai.tool.name", "fail"), ("error.type", "tool_error")], 1.0);
    let unknown =
        [("gen_ai.tool.name", "_OTHER"), ("error.type", "unknown_tool"), ("network.transport", "pipe")];
    is("mcp.client.operation.duration", &unknown, 1.0);
    is("mcp.client.operation.duration", &[("gen_ai.tool.name", "echo"), ("error.type", "denied")], 1.0);
    is("codebridge.approvals", &[("codebridge.answer", "not_asked")], 1.0);
    let text = collector.text();
    assert!(!text.contains("Span #") && text.contains("team: Str(data)"), "{text}");
    // Models can make any number of names.
    assert!(!text.contains("sssss"), "{text}");
    assert_no_secrets(&text);
}

fn a_run_that_is_killed_for_its_memory_is_counted(env: &TestEnv) {
    let collector = Collector::start(env);
    let bridge = sending(env, &collector.endpoint()).var("MCP_BRIDGE_MEMORY", "64m").start();
    let _ = bridge.run("x = b'x' * (1 << 28)").expect("error");
    bridge.close();
    let points = collector.points("codebridge.runs.out_of_memory");
    assert_eq!(value(&points, "codebridge.runs.out_of_memory", &[]), Some(1.0), "{points:#?}");
}

fn commands_send_what_they_did_before_they_exit(env: &TestEnv) {
    let collector = Collector::start(env);
    define(env, &json!({ "fake": fake(env, &[]) }));
    let command = |words: &[&str]| {
        sending(env, &collector.endpoint())
            .var("TRACEPARENT", traced())
            .args(words)
            .command()
            .run(env.guard())
    };
    assert_eq!(command(&["exec", "-c", "print(6*7)"]).ok(), "42\n");
    assert_eq!(command(&["call", "fake.echo", "{}"]).code(), Some(0));
    let denied = command(&["call", "fake.fail"]);
    assert!(!denied.stderr.contains(HEADER), "{denied}");
    let spans = collector.spans(3);
    assert_eq!(spans.len(), 3, "{spans:#?}");
    for (name, error) in
        [("tools/call run_python", None), ("tools/call echo", None), ("tools/call fail", Some("tool_error"))]
    {
        let span = named(&spans, name);
        assert_eq!((span.trace.as_str(), span.parent.as_str()), (TRACE, PARENT), "{span:?}");
        assert_eq!(span.get("error.type"), error, "{span:?}");
    }
    let points = collector.points("mcp.server.operation.duration");
    assert_eq!(
        value(&points, "codebridge.runs", &[("codebridge.run.outcome", "success")]),
        Some(1.0),
        "{points:#?}"
    );
}

fn a_dead_collector_delays_little_and_is_warned_about_once(env: &TestEnv) {
    const WARNING: &str = "could not send telemetry";
    let exec = |builder: BridgeBuilder<'_>| {
        let ended = builder.args(&["exec", "-c", "print(6*7)"]).command().run(env.guard());
        assert_eq!((ended.code(), ended.stdout.as_str()), (Some(0), "42\n"), "{ended}");
        assert!(!ended.stderr.contains(HEADER), "{ended}");
        ended
    };
    // The first one finds a runtime.
    let _ = exec(env.bridge());
    let usual = exec(env.bridge()).elapsed;
    let refused = exec(sending(env, &format!("http://127.0.0.1:{}", free_port())));
    assert_eq!(refused.stderr.matches(WARNING).count(), 1, "{refused}");
    assert!(refused.stderr.contains("onnection refused"), "{refused}");
    // It takes connections, and answers nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let late = exec(sending(env, &endpoint));
    assert_eq!(late.stderr.matches(WARNING).count(), 1, "{late}");
    // A loaded machine takes longer for all else.
    assert!(late.elapsed < 2 * usual + Duration::from_secs(2), "usual: {usual:?}, {late}");
    // A run does not wait for it.
    let bridge = sending(env, &endpoint).var("OTEL_BSP_SCHEDULE_DELAY", "10").start();
    let _ = bridge.run("1").expect("success");
    let began = Instant::now();
    for _ in 0..20 {
        let _ = bridge.run("1").expect("success");
    }
    // One export alone takes ten seconds until it is given up.
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    let ended = bridge.close();
    assert_eq!(ended.log.matches(WARNING).count(), 1, "{}", ended.log);
    assert!(!ended.log.contains(HEADER), "{}", ended.log);
}

/// The names of the threads of a process.
pub(crate) fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok()).collect()
}

fn nothing_is_sent_when_it_is_off_or_before_the_first_run(env: &TestEnv) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    listener.set_nonblocking(true).unwrap();
    let exports = |bridge: &Bridge<'_>| {
        threads(bridge.pid())
            .iter()
            .any(|name| name.starts_with("OpenTelemetry") || name.contains("Periodic"))
    };
    let off = sending(env, &endpoint).var("OTEL_SDK_DISABLED", "true").start();
    let _ = off.run("1").expect("success");
    assert!(!exports(&off), "{:?}", threads(off.pid()));
    off.close();
    let unset = env.bridge().start();
    let _ = unset.run("1").expect("success");
    assert!(!exports(&unset), "{:?}", threads(unset.pid()));
    unset.close();
    let on = sending(env, &endpoint).start();
    let _ = on.ask("tools/list", json!({}));
    assert!(!exports(&on), "{:?}", threads(on.pid()));
    assert!(listener.accept().is_err(), "something was sent");
    let _ = on.run("1").expect("success");
    assert!(exports(&on), "{:?}", threads(on.pid()));
    on.close();
    let (mut connection, _) = listener.accept().unwrap();
    connection.set_nonblocking(false).unwrap();
    let mut request = [0; 64];
    let read = connection.read(&mut request).unwrap();
    assert!(String::from_utf8_lossy(&request[..read]).starts_with("POST /v1/"));
}

fn doctor_says_where_it_goes_and_what_cannot_work(env: &TestEnv) {
    let collector = Collector::start(env);
    let doctor = |builder: BridgeBuilder<'_>, words: &[&str]| {
        let output = builder.args(&["doctor"]).args(words).command().run(env.guard()).diagnosed();
        assert!(!output.contains(HEADER), "{output}");
        output
    };
    let diagnosis = |builder: BridgeBuilder<'_>| {
        serde_json::from_str::<Value>(&doctor(builder, &["--json"])).unwrap()["telemetry"].take()
    };
    let nothing = json!({ "status": "off", "traces": null, "metrics": null, "headers": [], "error": null });
    assert_eq!(diagnosis(env.bridge()), nothing);
    let endpoint = collector.endpoint();
    let on = json!({
        "status": "on", "traces": format!("{endpoint}/v1/traces"), "metrics": format!("{endpoint}/v1/metrics"),
        "headers": ["authorization"], "error": null,
    });
    assert_eq!(diagnosis(sending(env, &endpoint)), on);
    let text = doctor(sending(env, &format!("http://127.0.0.1:{}", free_port())), &[]);
    assert!(text.contains("authorization=***") && text.contains("onnection refused"), "{text}");
    let grpc = || sending(env, &endpoint).var("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let said = diagnosis(grpc());
    assert_eq!(said["status"], "refused", "{said}");
    let why = said["error"].as_str().unwrap();
    assert!(why.contains("does not speak 'grpc'") && why.contains("hint: set it to http/protobuf"), "{why}");
    // Code runs all the same.
    let ran = grpc().args(&["exec", "-c", "print(6*7)"]).command().run(env.guard());
    assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), "42\n"), "{ran}");
    assert_eq!(ran.stderr.matches("telemetry is off").count(), 1, "{ran}");
}
