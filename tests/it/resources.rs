//! Resources and prompts of servers: read from code, decided and recorded as calls are.

use serde_json::{Value, json};

use crate::harness::matrix::{Kind, prepared_command};
use crate::harness::suite::ignore;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::policy::{form, write_policy};
use crate::server_access::{define, fake, run};
use crate::{python, tests};

const GARDEN: &str = include_str!("fakes/offers_server.py");
const MODERN: &str = include_str!("fakes/modern_server.py");

pub(crate) fn register(suite: &mut Suite) {
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "resources",
        tests![
            a_real_server_is_read_and_completes,
            texts_bytes_and_prompts_are_values,
            what_fails_is_an_error_and_the_server_stays,
            a_large_resource_takes_little_memory,
            searches_find_resources_and_prompts,
            what_a_server_adds_is_there_without_a_restart,
            a_watched_resource_wakes_code_whenever_it_changes,
            a_tool_that_answers_with_a_task_is_awaited,
            rules_decide_and_the_log_says_what_was_read,
            a_server_of_the_newest_protocol_asks_with_its_answers,
            a_server_of_the_newest_protocol_says_what_changes,
            a_replay_has_the_resources_and_prompts_that_were_read,
        ],
    );
}

fn garden(env: &TestEnv) -> Value {
    json!({ "command": "python3", "args": [env.write("home/offers_server.py", GARDEN)] })
}

/// A server of others with resources and prompts.
fn everything() -> Value {
    let Some(command) = prepared_command("SERVER_EVERYTHING") else {
        ignore("no servers were prepared, see tests/check")
    };
    json!({ "command": command[0], "args": command[1..] })
}

fn a_real_server_is_read_and_completes(env: &TestEnv) {
    define(env, &json!({ "everything": everything() }));
    let bridge = env.bridge().start();
    let out = run(&bridge, &["everything"], python!("resources", "everything")).ok();
    let expected = "7 architecture.md text/markdown\n\
        True text/markdown True demo://resource/static/document/architecture.md\n\
        True True True text/plain\n\
        /tmp/blob b'Resource 8: '\n\
        ['simple-prompt', 'args-prompt', 'completable-prompt', 'resource-prompt'] ['city', 'state']\n\
        What's weather in Bern, BE? user text\n\
        True 2\n\
        ['Sales', 'Support']\n\
        ['David', 'Eve', 'Frank']\n\
        ['5']";
    assert_eq!(out, expected);
    bridge.close();
}

fn texts_bytes_and_prompts_are_values(env: &TestEnv) {
    define(env, &json!({ "garden": garden(env) }));
    let bridge = env.bridge().start();
    let expected = "['note://0', 'note://1', 'note://2']\n\
        the note 7 b'\\x89PNG'\n\
        ['one', <application/zip, 3 bytes>] ['parts://x/1', 'parts://x/2']\n\
        the note a%20b?form=long\n\
        {\"plant\": \"fern\", \"season\": \"4\"}\n\
        Water the plants first.";
    assert_eq!(run(&bridge, &["garden"], python!("resources", "fake")).ok(), expected);
    let listed = run(&bridge, &[], "len(runtime.list_resources('garden'))").ok();
    assert_eq!(listed, "3", "lists are documentation, which all code may read");
    bridge.close();
}

fn what_fails_is_an_error_and_the_server_stays(env: &TestEnv) {
    define(env, &json!({ "garden": garden(env), "other": fake(env, &["--few"]) }));
    let bridge = env.bridge().start();
    let out = run(&bridge, &["garden"], python!("resources", "errors")).ok();
    let lines: Vec<&str> = out.lines().collect();
    let expected = [
        "MCPError None server 'garden' refused 'resources/read': there is no gone://1 (-32602)",
        "MCPError None the answer of the server is not the contents of a resource: invalid type",
        "MCPError None the bytes of 'a:1' are not base64",
        "[]",
        "TypeError None the URI template needs the variable number",
        "TypeError None uri must be text, not 7",
        "MCPError server Server 'other' is not available",
        "MCPError None garden: the answer of the server is not a prompt",
        "MCPError None server 'garden' refused 'prompts/get': there is no gone (-32602)",
        "TypeError None arguments must be a dict, not 'fern'",
        "MCPError None server 'garden' refused 'completion/complete'",
        "MCPError server no server named 'gone'",
        "the note still True",
    ];
    assert_eq!(lines.len(), expected.len(), "{out}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\nnot {expected}");
    }
    bridge.close();
}

fn a_large_resource_takes_little_memory(env: &TestEnv) {
    define(env, &json!({ "garden": garden(env) }));
    let bridge = env.bridge().start();
    let out = run(&bridge, &["garden"], python!("resources", "large")).ok();
    assert_eq!(out, "62914560 True\n41943040 41943040");
    bridge.close();
}

fn searches_find_resources_and_prompts(env: &TestEnv) {
    define(env, &json!({ "my garden": garden(env) }));
    let bridge = env.bridge().start();
    let expected = "template note://{number}{?form,color} \
         runtime.read_resource(\"my garden\", \"note://{number}{?form,color}\") Any note by its number\n\
         prompt advice runtime.get_prompt(\"my garden\", \"advice\", plant, season?) How to treat a plant\n\
         tool touch touch() \n\
         [{'kind': 'prompt', 'signature': 'runtime.get_prompt(\"my garden\", \"advice\", plant, season?)', \
         'description': 'How to treat a plant'}]\n\
         ['plant']";
    assert_eq!(run(&bridge, &[], python!("resources", "search")).ok(), expected);
    bridge.close();
    let search = ["tools", "search", "gardening note"];
    let found = env.bridge().args(&[&search[..], &["--json"]].concat()).command().run(env.guard()).ok();
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!((&found[0]["kind"], &found[0]["server"]), (&json!("resource"), &json!("my garden")));
    let shown = env.bridge().args(&search).command().run(env.guard()).ok();
    assert!(shown.contains("runtime.read_resource(\"my garden\", \"note://0\")    (resource)\n"), "{shown}");
    write_policy(env, "[[rule]]\neffect = 'allow'\n");
    let denied = env.bridge().args(&search).command().run(env.guard()).ok();
    assert!(denied.contains("the policy denies it"), "{denied}");
}

/// As a gateway does that starts further servers behind it.
fn what_a_server_adds_is_there_without_a_restart(env: &TestEnv) {
    define(env, &json!({ "garden": garden(env) }));
    let bridge = env.bridge().start();
    assert!(!run(&bridge, &["garden"], "runtime.search_tool_docs_sync('spade')").ok().contains("spade"));
    let grown = run(&bridge, &["garden"], python!("resources", "grow")).ok();
    assert_eq!(grown, "the tool spade answers True");
    let found = |what: &str| {
        let code =
            "print([(hit['kind'], hit['tool']) for hit in runtime.search_tool_docs_sync('spade list')])";
        run(&bridge, &["garden"], code).ok().contains(what).then_some(())
    };
    eventually("the new tool is found", env.guard().left(), || found("('tool', 'spade')"));
    eventually("the new resource is found", env.guard().left(), || found("('resource', 'spade://list')"));
    bridge.close();
}

fn a_watched_resource_wakes_code_whenever_it_changes(env: &TestEnv) {
    define(env, &json!({ "garden": garden(env), "other": fake(env, &["--few"]) }));
    let bridge = env.bridge().start();
    let out = run(&bridge, &["garden"], python!("resources", "watch")).ok();
    let expected = "<the changes of note://5 of garden> ['note://5']\n\
        note://5 the note 5\n\
        note://5 the note 5\n\
        note://5\n\
        nothing more\n\
        ['note://5'] []";
    assert_eq!(out, expected);
    let refused = run(&bridge, &[], "next(watch)").expect("error");
    assert!(refused.error().contains("Server 'garden' is not available"), "{refused}");
    let refused = run(&bridge, &["garden", "other"], python!("resources", "unwatch")).expect("error");
    assert_eq!(refused.stdout(), "unsubscribed");
    assert!(refused.error().contains("server 'other' refused 'resources/subscribe'"), "{refused}");
    bridge.close();
}

fn a_tool_that_answers_with_a_task_is_awaited(env: &TestEnv) {
    define(env, &json!({ "garden": garden(env), "everything": everything() }));
    let bridge = env.bridge().start();
    let code = python!("resources", "tasks");
    let call = bridge.start_call(json!({ "code": format!("import asyncio\n{code}"), "servers": ["garden"] }));
    let expected = "dug {'sown': 3}\ngarden.spoil: no luck no luck\n['doze-3']";
    assert_eq!(call.outcome().ok(), expected);
    let code =
        "text = await mcp_everything.simulate_research_query(topic='soil')\nprint(text.splitlines()[0])";
    assert_eq!(run(&bridge, &["everything"], code).ok(), "# Research Report: soil");
    bridge.close();
}

fn rules_decide_and_the_log_says_what_was_read(env: &TestEnv) {
    define(env, &json!({ "garden": garden(env) }));
    write_policy(
        env,
        "[[rule]]\nkind = 'resource'\nserver = 'garden'\nname = 'note://*'\neffect = 'allow'\n\
         [[rule]]\nkind = ['resource', 'prompt']\nname = 'odd'\neffect = 'deny'\nreason = 'by hand'\n",
    );
    let bridge = env.bridge().start();
    let tried = |code: &str| {
        let code =
            format!("try:\n    print({code})\nexcept MCPError as error:\n    print(error.kind, error)")
                .replace("MCPError", "runtime.MCPError");
        run(&bridge, &["garden"], &code).ok()
    };
    assert_eq!(tried("runtime.read_resource('garden', 'note://1')"), "the note 1");
    let denied = tried("runtime.read_resource('garden', 'bytes://00')");
    assert!(
        denied.starts_with("denied the resource 'bytes://00' of server 'garden' is denied: no rule of"),
        "{denied}"
    );
    let denied = tried("runtime.get_prompt('garden', 'odd')");
    assert!(
        denied.contains("the prompt 'odd' of server 'garden' is denied") && denied.contains("by hand"),
        "{denied}"
    );
    assert!(tried("runtime.complete('garden', 'advice', 'plant')").starts_with("denied "));
    assert_eq!(tried("len(runtime.list_prompts('garden'))"), "1");
    let refused = run(&bridge, &[], "runtime.read_resource('garden', 'note://2')").expect("error");
    assert!(refused.error().contains("Server 'garden' is not available"), "{refused}");
    bridge.close();
    let log = env.bridge().args(&["audit", "--json"]).command().run(env.guard()).ok();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let calls: Vec<String> = lines
        .filter(|line| line["event"] == "call")
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
            [text("kind"), text("tool"), text("verdict"), text("outcome")].join(" ")
        })
        .collect();
    let expected = [
        "resource note://1 allowed ok",
        "resource bytes://00 no-rule denied",
        "prompt odd denied denied",
        "prompt advice no-rule denied",
        "resource note://2 not-granted denied",
    ];
    assert_eq!(calls, expected);
    let shown = env.bridge().args(&["audit"]).command().run(env.guard()).ok();
    assert!(shown.contains("call of the resource note://1 of garden"), "{shown}");
}

fn modern(env: &TestEnv) -> Value {
    json!({ "modern": { "command": "python3", "args": [env.write("home/modern_server.py", MODERN)] } })
}

fn a_server_of_the_newest_protocol_asks_with_its_answers(env: &TestEnv) {
    define(env, &modern(env));
    let bridge = env.bridge().start_showing_forms();
    let pending = bridge.start_call(json!({ "code": python!("resources", "modern"), "servers": ["modern"] }));
    let asked: Vec<String> = (0..4)
        .map(|number| {
            let form = form(env, &bridge, number);
            let result = json!({ "action": "accept", "content": { "name": format!("Ann{number}") } });
            let result = if number == 1 { json!({ "action": "decline" }) } else { result };
            bridge.send(&json!({ "jsonrpc": "2.0", "id": form["id"], "result": result }));
            form["params"]["message"].as_str().unwrap().to_owned()
        })
        .collect();
    for (asked, question) in asked.iter().zip(["for: fern?", "for: note://1?", "for: advice?", "Who grafts?"])
    {
        assert!(asked.contains(question), "{asked}");
    }
    let out = pending.outcome().ok();
    let expected = "Ann0 plants the fern\nnobody reads Ann2 is asked\nAnn3 grafts\n\
        could not read the answer of server 'modern' to 'nag': it keeps asking and returns no result";
    assert_eq!(out, expected);
    bridge.close();
    // Nobody can be asked: a form counts as closed.
    let bridge = env.bridge().start();
    let out = run(&bridge, &["modern"], "await mcp_modern.plant(kind='fern')").ok();
    assert_eq!(out, "'nobody plants the fern'");
    bridge.close();
}

fn a_server_of_the_newest_protocol_says_what_changes(env: &TestEnv) {
    define(env, &modern(env));
    let bridge = env.bridge().start();
    let refused = run(&bridge, &["modern"], python!("resources", "modern_watch")).expect("error");
    assert_eq!(refused.stdout(), "['note://5']\nnote://5\nthe tool spade answers");
    let error = "server 'modern' refused 'subscriptions/listen': there is no note://gone";
    assert!(refused.error().contains(error), "{refused}");
    bridge.close();
}

fn a_replay_has_the_resources_and_prompts_that_were_read(env: &TestEnv) {
    define(env, &json!({ "garden": garden(env) }));
    let bridge = env.bridge().var("MCP_BRIDGE_AUDIT", "full").start();
    let code = "print(runtime.read_resource('garden', 'note://7'), runtime.read_resource('garden', 'bytes://89504e47'))\n\
                print(runtime.get_prompt('garden', 'advice', plant='fern').text)\n\
                try:\n    runtime.read_resource('garden', 'gone://1')\nexcept runtime.MCPError as error:\n    print(error)";
    let out = run(&bridge, &["garden"], code).ok();
    assert!(out.starts_with("the note 7 b'\\x89PNG'\n{\"plant\": \"fern\"}\n"), "{out}");
    bridge.close();
    // The server is not needed.
    define(env, &json!({}));
    let log = env.bridge().args(&["audit", "--json"]).command().run(env.guard()).ok();
    let mut lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let run = lines.find(|line| line["event"] == "run").unwrap();
    let run = run["run"].as_str().unwrap();
    let replayed = env.bridge().args(&["replay", run]).command().run(env.guard());
    assert_eq!(replayed.stdout, format!("{run}: the same\n"), "{replayed}");
}
