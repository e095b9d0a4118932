//! One bridge for many users over HTTP: nobody notices the others, and what one begins ends with the token.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::host::instance_of;
use crate::harness::http::request;
use crate::harness::matrix::Kind;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::http::{LIST, command, terminate};
use crate::questions::{asked, modern};
use crate::server_access::{define, fake};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.on(
        &[Runtime::of_user(Kind::Crun), Runtime::of_root(Kind::Runc)],
        "http_users",
        tests![
            users_have_nothing_in_common,
            a_question_reaches_the_client_of_its_call,
            progress_comes_before_the_result,
            quotas_hold_for_each_user,
            a_revoked_token_ends_what_it_began,
            runs_end_before_the_bridge_does,
            a_run_that_does_not_end_is_ended_with_the_bridge,
            places_and_sessions_are_each_users_own,
            rules_are_for_one_user,
            only_the_operator_approves_definitions,
            a_client_that_goes_away_ends_its_call,
        ],
    );
}

fn users_have_nothing_in_common(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &[]) }));
    let (alice, bob) = (env.token(&["alice"]), env.token(&["bob"]));
    let http = env.bridge().listen();
    let (alice, bob) = (http.client(&alice), http.client(&bob));
    let prepare = "secret = 'of alice'\ndef mine(): return 1\nsave_tool(mine)\n\
                   print(await runtime.save_artifact(b'x', name='notes.txt'))\nopen('/workspace/f', 'w').write('x')";
    let _ = alice.run(prepare).ok();
    let failed = bob.run("secret").expect("error");
    assert!(failed.error().contains("NameError"), "{failed}");
    assert_eq!(
        bob.run("import os\n'mine' in globals(), await runtime.artifacts(), os.listdir('/workspace')").ok(),
        "(False, [], [])"
    );
    // Neither by the resources, nor by a session of another.
    let of = |client: &crate::harness::http::HttpClient<'_, '_>| {
        client.ask("resources/list", json!({})).to_string()
    };
    assert!(of(&alice).contains("notes.txt") && !of(&bob).contains("notes.txt"), "{}", of(&bob));
    let session = alice.session.lock().unwrap().clone();
    let own = std::mem::replace(&mut *bob.session.lock().unwrap(), session);
    assert_eq!(bob.post(&serde_json::from_str(LIST).unwrap()).status, 404);
    *bob.session.lock().unwrap() = own;
    // Each has a server process of its own.
    let pid = json!({ "code": "(await mcp_fake.pids())", "servers": ["fake"] });
    let (first, second) = (alice.call(pid.clone()).ok(), bob.call(pid.clone()).ok());
    assert!(first != second && first == alice.call(pid).ok(), "{first} {second}");
    let principals = env.home().join("MCPs/principals");
    assert!(principals.join("alice/tools").exists() && !principals.join("bob/tools").exists());
    // Alice's functions are there in her next session.
    assert_eq!(alice.call(json!({ "code": "mine()", "session": "other" })).ok(), "1");
    let pid = http.bridge.pid();
    terminate(http);
    assert!(instance_of(env, pid).is_none(), "something is left behind");
}

fn a_question_reaches_the_client_of_its_call(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &[]) }));
    let (alice, bob) = (env.token(&["alice"]), env.token(&["bob"]));
    let http = env.bridge().listen();
    let code = "(await mcp_fake.ask(method='elicitation/create', params={'message': 'Which?', 'requestedSchema': {'type': 'object', 'properties': {}}})).result.action";
    let arguments = json!({ "code": code, "servers": ["fake"] });
    let params = json!({ "name": "run_python", "arguments": arguments });
    let forms = json!({ "elicitation": {} });
    let (alice, bob) = (http.stranger(&alice), http.stranger(&bob));
    let result = alice.ask("tools/call", modern(&forms, params.clone()));
    let (questions, state) = asked(&result);
    let answers: Value =
        questions.iter().map(|(key, _)| (key.clone(), json!({ "action": "decline" }))).collect();
    let mut round = params.clone();
    (round["inputResponses"], round["requestState"]) = (answers, state.clone());
    // Another user cannot answer it, even with its name.
    let stolen = bob.ask("tools/call", modern(&forms, round.clone()));
    assert!(stolen.to_string().contains("no call waits for these answers"), "{stolen}");
    let done = alice.ask("tools/call", modern(&forms, round));
    assert_eq!(done["content"][0]["text"], "'decline'", "{done}");
    terminate(http);
}

fn progress_comes_before_the_result(env: &TestEnv) {
    let http = env.bridge().listen();
    let client = http.client(&http.start_token());
    let code = "import time\nfor i in range(4):\n    print('line', i, flush=True)\n    time.sleep(0.2)";
    let params =
        json!({ "name": "run_python", "arguments": { "code": code }, "_meta": { "progressToken": "p" } });
    let messages = client.request("tools/call", params);
    let told = messages.iter().filter(|message| message["method"] == "notifications/progress");
    let told: Vec<_> = told.map(|message| message["params"]["message"].as_str().unwrap()).collect();
    assert!(told.iter().any(|text| text.starts_with("line ")), "{messages:?}");
    terminate(http);
}

fn quotas_hold_for_each_user(env: &TestEnv) {
    let (alice, bob) = (env.token(&["alice"]), env.token(&["bob"]));
    let http = env
        .bridge()
        .var("MCP_BRIDGE_MAX_RUNS", "1")
        .var("MCP_BRIDGE_USER_SECONDS", "40")
        .var("MCP_BRIDGE_USER_BYTES", "10k")
        .listen();
    let (alice, bob) = (http.client(&alice), http.client(&bob));
    // One run at once: they come one after the other, whoever sends them.
    thread::scope(|scope| {
        let stamp = "import time\na = time.time()\ntime.sleep(0.3)\n(a, time.time())";
        let runs = [&alice, &bob, &alice]
            .map(|client| scope.spawn(move || client.call(json!({ "code": stamp, "session": "new" })).ok()));
        let mut spans = runs.map(|run| {
            let text = run.join().unwrap();
            let (from, to) = text.trim_matches(['(', ')']).split_once(", ").unwrap();
            (from.parse::<f64>().unwrap(), to.parse::<f64>().unwrap())
        });
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");
    });
    let _ = alice.run("print('x' * 20_000)").ok();
    let refused = alice.run("1").expect("validation_error");
    assert!(refused.error().contains("MCP_BRIDGE_USER_BYTES"), "{refused}");
    // A run gets what is left of the day.
    let cut = bob.call(json!({ "code": "import time\ntime.sleep(2)", "timeout": 1 })).expect("timeout");
    assert!(cut.error().contains('1'), "{cut}");
    assert_eq!(bob.run("1").ok(), "1");
    terminate(http);
}

fn a_revoked_token_ends_what_it_began(env: &TestEnv) {
    let alice = env.token(&["alice"]);
    let bob = env.token(&["bob"]);
    let http = env.bridge().listen();
    let (client, other) = (http.client(&alice), http.client(&bob));
    let _ = other.run("kept = 1").ok();
    let _ = client.run("started = 1").ok();
    thread::scope(|scope| {
        let began = Instant::now();
        let running = scope.spawn(|| {
            let params = json!({ "name": "run_python", "arguments": { "code": "import time\ntime.sleep(100)", "timeout": 110 } });
            client.post(&json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }))
        });
        eventually("the run is under way", env.guard().left(), || {
            let metrics = http.send("GET", "/metrics", &[], "");
            assert_eq!(metrics.status, 401);
            (ps(env).len() == 2).then_some(())
        });
        command(env, &["token", "revoke", "alice"]).ok();
        // The stream ends without an answer, or with one that says so.
        let _ = running.join().unwrap();
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    });
    assert_eq!(client.post(&serde_json::from_str(LIST).unwrap()).status, 401);
    eventually("the sandbox is removed", env.guard().left(), || (ps(env).len() == 1).then_some(()));
    assert_eq!(other.run("kept").ok(), "1");
    terminate(http);
}

/// The sandboxes of the bridges of this test.
fn ps(env: &TestEnv) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&command(env, &["ps", "--json"]).ok()).unwrap();
    let ours = |one: &&Value| one["owner_pid"].as_u64().is_some_and(|pid| is_ours(env, pid));
    listed.as_array().unwrap().iter().filter(ours).cloned().collect()
}

fn is_ours(env: &TestEnv, pid: u64) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let home = format!("HOME={}", env.home().display());
    environment.split(|byte| *byte == 0).any(|variable| variable == home.as_bytes())
}

fn runs_end_before_the_bridge_does(env: &TestEnv) {
    let http = env.bridge().listen();
    let token = http.start_token();
    let (client, late) = (http.client(&token), http.client(&token));
    let _ = client.run("1").ok();
    thread::scope(|scope| {
        let code = "import time\nopen('/tmp/x', 'w')\ntime.sleep(3)\nprint('whole')";
        let running = scope.spawn(|| client.run(code).ok());
        eventually("the run is under way", env.guard().left(), || {
            let metrics = http.get("/metrics", Some(&token)).body;
            metrics.lines().any(|line| line == "codebridge_runs 1").then_some(())
        });
        http.bridge.signal(Signal::TERM);
        eventually("it is not ready any more", env.guard().left(), || {
            (http.get("/readyz", None).status == 503).then_some(())
        });
        let refused = late.call(json!({ "code": "1", "session": "new" })).expect("validation_error");
        assert!(refused.error().contains("shutting down"), "{refused}");
        assert_eq!(running.join().unwrap(), "whole");
    });
    let pid = http.bridge.pid();
    let ended = http.bridge.wait(Duration::from_secs(60));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(instance_of(env, pid).is_none(), "something is left behind");
}

fn a_run_that_does_not_end_is_ended_with_the_bridge(env: &TestEnv) {
    let http = env.bridge().listen();
    let token = http.start_token();
    let client = http.client(&token);
    let pid = http.bridge.pid();
    let arguments = json!({ "code": "import time\ntime.sleep(100)", "timeout": 110 });
    let params = json!({ "name": "run_python", "arguments": arguments });
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    thread::scope(|scope| {
        let running = scope.spawn(|| client.post(&call));
        eventually("the run is under way", env.guard().left(), || {
            let metrics = http.get("/metrics", Some(&token)).body;
            metrics.lines().any(|line| line == "codebridge_runs 1").then_some(())
        });
        let told = Instant::now();
        http.bridge.signal(Signal::TERM);
        // The answer ends: with what became of the run, or without a message.
        let _ = running.join().unwrap();
        let took = told.elapsed();
        assert!(took >= Duration::from_secs(24) && took < Duration::from_secs(60), "{took:?}");
    });
    let ended = http.bridge.wait(Duration::from_secs(30));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.log.contains("waiting for runs to end"), "{}", ended.log);
    assert!(ended.log.contains("runs did not end in time, and are interrupted"), "{}", ended.log);
    assert!(instance_of(env, pid).is_none(), "something is left behind");
}

fn places_and_sessions_are_each_users_own(env: &TestEnv) {
    let (alice, bob) = (env.token(&["alice"]), env.token(&["bob"]));
    let monitoring = env.token(&["monitoring", "--scope", "metrics"]);
    let http = env.bridge().var("MCP_BRIDGE_USER_RUNS", "1").var("MCP_BRIDGE_MAX_SESSIONS", "1").listen();
    let (alice, bob) = (http.client(&alice), http.client(&bob));
    let _ = alice.run("kept = 'of alice'").ok();
    let _ = bob.run("kept = 'of bob'").ok();
    // Bob's second session takes the place of his first one, and not of hers.
    let other = bob.call(json!({ "code": "'kept' in globals()", "session": "other" }));
    assert_eq!(other.ok(), "False");
    assert_eq!(alice.run("kept").ok(), "'of alice'");
    assert_eq!(bob.run("'kept' in globals()").ok(), "False");
    // Alice has one run at once: her second waits, and his do not.
    let seconds = |text: &str| text.parse::<f64>().unwrap();
    thread::scope(|scope| {
        let long = scope.spawn(|| alice.run("import time\ntime.sleep(4)\ntime.time()").ok());
        eventually("the run is under way", env.guard().left(), || {
            let metrics = http.get("/metrics", Some(&monitoring)).body;
            metrics.lines().any(|line| line == "codebridge_runs 1").then_some(())
        });
        let second = scope.spawn(|| alice.run("import time\ntime.time()").ok());
        let of_bob = [(); 3].map(|()| seconds(&bob.run("import time\ntime.time()").ok()));
        let end = seconds(&long.join().unwrap());
        assert!(of_bob.iter().all(|time| *time < end), "{of_bob:?} {end}");
        assert!(seconds(&second.join().unwrap()) >= end);
    });
    terminate(http);
}

fn rules_are_for_one_user(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &[]) }));
    let strict = env.write("home/strict.toml", "[[rule]]\nserver = \"*\"\ntool = \"*\"\neffect = \"deny\"\n");
    env.write(
        "home/MCPs/policy.toml",
        "[[rule]]\nserver = \"fake\"\nprincipal = \"bob\"\neffect = \"allow\"\n",
    );
    let alice = env.token(&["alice", "--policy", strict.to_str().unwrap()]);
    let (bob, carol) = (env.token(&["bob"]), env.token(&["carol"]));
    let http = env.bridge().listen();
    let echo = json!({ "code": "await mcp_fake.echo(a=1)", "servers": ["fake"] });
    let client = http.client(&bob);
    assert_eq!(client.call(echo.clone()).ok(), "{'a': 1}");
    for token in [&alice, &carol] {
        let refused = http.client(token).call(echo.clone()).expect("error");
        assert!(refused.error().contains("denied"), "{refused}");
    }
    // Rules that come later hold for a user who is there already.
    let _ = env.token(&["bob", "--policy", strict.to_str().unwrap()]);
    let refused = client.call(echo).expect("error");
    assert!(refused.error().contains("denied"), "{refused}");
    let again = command(env, &["token", "add", "bob", "--policy", strict.to_str().unwrap()]);
    assert!(again.code() == Some(2) && again.stderr.contains("--force"), "{again}");
    terminate(http);
}

fn only_the_operator_approves_definitions(env: &TestEnv) {
    let project = env.folder("home/project");
    let definition = json!({ "mcpServers": { "local": fake(env, &[]) } });
    env.write("home/project/.mcp.json", definition.to_string());
    let alice = env.token(&["alice"]);
    let http = env.bridge().in_folder(project).listen();
    // Even a client that shows forms is not asked.
    let arguments = json!({ "code": "await mcp_local.echo(a=1)", "servers": ["local"] });
    let params =
        modern(&json!({ "elicitation": {} }), json!({ "name": "run_python", "arguments": arguments }));
    let refused = http.stranger(&alice).ask("tools/call", params);
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("codebridge servers trust local"), "{refused}");
    terminate(http);
}

fn a_client_that_goes_away_ends_its_call(env: &TestEnv) {
    let http = env.bridge().listen();
    let token = http.start_token();
    let runs = |count: usize| {
        let line = format!("codebridge_runs {count}");
        http.get("/metrics", Some(&token)).body.lines().any(|other| other == line)
    };
    let arguments = json!({ "code": "import time\ntime.sleep(100)", "timeout": 110 });
    let params = modern(&json!({}), json!({ "name": "run_python", "arguments": arguments }));
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let bearer = format!("Bearer {token}");
    let headers = [
        ("Host", "localhost"),
        ("Authorization", &bearer),
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "run_python"),
    ];
    let mut stream = http.connect();
    stream.write_all(&request("POST", "/mcp", &headers, &message)).unwrap();
    eventually("the run is under way", env.guard().left(), || runs(1).then_some(()));
    drop(stream);
    eventually("the run is over", env.guard().left(), || runs(0).then_some(()));
    // The session goes on.
    assert_eq!(http.client(&token).call(json!({ "code": "1", "timeout": 10 })).ok(), "1");
    terminate(http);
}
