//! Code in the sandbox and the user's MCP servers: every shape of code that models write, and what code may not do.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::bridge::Bridge;
use crate::harness::matrix::Kind;
use crate::harness::process::start_time;
use crate::harness::{Outcome, Suite, TestEnv, eventually};
use crate::tests;

const FAKE: &str = include_str!("fakes/mcp_server.py");
const STUBS: &str = include_str!("fakes/stub_servers.py");
pub(crate) const SECRET: &str = "hunter2-is-secret";

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("server_access", tests![a_call_may_use_the_servers_that_it_names]);
    suite.kinds(
        &[Kind::Podman, Kind::Crun],
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
    suite.kinds(
        &[Kind::Crun],
        "server_access",
        tests![
            frames_that_code_forges_gain_nothing,
            a_server_that_there_is_not_starts_nothing,
            calls_go_out_at_once_from_tasks_threads_and_loops,
            a_call_that_is_given_up_is_called_off,
            a_server_that_crashes_is_there_again,
            large_results_and_large_catalogues_get_through,
            an_alias_means_what_it_is_documented_for,
            values_arrive_undamaged,
            credentials_stay_outside,
            any_server_is_started_at_its_first_use,
            the_list_of_tools_is_the_same_whatever_is_configured,
            definitions_that_change_are_seen,
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
    let code = r#"
names = await mcp_filesystem.list_names(path="/data")
for name in names:
    text = await mcp_filesystem.read_file(path=name)
    if "FIXME" in text:
        print("to fix:", name)
"#;
    assert_eq!(run(&bridge, &["filesystem"], code).ok(), "to fix: a.py");
    bridge.close();
}

fn objects_have_their_fields_as_attributes(env: &TestEnv) {
    let bridge = bridge(env, &stubs(env));
    let code = r#"
bugs = await mcp_tracker.search(project="CORE", state="open")
for bug in bugs:
    full = await mcp_tracker.get(id=bug.id)
    if "crash" in full.body.lower():
        made = await mcp_forge.create_issue(repo="acme/app", title=f"Crash: {bug.title}", body=full.body)
        print(made.title, made["number"], bug.by.name)
"#;
    assert_eq!(run(&bridge, &["tracker", "forge"], code).ok(), "Crash: Parser 7 Ada");
    bridge.close();
}

fn every_helper_of_the_runtime_works(env: &TestEnv) {
    let bridge = bridge(env, &stubs(env));
    let code = r#"
from mcp import runtime
print(runtime.discovered_servers(), await runtime.discovered_servers(), await runtime.list_servers())
meta = runtime.list_loaded_server_metadata()[0]
print(runtime.describe_server(meta["name"])["tools"][0]["alias"], meta["tools"][0]["input_schema"]["required"])
brief = await runtime.query_tool_docs(meta["name"])
whole = await runtime.query_tool_docs(meta["name"], tool=brief[0]["toolAlias"], detail="full")
print([t["name"] for t in brief["tools"]], whole["inputSchema"]["type"])
full = [whole, *await runtime.query_tool_docs(meta["name"], detail="full"), *await runtime.search_tool_docs("issue", detail="full")]
print({doc["outputSchema"] for doc in full}, any("Schema" in key for doc in [*brief, *runtime.search_tool_docs_sync("issue")] for key in doc))
for hit in await runtime.search_tool_docs("free slots in my calendar", limit=3):
    print(hit["server"], hit["tool"], hit.get("description", ""))
    break
print(runtime.search_tool_docs_sync("calendar")[0]["signature"], len(runtime.list_tools_sync(meta["name"])))
print("search_tool_docs" in runtime.capability_summary(), meta["description"], runtime.discovered_servers(detailed=True)[3])
"#;
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
    let code = r#"
from mcp import mcp_servers, mcp_forge
from mcp.servers.forge import create_issue
from mcp.servers.forge import *
raw = await mcp_servers["forge"].create_issue(repo="acme/app", title="t", body="b")
print(raw["content"][0]["text"])
same = await getattr(mcp_servers["forge"], "create_issue")(repo="acme/app", title="t", body="b")
print(same == raw == await create_issue("acme/app", "t", body="b"), raw.raw["content"][0].type)
"#;
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
    assert!(unknown.error().contains("ImportError"), "{unknown}");
    bridge.close();
}

fn failures_can_be_tried_again_in_tasks_side_by_side(env: &TestEnv) {
    let bridge = bridge(env, &stubs(env));
    let code = r#"
import asyncio
async def attempt(n):
    for i in range(n):
        try:
            return await mcp_forge.flaky()
        except Exception as e:
            if i == n - 1: raise
            await asyncio.sleep(2 ** i / 100)
print(await asyncio.gather(*[attempt(9) for _ in range(5)]))
"#;
    let last = "'at last'";
    assert_eq!(run(&bridge, &["forge"], code).ok(), format!("[{}]", [last; 5].join(", ")));
    bridge.close();
}

fn bytes_travel_to_a_tool(env: &TestEnv) {
    let bridge = bridge(env, &stubs(env));
    let first = "open('/tmp/chart.png', 'wb').write(bytes(range(256)))";
    assert_eq!(run(&bridge, &[], first).ok(), "256");
    let code = "await mcp_filesystem.write_file(path='/out/chart.png', content=open('/tmp/chart.png', 'rb').read())\n\
                import base64\n\
                base64.b64decode(await mcp_filesystem.read_file(path='/out/chart.png')) == bytes(range(256))";
    assert_eq!(run(&bridge, &["filesystem"], code).ok(), "True");
    bridge.close();
}

/// The guest's own objects are within reach of code; the host must not care what they say.
fn frames_that_code_forges_gain_nothing(env: &TestEnv) {
    let bridge =
        bridge(env, &json!({ "mine": fake(env, &[]), "other": fake(env, &["--pids", "other.pid"]) }));
    let code = r#"
guest = runtime._guest
guest.context = b'{"any": true, "servers": [{"name": "other", "alias": "other"}]}'
guest.channel.send((b"C", 0, guest.context))
"#;
    // Frames of that kind come from the host only: this ends the session, and nothing else.
    let forged = run(&bridge, &["mine"], code).expect("error");
    assert!(forged.notices().contains("its protocol was broken by a frame of type b'C'"), "{forged}");
    let code = r#"
runtime._guest.context = b'{"any": true}'
for params in (
    {"server": "other", "tool": "echo", "arguments": {}},
    {"server": "other", "tool": "echo", "arguments": {}, "any": True, "servers": ["*"], "grant": "Any"},
    {"server": "OTHER", "tool": "echo", "arguments": {}},
    {"server": "../other", "tool": "echo", "arguments": {}},
    {"server": ["other"], "tool": "echo", "arguments": {}},
    {"server": "mine", "tool": "echo", "arguments": []},
):
    try: print(runtime._ask("call", params))
    except runtime.MCPError as e: print(str(e)[:30])
"#;
    let refused = run(&bridge, &["mine"], code).ok();
    assert_eq!(refused.lines().count(), 6, "{refused}");
    assert_eq!(refused.matches("Server 'other' is not availabl").count(), 2, "{refused}");
    assert!(!refused.contains('{'), "{refused}");
    // What an earlier call could use, a later one cannot, and neither can what the earlier one left behind.
    let code = "import asyncio\nasync def later():\n    while True:\n        await asyncio.sleep(0.01)\n        \
                try: kept.append(await mcp_other.echo(a=1))\n        except Exception as e: lost.append(str(e)); return\n\
                kept, lost = [], []\ntask = asyncio.create_task(later())\nwhile not kept: await asyncio.sleep(0.01)\nlen(kept) > 0";
    assert_eq!(run(&bridge, &["other"], code).ok(), "True");
    let code = "await asyncio.wait_for(task, 20)\nlost[0][:33]";
    assert_eq!(
        run(&bridge, &["mine"], code).ok(),
        "\"Server 'other' is not available: t\"".replace("t\"", "\"")
    );
    bridge.close();
}

fn a_server_that_there_is_not_starts_nothing(env: &TestEnv) {
    let bridge = bridge(env, &json!({ "mine": fake(env, &[]), "off": { "command": "x", "disabled": true } }));
    let refused = run(&bridge, &["min"], "1").expect("validation_error");
    assert!(refused.error().contains("no server is called 'min'; did you mean 'mine'?"), "{refused}");
    let refused = run(&bridge, &["mine", "off"], "1").expect("validation_error");
    assert!(refused.error().contains("'off'") && refused.error().contains("disabled"), "{refused}");
    assert!(!bridge.log().contains("spawn"), "nothing was started: {}", bridge.log());
    bridge.close();
}

fn calls_go_out_at_once_from_tasks_threads_and_loops(env: &TestEnv) {
    let bridge = bridge(env, &json!({ "fake": fake(env, &[]) }));
    let code = r#"
import asyncio, time, concurrent.futures
await mcp_fake.echo(a=1)
async def five(): return await asyncio.gather(*[mcp_fake.sleep(seconds=1) for _ in range(5)])
began = time.monotonic(); await five(); took = [time.monotonic() - began]
with concurrent.futures.ThreadPoolExecutor(5) as pool:
    began = time.monotonic()
    list(pool.map(lambda _: runtime.call_tool_sync("fake", "sleep", {"seconds": 1}), range(5)))
    took.append(time.monotonic() - began)
print([round(t, 2) for t in took], max(took) < 2)
"#;
    let out = run(&bridge, &["fake"], code).ok();
    assert!(out.ends_with("True"), "one after the other they would take five seconds: {out}");
    let code = "import asyncio\nasync def three(): return await asyncio.gather(*[mcp_fake.echo(n=n) for n in range(3)])\n\
                [r.n for r in asyncio.run(three())]";
    assert_eq!(run(&bridge, &["fake"], code).ok(), "[0, 1, 2]");
    let code =
        "[r.n for r in await asyncio.gather(*[mcp_fake.echo(n=n) for n in range(200)])] == list(range(200))";
    assert_eq!(run(&bridge, &["fake"], code).ok(), "True");
    bridge.close();
}

fn a_call_that_is_given_up_is_called_off(env: &TestEnv) {
    let bridge = bridge(env, &json!({ "fake": fake(env, &[]) }));
    let code = "import asyncio\ntry: await asyncio.wait_for(mcp_fake.never(), 0.2)\nexcept asyncio.TimeoutError: pass\n\
                len(await mcp_fake.cancelled(least=1))";
    assert_eq!(run(&bridge, &["fake"], code).ok(), "1", "the server is told");
    let timed_out =
        bridge.call(json!({ "code": "x = 5\nawait mcp_fake.never()", "servers": ["fake"], "timeout": 1 }));
    let _ = timed_out.expect("timeout").because("was still waiting for fake.never at its timeout");
    assert_eq!(run(&bridge, &["fake"], "x, len(await mcp_fake.cancelled(least=2))").ok(), "(5, 2)");
    let pending = bridge.start_until_ready(
        "main",
        "print('ready')\nruntime.call_tool_sync('fake', 'never')",
        json!({ "servers": ["fake"] }),
    );
    pending.0.cancel();
    assert_eq!(run(&bridge, &["fake"], "x, len(await mcp_fake.cancelled(least=3))").ok(), "(5, 3)");
    // A session that is lost takes its calls with it.
    let lost = run(
        &bridge,
        &["fake"],
        "import threading, os\nthreading.Thread(target=runtime.call_tool_sync, args=('fake', 'never')).start()\nawait mcp_fake.echo(a=1)\nos._exit(3)",
    );
    let _ = lost.expect("error");
    assert_eq!(run(&bridge, &["fake"], "len(await mcp_fake.cancelled(least=4))").ok(), "4");
    bridge.close();
}

fn a_server_that_crashes_is_there_again(env: &TestEnv) {
    let bridge = bridge(
        env,
        &json!({ "fake": fake(env, &[]), "mute": fake(env, &["--stderr", "I am not well", "--exit-at-start", "4"]) }),
    );
    let code = "try: await mcp_fake.crash(words='out of ink')\nexcept runtime.MCPError as e: print(e)\nawait mcp_fake.echo(a=1)";
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
    let code = r#"
import mcp.servers.my_fake as module
from mcp import mcp_my_fake
for tool in runtime.list_tools_sync("My Fake")[1:7]:
    given = {}
    exec(f"from mcp.servers.my_fake import {tool['alias']} as one", given)
    for known in getattr(mcp_my_fake, tool["alias"]), getattr(module, tool["alias"]), given["one"]:
        assert await known() == tool["name"], tool
    print(tool["alias"], end=" ")
print(await mcp_my_fake["list_items"](), await runtime.call_tool("My Fake", "list_items"), mcp_servers["my_fake"])
"#;
    let out = run(&bridge, &["My Fake"], code).ok();
    let expected = "list_items list_items_2 list_items_3 _ __2 __3 list_items list_items <MCP server 'my_fake': mcp_my_fake_2>";
    assert_eq!(out, expected);
    let code = "from mcp.servers.my_fake import *\nprint(await list_items_3(), await __3(), await mcp_my_fake.print(), await mcp_my_fake['__init__']())";
    assert_eq!(run(&bridge, &["My Fake"], code).ok(), "List Items 创建 print __init__");
    bridge.close();
}

fn values_arrive_undamaged(env: &TestEnv) {
    let bridge = bridge(env, &json!({ "fake": fake(env, &[]) }));
    let code = r#"
r = await mcp_fake.echo(n=123456789012345678901234567890, z=1e300, a="\ud83d", e=[], **{"not a name": {"b": None, "a": True}})
print(r.n == 123456789012345678901234567890, r.z == 1e300, r.e, r["not a name"], list(r))
r = await mcp_fake.raw(result='{"content": [{"type": "text", "text": "ok"}], "structuredContent": {"n": 0.10, "deep": ' + "[" * 90 + "]" * 90 + "}}")
print(r.n, str(r.deep).count("["))
for wrong in '[{"a": 1}]', "7", '{"content": "text"}':
    try: print(await mcp_fake.raw(result=wrong))
    except MCPError as error: print(error, error.result == json.loads(wrong))
"#;
    let out = run(&bridge, &["fake"], &format!("import json\n{code}")).ok();
    let expected = "True True [] {'b': None, 'a': True} ['n', 'z', 'a', 'e', 'not a name']\n0.1 90\n\
                    fake.raw: the server answered with something that is no MCP result: [{\"a\": 1}] True\n\
                    fake.raw: the server answered with something that is no MCP result: 7 True\n\
                    fake.raw: the content of what the server answered is no list of blocks: \"text\" True";
    assert_eq!(out, expected);
    bridge.close();
}

fn credentials_stay_outside(env: &TestEnv) {
    let bridge = bridge(env, &json!({ "fake": fake(env, &["--stderr", SECRET]) }));
    let code = r#"
import os, json
print(json.dumps(dict(os.environ)), open("/proc/self/environ", "rb").read(), open("/proc/1/cmdline", "rb").read())
print(runtime.describe_server("fake"), runtime.discovered_servers(detailed=True), vars(runtime._guest))
print((await mcp_fake.environment()).env.API_TOKEN == "hunter2" + "-is-secret")
try: await mcp_fake.crash(words="hunter2" + "-is-secret")
except Exception as e: print(e)
"#;
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
    let code = "import asyncio\nawait asyncio.gather(*[runtime.call_tool('a', 'echo', {'n': n}) for n in range(5)])\nawait mcp_a.echo(a=1)";
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
    assert!(answers.iter().all(|answer| *answer == answers[0] && answer.len() <= 1_000), "{answers:?}");
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
    assert!(gone.error().contains("no server is called 'one'"), "{gone}");
    bridge.close();
}
