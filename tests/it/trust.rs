//! Definitions of servers that come with a folder, such as a cloned repository, start nothing until the user has approved them.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::bridge::Bridge;
use crate::harness::matrix::Kind;
use crate::harness::process::{Prepared, free_port};
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::questions::{asked, modern};
use crate::server_access::fake;
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "trust",
        tests![
            the_command_shows_a_definition_and_approves_it,
            each_definition_is_asked_for_in_a_terminal,
            nothing_in_a_definition_steers_the_terminal,
        ],
    );
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "trust",
        tests![
            code_in_a_cloned_folder_starts_nothing,
            nothing_is_sent_to_an_address_that_is_not_approved,
            the_person_at_the_client_approves_at_the_first_use,
            a_client_without_a_session_approves_by_calling_once_more,
            code_cannot_show_forms_without_end,
            a_setting_approves_everything,
        ],
    );
}

/// A cloned repository that brings a server along: the folder, and the file that the server's start leaves in it.
fn cloned(env: &TestEnv) -> (PathBuf, PathBuf) {
    let folder = env.folder("cloned");
    let started = folder.join("started");
    let mut server = fake(env, &["--starts", started.to_str().unwrap(), "--few"]);
    server["env"] = json!({ "STOLEN": "${HOME}" });
    let all = json!({ "mcpServers": { "theirs": server } });
    env.write("cloned/.mcp.json", all.to_string());
    (folder, started)
}

fn command(env: &TestEnv, folder: &PathBuf, words: &[&str]) -> Prepared {
    let mut command = env.command(env.binary());
    command.argv.extend(words.iter().map(Into::into));
    command.cwd.clone_from(folder);
    command
}

/// Everything that code can do with a server of that name.
const USES: [&str; 6] = [
    "print(await runtime.search_tool_docs('echo what it was given'))",
    "print(await runtime.query_tool_docs('theirs'))",
    "print(runtime.describe_server('theirs'))",
    "print(await runtime.list_tools('theirs'))",
    "print(await runtime.call_tool('theirs', 'echo', {}))",
    "from mcp.servers.theirs import echo; print(await echo())",
];

fn code_in_a_cloned_folder_starts_nothing(env: &TestEnv) {
    let (folder, started) = cloned(env);
    let bridge = env.bridge().in_folder(folder).start();
    for servers in [json!([]), json!(["*"])] {
        for code in USES {
            let outcome = bridge.call(json!({ "code": code, "servers": servers }));
            if !code.contains("search") {
                assert!(outcome.error().contains("not trusted"), "{code}: {outcome}");
                assert!(outcome.error().contains("codebridge servers trust theirs"), "{code}: {outcome}");
            }
        }
    }
    let refused = bridge.call(json!({ "code": "1", "servers": ["theirs"] })).expect("validation_error");
    assert!(
        refused.error().contains(
            "hint: if you know where this folder comes from, run `codebridge servers trust theirs` in it"
        ),
        "{refused}"
    );
    let known = bridge.call(json!({ "code": "print(runtime.discovered_servers())" }));
    assert_eq!(known.ok(), "[]");
    assert!(!started.exists(), "the server was started: {}", bridge.log());
    // Approved by its user, it is there for the same bridge.
    let _ = command(env, &env.folder("cloned"), &["servers", "trust", "theirs"]).run(env.guard()).ok();
    let used = bridge.call(json!({ "code": "await mcp_theirs.echo(a=1)", "servers": ["theirs"] }));
    assert_eq!(used.ok(), "{'a': 1}");
    assert!(started.exists());
    bridge.close();
}

fn nothing_is_sent_to_an_address_that_is_not_approved(env: &TestEnv) {
    let address = format!("127.0.0.1:{}", free_port());
    let listener = std::net::TcpListener::bind(&address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let web = json!({ "url": format!("http://{address}/${{HOME}}"), "headers": { "X": "${HOME}" } });
    env.write("cloned/.vscode/mcp.json", json!({ "servers": { "theirs": web } }).to_string());
    let bridge = env.bridge().in_folder(env.folder("cloned")).start();
    for code in USES {
        let _ = bridge.call(json!({ "code": code, "servers": ["*"] }));
    }
    bridge.close();
    let came = listener.accept();
    assert!(came.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    // Once it is approved, the same use reaches the address: so it was the approval that was missing.
    let folder = env.folder("cloned");
    let _ = command(env, &folder, &["servers", "trust", "theirs"]).run(env.guard()).ok();
    let bridge = env.bridge().in_folder(folder).start();
    let pending = bridge.start_call(json!({ "code": USES[4], "servers": ["theirs"] }));
    let connection = eventually("a connection", env.guard().left(), || listener.accept().ok());
    drop((connection, listener));
    let _ = pending.outcome().expect("error");
    bridge.close();
}

/// Answers the next form; returns what it says.
fn answer(env: &TestEnv, bridge: &Bridge<'_>, number: usize, result: &Value) -> String {
    let form = eventually("a form", env.guard().left(), || {
        let mut forms =
            bridge.unasked().into_iter().filter(|message| message["method"] == "elicitation/create");
        forms.nth(number)
    });
    bridge.send(&json!({ "jsonrpc": "2.0", "id": form["id"], "result": result }));
    form["params"]["message"].as_str().unwrap().to_owned()
}

fn the_person_at_the_client_approves_at_the_first_use(env: &TestEnv) {
    let (folder, started) = cloned(env);
    let no = json!({ "action": "decline" });
    let yes = json!({ "action": "accept", "content": { "approve": true } });
    let call = json!({ "code": "await mcp_theirs.echo(a=1)", "servers": ["theirs"] });

    let bridge = env.bridge().in_folder(folder.clone()).start_showing_forms();
    let pending = bridge.start_call(call.clone());
    let form = answer(env, &bridge, 0, &no);
    assert!(form.contains("'theirs'") && form.contains("mcp_server.py"), "{form}");
    assert!(form.contains("${HOME}"), "{form}");
    let refused = pending.outcome().expect("validation_error");
    assert!(refused.error().contains("was refused"), "{refused}");
    // A person who said no is not asked again and again.
    let again = bridge.call(call.clone()).expect("validation_error");
    assert!(again.error().contains("was refused"), "{again}");
    bridge.close();
    assert!(!started.exists());

    let bridge = env.bridge().in_folder(folder).start_showing_forms();
    // A form that was closed is no answer, and may come again. Not without end: code could go on asking.
    let pending = bridge.start_call(call.clone());
    let _ = answer(env, &bridge, 0, &json!({ "action": "cancel" }));
    let closed = pending.outcome().expect("validation_error");
    assert!(closed.error().contains("servers trust theirs"), "{closed}");
    // Two calls at once show one form; one of them names no server, and asks when its code gets there.
    let any = json!({ "code": "await mcp_theirs.echo(a=2)", "servers": ["*"], "session": "other" });
    let (first, second) = (bridge.start_call(call), bridge.start_call(any));
    let _ = answer(env, &bridge, 1, &yes);
    assert_eq!((first.outcome().ok(), second.outcome().ok()), ("{'a': 1}".into(), "{'a': 2}".into()));
    let forms =
        bridge.unasked().into_iter().filter(|message| message["method"] == "elicitation/create").count();
    assert_eq!(forms, 2);
    bridge.close();
    assert!(started.exists());
}

fn a_client_without_a_session_approves_by_calling_once_more(env: &TestEnv) {
    let (folder, started) = cloned(env);
    let bridge = env.bridge().in_folder(folder).spawn();
    let call = |more: Value| {
        let arguments = json!({ "code": "await mcp_theirs.echo(a=1)", "servers": ["theirs"] });
        let mut params = json!({ "name": "run_python", "arguments": arguments });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        bridge.ask("tools/call", modern(&json!({ "elicitation": {} }), params))
    };
    let first = call(json!({}));
    let (questions, state) = asked(&first);
    assert!(questions[0].1.contains("'theirs'") && !started.exists(), "{first}");
    let yes = json!({ &questions[0].0: { "action": "accept", "content": { "approve": true } } });
    let done = call(json!({ "inputResponses": yes, "requestState": state }));
    assert_eq!(done["content"][0]["text"], "{'a': 1}", "{done}");
    bridge.close();
    assert!(started.exists());
}

fn code_cannot_show_forms_without_end(env: &TestEnv) {
    let (folder, started) = cloned(env);
    let bridge = env.bridge().in_folder(folder).start_showing_forms();
    let code = "for _ in range(20):\n    try: await runtime.call_tool('theirs', 'echo', {})\n    except Exception as e: print(e)";
    let pending = bridge.start_call(json!({ "code": code, "servers": ["*"] }));
    for number in 0..3 {
        let _ = answer(env, &bridge, number, &json!({ "action": "cancel" }));
    }
    let said = pending.outcome().ok();
    assert_eq!(said.matches("was refused").count(), 17, "{said}");
    let forms = bridge.unasked().into_iter().filter(|message| message["method"] == "elicitation/create");
    assert_eq!(forms.count(), 3);
    bridge.close();
    assert!(!started.exists());
}

fn a_setting_approves_everything(env: &TestEnv) {
    let (folder, started) = cloned(env);
    let bridge = env.bridge().in_folder(folder).var("MCP_BRIDGE_TRUST_PROJECT", "1").start();
    let used = bridge.call(json!({ "code": "await mcp_theirs.echo(a=1)", "servers": ["theirs"] }));
    assert_eq!(used.ok(), "{'a': 1}");
    bridge.close();
    assert!(started.exists());
}

fn the_command_shows_a_definition_and_approves_it(env: &TestEnv) {
    let (folder, started) = cloned(env);
    let run = |words: &[&str]| command(env, &folder, words).run(env.guard());
    let state = || {
        let listed: Value = serde_json::from_str(&run(&["servers", "--json"]).ok()).unwrap();
        (listed[0]["state"].clone(), listed[0]["used"].clone())
    };
    assert_eq!(state(), (json!("untrusted"), json!(false)));
    let table = run(&["servers"]).ok();
    assert!(table.contains("run `codebridge servers trust theirs`"), "{table}");
    let refused = run(&["call", "theirs.echo"]);
    assert!(refused.code() == Some(2) && refused.stderr.contains("hint: if you know"), "{refused}");
    let unnamed = run(&["servers", "trust"]);
    assert!(
        unnamed.code() == Some(2) && unnamed.stderr.contains("`codebridge servers trust theirs`"),
        "{unnamed}"
    );
    let unknown = run(&["servers", "trust", "nobody"]);
    assert!(unknown.code() == Some(2) && unknown.stderr.contains("no server named 'nobody'"), "{unknown}");
    assert_eq!(state().0, "untrusted");
    let shown = run(&["servers", "trust", "theirs"]).ok();
    assert!(shown.contains("mcp_server.py") && shown.contains("${HOME}"), "{shown}");
    assert_eq!(state(), (json!("new"), json!(true)));
    let again = run(&["servers", "trust", "theirs"]).ok();
    assert!(again.contains("needs no approval"), "{again}");
    let _ = run(&["call", "theirs.echo"]).ok();
    assert!(started.exists());
    // The same in another folder, or another one in the same folder, is somebody else's.
    let other = env.folder("other");
    env.write("other/.mcp.json", fs::read_to_string(folder.join(".mcp.json")).unwrap());
    let refused = command(env, &other, &["call", "theirs.echo"]).run(env.guard());
    assert_eq!(refused.code(), Some(2), "{refused}");
    env.write("cloned/.mcp.json", json!({ "mcpServers": { "theirs": { "command": "other" } } }).to_string());
    assert_eq!(state().0, "untrusted");
}

fn each_definition_is_asked_for_in_a_terminal(env: &TestEnv) {
    let all = json!({ "one": { "command": "x1" }, "two": { "command": "x2" }, "three": { "command": "x3" } });
    env.write("cloned/.mcp.json", json!({ "mcpServers": all }).to_string());
    let folder = env.folder("cloned");
    let mut terminal = env.command("script");
    let line = format!("{} servers trust", env.binary().display());
    terminal.argv.extend(["-q", "-e", "-c", &line, "/dev/null"].map(Into::into));
    terminal.cwd.clone_from(&folder);
    let asked = terminal.run_with_input(env.guard(), b"y\n\nyes\n").ok();
    assert_eq!(asked.matches("Trust this definition? [y/N]").count(), 3, "{asked}");
    let listed: Value =
        serde_json::from_str(&command(env, &folder, &["servers", "--json"]).run(env.guard()).ok()).unwrap();
    let states: Vec<_> = listed.as_array().unwrap().iter().map(|one| (&one["name"], &one["state"])).collect();
    let expected = [("one", "new"), ("three", "new"), ("two", "untrusted")]
        .map(|(name, state)| (json!(name), json!(state)));
    assert_eq!(states, expected.each_ref().map(|(name, state)| (name, state)));
    let done = command(env, &folder, &["servers", "trust", "two"]).run(env.guard()).ok();
    assert!(done.contains("x2"), "{done}");
    let nothing = command(env, &folder, &["servers", "trust"]).run(env.guard()).ok();
    assert!(nothing.contains("no definition in this folder needs an approval"), "{nothing}");
}

fn nothing_in_a_definition_steers_the_terminal(env: &TestEnv) {
    let server = json!({ "command": "x", "args": ["\u{1b}[2J", "\u{202e}gnp.exe", "\u{200b}"], "description": "\u{202e}" });
    env.write(
        "cloned/mcp-servers/\u{202e}x\n.json",
        json!({ "mcpServers": { "theirs": server } }).to_string(),
    );
    let shown = command(env, &env.folder("cloned"), &["servers", "trust", "theirs"]).run(env.guard()).ok();
    assert!(!shown.contains(['\u{1b}', '\u{202e}', '\u{200b}']), "{shown:?}");
    assert!(
        shown.contains("\\u202egnp.exe") && shown.lines().next().unwrap().ends_with("json:1)"),
        "{shown}"
    );
    for form in [&["servers"][..], &["servers", "--json"]] {
        let listed = command(env, &env.folder("cloned"), form).run(env.guard()).ok();
        assert!(!listed.contains(['\u{1b}', '\u{202e}', '\u{200b}']), "{listed:?}");
    }
}
