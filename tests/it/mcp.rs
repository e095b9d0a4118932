//! The protocol over the real binary's standard streams, on a host without a runtime, a home folder or a network.

use std::io::Write;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::bridge::LATEST_WITH_INITIALIZE;
use crate::harness::process::peak_memory;
use crate::harness::{BridgeBuilder, Suite, TestEnv, eventually};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "mcp",
        tests![
            the_server_answers_at_once_without_a_runtime_and_without_a_home,
            both_eras_of_the_protocol_are_spoken,
            the_tool_list_is_short_and_the_tool_as_documented,
            bad_arguments_say_what_is_wrong_and_start_nothing,
            garbage_is_ignored_or_answered_and_the_connection_stays,
            a_line_of_twenty_megabytes_is_read_and_one_over_the_limit_is_answered,
            sockets_serve_as_well_as_pipes,
            the_resource_is_listed_and_read,
            the_server_ends_when_its_input_ends_or_a_signal_comes,
            a_client_that_stopped_reading_is_not_waited_for,
            settings_that_cannot_be_read_are_named,
            a_client_that_floods_requests_and_reads_nothing_takes_no_memory,
            messages_of_any_content_take_little_more_than_their_text,
        ],
    );
}

/// A host with nothing.
fn bare<'a>(env: &'a TestEnv) -> BridgeBuilder<'a> {
    let nothing = env.folder("nothing");
    env.bridge().var("PATH", &nothing).without("HOME").without("XDG_RUNTIME_DIR").without("TMPDIR")
}

/// What a request of the newer era carries.
fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "codebridge-tests", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params
}

fn the_server_answers_at_once_without_a_runtime_and_without_a_home(env: &TestEnv) {
    let bridge = bare(env).spawn();
    let answer = bridge.initialize(LATEST_WITH_INITIALIZE);
    assert_eq!(answer["serverInfo"]["name"], "codebridge");
    assert_eq!(answer["protocolVersion"], LATEST_WITH_INITIALIZE);
    let _ = bridge.ask("tools/list", json!({}));
    // Several hundred times what it takes.
    assert!(bridge.age() < Duration::from_secs(3), "{:?}", bridge.age());
    let log = bridge.close().log;
    assert!(
        !log.contains("spawn") && !log.contains(" run command"),
        "nothing is looked for at the start: {log}"
    );
}

fn both_eras_of_the_protocol_are_spoken(env: &TestEnv) {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", LATEST_WITH_INITIALIZE] {
        let bridge = bare(env).spawn();
        let initialized = bridge.initialize(version);
        assert_eq!(initialized["protocolVersion"], version);
        let instructions = initialized["instructions"].as_str().unwrap();
        assert!(instructions.contains("run_python") && instructions.len() < 1000, "{instructions}");
        assert_eq!(bridge.ask("ping", json!({})), json!({}));
        bridge.close();
    }
    let bridge = bare(env).spawn();
    let discovered = bridge.ask("server/discover", modern(json!({})));
    let versions = discovered["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{discovered}");
    let listed = bridge.ask("tools/list", modern(json!({})));
    assert_eq!(listed["tools"][0]["name"], "run_python");
    let params = modern(json!({ "name": "run_python", "arguments": { "timeout": 5 } }));
    assert_eq!(bridge.ask("tools/call", params)["structuredContent"]["status"], "validation_error");
    bridge.close();
}

fn the_tool_list_is_short_and_the_tool_as_documented(env: &TestEnv) {
    let bridge = bare(env).var("MCP_BRIDGE_TIMEOUT", "77777").start();
    let listed = bridge.ask("tools/list", json!({}));
    let tools = listed["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1);
    // What a model reads, and what is added to it.
    let read = ["name", "description", "inputSchema"];
    let length: usize = read.iter().map(|field| tools[0][field].to_string().len() + field.len() + 4).sum();
    assert!(length <= 1000, "{length} bytes");
    let more = tools[0].to_string().len() - length;
    assert!(more <= 200, "{more} bytes");
    let properties = tools[0]["inputSchema"]["properties"].as_object().unwrap();
    assert_eq!(
        properties.keys().collect::<Vec<_>>(),
        ["code", "servers", "timeout", "session", "background", "run", "stop"]
    );
    let description = tools[0]["description"].as_str().unwrap();
    assert!(description.contains("print(runtime.capability_summary())"), "{description}");
    bridge.close();
}

fn bad_arguments_say_what_is_wrong_and_start_nothing(env: &TestEnv) {
    let bridge = bare(env).start();
    let cases = [
        (json!({}), "Missing 'code' argument"),
        (json!({ "code": "1", "timeout": "soon" }), "'timeout' must be an integer"),
        (json!({ "code": "1", "servers": {} }), "'servers' must be a list"),
        (json!({ "code": ["1"] }), "'code' must be a string"),
    ];
    for (arguments, message) in cases {
        let outcome = bridge.call(arguments).expect("validation_error");
        assert_eq!(outcome.error(), message);
    }
    let result = bridge.ask("tools/call", json!({ "name": "run_perl", "arguments": {} }));
    assert_eq!(result["isError"], true);
    assert!(result.to_string().contains("Unknown tool: run_perl"), "{result}");
    assert_eq!(bridge.ask("tools/call", json!({ "name": "run_python", "arguments": [] }))["isError"], true);
    let (code, _) = bridge.request("tools/call", json!({ "arguments": {} })).error();
    assert_eq!(code, -32602);
    assert_eq!(bridge.request("no/such/method", json!({})).error().0, -32601);
    assert!(crate::harness::host::instance_of(env, bridge.pid()).is_none(), "nothing was started");
    bridge.close();
}

fn garbage_is_ignored_or_answered_and_the_connection_stays(env: &TestEnv) {
    let bridge = bare(env).spawn();
    let garbage = [
        &b"\n"[..],
        b"\r\n",
        b"   \n",
        b"hello\n",
        b"\0\0\n",
        b"\xff\xfe\n",
        b"{\n",
        b"null\n",
        b"5\n",
        // Before initialize, where the library would end the service.
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":9}}\n",
    ];
    for line in garbage {
        bridge.send_raw(line);
    }
    bridge.initialize(LATEST_WITH_INITIALIZE);
    for line in garbage {
        bridge.send_raw(line);
    }
    assert_eq!(bridge.ask("ping", json!({})), json!({}));
    assert_eq!(bridge.unasked(), [] as [Value; 0], "nobody is there to be answered");
    // What has an id is answered, even if it cannot be read.
    let cases: [(&str, &[u8]); 4] = [
        (
            "\"a\"",
            b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"tools/call\",\"params\":{\"x\":\"\xff\"}}\n",
        ),
        (
            "\"b\"",
            b"{\"jsonrpc\":\"2.0\",\"id\":\"b\",\"method\":\"tools/call\",\"params\":{\"x\":\"\\ud83d\"}}\n",
        ),
        ("\"c\"", b"{\"jsonrpc\":\"2.0\",\"id\":\"c\",\"method\":\"ping\",\"params\":[1]}\n"),
        ("\"d\"", b"{\"jsonrpc\":\"1.0\",\"id\":\"d\",\"method\":\"ping\"}\n"),
    ];
    for (id, line) in cases {
        let answer = bridge.expect_answer(&serde_json::from_str(id).unwrap(), "garbage");
        bridge.send_raw(line);
        let (code, _) = answer.error();
        assert!([-32700, -32600, -32602].contains(&code), "{id}: {code}");
    }
    let deep = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"deep\",\"method\":\"ping\",\"params\":{}{}}}\n",
        "[".repeat(9000),
        "]".repeat(9000)
    );
    let answer = bridge.expect_answer(&json!("deep"), "deep nesting");
    bridge.send_raw(deep.as_bytes());
    let _ = answer.error();
    // A message may come in pieces, and two in one piece.
    let line = json!({ "jsonrpc": "2.0", "id": "pieces", "method": "ping" }).to_string() + "\n";
    let answer = bridge.expect_answer(&json!("pieces"), "ping");
    for byte in line.as_bytes() {
        bridge.send_raw(&[*byte]);
    }
    assert_eq!(answer.result(), json!({}));
    bridge.close();
}

fn a_line_of_twenty_megabytes_is_read_and_one_over_the_limit_is_answered(env: &TestEnv) {
    let bridge = bare(env).start();
    let call = |id: &str, size: usize| {
        let call = json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "run_python", "arguments": { "code": 1, "filling": "x".repeat(size) } },
        });
        let answer = bridge.expect_answer(&json!(id), "a long line");
        bridge.send_raw((call.to_string() + "\n").as_bytes());
        answer
    };
    assert!(call("long", 20 << 20).result().to_string().contains("'code' must be a string"));
    let (code, message) = call("too long", 65 << 20).error();
    assert_eq!(code, -32600, "{message}");
    assert!(message.contains("longer than the limit"), "{message}");
    assert_eq!(bridge.ask("ping", json!({})), json!({}));
    bridge.close();
}

fn sockets_serve_as_well_as_pipes(env: &TestEnv) {
    let bridge = bare(env).on_sockets().start();
    let pings: Vec<_> = (0..200).map(|_| bridge.request("ping", json!({}))).collect();
    for ping in pings {
        assert_eq!(ping.result(), json!({}));
    }
    bridge.close();
}

fn the_resource_is_listed_and_read(env: &TestEnv) {
    let bridge = bare(env).start();
    let uri = "resource://mcp-server-code-execution-mode/capabilities";
    let listed = bridge.ask("resources/list", json!({}));
    assert_eq!(listed["resources"][0]["uri"], uri);
    assert_eq!(listed["resources"][0]["mimeType"], "text/markdown");
    let read = bridge.ask("resources/read", json!({ "uri": uri }));
    assert!(read["contents"][0]["text"].as_str().unwrap().contains("runtime.capability_summary()"));
    let (code, _) = bridge.request("resources/read", json!({ "uri": "resource://nothing" })).error();
    assert_eq!(code, -32002);
    bridge.close();
}

fn the_server_ends_when_its_input_ends_or_a_signal_comes(env: &TestEnv) {
    bare(env).start().close();
    // Also before anything was said.
    let bridge = bare(env).spawn();
    bridge.close();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        for begun in [false, true] {
            let bridge = bare(env).spawn();
            if begun {
                bridge.initialize(LATEST_WITH_INITIALIZE);
            } else {
                // Its answer says that the signal handlers are there.
                let _ = bridge.ask("ping", json!({}));
            }
            bridge.signal(signal);
            let ended = bridge.wait(Duration::from_secs(5));
            assert_eq!(ended.status.code(), Some(0), "{signal:?} {begun}: {}", ended.log);
        }
    }
}

fn a_client_that_stopped_reading_is_not_waited_for(env: &TestEnv) {
    // A client of its own: nobody reads what this bridge says.
    let mut running = bare(env).command().spawn(
        env.guard(),
        std::process::Stdio::piped(),
        std::process::Stdio::piped(),
        std::process::Stdio::null(),
    );
    let mut input = running.child.stdin.take().unwrap();
    let output = running.child.stdout.take().unwrap();
    input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").unwrap();
    drop(output);
    let status = running.wait_within(Duration::from_secs(10));
    assert_eq!(status.code(), Some(0));
}

fn settings_that_cannot_be_read_are_named(env: &TestEnv) {
    let cases = [
        ("MCP_BRIDGE_TIMEOUT", "soon", "invalid value \"soon\" for MCP_BRIDGE_TIMEOUT: expected a time"),
        ("MCP_BRIDGE_RUNTIME", "podmam", "hint: did you mean podman?"),
        ("MCP_BRIDGE_MEMORY", "1", "invalid value \"1\" for MCP_BRIDGE_MEMORY: the minimum is 16m"),
        ("MCP_BRIDGE_LOG_LEVEL", "loud", "MCP_BRIDGE_LOG_LEVEL"),
    ];
    for (name, value, message) in cases {
        let output = bare(env).var(name, value).command().run(env.guard());
        assert_eq!(output.code(), Some(2), "{output}");
        assert!(output.stderr.contains(message) && output.stdout.is_empty(), "{output}");
    }
}

/// What a bridge may take beside the largest messages.
const OWN_MEMORY: u64 = 40 << 20;

fn a_client_that_floods_requests_and_reads_nothing_takes_no_memory(env: &TestEnv) {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    const PINGS: usize = 60_000;
    let mut command = env.command(env.binary());
    command.env.insert("MCP_BRIDGE_LOG_LEVEL".into(), "error".into());
    let mut bridge = command.spawn(env.guard(), Stdio::piped(), Stdio::piped(), Stdio::null());
    let (mut input, output) = (bridge.child.stdin.take().unwrap(), bridge.child.stdout.take().unwrap());
    let client = json!({ "protocolVersion": LATEST_WITH_INITIALIZE, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let open = json!({ "jsonrpc": "2.0", "id": "open", "method": "initialize", "params": client });
    let writing = std::thread::spawn(move || {
        input.write_all(format!("{open}\n").as_bytes()).unwrap();
        for at in 0..PINGS {
            let ping = json!({ "jsonrpc": "2.0", "id": at, "method": "ping" });
            input.write_all(format!("{ping}\n").as_bytes()).unwrap();
        }
        // Returned, so that the bridge does not end.
        input
    });
    let stat = || std::fs::read_to_string(format!("/proc/{}/stat", bridge.pid())).unwrap();
    // It reads no more when it has nothing to do although there are more.
    let mut before = String::new();
    eventually("the bridge waits for its client", Duration::from_secs(60), || {
        let fields = stat();
        let ticks = fields.rsplit(')').next()?.split(' ').skip(12).take(2).collect::<Vec<_>>().join(" ");
        let rests = before == ticks && fields.contains(") S ");
        before = ticks;
        std::thread::sleep(Duration::from_millis(300));
        rests.then_some(())
    });
    let peak = peak_memory(bridge.pid());
    assert!(peak < OWN_MEMORY, "{} MiB", peak >> 20);
    let mut answers = BufReader::new(output).lines();
    for _ in 0..=PINGS {
        let answer: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
        assert!(answer.get("result").is_some() || answer["error"]["code"] == -32000, "{answer}");
    }
    drop(writing.join().unwrap());
    bridge.wait();
}

fn messages_of_any_content_take_little_more_than_their_text(env: &TestEnv) {
    const BYTES: usize = 24 << 20;
    let bridge = bare(env).start();
    let values = "0,".repeat(BYTES / 2);
    let refused = |line: String| {
        let (answer, _) = {
            let pending = bridge.expect_answer(&json!("big"), "a large message");
            bridge.send_raw(line.as_bytes());
            pending.answer()
        };
        assert_eq!(answer["error"]["code"], -32700, "{answer}");
    };
    let call = |arguments: &str| {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":\"big\",\"method\":\"tools/call\",\"params\":{arguments}}}\n")
    };
    refused(call(&format!("{{\"name\":\"run_python\",\"arguments\":{{\"code\":[{values}0]}}}}")));
    refused(call(&format!("{{\"name\":\"run_python\",\"_meta\":{{\"x\":[{values}0]}}}}")));
    refused(format!("{{\"id\":\"big\",\"method\":\"ping\",\"x\":[{values}0]}}\n"));
    bridge.send_raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":\"big\",\"result\":[{values}0]}}\n").as_bytes());
    drop(values);
    let code = "#\\n".repeat(BYTES / 3);
    let pending = bridge.expect_answer(&json!("big"), "a call");
    bridge.send_raw(
        call(&format!("{{\"name\":\"run_python\",\"arguments\":{{\"code\":\"{code}\"}}}}")).as_bytes(),
    );
    let result = pending.result();
    assert_eq!(result["isError"], true, "{result}");
    assert_eq!(bridge.ask("ping", json!({})), json!({}));
    let peak = bridge.peak_memory();
    assert!(peak < OWN_MEMORY + 2 * BYTES as u64, "{} MiB", peak >> 20);
    bridge.close();
}
