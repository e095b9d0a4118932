//! Resources and prompts of servers: read from code, decided and recorded as calls are.

use serde_json::{Value, json};

use crate::harness::matrix::{Kind, prepared_command};
use crate::harness::suite::ignore;
use crate::harness::{Runtime, Suite, TestEnv};
use crate::policy::write_policy;
use crate::server_access::{define, fake, run};
use crate::{python, tests};

const GARDEN: &str = include_str!("fakes/offers_server.py");

pub(crate) fn register(suite: &mut Suite) {
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "resources",
        tests![
            a_real_server_is_read_and_completes,
            texts_bytes_and_prompts_are_values,
            what_fails_is_an_error_and_the_server_stays,
            a_large_resource_takes_little_memory,
            rules_decide_and_the_log_says_what_was_read,
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
