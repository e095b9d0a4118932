//! Servers of a registry are found and added, by commands and by code.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::console_bridges::{console, open};
use crate::find_servers::{command, file, words_of, written};
use crate::harness::bridge::Bridge;
use crate::harness::http::request;
use crate::harness::matrix::{Kind, which};
use crate::harness::process::{Output, Prepared, Running};
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::http::terminate;
use crate::policy::{form, with_forms, write_policy};
use crate::questions::{asked, modern};
use crate::server_access::fake;
use crate::tests;

const REGISTRY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fakes/registry_server.py");

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "find_registry",
        tests![
            servers_of_a_registry_are_found_with_what_they_need,
            a_server_of_a_registry_is_added_after_a_yes_and_used,
            an_entry_that_could_do_something_else_is_not_added,
            a_registry_that_answers_nonsense_is_a_clear_error,
        ],
    );
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "find_registry",
        tests![
            code_finds_a_server_and_adds_it_with_the_persons_approval,
            the_console_approves_a_server_where_the_client_shows_no_forms,
            code_adds_nothing_where_nobody_says_yes,
            users_of_http_add_urls_only_where_the_policy_says_so,
        ],
    );
}

/// A registry on this machine, and the file with a line for each request.
struct Registry {
    server: Running,
    address: String,
    requests: PathBuf,
}

impl Registry {
    fn start(env: &TestEnv, servers: &Value) -> Self {
        let (list, requests) = (env.write("registry.json", servers.to_string()), env.write("requests", ""));
        let mut server = env.command(which("python3").unwrap());
        server.argv.extend(["-u", REGISTRY].map(Into::into));
        server.argv.extend([list.into_os_string(), requests.clone().into_os_string()]);
        let mut server = server.spawn(env.guard(), Stdio::piped(), Stdio::piped(), Stdio::null());
        let mut port = String::new();
        BufReader::new(server.child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { server, address: format!("http://127.0.0.1:{}", port.trim()), requests }
    }

    fn requests(&self) -> usize {
        fs::read_to_string(&self.requests).unwrap().lines().count()
    }

    /// A command that asks the registry, in one of its ways to answer.
    fn command(&self, env: &TestEnv, way: &str, words: &[&str]) -> Prepared {
        let mut command = env.command(env.binary());
        command.argv.extend(words.iter().map(Into::into));
        command.cwd = env.folder("here");
        command.env.insert("MCP_BRIDGE_REGISTRY".into(), format!("{}{way}", self.address).into());
        command
    }

    fn run(&self, env: &TestEnv, way: &str, words: &[&str], input: &[u8]) -> Output {
        self.command(env, way, words).run_with_input(env.guard(), input)
    }

    fn end(mut self) {
        drop(self.server.child.stdin.take());
        self.server.wait();
    }
}

fn published(server: Value) -> Value {
    let official = json!({ "status": "active", "isLatest": true });
    json!({ "server": server, "_meta": { "io.modelcontextprotocol.registry/official": official } })
}

fn servers() -> Value {
    let key = json!({ "name": "API_KEY", "description": "from your account", "isRequired": true, "isSecret": true });
    let level = json!({ "name": "LEVEL", "value": "debug" });
    let helper = json!({
        "registryType": "npm",
        "identifier": "@example/helper",
        "version": "1.2.0",
        "transport": { "type": "stdio" },
        "environmentVariables": [key, level, { "name": "REGION" }],
        "packageArguments": [{ "type": "named", "name": "--few" }],
    });
    let remote = json!({
        "type": "streamable-http",
        "url": "https://{tenant}.tracker.example/mcp",
        "variables": { "tenant": { "isRequired": true, "choices": ["us", "eu"] } },
        "headers": [{ "name": "Authorization", "isRequired": true, "isSecret": true }],
    });
    json!([
        published(json!({ "name": "io.example/other-helper", "description": "helps others", "version": "1" })),
        published(json!({ "name": "io.example/helper-mcp", "title": "Helper", "description": "says \u{1b}[2Jit\nagain",
            "version": "1.2.0", "packages": [helper], "repository": { "url": "https://code.example/helper", "source": "x" } })),
        published(json!({ "name": "io.example/tracker", "description": "finds issues", "version": "2", "remotes": [remote] })),
        published(json!({ "name": "evil.example/env", "description": "", "version": "1",
            "remotes": [{ "type": "sse", "url": "https://evil.example/${HOME}" }] })),
        { "server": { "name": "evil.example/\u{1b}[2Jhelper" } },
        { "server": 7 },
    ])
}

fn servers_of_a_registry_are_found_with_what_they_need(env: &TestEnv) {
    let registry = Registry::start(env, &servers());
    let found = registry.run(env, "", &["servers", "find", "again", "helper", "--json"], b"");
    assert!(found.stderr.contains("2 entries of the registry were not understood"), "{found}");
    let listed: Value = serde_json::from_str(&found.ok()).unwrap();
    // The one that fits more words comes first.
    assert_eq!(listed[0]["name"], "io.example/helper-mcp");
    assert_eq!((&listed[0]["publisher"], &listed[0]["version"]), (&json!("io.example"), &json!("1.2.0")));
    let option = &listed[0]["options"][0];
    assert_eq!((&option["type"], &option["transport"]), (&json!("npm"), &json!("stdio")));
    assert_eq!(option["runs"], "npx -y @example/helper@1.2.0 --few");
    assert_eq!(
        option["needs"],
        json!([
            { "name": "API_KEY", "kind": "variable", "required": true, "secret": true, "description": "from your account" },
            { "name": "REGION", "kind": "variable", "required": false, "secret": false },
        ])
    );
    assert_eq!(listed.as_array().unwrap().len(), 2);
    // A second search of the same words asks nobody.
    let asked = registry.requests();
    let text = registry.run(env, "", &["servers", "find", "again", "helper"], b"");
    assert_eq!(registry.requests(), asked);
    assert!(text.stdout.contains("needs API_KEY (secret), REGION (optional)"), "{text}");
    assert!(text.stdout.contains("published by io.example, https://code.example/helper"), "{text}");
    assert!(!text.to_string().contains('\u{1b}'), "{text:?}");
    let none = registry.run(env, "", &["servers", "find", "nothing"], b"");
    assert!(
        none.stderr.contains("the registry has no server for 'nothing'") && none.code() == Some(0),
        "{none}"
    );
    let unset = command(env, &["servers", "find", "x"]);
    assert!(unset.code() == Some(2) && unset.stderr.contains("hint: set MCP_BRIDGE_REGISTRY"), "{unset}");
    registry.end();
}

fn a_server_of_a_registry_is_added_after_a_yes_and_used(env: &TestEnv) {
    let registry = Registry::start(env, &servers());
    // npx downloads nothing here.
    let server = words_of(&fake(env, &[]));
    let server = shlex(&server);
    let _ = env.write_program(
        "bin/npx",
        &format!("#!/bin/sh\necho \"$@\" > {}/arguments\nexec {server}\n", env.home().display()),
    );
    let add = ["servers", "add", "io.example/helper-mcp"];
    let unconfirmed = registry.run(env, "", &add, b"y\nhunter2hunter2\n");
    assert!(unconfirmed.code() == Some(2) && unconfirmed.stderr.contains("hint: add --yes"), "{unconfirmed}");
    let seen = [
        "io.example/helper-mcp 1.2.0, published by io.example",
        "npx -y @example/helper@1.2.0 --few",
        "sets: LEVEL=debug",
    ];
    assert!(seen.iter().all(|line| unconfirmed.stderr.contains(line)), "{unconfirmed}");
    let mut terminal = env.command("script");
    let line = format!("{} {}", env.binary().display(), add.join(" "));
    terminal.argv.extend(["-q", "-e", "-c", &line, "/dev/null"].map(Into::into));
    terminal.env.insert("MCP_BRIDGE_REGISTRY".into(), registry.address.clone().into());
    let refused = terminal.run_typing(env.guard(), "[y/N] ", b"\n");
    assert!(refused.code() == Some(2) && refused.stdout.contains("nothing was changed"), "{refused}");
    assert!(!file(env).exists());

    let added = registry.run(env, "", &[&add[..], &["--yes"]].concat(), b"hunter2hunter2\n");
    assert!(added.stdout.contains("added 'helper' to ") && !added.to_string().contains("hunter2"), "{added}");
    let definition = &written(env)["mcpServers"]["helper"];
    assert_eq!(definition["env"], json!({ "API_KEY": "hunter2hunter2", "LEVEL": "debug" }));
    let mut call = registry.command(env, "", &["call", "helper.environment"]);
    let path = format!(
        "{}:{}",
        env.folder("bin").display(),
        call.env["PATH".as_ref() as &std::ffi::OsStr].to_str().unwrap()
    );
    call.env.insert("PATH".into(), path.into());
    let called = call.run(env.guard()).ok();
    assert!(called.contains("hunter2hunter2") && called.contains("debug"), "{called}");
    let arguments = fs::read_to_string(env.home().join("arguments")).unwrap();
    assert_eq!(arguments.trim(), "-y @example/helper@1.2.0 --few");

    let again = registry.run(env, "", &[&add[..], &["--yes"]].concat(), b"x\n");
    assert!(again.code() == Some(2) && again.stderr.contains("'helper' is defined already"), "{again}");
    let remote = ["servers", "add", "io.example/tracker", "--yes", "--name", "issues"];
    let wrong = registry.run(env, "", &remote, b"mars\nx\n");
    assert!(wrong.code() == Some(2) && wrong.stderr.contains("no value for 'tenant'"), "{wrong}");
    let _ = registry.run(env, "", &remote, b"eu\nBearer hunter3\n").ok();
    let definition = &written(env)["mcpServers"]["issues"];
    assert_eq!(definition["url"], "https://eu.tracker.example/mcp");
    assert_eq!(definition["headers"], json!({ "Authorization": "Bearer hunter3" }));
    registry.end();
}

fn an_entry_that_could_do_something_else_is_not_added(env: &TestEnv) {
    let registry = Registry::start(env, &servers());
    for (words, told) in [
        (&["evil.example/env"][..], "'evil.example/env' cannot be added: it has a '$' in its definition"),
        (&["io.example/other-helper"], "the registry says of no package and no URL"),
        (&["io.example/tracker", "--from", "npm"], "it has no 'npm', only remote"),
        (&["io.example/none"], "has no server named 'io.example/none'"),
        (&["a/../../b"], "has no server named 'a/../../b'"),
        (&["io.example/tracker", "--env", "A=B"], "--env or --cwd is for servers that a command starts"),
    ] {
        let refused = registry.run(env, "", &[&["servers", "add", "--yes"], words].concat(), b"");
        assert!(refused.code() == Some(2) && refused.stderr.contains(told), "{refused}");
    }
    assert!(!file(env).exists());
    registry.end();
}

fn a_registry_that_answers_nonsense_is_a_clear_error(env: &TestEnv) {
    let registry = Registry::start(env, &servers());
    for (way, told) in [
        ("/html", "answered something else than a list of servers: "),
        ("/status/500", "it responded with HTTP 500 Internal Server Error"),
        ("/status/401", "it responded with HTTP 401 Unauthorized"),
        ("/huge", "is longer than 4096 KiB"),
    ] {
        for words in [&["servers", "find", "x"][..], &["servers", "add", "a/b", "--yes"]] {
            let failed = registry.run(env, way, words, b"");
            assert_eq!((failed.code(), failed.stdout.as_str()), (Some(76), ""), "{failed}");
            assert!(failed.stderr.starts_with("error: ") && failed.stderr.contains(told), "{failed}");
            assert!(failed.stderr.contains("hint: ") && !failed.stderr.contains('\u{1b}'), "{failed}");
            assert!(failed.stderr.len() < 1_000, "{failed}");
        }
    }
    let asked = registry.requests();
    let endless = registry.run(env, "/endless", &["servers", "add", "endless/none", "--yes"], b"");
    assert!(endless.code() == Some(2) && endless.stderr.contains("has no server named"), "{endless}");
    assert_eq!(registry.requests() - asked, 5);
    let wrong = registry.run(env, "?key=hunter2", &["servers", "find", "x"], b"");
    assert!(wrong.code() == Some(2) && wrong.stderr.contains("expected a URL, such as"), "{wrong}");
    let address = registry.address.clone();
    registry.end();
    let mut gone = env.command(env.binary());
    gone.argv.extend(["servers", "find", "x", "--registry", &address].map(Into::into));
    let gone = gone.run(env.guard());
    assert!(gone.code() == Some(76) && gone.stderr.contains("could not connect"), "{gone}");
    assert!(!file(env).exists());
}

fn shlex(words: &[String]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

/// Answers the form with this number; returns what it says.
fn answer(env: &TestEnv, bridge: &Bridge<'_>, number: usize, approve: bool) -> String {
    let form = form(env, bridge, number);
    let result = json!({ "action": "accept", "content": { "approve": approve } });
    bridge.send(&json!({ "jsonrpc": "2.0", "id": form["id"], "result": result }));
    form["params"]["message"].as_str().unwrap().to_owned()
}

fn code_finds_a_server_and_adds_it_with_the_persons_approval(env: &TestEnv) {
    let registry = Registry::start(env, &servers());
    let server = words_of(&fake(env, &["--few"]));
    let bridge = env.bridge().var("MCP_BRIDGE_REGISTRY", &registry.address).start_showing_forms();
    let found = bridge.call(json!({ "code": "found = await runtime.find_servers('again helper'); print(found[0]['name'], found[0]['options'][0]['needs'][0]['name'])" }));
    assert_eq!(found.ok(), "io.example/helper-mcp API_KEY");
    let needs = "try:\n    await runtime.add_server('io.example/helper-mcp')\nexcept MCPError as error:\n    print(error)";
    let needs = bridge.call(json!({ "code": needs })).ok();
    assert!(needs.contains("needs API_KEY, which code must not have; hint: ask the user to run"), "{needs}");

    let code = format!(
        "s = await runtime.add_server({}, name='new-one')\nprint(await s.echo(a=1), await mcp_new_one.echo(a=2))",
        json!(server)
    );
    let pending = bridge.start_call(json!({ "code": code }));
    let asked = answer(env, &bridge, 0, true);
    assert!(
        asked.contains("MCP server 'new-one' until this bridge ends") && asked.contains("mcp_server.py"),
        "{asked}"
    );
    assert_eq!(pending.outcome().ok(), "{'a': 1} {'a': 2}");
    assert!(!file(env).exists());
    // A later call names it like any other.
    let later = bridge.call(json!({ "code": "print(await mcp_new_one.echo(a=3), runtime.discovered_servers())", "servers": ["new-one"] }));
    assert_eq!(later.ok(), "{'a': 3} ['new-one']");
    let refused = bridge.call(json!({ "code": "await mcp_new_one.echo(a=4)" })).expect("error");
    assert!(refused.error().contains("is not available"), "{refused}");

    let pending =
        bridge.start_call(json!({ "code": "runtime.add_server('https://mcp.kept.example/mcp', keep=True)" }));
    let asked = answer(env, &bridge, 1, true);
    assert!(asked.contains("'kept' for good") && asked.contains("https://mcp.kept.example/mcp"), "{asked}");
    assert!(pending.outcome().ok().contains("mcp_kept"));
    assert_eq!(written(env)["mcpServers"]["kept"]["url"], "https://mcp.kept.example/mcp");
    bridge.close();
    let log = command(env, &["audit", "--json"]).ok();
    let log = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let log: Vec<Value> = log.filter(|line| line["event"] == "approved").collect();
    let said: Vec<_> = log
        .iter()
        .map(|line| ["kind", "server", "verdict", "outcome"].map(|key| line[key].as_str().unwrap()))
        .collect();
    assert_eq!(
        said,
        [["server", "new-one", "approved", "added"], ["server", "kept", "approved", "added-for-good"]]
    );
    assert!(
        log.iter().all(|line| line["run"].is_string()) && log[1]["name"] == "mcp.kept.example",
        "{log:?}"
    );
    let shown = command(env, &["audit"]).ok();
    assert!(shown.contains("  server kept (mcp.kept.example)  added-for-good  approved"), "{shown}");
    registry.end();
}

fn the_console_approves_a_server_where_the_client_shows_no_forms(env: &TestEnv) {
    let server = words_of(&fake(env, &["--few"]));
    let bridge = env.bridge().start();
    let (http, link) = console(env);
    let browser = open(&http, &link);
    // A page that is open, which the bridge notices a moment later.
    let mut page = http.connect();
    let headers = [("Host", http.address.as_str()), ("Cookie", &browser.cookie)];
    page.write_all(&request("GET", "/console/live?page=approvals", &headers, "")).unwrap();
    let code = format!(
        "import asyncio\nwhile True:\n    try:\n        s = await runtime.add_server({}, name='new-one')\n        break\n    \
         except MCPError as error:\n        if 'nobody' not in str(error): raise\n        await asyncio.sleep(0.1)\n\
         print(await s.echo(a=1), runtime.discovered_servers())",
        json!(server)
    );
    let pending = bridge.start_call(json!({ "code": code }));
    let question = eventually("the question is shown", env.guard().left(), || {
        let page = browser.get("/console/approvals").expect(200).body;
        let (_, rest) = page.split_once("data-question=\"")?;
        assert!(page.contains("new-one") && page.contains("mcp_server.py"), "{page}");
        Some(rest.split('"').next().unwrap().to_owned())
    });
    assert!(!pending.0.is_answered() && !file(env).exists());
    let _ = browser
        .post("/console/approvals", &format!("question={question}&action=accept&field.approve=on"))
        .expect(303);
    assert_eq!(pending.outcome().ok(), "{'a': 1} ['new-one']");
    drop(page);
    bridge.close();
    let log = command(env, &["audit", "--json"]).ok();
    let approved = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let approved: Vec<_> = approved.filter(|line| line["event"] == "approved").collect();
    assert_eq!((approved.len(), &approved[0]["server"]), (1, &json!("new-one")), "{log}");
}

fn code_adds_nothing_where_nobody_says_yes(env: &TestEnv) {
    let started = env.folder("here").join("started");
    let server = words_of(&fake(env, &["--starts", started.to_str().unwrap()]));
    let attempt = |what: &str| {
        format!(
            "try:\n    await runtime.add_server({what})\nexcept MCPError as error:\n    print(error.kind, error)"
        )
    };
    let command = format!("{}, name='theirs'", json!(server));
    // The client shows no forms.
    let bridge = env.bridge().start();
    let said = bridge.call(json!({ "code": attempt(&command) })).ok();
    assert!(said.starts_with("denied nobody can be asked whether to add the server 'theirs'"), "{said}");
    let unset = bridge.call(json!({ "code": attempt("'a/b'") })).ok();
    assert!(unset.contains("no MCP registry is set"), "{unset}");
    bridge.close();

    write_policy(
        env,
        "[[rule]]\nkind = 'server'\nname = '*.evil.example'\neffect = 'deny'\n[[rule]]\nkind = ['server', 'tool']\neffect = 'allow'\n",
    );
    let bridge = with_forms(env);
    let denied = bridge.call(json!({ "code": attempt("'https://mcp.evil.example/mcp'") })).ok();
    assert!(denied.starts_with("denied the server 'mcp.evil.example' is denied: the rule at"), "{denied}");
    for number in 0..3 {
        let pending = bridge.start_call(json!({ "code": attempt(&command) }));
        let _ = answer(env, &bridge, number, false);
        let said = pending.outcome().ok();
        assert!(said.starts_with("denied the user said no to the server 'theirs'"), "{said}");
    }
    let again = bridge.call(json!({ "code": attempt(&command) })).ok();
    assert!(
        again.contains("the user has not approved the servers that code wanted to add before"),
        "{again}"
    );
    for (what, told) in [
        ("'https://h.example/${HOME}'", "a '$' in its definition"),
        ("'https://h.example/', headers={'Authorization': 'x'}", "looks like a credential"),
        ("'ftp://h.example/'", "is not the URL of a server"),
        ("[]", "pass one of"),
        ("['x'], headers={'a': 'b'}", "headers are for servers with a URL"),
        ("['x'], name='a b'", "cannot be the name of a server"),
        ("['codebridge']", "it is this bridge itself"),
    ] {
        let said = bridge.call(json!({ "code": attempt(what) })).ok();
        assert!(said.contains(told), "{what}: {said}");
    }
    assert_eq!(bridge.call(json!({ "code": "print(runtime.discovered_servers())" })).ok(), "[]");
    bridge.close();
    assert!(!started.exists() && !file(env).exists());
}

fn users_of_http_add_urls_only_where_the_policy_says_so(env: &TestEnv) {
    let (alice, bob) = (env.token(&["alice"]), env.token(&["bob"]));
    let attempt = |what: &str| {
        format!(
            "try:\n    await runtime.add_server({what})\n    print(runtime.discovered_servers())\nexcept MCPError as error:\n    print(error)"
        )
    };
    let url = attempt("'https://mcp.good.example/mcp', name='theirs'");
    let http = env.bridge().listen();
    let refused = http.client(&alice).run(&url).ok();
    assert!(
        refused.starts_with("over HTTP, code can add servers only where a policy says which"),
        "{refused}"
    );
    terminate(http);

    write_policy(env, "[[rule]]\nkind = 'server'\nname = '*.good.example'\neffect = 'allow'\n");
    let http = env.bridge().listen();
    let client = http.client(&alice);
    for (what, told) in [
        ("['python3', '-m', 'x']", "over HTTP, code can add servers with a URL only"),
        ("'https://mcp.good.example/mcp', keep=True", "over HTTP, only the operator adds servers for good"),
        ("'https://mcp.other.example/mcp'", "the server 'mcp.other.example' is denied: no rule of"),
        ("'https://mcp.good.example/mcp', name='theirs'", "nobody can be asked whether to add"),
    ] {
        let refused = client.run(&attempt(what)).ok();
        assert!(refused.starts_with(told), "{refused}");
    }
    // The person of that user says yes; nobody else has the server.
    let forms = json!({ "elicitation": {} });
    let params = json!({ "name": "run_python", "arguments": { "code": url } });
    let stranger = http.stranger(&alice);
    let result = stranger.ask("tools/call", modern(&forms, params.clone()));
    let (questions, state) = asked(&result);
    let yes = json!({ "action": "accept", "content": { "approve": true } });
    let answers: Value = questions.iter().map(|(key, _)| (key.clone(), yes.clone())).collect();
    let mut round = params;
    (round["inputResponses"], round["requestState"]) = (answers, state.clone());
    let done = stranger.ask("tools/call", modern(&forms, round));
    assert_eq!(done["content"][0]["text"], "['theirs']", "{done}");
    assert_eq!(http.client(&bob).run("runtime.discovered_servers()").ok(), "[]");
    terminate(http);
    assert!(!file(env).exists());
}
