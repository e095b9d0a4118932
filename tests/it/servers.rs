//! The user's MCP servers through the real binary: found, called, and ended with the bridge.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::matrix::which;
use crate::harness::process::{Prepared, start_time};
use crate::harness::{Suite, TestEnv, eventually};
use crate::help::shown_on_a_terminal;
use crate::tests;

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fakes/mcp_server.py");
const HTTP_FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fakes/mcp_http_server.py");
/// What the reaper allows servers, and some more for a busy machine.
const REMOVAL: Duration = Duration::from_secs(20);

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "servers",
        tests![
            definitions_are_listed_and_their_tools_called,
            a_tool_that_fails_and_a_server_that_fails_are_distinguished,
            invalid_calls_are_refused_before_they_are_made,
            tools_are_found_without_starting_their_server_again,
            what_a_tool_returns_is_learned_from_its_results,
            a_server_that_fails_is_not_tried_by_every_search,
            a_server_is_asked_again_by_refresh,
            a_failure_is_shown_until_the_server_answers_or_is_changed,
            arguments_are_written_as_pairs_and_read_by_the_schema,
            a_result_is_saved_to_a_file_and_shown_to_programs_as_json,
            without_servers_the_next_step_is_shown,
            a_bridge_behind_another_name_is_not_called,
            messages_of_the_protocol_are_in_no_log,
            a_host_without_root_certificates_calls_servers_without_tls,
            servers_end_with_a_bridge_that_is_killed,
            text_of_servers_hides_nothing_on_a_terminal,
            a_credential_in_a_command_is_not_shown_and_not_stored,
        ],
    );
}

/// A home with one server, and the bridge's command line.
fn bridge(env: &TestEnv, args: &[&str], words: &[&str]) -> Prepared {
    let args: Vec<&str> = [FAKE].iter().chain(args).copied().collect();
    let fake = json!({ "command": "python3", "args": args, "env": { "A_TOKEN": "hunter2!" }, "description": "says it again" });
    let off = json!({ "command": "x", "disabled": true });
    let all = json!({ "mcpServers": { "my-fake": fake, "off": off } });
    env.write("home/MCPs/all.json", all.to_string());
    let mut command = env.command(env.binary());
    command.argv.extend(words.iter().map(Into::into));
    command.cwd = env.folder("home");
    command
}

fn definitions_are_listed_and_their_tools_called(env: &TestEnv) {
    let listed = bridge(env, &[], &["servers", "--json"]).run(env.guard()).ok();
    assert!(!listed.contains("hunter2"), "{listed}");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["alias"]), (&json!("my-fake"), &json!("my_fake")));
    assert_eq!(
        (&listed[0]["transport"], &listed[0]["description"]),
        (&json!("stdio"), &json!("says it again"))
    );
    assert_eq!((&listed[0]["state"], &listed[0]["tools"]), (&json!("new"), &json!(null)));
    assert_eq!(listed[1]["state"], "skipped");
    assert!(listed[1]["skipped"].as_str().unwrap().contains("disabled"), "{listed}");
    let pids = env.folder("home").join("pids");
    let words = ["call", "my_fake.echo", r#"{"z": 123456789012345678901234567890, "a": "\u00e9"}"#];
    let said = bridge(env, &["--pids", pids.to_str().unwrap()], &words).run(env.guard()).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["structuredContent"].to_string(), r#"{"z":123456789012345678901234567890,"a":"é"}"#);
    let pid: u32 = fs::read_to_string(pids).unwrap().trim().parse().unwrap();
    assert_eq!(start_time(pid), None, "the server is still there");
}

fn a_tool_that_fails_and_a_server_that_fails_are_distinguished(env: &TestEnv) {
    let failed = bridge(env, &[], &["call", "my-fake.fail"]).run(env.guard());
    assert!(failed.code() == Some(65) && failed.stdout.contains("no luck"), "{failed}");
    let crashed =
        bridge(env, &[], &["call", "my-fake.crash", r#"{"words": "hunter2! is to blame"}"#]).run(env.guard());
    assert_eq!((crashed.code(), crashed.stdout.as_str()), (Some(76), ""), "{crashed}");
    assert!(
        crashed.stderr.contains("exit status: 3") && crashed.stderr.contains("[A_TOKEN] is to blame"),
        "{crashed}"
    );
    let broken = bridge(env, &["--exit-at-start", "9"], &["call", "my-fake.echo"]).run(env.guard());
    assert!(broken.code() == Some(76) && broken.stderr.contains("exit status: 9"), "{broken}");
}

fn messages_of_the_protocol_are_in_no_log(env: &TestEnv) {
    let mut loud = bridge(env, &[], &["call", "my-fake.echo", r#"{"zeta": "hunter2!"}"#]);
    loud.env.extend([("MCP_BRIDGE_LOG_LEVEL".into(), "trace,rmcp=trace".into())]);
    let said = loud.run(env.guard());
    assert!(said.stdout.contains("hunter2!"), "code gets what it asked for: {said}");
    assert!(said.stderr.contains("TRACE") || said.stderr.contains("DEBUG"), "{said}");
    assert!(!said.stderr.contains("rmcp") && !said.stderr.contains("hunter2!"), "{said}");
}

fn a_host_without_root_certificates_calls_servers_without_tls(env: &TestEnv) {
    let mut server = env.command(which("python3").unwrap());
    server.argv.extend(["-u", HTTP_FAKE].map(Into::into));
    let mut server = server.spawn(env.guard(), Stdio::piped(), Stdio::piped(), Stdio::null());
    let mut port = String::new();
    BufReader::new(server.child.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let call = |scheme: &str| {
        let url = format!("{scheme}://127.0.0.1:{}/json", port.trim());
        let web = json!({ "mcpServers": { "web": { "url": url } } });
        env.write("home/MCPs/web.json", web.to_string());
        let mut call = bridge(env, &[], &["call", "web.echo", r#"{"z": 1}"#]);
        call.env.extend(["SSL_CERT_FILE", "SSL_CERT_DIR"].map(|name| (name.into(), "/nowhere".into())));
        call.run(env.guard())
    };
    let said: Value = serde_json::from_str(&call("http").ok()).unwrap();
    assert_eq!(said["structuredContent"]["arguments"], json!({ "z": 1 }));
    let refused = call("https");
    assert!(refused.code() == Some(76) && refused.stderr.contains("No CA certificates"), "{refused}");
    drop(server.child.stdin.take());
    server.wait();
}

fn a_bridge_behind_another_name_is_not_called(env: &TestEnv) {
    let script =
        env.write_program("start-it", &format!("#!/bin/sh\nexec {} serve\n", env.binary().display()));
    env.write(
        "home/MCPs/hidden.json",
        json!({ "mcpServers": { "helper": { "command": script } } }).to_string(),
    );
    let call = || bridge(env, &[], &["call", "helper.run_python", r#"{"code": "1"}"#]);
    let refused = call().run(env.guard());
    assert_eq!(refused.code(), Some(76), "{refused}");
    assert!(refused.stderr.contains("it is this bridge itself"), "{refused}");
    let mut allowed = call();
    allowed.env.extend([("MCP_BRIDGE_ALLOW_SELF_SERVER".into(), "1".into())]);
    allowed.argv.truncate(2);
    allowed.argv.push("helper.no_such_tool".into());
    let reached = allowed.run(env.guard());
    assert!(reached.stderr.contains("has no tool 'no_such_tool'"), "{reached}");
}

fn invalid_calls_are_refused_before_they_are_made(env: &TestEnv) {
    for (words, told) in [
        (["my-fak.echo", "{}"], "no server named 'my-fak'; did you mean 'my-fake'?"),
        (["off.echo", "{}"], "server 'off' is not used: it is disabled"),
        (["my-fake.ecco", "{}"], "server 'my-fake' has no tool 'ecco'; did you mean 'echo'?"),
        (
            ["my_fake.tool_0", r#"{"zetta": 1}"#],
            "unknown argument 'zetta'; did you mean 'zeta'?; signature: tool_0(zeta?, alpha?: int)",
        ),
        (["my-fake", "{}"], "invalid tool 'my-fake': expected SERVER.TOOL"),
        (["my-fake.echo", "[]"], "invalid arguments: expected a JSON object"),
    ] {
        let refused = bridge(env, &["--tools", "1"], &["call", words[0], words[1]]).run(env.guard());
        assert!(refused.code() == Some(2) && refused.stderr.contains(told), "{refused}");
    }
}

fn tools_are_found_without_starting_their_server_again(env: &TestEnv) {
    let starts = env.folder("home").join("starts");
    let server = ["--few", "--tools", "2", "--starts", starts.to_str().unwrap()];
    let run = |words: &[&str]| bridge(env, &server, words).run(env.guard()).ok();
    let found: Value = serde_json::from_str(&run(&["tools", "search", "echo", "--json"])).unwrap();
    let item = json!({
        "server": "my-fake", "serverAlias": "my_fake", "tool": "echo", "toolAlias": "echo", "name": "echo",
        "signature": "echo(zeta?, alpha?: int)", "description": "Says it again",
    });
    assert_eq!(found, json!([item]));
    let full = run(&["tools", "search", "echo", "--detail", "full", "--limit", "1"]);
    assert!(
        full.starts_with(
            "my_fake.echo(zeta?, alpha?: int)
    Says it again.
  arguments: {"
        ),
        "{full}"
    );
    let nothing = bridge(env, &server, &["tools", "search", "wombat"]).run(env.guard());
    assert_eq!((nothing.code(), nothing.stdout.as_str()), (Some(0), ""), "{nothing}");
    assert!(nothing.stderr.contains("no tool matches 'wombat'\nhint: "), "{nothing}");
    let all = run(&["tools", "show", "my_fake"]);
    assert_eq!(all.lines().filter(|line| line.starts_with("my_fake.")).count(), 3, "{all}");
    let one: Value = serde_json::from_str(&run(&["tools", "show", "my-fake.tool_1", "--json"])).unwrap();
    assert_eq!(
        (&one["tool"], &one["inputSchema"]["properties"]["alpha"]["type"]),
        (&json!("tool-1"), &json!("integer"))
    );
    let listed: Value = serde_json::from_str(&run(&["servers", "--json"])).unwrap();
    assert_eq!((&listed[0]["state"], &listed[0]["tools"]), (&json!("known"), &json!(3)));
    assert_eq!(
        fs::read_to_string(&starts).unwrap(),
        "start
"
    );
    let unknown = bridge(env, &server, &["tools", "show", "my-fake.tool"]).run(env.guard());
    assert!(unknown.code() == Some(2) && unknown.stderr.contains("did you mean 'tool-0'?"), "{unknown}");
}

fn what_a_tool_returns_is_learned_from_its_results(env: &TestEnv) {
    let run = |words: &[&str]| bridge(env, &[], words).run(env.guard());
    let show = || run(&["tools", "show", "my-fake.raw"]).ok();
    let answer = |value: Value, is_error: bool| {
        let text = json!({ "type": "text", "text": value.to_string() });
        let result = json!({ "content": [text], "isError": is_error }).to_string();
        let called = run(&["call", "my-fake.raw", &json!({ "result": result }).to_string()]);
        assert_eq!(called.code(), Some(if is_error { 65 } else { 0 }), "{called}");
    };
    answer(json!({ "code": 7 }), true);
    assert!(!show().contains("seen"), "a failure says nothing of results: {}", show());
    answer(json!([{ "id": 1, "title": "hunter2!" }]), false);
    let shown = show();
    assert!(shown.lines().next().unwrap().ends_with(" -> list[{id: int, title}] (seen)"), "{shown}");
    assert!(shown.contains("result, as seen: {") && !shown.contains("hunter2"), "{shown}");
    answer(json!([{ "id": 2, "title": "x", "closed": null }]), false);
    let found = run(&["tools", "search", "raw", "--limit", "1"]).ok();
    assert!(found.contains(" -> list[{id: int, title, closed?: None}] (seen)"), "{found}");
    let kept = fs::read_dir(env.folder("home/MCPs/catalog")).unwrap().map(|file| file.unwrap().path());
    let seen: Vec<_> = kept.filter(|path| path.extension().is_some_and(|it| it == "seen")).collect();
    assert_eq!(seen.len(), 1);
    assert!(!fs::read_to_string(&seen[0]).unwrap().contains("hunter2"));
}

fn a_server_that_fails_is_not_tried_by_every_search(env: &TestEnv) {
    let starts = env.folder("home").join("starts");
    let server = ["--fail-starts", "1", "--starts", starts.to_str().unwrap()];
    for _ in 0..2 {
        let search = bridge(env, &server, &["tools", "search", "echo"]).run(env.guard());
        assert_eq!((search.code(), search.stdout.as_str()), (Some(0), ""), "{search}");
        let told =
            search.stderr.contains("not this time") && search.stderr.contains("servers refresh my-fake");
        assert!(told, "{search}");
    }
    assert_eq!(fs::read_to_string(&starts).unwrap(), "start\n");
    bridge(env, &server, &["servers", "refresh", "my-fake"]).run(env.guard()).ok();
    let found = bridge(env, &server, &["tools", "search", "echo", "--limit", "1"]).run(env.guard());
    assert!(found.stdout.starts_with("my_fake.echo(") && found.stderr.is_empty(), "{found}");
}

fn a_server_is_asked_again_by_refresh(env: &TestEnv) {
    let starts = env.folder("home").join("starts");
    let server = ["--few", "--starts", starts.to_str().unwrap()];
    for _ in 0..2 {
        let told = bridge(env, &server, &["servers", "refresh"]).run(env.guard()).ok();
        assert_eq!(told, "my-fake  1 tool\n");
    }
    assert_eq!(
        fs::read_to_string(&starts).unwrap(),
        "start
start
"
    );
    let broken =
        bridge(env, &["--exit-at-start", "9"], &["servers", "refresh", "my_fake", "--json"]).run(env.guard());
    let shown: Value = serde_json::from_str(&broken.stdout).unwrap();
    assert!(
        broken.code() == Some(76) && shown[0]["error"].as_str().unwrap().contains("exit status: 9"),
        "{broken}"
    );
    assert!(shown[0]["failed_at"].as_str().unwrap().ends_with('Z'), "{broken}");
    let unknown = bridge(env, &[], &["servers", "refresh", "off"]).run(env.guard());
    assert!(unknown.code() == Some(2) && unknown.stderr.contains("it is disabled"), "{unknown}");
}

fn a_failure_is_shown_until_the_server_answers_or_is_changed(env: &TestEnv) {
    let starts = env.folder("home").join("starts");
    let server = |fails: &'static str| {
        ["--starts", starts.to_str().unwrap(), "--fail-starts", fails, "--stderr", "hunter2!"]
    };
    let listed = |args: &[&str]| {
        let listed = bridge(env, args, &["servers", "--json"]).run(env.guard()).ok();
        serde_json::from_str::<Value>(&listed).unwrap()[0].take()
    };
    let failed = bridge(env, &server("1"), &["servers", "refresh"]).run(env.guard());
    assert_eq!((failed.code(), failed.stdout.as_str()), (Some(76), ""), "{failed}");
    assert_eq!(failed.stderr.matches("not this time").count(), 1, "{failed}");
    let known = listed(&server("1"));
    let error = known["error"].as_str().unwrap();
    assert!(known["state"] == "failed" && error.starts_with("it exited before it was ready"), "{known}");
    assert!(!error.contains("hunter2!") && error.contains("not this time"), "{known}");
    let table = bridge(env, &server("1"), &["servers"]).run(env.guard()).ok();
    assert!(table.contains(" s ago: it exited before it was ready"), "{table}");
    // Another definition has not failed yet.
    let changed = listed(&server("2"));
    assert_eq!((&changed["state"], &changed["error"]), (&json!("new"), &json!(null)));
    bridge(env, &server("1"), &["call", "my-fake.echo"]).run(env.guard()).ok();
    let answered = listed(&server("1"));
    assert_eq!((&answered["state"], &answered["error"]), (&json!("known"), &json!(null)));
}

fn arguments_are_written_as_pairs_and_read_by_the_schema(env: &TestEnv) {
    let call =
        |words: &[&str]| bridge(env, &["--tools", "1"], &[&["call", "my-fake.tool-0"], words].concat());
    // The schema says that `zeta` is a string and `alpha` an integer.
    let echoed = |words: &[&str]| {
        let all = [&["call", "my-fake.echo"], words].concat();
        let said = bridge(env, &[], &all).run(env.guard()).ok();
        serde_json::from_str::<Value>(&said).unwrap()["structuredContent"].to_string()
    };
    assert_eq!(echoed(&["zeta=1", "alpha=2"]), r#"{"zeta":"1","alpha":2}"#);
    assert_eq!(echoed(&[]), "{}");
    let piped = bridge(env, &[], &["call", "my-fake.echo", "-"]);
    let piped = piped.run_with_input(env.guard(), br#"{"zeta": "from a pipe"}"#);
    assert!(piped.stdout.contains("from a pipe"), "{piped}");
    for (words, told) in [
        (&["alpha=x"][..], "could not call 'my-fake.tool-0': argument 'alpha' must be an integer, not 'x'"),
        (
            &["zetta=x"],
            "unknown argument 'zetta'; did you mean 'zeta'?; signature: tool_0(zeta?, alpha?: int)",
        ),
        (&["zeta=x", "zeta=y"], "argument 'zeta' is given twice"),
        (&["x", "y"], "'x' is not an argument: expected NAME=VALUE, or one JSON object"),
    ] {
        let refused = call(words).run(env.guard());
        assert!(refused.code() == Some(2) && refused.stderr.contains(told), "{refused}");
    }
}

fn a_result_is_saved_to_a_file_and_shown_to_programs_as_json(env: &TestEnv) {
    let result = json!({ "content": [
        { "type": "text", "text": "a picture" },
        { "type": "image", "data": "AAEC", "mimeType": "image/png" },
    ] });
    let arguments = json!({ "result": result.to_string() }).to_string();
    let call = |more: &[&str]| {
        bridge(env, &[], &[&["call", "my-fake.raw", &arguments], more].concat()).run(env.guard())
    };
    let shown: Value = serde_json::from_str(&call(&[]).ok()).unwrap();
    assert_eq!(shown, result, "programs get all of it");
    let on_terminal = |more: &[&str]| {
        let words = [&["call", "my-fake.raw", &arguments], more].concat();
        shown_on_a_terminal(env, bridge(env, &[], &words))
    };
    assert_eq!(on_terminal(&[]), "a picture\n<image/png, 3 bytes; save it with -o FILE>\n");
    assert_eq!(serde_json::from_str::<Value>(&on_terminal(&["--json"])).unwrap(), result);
    let file = env.folder("home").join("out.png");
    let saved = call(&["-o", file.to_str().unwrap()]);
    assert!(saved.stdout.is_empty() && saved.stderr.contains("wrote 3 bytes (image/png) to "), "{saved}");
    assert_eq!(fs::read(&file).unwrap(), [0, 1, 2]);
    assert_eq!(call(&["-o", "-"]).ok(), "\0\u{1}\u{2}", "a pipe gets the bytes");
    let nowhere = call(&["-o", "/nowhere/x"]);
    assert!(nowhere.stderr.contains("could not write '/nowhere/x': No such file"), "{nowhere}");
    let failed = bridge(env, &[], &["call", "my-fake.fail", "-o", file.to_str().unwrap()]).run(env.guard());
    assert!(failed.code() == Some(65) && failed.stdout.contains("no luck"), "{failed}");
    assert_eq!(fs::read(&file).unwrap(), [0, 1, 2], "a failure is no result");
}

fn without_servers_the_next_step_is_shown(env: &TestEnv) {
    for words in [&["servers"][..], &["servers", "refresh"], &["tools", "search", "x"]] {
        let mut command = env.command(env.binary());
        command.argv.extend(words.iter().map(Into::into));
        command.cwd = env.folder("home");
        let shown = command.run(env.guard());
        assert_eq!((shown.code(), shown.stdout.as_str()), (Some(0), ""), "{shown}");
        let hint = "no servers are defined\nhint: define one in ";
        assert!(shown.stderr.contains(hint) && shown.stderr.contains("MCPs/servers.json"), "{shown}");
    }
}

fn servers_end_with_a_bridge_that_is_killed(env: &TestEnv) {
    let pids = env.folder("home").join("pids");
    let stubborn = ["--ignore-eof", "--ignore-term", "--grandchild", "--pids", pids.to_str().unwrap()];
    let calling = bridge(env, &stubborn, &["call", "my-fake.never"]);
    let mut bridge = calling.spawn(env.guard(), Stdio::null(), Stdio::null(), Stdio::null());
    let pids = eventually("the server is up", env.guard().left(), || fs::read_to_string(&pids).ok());
    let pids: Vec<u32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.iter().filter(|pid| start_time(**pid).is_some()).count(), 2);
    bridge.signal(Signal::KILL);
    bridge.wait();
    eventually("the server and its child are gone", REMOVAL, || {
        pids.iter().all(|pid| start_time(*pid).is_none()).then_some(())
    });
}

fn text_of_servers_hides_nothing_on_a_terminal(env: &TestEnv) {
    let bad = "\u{202e}\u{200b}\u{2066}\u{1b}";
    let tool = format!("named{bad}x");
    let run = |args: &[&str], words: &[&str]| {
        let described = format!("Says{}it.", &bad[..9]);
        let args = [&["--few", "--quiet", "--named", &tool, "--described", &described], args].concat();
        let mut all = bridge(env, &args, words);
        let file = env.folder("home").join("MCPs/all.json");
        let described =
            fs::read_to_string(&file).unwrap().replace("says it again", &format!("says{}", &bad[..9]));
        fs::write(file, described).unwrap();
        all.env.remove(std::ffi::OsStr::new("MCP_BRIDGE_LOG_LEVEL"));
        all.run(env.guard())
    };
    let shown = [
        run(&[], &["tools", "show", "my-fake.echo"]),
        run(&[], &["tools", "search", "echo", "--detail", "full"]),
        run(&[], &["servers"]),
        run(&["--stderr", bad, "--exit-at-start", "3"], &["call", "my-fake.echo", "{}"]),
        run(&["--stderr", bad, "--exit-at-start", "3"], &["servers", "refresh"]),
        run(&[], &["call", &format!("my-fake.ech{bad}"), "{}"]),
    ];
    for output in shown {
        let text = format!("{}{}", output.stdout, output.stderr);
        assert!(!text.contains(|c| bad.contains(c)), "{text:?}");
        assert!(text.contains('\u{fffd}') || text.contains("\\u{202e}"), "{text:?}");
    }
    // Programs get what the server wrote.
    let exact = run(&[], &["tools", "show", "my-fake", "--json"]).ok();
    let exact: Value = serde_json::from_str(&exact).unwrap();
    assert!(exact.as_array().unwrap().iter().any(|item| item["tool"] == *tool), "{exact}");
}

fn a_credential_in_a_command_is_not_shown_and_not_stored(env: &TestEnv) {
    const SECRET: &str = "abcdef0123456789abcdef";
    for definition in [
        json!({ "command": format!("API_KEY={SECRET} npx") }),
        json!({ "command": format!("no-such-program --token-{SECRET}") }),
        json!({ "command": format!("https://ann:{SECRET}@127.0.0.1/mcp") }),
        json!({ "command": format!("sk-{SECRET}") }),
        json!({ "command": "sh", "args": ["-c", "echo $1 >&2; exit 3", "sh", format!("--token-{SECRET}")] }),
    ] {
        let run = |words: &[&str]| {
            let command = bridge(env, &[], words);
            env.write("home/MCPs/all.json", json!({ "mcpServers": { "odd": definition } }).to_string());
            command.run(env.guard())
        };
        for words in [&["call", "odd.echo", "{}"][..], &["tools", "search", "echo"], &["servers"]] {
            let output = run(words);
            assert!(!format!("{}{}", output.stdout, output.stderr).contains(SECRET), "{output}");
        }
        let mut folders = vec![env.folder("home")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else if !entry.ends_with("MCPs/all.json") {
                    let kept = fs::read(&entry).unwrap_or_default();
                    assert!(!String::from_utf8_lossy(&kept).contains(SECRET), "{}", entry.display());
                }
            }
        }
    }
}
