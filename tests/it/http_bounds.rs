//! What users of one bridge over HTTP may hold and use, and what ends with their credentials.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::http::{HttpBridge, request};
use crate::harness::matrix::Kind;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "http_bounds",
        tests![
            a_user_with_many_connections_closes_its_own,
            a_token_that_cannot_be_read_still_holds,
            a_token_that_cannot_be_used_is_named_and_hides_no_other,
            pages_of_allowed_origins_can_use_a_bridge,
        ],
    );
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "http_bounds",
        tests![
            calls_hold_their_bodies_until_they_end,
            what_a_token_began_ends_with_it,
            a_day_goes_on_after_a_restart,
        ],
    );
    suite.on(
        &[Runtime::of_user(Kind::Crun), Runtime::of_root(Kind::Runc), Runtime::of_user(Kind::Podman)],
        "http_bounds",
        tests![work_between_calls_counts],
    );
}

fn terminate(http: HttpBridge<'_>) {
    http.bridge.signal(Signal::TERM);
    let ended = http.bridge.wait(Duration::from_secs(60));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}

fn revoke(env: &TestEnv, id: &str) {
    env.bridge().args(&["token", "revoke", id]).command().run(env.guard()).ok();
}

/// The ids of all tokens, by name and age.
fn ids(env: &TestEnv) -> Vec<String> {
    let listed = env.bridge().args(&["token", "ls", "--json"]).command().run(env.guard()).ok();
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    listed.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

fn a_user_with_many_connections_closes_its_own(env: &TestEnv) {
    let (alice, bob) =
        (env.token(&["alice", "--scope", "metrics"]), env.token(&["bob", "--scope", "metrics"]));
    // As the bridge does: both open as many files as they may.
    let maximum = getrlimit(Resource::Nofile).maximum;
    let files = maximum.map_or(32_768, |maximum| maximum.min(32_768));
    setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum }).unwrap();
    let http = env.bridge().listen();
    let ask = |stream: &mut TcpStream, token: &str| {
        let lines = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n");
        stream.write_all(format!("HEAD /metrics HTTP/1.1\r\n{lines}\r\n").as_bytes()).unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    };
    let mut of_bob = http.connect();
    assert!(ask(&mut of_bob, &bob).starts_with("HTTP/1.1 200"));
    let part = usize::try_from(files).unwrap() / 2 / 4;
    let mut open: Vec<_> = (0..part + 10)
        .map(|_| {
            let mut stream = http.connect();
            assert!(ask(&mut stream, &alice).starts_with("HTTP/1.1 200"));
            stream
        })
        .collect();
    let mut byte = [0];
    for stream in &mut open[..10] {
        assert_eq!(stream.read(&mut byte).unwrap_or(0), 0, "those that waited for longest are closed");
    }
    assert!(ask(&mut open[10], &alice).starts_with("HTTP/1.1 200"));
    assert!(ask(&mut of_bob, &bob).starts_with("HTTP/1.1 200"), "another user notices nothing");
    terminate(http);
}

fn a_token_that_cannot_be_read_still_holds(env: &TestEnv) {
    let (alice, bob) = (env.token(&["alice"]), env.token(&["bob"]));
    let http = env.bridge().listen();
    let client = http.client(&alice);
    let id = ids(env).remove(0);
    let entries = fs::read_dir(env.home().join("MCPs/tokens")).unwrap().flatten();
    let file = entries
        .map(|entry| entry.path())
        .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&id));
    let file = file.unwrap();
    fs::remove_file(&file).unwrap();
    // What nobody can read, root neither.
    fs::create_dir(&file).unwrap();
    eventually("it says that a token cannot be read", env.guard().left(), || {
        let ready = http.get("/readyz", None).expect(200).body;
        assert_eq!(client.ask("ping", json!({})), json!({}));
        (ready == "ready, degraded\n").then_some(())
    });
    assert_eq!(http.client(&bob).ask("ping", json!({})), json!({}));
    let words = ["doctor", "--json", "--runtime", "crun", "--image", "dir:/nonexistent"];
    let diagnosis = env.bridge().args(&words).command().run(env.guard()).stdout;
    let diagnosis: Value = serde_json::from_str(&diagnosis).unwrap();
    let why = diagnosis["http"]["error"].as_str().unwrap();
    assert!(why.contains("token cannot be used") && why.contains("cannot be read"), "{why}");
    fs::remove_dir(&file).unwrap();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    eventually("it is gone", env.guard().left(), || (client.post(&list).status == 401).then_some(()));
    eventually("all can be read", env.guard().left(), || {
        (http.get("/readyz", None).body == "ready\n").then_some(())
    });
    terminate(http);
}

fn a_token_that_cannot_be_used_is_named_and_hides_no_other(env: &TestEnv) {
    let folder = env.home().join("MCPs/tokens");
    let tokens: Vec<String> = ["alice", "bob", "carol", "dora"].map(|name| env.token(&[name])).to_vec();
    let file = |secret: &str| folder.join(hex::encode(Sha256::digest(secret)));
    // What nobody can read, root neither; what was written by halves; and a user who would be another folder.
    fs::remove_file(file(&tokens[1])).unwrap();
    fs::create_dir(file(&tokens[1])).unwrap();
    fs::write(file(&tokens[2]), b"{\"name\": \"ca").unwrap();
    let text = fs::read_to_string(file(&tokens[3])).unwrap();
    fs::write(file(&tokens[3]), text.replace("dora", "../x")).unwrap();

    let listed = env.bridge().args(&["token", "ls"]).command().run(env.guard());
    assert!(listed.code() == Some(0) && listed.stdout.contains("alice"), "{listed}");
    assert_eq!(listed.stdout.matches("unusable").count(), 3, "{listed}");
    let http = env.bridge().listen();
    let status = |token: &str| http.get("/mcp", Some(token)).status;
    assert_eq!((status(&tokens[1]), status(&tokens[2]), status(&tokens[3])), (503, 401, 401));
    assert!(![401, 403, 503].contains(&status(&tokens[0])), "alice is served");
    let log = http.bridge.log();
    for why in ["its file cannot be read: ", "its file is malformed: ", "invalid name \\\"../x\\\""] {
        assert!(log.contains(why), "{why}: {log}");
    }
    assert!(!log.contains("token, until"), "there are tokens: {log}");
    let of_bob = hex::encode(Sha256::digest(&tokens[1]));
    let revoked = env.bridge().args(&["token", "revoke", "alice"]).command().run(env.guard());
    assert!(revoked.code() == Some(0) && revoked.stdout.contains("of alice"), "{revoked}");
    assert!(revoked.stderr.contains(&format!("token {} cannot be used", &of_bob[..12])), "{revoked}");
    for secret in &tokens[2..] {
        let id = &hex::encode(Sha256::digest(secret))[..12];
        let revoked = env.bridge().args(&["token", "revoke", id]).command().run(env.guard());
        assert_eq!(revoked.stdout, format!("revoked {id}\n"), "{revoked}");
    }
    let failed = env.bridge().args(&["token", "revoke", &of_bob[..12]]).command().run(env.guard());
    assert!(failed.code() == Some(74) && failed.stderr.contains("could not revoke"), "{failed}");
    terminate(http);
    assert!(!env.home().join("MCPs/x").exists() && !env.home().join("MCPs/principals").join("../x").exists());

    // Without its folder nobody knows who may come: it does not start.
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "").unwrap();
    for words in [&["serve", "--http", "127.0.0.1:0"][..], &["token", "revoke", "alice"], &["token", "ls"]] {
        let failed = env.bridge().args(words).command().run(env.guard());
        assert!(failed.stderr.contains("error: could not read the tokens in"), "{words:?}: {failed}");
        assert_eq!(failed.code(), Some(74), "{words:?}: {failed}");
    }
}

fn pages_of_allowed_origins_can_use_a_bridge(env: &TestEnv) {
    let token = env.token(&["alice"]);
    let http = env.bridge().var("MCP_BRIDGE_ALLOWED_HOSTS", "app.example").listen();
    let asks = |origin: &str| {
        let headers = [("Origin", origin), ("Access-Control-Request-Method", "POST")];
        http.send("OPTIONS", "/mcp", &headers, "")
    };
    let page = "https://app.example";
    let may = asks(page).expect(204);
    assert_eq!(may.header("access-control-allow-origin"), Some(page));
    let headers = may.header("access-control-allow-headers").unwrap();
    assert!(headers.contains("Authorization") && headers.contains("Mcp-Session-Id"), "{headers}");
    assert!(may.header("access-control-allow-methods").unwrap().contains("POST"), "{may:?}");
    assert_eq!(may.header("access-control-allow-credentials"), None);
    let refused = asks("https://evil.example").expect(403);
    assert_eq!(refused.header("access-control-allow-origin"), None);
    // Also an answer without a credential says to the page why.
    let unknown = http.send("POST", "/mcp", &[("Origin", page)], "{}").expect(401);
    assert_eq!(unknown.header("access-control-allow-origin"), Some(page));
    let bearer = format!("Bearer {token}");
    let answer = http.send("GET", "/mcp", &[("Origin", page), ("Authorization", &bearer)], "");
    assert!(answer.header("access-control-expose-headers").unwrap().contains("Mcp-Session-Id"), "{answer:?}");
    assert_eq!(answer.header("vary"), Some("Origin"));
    terminate(http);
}

fn calls_hold_their_bodies_until_they_end(env: &TestEnv) {
    let (alice, bob) = (env.token(&["alice"]), env.token(&["bob"]));
    let http = env.bridge().listen();
    let (client, other) = (http.client(&alice), http.client(&bob));
    let _ = client.run("1").ok();
    // Values take more space than their text: about 30 MiB.
    let long = |code: &str| json!({ "code": code, "timeout": 60, "extra": vec![0; 125_000] });
    let wait = "import os, time\nwhile not os.path.exists('/tmp/go'): time.sleep(0.05)\n1";
    let session = client.session.lock().unwrap().clone().unwrap();
    let bearer = format!("Bearer {alice}");
    let headers = [
        ("Host", "localhost"),
        ("Authorization", bearer.as_str()),
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        ("Mcp-Session-Id", &session),
    ];
    // A client that does not wait for answers: the calls go on without it.
    let send = |id: u64| {
        let params = json!({ "name": "run_python", "arguments": long(wait) });
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        let mut stream = http.connect();
        stream.write_all(&request("POST", "/mcp", &headers, &call.to_string())).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        String::from_utf8(head.to_vec()).unwrap()
    };
    let statuses: Vec<String> = (100..103).map(send).collect();
    assert_eq!(statuses, ["HTTP/1.1 200", "HTTP/1.1 200", "HTTP/1.1 429"]);
    assert_eq!(client.ask("ping", json!({})), json!({}), "small requests still have space");
    assert_eq!(other.call(long("1")).ok(), "1", "another user notices nothing");
    terminate(http);
}

fn what_a_token_began_ends_with_it(env: &TestEnv) {
    let (first, second) = (env.token(&["alice"]), env.token(&["alice"]));
    let http = env.bridge().listen();
    let (lost, kept) = (http.client(&first), http.client(&second));
    let _ = lost.call(json!({ "code": "x = 1", "session": "theirs" })).ok();
    let _ = kept.call(json!({ "code": "y = 2", "session": "mine" })).ok();
    let code = "import time\ntime.sleep(1000)";
    let begun = lost.call(json!({ "code": code, "background": true, "timeout": 1000 }));
    let run = begun.structured["runId"].as_u64().unwrap();
    assert_eq!(kept.call(json!({ "run": run, "timeout": 0 })).status(), "running");
    // The older one was made first.
    revoke(env, &ids(env)[0]);
    let ended = kept.call(json!({ "run": run, "timeout": 60 }));
    assert_eq!(ended.status(), "cancelled", "{ended}");
    eventually("its sessions end", env.guard().left(), || {
        let sandboxes = env.bridge().args(&["ps", "--json"]).command().run(env.guard()).ok();
        let sandboxes: Vec<Value> = serde_json::from_str(&sandboxes).unwrap();
        let owner = u64::from(http.bridge.pid());
        (sandboxes.iter().filter(|one| one["owner_pid"] == owner).count() == 1).then_some(())
    });
    let gone = kept.call(json!({ "code": "x", "session": "theirs" })).expect("error");
    assert!(gone.text.contains("a token that ran code in it holds no longer"), "{gone}");
    assert_eq!(kept.call(json!({ "code": "y", "session": "mine" })).ok(), "2");
    terminate(http);
}

fn a_day_goes_on_after_a_restart(env: &TestEnv) {
    let (alice, bob) = (env.token(&["alice"]), env.token(&["bob"]));
    let start = || env.bridge().var("MCP_BRIDGE_USER_BYTES", "10k").listen();
    let http = start();
    let _ = http.client(&alice).run("print('x' * 20_000)").ok();
    terminate(http);
    let http = start();
    let refused = http.client(&alice).run("1").expect("validation_error");
    assert!(refused.error().contains("MCP_BRIDGE_USER_BYTES"), "{refused}");
    assert_eq!(http.client(&bob).run("1").ok(), "1");
    let warned = http.bridge.log();
    assert!(!warned.contains("usage"), "the file is no definition of a server: {warned}");
    terminate(http);
}

fn work_between_calls_counts(env: &TestEnv) {
    let (alice, bob) = (env.token(&["alice"]), env.token(&["bob"]));
    let http = env.bridge().var("MCP_BRIDGE_USER_SECONDS", "3").listen();
    let (client, other) = (http.client(&alice), http.client(&bob));
    let _ = other.run("kept = 1").ok();
    let work = "import threading\ndef work():\n    while True: pass\nthreading.Thread(target=work, daemon=True).start()";
    let _ = client.run(work).ok();
    eventually("the session ends that works", env.guard().left(), || {
        let sandboxes = env.bridge().args(&["ps", "--json"]).command().run(env.guard()).ok();
        let sandboxes: Vec<Value> = serde_json::from_str(&sandboxes).unwrap();
        let owner = u64::from(http.bridge.pid());
        (sandboxes.iter().filter(|one| one["owner_pid"] == owner).count() == 1).then_some(())
    });
    let refused = client.run("1").expect("validation_error");
    assert!(refused.error().contains("MCP_BRIDGE_USER_SECONDS"), "{refused}");
    assert_eq!(other.run("kept").ok(), "1");
    terminate(http);
}
