//! Access of code to the user's MCP servers: every form of code that models write, and what code must not do.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::bridge::Bridge;
use crate::harness::matrix::Kind;
use crate::harness::process::start_time;
use crate::harness::{Outcome, Runtime, Suite, TestEnv, eventually};
use crate::{python, tests};

const FAKE: &str = include_str!("fakes/mcp_server.py");
const STUBS: &str = include_str!("fakes/stub_servers.py");
pub(crate) const SECRET: &str = "hunter2-is-secret";

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("server_access", tests![a_call_may_use_the_servers_that_it_names]);
    // What code does with servers is the same everywhere: an engine and a program, root and the user occur once each.
    suite.on(
        &[Runtime::of_root(Kind::Podman), Runtime::of_user(Kind::Crun)],
        "server_access",
        tests![
            lists_and_texts_are_python_values,
            objects_have_their_fields_as_attributes,
            every_helper_of_the_runtime_works,
            servers_are_reached_by_every_kind_of_import,
            failures_can_be_tried_again_in_tasks_side_by_side,
            bytes_travel_to_a_tool,
        ],
    );
    suite.kinds(&[Kind::Crun], "server_access", tests![credentials_stay_outside]);
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "server_access",
        tests![
            forged_frames_gain_nothing,
            an_unknown_server_starts_nothing,
            calls_run_side_by_side_from_tasks_threads_and_loops,
            a_call_that_is_given_up_is_cancelled,
            a_server_that_crashed_is_started_again,
            large_results_and_large_catalogues_get_through,
            an_alias_means_what_it_is_documented_for,
            values_arrive_undamaged,
            any_server_is_started_at_its_first_use,
            the_list_of_tools_is_the_same_whatever_is_configured,
            definitions_that_change_are_seen,
            a_server_that_asks_without_end_and_reads_nothing_takes_no_memory,
            a_server_that_sends_millions_of_values_takes_no_more_than_their_text,
        ],
    );
}

/// A folder with these servers, and a bridge that finds them there.
fn bridge<'a>(env: &'a TestEnv, servers: &Value) -> Bridge<'a> {
    define(env, servers);
    env.bridge().start()
}

pub(crate) fn define(env: &TestEnv, servers: &Value) {
    env.write("home/MCPs/all.json", json!({ "mcpServers": servers }).to_string());
}

pub(crate) fn fake(env: &TestEnv, args: &[&str]) -> Value {
    let program = env.write("home/mcp_server.py", FAKE);
    let args: Vec<Value> = std::iter::once(json!(program)).chain(args.iter().map(|arg| json!(arg))).collect();
    json!({ "command": "python3", "args": args, "env": { "API_TOKEN": SECRET }, "description": "says it again" })
}

/// A tracker, a forge, a file system and a calendar.
pub(crate) fn stubs(env: &TestEnv) -> Value {
    let program = env.write("home/stub_servers.py", STUBS);
    let stub = |kind: &str| json!({ "command": "python3", "args": [program, kind], "description": format!("my {kind}") });
    json!({ "tracker": stub("tracker"), "forge": stub("forge"), "filesystem": stub("filesystem"), "calendar": stub("calendar") })
}

pub(crate) fn run(bridge: &Bridge<'_>, servers: &[&str], code: &str) -> Outcome {
    bridge.call(json!({ "code": code, "servers": servers }))
}

fn a_call_may_use_the_servers_that_it_names(env: &TestEnv) {
    let bridge = bridge(env, &json!({ "my-fake": fake(env, &["--few"]), "other": fake(env, &[]) }));
    assert_eq!(run(&bridge, &["my-fake"], "await mcp_my_fake.echo(a=1, b='ü')").ok(), "{'a': 1, 'b': 'ü'}");
    let refused = run(&bridge, &["my_fake"], "await mcp_other.echo(a=1)").expect("error");
    assert!(
        refused.error().starts_with("mcp.runtime.MCPError: Server 'other' is not available")
            && refused.error().contains(r#"servers=["other"]"#),
        "{refused}"
    );
    let without = run(&bridge, &[], "await mcp_my_fake.echo(a=1)").expect("error");
    assert!(without.error().contains("Server 'my-fake' is not available"), "{without}");
    assert_eq!(
        run(&bridge, &["*"], "LOADED_MCP_SERVERS, await mcp_other.echo(a=2)").ok(),
        "(['my-fake', 'other'], {'a': 2})"
    );
    bridge.close();
}

fn lists_and_texts_are_python_values(env: &TestEnv) {
    let bridge = bridge(env, &stubs(env));
    let code = python!("server_access", "lists_and_texts");
    assert_eq!(run(&bridge, &["filesystem"], code).ok(), "to fix: a.py");
    bridge.close();
}

fn objects_have_their_fields_as_attributes(env: &TestEnv) {
    let bridge = bridge(env, &stubs(env));
    let code = python!("server_access", "objects");
    assert_eq!(run(&bridge, &["tracker", "forge"], code).ok(), "Crash: Parser 7 Ada");
    bridge.close();
}

fn every_helper_of_the_runtime_works(env: &TestEnv) {
    let bridge = bridge(env, &stubs(env));
    let code = python!("server_access", "helpers");
    let out = run(&bridge, &["forge"], code).ok();
    let all = "['tracker', 'forge', 'filesystem', 'calendar']";
    let expected = format!(
        "{all} {all} ['forge']\n\
         create_issue ['repo', 'title', 'body']\n\
         ['create_issue', 'flaky'] object\n\
         {{None}} False\n\
         calendar free_slots Finds free slots in the calendar\n\
         free_slots(day, minutes?: int) 2\n\
         True my forge {{'name': 'calendar', 'description': 'my calendar'}}"
    );
    assert_eq!(out, expected);
    let told = run(&bridge, &[], "help(mcp_forge.create_issue)").ok();
    for words in ["create_issue(repo: ", "the title", "labels (list[str], optional)"] {
        assert!(told.contains(words), "{told}");
    }
    bridge.close();
}

fn servers_are_reached_by_every_kind_of_import(env: &TestEnv) {
    let bridge = bridge(env, &stubs(env));
    let code = python!("server_access", "imports");
    assert_eq!(
        run(&bridge, &["forge"], code).ok(),
        "{\"number\": 7, \"repo\": \"acme/app\", \"title\": \"t\", \"body\": \"b\", \"labels\": []}\nTrue text"
    );
    let wrong = run(&bridge, &["forge"], "await mcp_forge.create_issue(repo='a', titel='t', body='b')")
        .expect("error");
    assert!(
        wrong.error().contains("MCPArgumentError") && wrong.error().contains("did you mean 'title'?"),
        "{wrong}"
    );
    let missing = run(&bridge, &["forge"], "await mcp_forge.create_issue(repo='a')").expect("error");
    assert!(missing.error().contains("title") && missing.error().contains("body"), "{missing}");
    let unknown = run(&bridge, &["forge"], "from mcp.servers import forg").expect("error");
    assert!(unknown.error().ends_with("no server named 'forg'; did you mean 'forge'?"), "{unknown}");
    bridge.close();
}

fn failures_can_be_tried_again_in_tasks_side_by_side(env: &TestEnv) {
    let bridge = bridge(env, &stubs(env));
    let code = python!("server_access", "try_again");
    let last = "'at last'";
    assert_eq!(run(&bridge, &["forge"], code).ok(), format!("[{}]", [last; 5].join(", ")));
    bridge.close();
}

fn bytes_travel_to_a_tool(env: &TestEnv) {
    let bridge = bridge(env, &stubs(env));
    let first = "open('/tmp/chart.png', 'wb').write(bytes(range(256)))";
    assert_eq!(run(&bridge, &[], first).ok(), "256");
    let code = python!("server_access", "bytes");
    let written = run(&bridge, &["filesystem"], code);
    assert_eq!(
        written.notices(),
        "bytes were sent as base64 text to \"content\" of filesystem.write_file",
        "{written}"
    );
    assert_eq!(written.ok(), "True");
    bridge.close();
}

/// The guest's own objects are within reach of code; the host must not care what they say.
fn forged_frames_gain_nothing(env: &TestEnv) {
    let bridge =
        bridge(env, &json!({ "mine": fake(env, &[]), "other": fake(env, &["--pids", "other.pid"]) }));
    let code = python!("server_access", "forged_frame");
    // Frames of that kind come from the host only: this ends the session, and nothing else.
    let forged = run(&bridge, &["mine"], code).expect("error");
    assert!(forged.notices().contains("its protocol was broken by a frame of type b'C'"), "{forged}");
    let code = python!("server_access", "forged_questions");
    let refused = run(&bridge, &["mine"], code).ok();
    assert_eq!(refused.lines().count(), 6, "{refused}");
    assert_eq!(refused.matches("Server 'other' is not availabl").count(), 2, "{refused}");
    assert!(!refused.contains('{'), "{refused}");
    // What an earlier call could use, a later one cannot, and neither can what the earlier one left behind.
    let code = python!("server_access", "keep_calling");
    assert_eq!(run(&bridge, &["other"], code).ok(), "True");
    let code = "await asyncio.wait_for(task, 20)\nlost[0][:33]";
    assert_eq!(
        run(&bridge, &["mine"], code).ok(),
        "\"Server 'other' is not available: t\"".replace("t\"", "\"")
    );
    bridge.close();
}

fn an_unknown_server_starts_nothing(env: &TestEnv) {
    let bridge = bridge(env, &json!({ "mine": fake(env, &[]), "off": { "command": "x", "disabled": true } }));
    let refused = run(&bridge, &["min"], "1").expect("validation_error");
    assert!(refused.error().contains("no server named 'min'; did you mean 'mine'?"), "{refused}");
    let refused = run(&bridge, &["mine", "off"], "1").expect("validation_error");
    assert!(refused.error().contains("'off'") && refused.error().contains("disabled"), "{refused}");
    assert!(!bridge.log().contains("spawn"), "nothing was started: {}", bridge.log());
    for code in ["mcp_off", "from mcp import mcp_off", "from mcp.servers import off", "mcp_servers['off']"] {
        let refused = run(&bridge, &["mine"], code).expect("error");
        assert!(refused.error().contains("server 'off' is not used: it is disabled; hint: "), "{refused}");
    }
    let near = run(&bridge, &["mine"], "mcp_min.echo").expect("error");
    assert!(
        near.error().contains("'mcp_min' is not defined: no server named 'min'; did you mean 'mine'?"),
        "{near}"
    );
    bridge.close();
}

fn calls_run_side_by_side_from_tasks_threads_and_loops(env: &TestEnv) {
    let bridge = bridge(env, &json!({ "fake": fake(env, &[]) }));
    let code = python!("server_access", "side_by_side");
    let out = run(&bridge, &["fake"], code).ok();
    assert!(out.ends_with("True"), "one after the other they would take five seconds: {out}");
    let code = python!("server_access", "loop_of_its_own");
    assert_eq!(run(&bridge, &["fake"], code).ok(), "[0, 1, 2]");
    let code =
        "[r.n for r in await asyncio.gather(*[mcp_fake.echo(n=n) for n in range(200)])] == list(range(200))";
    assert_eq!(run(&bridge, &["fake"], code).ok(), "True");
    bridge.close();
}

fn a_call_that_is_given_up_is_cancelled(env: &TestEnv) {
    let bridge = bridge(env, &json!({ "fake": fake(env, &[]) }));
    let code = python!("server_access", "give_up");
    assert_eq!(run(&bridge, &["fake"], code).ok(), "1", "the server is told");
    let timed_out =
        bridge.call(json!({ "code": "x = 5\nawait mcp_fake.never()", "servers": ["fake"], "timeout": 1 }));
    let _ = timed_out.expect("timeout").because("stopped after 1 s, still waiting for fake.never");
    assert_eq!(run(&bridge, &["fake"], "x, len(await mcp_fake.cancelled(least=2))").ok(), "(5, 2)");
    let pending = bridge.start_until_ready(
        "main",
        "print('ready')\nruntime.call_tool_sync('fake', 'never')",
        json!({ "servers": ["fake"] }),
    );
    pending.0.cancel();
    assert_eq!(run(&bridge, &["fake"], "x, len(await mcp_fake.cancelled(least=3))").ok(), "(5, 3)");
    // A session that is lost takes its calls with it.
    let lost = run(&bridge, &["fake"], python!("server_access", "exit_during_a_call"));
    let _ = lost.expect("error");
    assert_eq!(run(&bridge, &["fake"], "len(await mcp_fake.cancelled(least=4))").ok(), "4");
    bridge.close();
}

fn a_server_that_crashed_is_started_again(env: &TestEnv) {
    let bridge = bridge(
        env,
        &json!({ "fake": fake(env, &[]), "mute": fake(env, &["--stderr", "I am not well", "--exit-at-start", "4"]) }),
    );
    let code = python!("server_access", "crash");
    let out = run(&bridge, &["fake"], code).ok();
    assert!(
        out.contains("exit status: 3") && out.contains("out of ink") && out.ends_with("{'a': 1}"),
        "{out}"
    );
    let failed = run(&bridge, &["mute"], "await mcp_mute.echo(a=1)").expect("error");
    assert!(failed.stderr().contains("I am not well"), "{failed}");
    bridge.close();
}

fn large_results_and_large_catalogues_get_through(env: &TestEnv) {
    let bridge = bridge(
        env,
        &json!({ "fake": fake(env, &["--tools", "500", "--page", "100", "--schema-bytes", "4096"]) }),
    );
    let out = run(&bridge, &["fake"], "r = await mcp_fake.big(bytes=64 << 20)\nlen(r), set(r)").ok();
    assert_eq!(out, format!("({}, {{'x'}})", 64 << 20));
    let code = "len(runtime.describe_server('fake')['tools'][-1]['input_schema']['properties']['zeta']['description'])";
    assert_eq!(run(&bridge, &[], code).ok(), "4096");
    let code = "from mcp.servers.fake import *\nlen(runtime.list_tools_sync('fake')), tool_499.__name__, (await runtime.query_tool_docs('fake', 'tool-499'))['signature']";
    assert_eq!(run(&bridge, &["fake"], code).ok(), "(517, 'tool_499', 'tool_499(zeta?, alpha?: int)')");
    bridge.close();
}

fn an_alias_means_what_it_is_documented_for(env: &TestEnv) {
    let named = ["list-items", "list_items", "List Items", "查询", "删除", "创建", "print", "__init__"];
    let args: Vec<&str> =
        std::iter::once("--few").chain(named.iter().flat_map(|name| ["--named", name])).collect();
    let bridge = bridge(env, &json!({ "My Fake": fake(env, &args), "my_fake": fake(env, &["--few"]) }));
    let code = python!("server_access", "aliases");
    let out = run(&bridge, &["My Fake"], code).ok();
    let expected = "list_items list_items_2 list_items_3 _ __2 __3 list_items list_items <MCP server 'my_fake': mcp_my_fake_2>";
    assert_eq!(out, expected);
    let code = "from mcp.servers.my_fake import *\nprint(await list_items_3(), await __3(), await mcp_my_fake.print(), await mcp_my_fake['__init__']())";
    assert_eq!(run(&bridge, &["My Fake"], code).ok(), "List Items 创建 print __init__");
    bridge.close();
}

fn values_arrive_undamaged(env: &TestEnv) {
    let bridge = bridge(env, &json!({ "fake": fake(env, &[]) }));
    let code = python!("server_access", "values");
    let out = run(&bridge, &["fake"], code).ok();
    let expected = "True True [] {'b': None, 'a': True} ['n', 'z', 'a', 'e', 'not a name']\n0.1 90\n\
                    fake.raw: the answer of the server is not an MCP result: [{\"a\": 1}] True\n\
                    fake.raw: the answer of the server is not an MCP result: 7 True\n\
                    fake.raw: the content in the answer of the server is not a list of blocks: \"text\" True";
    assert_eq!(out, expected);
    bridge.close();
}

fn credentials_stay_outside(env: &TestEnv) {
    let bridge = bridge(env, &json!({ "fake": fake(env, &["--stderr", SECRET]) }));
    let code = python!("server_access", "look_for_credentials");
    let out = run(&bridge, &["fake"], code).ok();
    assert!(out.contains("True") && out.contains("[API_TOKEN]"), "the server itself has it: {out}");
    assert!(!out.contains(SECRET), "{out}");
    assert!(!bridge.log().replace(&out, "").contains(SECRET), "{}", bridge.log());
    bridge.close();
}

fn any_server_is_started_at_its_first_use(env: &TestEnv) {
    let starts = |name: &str| env.home().join(name);
    let server = |name: &str| {
        fake(
            env,
            &[
                "--starts",
                starts(name).to_str().unwrap(),
                "--pids",
                starts(&format!("{name}-pid")).to_str().unwrap(),
            ],
        )
    };
    let bridge = bridge(env, &json!({ "a": server("a"), "b": server("b") }));
    let code = "exec('print(mcp_' + 'a)')\neval('mcp_' + 'b'), 'mcp_' + 'a' in globals(), [name for name in dir() if name in ('mcp_a', 'mcp_b')]";
    let names = "<MCP server 'a': mcp_a>\n(<MCP server 'b': mcp_b>, True, ['mcp_a', 'mcp_b'])";
    assert_eq!(run(&bridge, &["*"], code).ok(), names);
    assert!(!starts("a").exists() && !starts("b").exists());
    let code = python!("server_access", "start_at_first_use");
    assert_eq!(run(&bridge, &["*"], code).ok(), "{'a': 1}");
    assert_eq!((fs::read_to_string(starts("a")).unwrap().as_str(), starts("b").exists()), ("start\n", false));
    let pid: u32 = fs::read_to_string(starts("a-pid")).unwrap().trim().parse().unwrap();
    assert!(start_time(pid).is_some());
    bridge.close();
    eventually("the server is gone", Duration::from_secs(20), || start_time(pid).is_none().then_some(()));
}

fn the_list_of_tools_is_the_same_whatever_is_configured(env: &TestEnv) {
    let mut answers = Vec::new();
    for (servers, tools) in [(0, 0), (1, 1), (1, 100), (20, 500)] {
        let servers: serde_json::Map<String, Value> = (0..servers)
            .map(|at| (format!("server-{at}"), fake(env, &["--few", "--tools", &(tools - 1).to_string()])))
            .collect();
        let bridge = bridge(env, &Value::Object(servers.clone()));
        if tools <= 100 && !servers.is_empty() {
            // It knows them, and says no more for that.
            let known = run(&bridge, &[], "len(runtime.list_tools_sync('server-0'))").ok();
            assert_eq!(known, tools.to_string());
        }
        answers.push(bridge.ask("tools/list", json!({})).to_string());
        bridge.close();
    }
    // What the model reads has 1,000 bytes at most, what the client gets beside it 200.
    assert!(answers.iter().all(|answer| *answer == answers[0] && answer.len() <= 1_200), "{answers:?}");
}

fn definitions_that_change_are_seen(env: &TestEnv) {
    let bridge = bridge(env, &json!({ "one": fake(env, &[]) }));
    assert_eq!(
        run(&bridge, &["one"], "runtime.discovered_servers(), (await mcp_one.echo(a=1)).a").ok(),
        "(['one'], 1)"
    );
    define(env, &json!({ "one": fake(env, &[]), "two": fake(env, &["--tools", "1"]) }));
    assert_eq!(
        run(
            &bridge,
            &["two"],
            "runtime.discovered_servers(), await mcp_two.tool_0(alpha=1) if 0 else 'tool_0' in dir(mcp_two)"
        )
        .ok(),
        "(['one', 'two'], True)"
    );
    define(env, &json!({ "two": fake(env, &[]) }));
    let gone = run(&bridge, &["one"], "1").expect("validation_error");
    assert!(gone.error().contains("no server named 'one'"), "{gone}");
    bridge.close();
}

/// What five floods at once may take beside what the bridge has, with their sessions.
const FLOODED: u64 = 32 << 20;
/// What a bridge may take beside the largest message.
const OWN_MEMORY: u64 = 64 << 20;

fn a_server_that_asks_without_end_and_reads_nothing_takes_no_memory(env: &TestEnv) {
    let messages = [
        json!({ "jsonrpc": "2.0", "id": "ID", "method": "ping" }),
        json!({ "jsonrpc": "2.0", "id": "ID", "method": "roots/list", "params": {} }),
        json!({ "jsonrpc": "2.0", "id": "ID", "method": "elicitation/create", "params": { "message": "m".repeat(200) } }),
        json!({ "jsonrpc": "2.0", "id": "same", "method": "sampling/createMessage", "params": { "messages": [] } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "ID" } }),
    ];
    let servers = (0..messages.len()).map(|at| format!("flood{at}")).chain(["calm".into()]);
    let servers: serde_json::Map<String, Value> =
        servers.map(|name| (name.clone(), fake(env, &["--named", "flood", "--named", &name]))).collect();
    let bridge = bridge(env, &Value::Object(servers));
    assert_eq!(run(&bridge, &["calm"], "await mcp_calm.echo(a=1)").ok(), "{'a': 1}");
    let before = bridge.peak_memory();
    let flooding: Vec<_> = messages
        .iter()
        .enumerate()
        .map(|(at, message)| {
            let code = format!("await mcp_flood{at}.flood(message={:?})", message.to_string());
            let session = format!("flooded-{at}");
            bridge.start_call(
                json!({ "code": code, "servers": [format!("flood{at}")], "timeout": 5, "session": session }),
            )
        })
        .collect();
    assert_eq!(run(&bridge, &["calm"], "await mcp_calm.echo(a=2)").ok(), "{'a': 2}");
    for call in flooding {
        let _ = call.outcome().expect("timeout");
        assert_eq!(run(&bridge, &["calm"], "await mcp_calm.echo(a=3)").ok(), "{'a': 3}");
    }
    let more = bridge.peak_memory() - before;
    assert!(more < FLOODED, "{} MiB", more >> 20);
    bridge.close();
}

fn a_server_that_sends_millions_of_values_takes_no_more_than_their_text(env: &TestEnv) {
    const BYTES: u64 = 12 << 20;
    let bridge = bridge(env, &json!({ "fake": fake(env, &["--named", "values"]) }));
    let methods = [
        "x",
        r#"method":"roots/list","id":"a","params"#,
        r#"method":"notifications/message","params"#,
        r#"jsonrpc":"2.0","id":77,"error"#,
        r#"id"#,
    ];
    for member in methods.map(|member| member.replace('"', "\\\"")) {
        let code = format!("await mcp_fake.values(member=\"{member}\", bytes={BYTES})");
        assert_eq!(run(&bridge, &["fake"], &code).ok(), "'sent'");
    }
    let peak = bridge.peak_memory();
    assert!(peak < OWN_MEMORY + 2 * BYTES, "{} MiB", peak >> 20);
    bridge.close();
}
