//! One bridge for many users over HTTP: who is served, and that nobody notices the others.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::http::{HttpBridge, exchange, request};
use crate::harness::process::Output;
use crate::harness::{Suite, TestEnv, eventually};
use crate::questions::modern;
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "http",
        tests![
            nobody_is_served_without_a_credential,
            tokens_are_made_listed_and_revoked,
            requests_of_other_sites_and_with_two_meanings_are_refused,
            bodies_have_bounds,
            connections_that_say_nothing_make_room,
            a_certificate_makes_it_https,
            a_socket_is_only_for_its_user,
            metrics_need_their_scope,
            both_eras_are_spoken,
            a_token_that_was_revoked_or_expired_is_noticed,
            wrong_options_are_named,
        ],
    );
}

pub(crate) fn command(env: &TestEnv, words: &[&str]) -> Output {
    env.bridge().args(words).command().run(env.guard())
}

/// Ends a bridge as a service manager does.
pub(crate) fn terminate(http: HttpBridge<'_>) -> String {
    http.bridge.signal(Signal::TERM);
    let ended = http.bridge.wait(Duration::from_secs(60));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    ended.log
}

pub(crate) const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

fn nobody_is_served_without_a_credential(env: &TestEnv) {
    let http = env.bridge().listen();
    let _ = http.get("/healthz", None).expect(200);
    let _ = http.get("/readyz", None).expect(200);
    for path in ["/mcp", "/metrics", "/mcp?token=x"] {
        let refused = http.get(path, None).expect(401);
        assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"codebridge\""), "{refused:?}");
    }
    let token = http.start_token();
    let console = format!("console: http://{}/console\n", http.address);
    assert!(http.bridge.log().contains(&console), "{}", http.bridge.log());
    for wrong in [
        "Bearer",
        "Bearer x",
        "Basic eDp5",
        "Bearer cbr_00",
        &format!("Bearer {token}0"),
        &format!("Token {token}"),
    ] {
        let refused = http.send("POST", "/mcp", &[("Authorization", wrong)], LIST).expect(401);
        assert!(!refused.body.contains("cbr_"), "{refused:?}");
    }
    let in_path = http.send("POST", &format!("/mcp?access_token={token}"), &[], LIST);
    assert_eq!(in_path.status, 401);
    let client = http.client(&token);
    assert_eq!(client.ask("tools/list", json!({}))["tools"][0]["name"], "run_python");
    // With a token of its own, a bridge makes none.
    let log = terminate(http);
    assert!(!log.replacen(&token, "", 1).contains(&token), "{log}");
    let _ = env.token(&["alice"]);
    let http = env.bridge().listen();
    assert!(!http.bridge.log().contains("cbr_"), "{}", http.bridge.log());
    assert_eq!(http.stranger(&token).post(&serde_json::from_str(LIST).unwrap()).status, 401);
    terminate(http);
}

fn tokens_are_made_listed_and_revoked(env: &TestEnv) {
    let alice = env.token(&["alice", "--expires", "30d"]);
    let bob = env.token(&["bob", "--scope", "metrics,console"]);
    assert!(alice.starts_with("cbr_") && alice.len() == 68 && alice != bob, "{alice}");
    let listed = command(env, &["token", "ls", "--json"]).ok();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["scopes"], &listed[0]["valid"]),
        (&json!("alice"), &json!("mcp"), &json!(true))
    );
    assert_eq!((&listed[1]["name"], &listed[1]["scopes"]), (&json!("bob"), &json!("console,metrics")));
    let text = command(env, &["token", "ls"]).ok();
    assert!(!text.contains("cbr_") && text.starts_with("ID"), "{text}");
    let folder = env.home().join("MCPs/tokens");
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    for wrong in ["../x", "Alice", "", "oidc.alice", "a/b"] {
        let refused = command(env, &["token", "add", "--", wrong]);
        assert!(refused.code() == Some(2) && refused.stderr.contains("invalid name"), "{refused}");
    }
    let refused = command(env, &["token", "add", "x", "--scope", "mcp,approve"]);
    assert!(refused.code() == Some(2) && refused.stderr.contains("cannot approve"), "{refused}");
    let id = listed[1]["id"].as_str().unwrap();
    assert_eq!(command(env, &["token", "revoke", id]).ok(), format!("revoked {id} of bob\n"));
    let gone = command(env, &["token", "revoke", "bob"]);
    assert!(gone.code() == Some(2) && gone.stderr.contains("codebridge token ls"), "{gone}");
    assert!(!env.home().join("principals").exists());
}

fn requests_of_other_sites_and_with_two_meanings_are_refused(env: &TestEnv) {
    let http = env.bridge().var("MCP_BRIDGE_ALLOWED_HOSTS", "mcp.example.com").listen();
    let bearer = format!("Bearer {}", http.start_token());
    let send = |lines: &str| {
        let text =
            format!("GET /metrics HTTP/1.1\r\nConnection: close\r\nAuthorization: {bearer}\r\n{lines}\r\n");
        http.send_raw(text.as_bytes()).status
    };
    for good in ["Host: mcp.example.com\r\n", "Host: localhost:1\r\nOrigin: http://localhost:3000\r\n"] {
        assert_eq!(send(good), 200, "{good}");
    }
    for bad in [
        "Host: evil.example\r\n",
        "Host: 127.0.0.1.nip.io\r\n",
        "Host: localhost\r\nOrigin: https://evil.example\r\n",
        "Host: localhost\r\nOrigin: null\r\n",
    ] {
        assert_eq!(send(bad), 403, "{bad}");
    }
    for bad in [
        "",
        "Host: localhost\r\nHost: evil.example\r\n",
        "Host: localhost\r\nContent-Length: 0\r\nContent-Length: 4\r\n",
        "Host: localhost\r\nAuthorization: Bearer other\r\n",
        "Host: localhost\r\nTransfer-Encoding: chunked, identity\r\n",
    ] {
        assert_eq!(send(bad), 400, "{bad}");
    }
    let whole = |host: &str| {
        let line = format!("GET http://{host}/metrics HTTP/1.1");
        let text =
            format!("{line}\r\nHost: localhost\r\nConnection: close\r\nAuthorization: {bearer}\r\n\r\n");
        http.send_raw(text.as_bytes()).status
    };
    assert_eq!(
        (whole("localhost"), whole("evil.example")),
        (200, 400),
        "an address counts for more than Host"
    );
    // Nothing that comes after a body of two lengths is read as another request.
    let smuggled = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
         GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: {bearer}\r\n\r\n"
    );
    let answer = String::from_utf8(exchange(http.connect(), smuggled.as_bytes())).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401") && answer.matches("HTTP/1.1").count() == 1, "{answer}");
    // Those who only look whether it lives may use any name.
    assert_eq!(
        http.send_raw(b"GET /healthz HTTP/1.1\r\nHost: 10.0.0.7\r\nConnection: close\r\n\r\n").status,
        200
    );
    let log = terminate(http);
    for text in [
        "peer=127.0.0.1:",
        "reason=\"host\"",
        "host=\"evil.example\"",
        "origin=\"https://evil.example\"",
        "reason=\"ambiguous\"",
        "reason=\"head\"",
    ] {
        assert!(log.contains(text), "{text}: {log}");
    }
}

fn bodies_have_bounds(env: &TestEnv) {
    let http = env.bridge().listen();
    let bearer = format!("Bearer {}", http.start_token());
    let head = |more: &str| {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: {bearer}\r\n\
             Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n{more}\r\n"
        )
    };
    assert_eq!(http.send_raw(head("Content-Length: 99999999999\r\n").as_bytes()).status, 413);
    // One that never ends is cut off.
    let mut stream = http.connect();
    stream.write_all(head("Transfer-Encoding: chunked\r\n").as_bytes()).unwrap();
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    let sent = (0..1000).take_while(|_| stream.write_all(&chunk).is_ok()).count();
    assert!(sent < 1000, "{sent} chunks of 64 KiB were read");
    let values = format!("[{}0]", "0,".repeat(1 << 20));
    let refused =
        http.send_raw((head(&format!("Content-Length: {}\r\n", values.len())) + &values).as_bytes());
    assert_eq!(refused.status, 400, "{refused:?}");
    // Others do not notice.
    assert_eq!(http.client(&http.start_token()).ask("ping", json!({})), json!({}));
    let peak = http.bridge.peak_memory();
    assert!(peak < 110 << 20, "{} KiB", peak >> 10);
    let log = terminate(http);
    assert!(log.contains("reason=\"body\"") && log.contains("status=413"), "{log}");
}

fn connections_that_say_nothing_make_room(env: &TestEnv) {
    let http = env.bridge().listen();
    let token = http.start_token();
    let mut kept = http.connect();
    let polite = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    let first_byte = |stream: &mut std::net::TcpStream| {
        stream.write_all(polite.as_bytes()).unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
    };
    first_byte(&mut kept);
    let mut open: Vec<_> = (0..1100).map(|_| http.connect()).collect();
    for stream in &mut open {
        // The oldest are closed already.
        let _ = stream.write_all(b"GET /mcp HTTP/1.1\r\nHost: loc");
    }
    let mut byte = [0];
    assert_eq!(open[0].read(&mut byte).unwrap_or(0), 0, "the oldest is closed");
    // Who has a credential gets in, and stays.
    assert_eq!(http.client(&token).ask("ping", json!({})), json!({}));
    first_byte(&mut kept);
    let metrics = http.get("/metrics", Some(&token)).expect(200).body;
    let connections = metrics.lines().find_map(|line| line.strip_prefix("codebridge_http_connections "));
    let connections: usize = connections.unwrap().parse().unwrap();
    assert!((1000..=1030).contains(&connections), "{connections}");
    let began = Instant::now();
    let log = terminate(http);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(log.matches("send no credential: closed the oldest").count(), 1, "{log}");
}

fn a_certificate_makes_it_https(env: &TestEnv) {
    let folder = env.folder("tls");
    let openssl = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    let mut command = env.command(crate::harness::matrix::which("openssl").unwrap());
    command.argv.extend(openssl.split(' ').map(Into::into));
    command.cwd = folder.clone();
    command.run(env.guard()).ok();
    let file = |name: &str| folder.join(name).display().to_string();
    let (certificate, key) = (file("cert.pem"), file("key.pem"));
    let http =
        env.bridge().args(&["serve", "--tls-cert", &certificate, "--tls-key", &key, "--http", "127.0.0.1:0"]);
    let bridge = http.spawn();
    let url = eventually("it listens", Duration::from_secs(30), || {
        let log = bridge.log();
        Some(log.lines().find_map(|line| line.strip_prefix("listening on "))?.to_owned())
    });
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let pem = std::fs::read(folder.join("cert.pem")).unwrap();
    let health = url.replace("/mcp", "/healthz");
    let status =
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let _ = rustls::crypto::ring::default_provider().install_default();
            let authority = reqwest::Certificate::from_pem(&pem).unwrap();
            let client = reqwest::Client::builder().tls_certs_only([authority]).build().unwrap();
            client.get(&health).send().await.unwrap().status().as_u16()
        });
    assert_eq!(status, 200);
    let listed =
        self::command(env, &["doctor", "--json", "--runtime", "crun", "--image", "dir:/nonexistent"]);
    let diagnosis: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(diagnosis["http"]["listeners"][0]["certificate"], json!(certificate), "{listed}");
    let expires = diagnosis["http"]["listeners"][0]["certificate_expires"].as_str();
    assert!(expires.is_some_and(|time| time.starts_with("20")), "{listed}");
    bridge.signal(Signal::TERM);
    assert_eq!(bridge.wait(Duration::from_secs(30)).status.code(), Some(0));
    let wrong =
        self::command(env, &["serve", "--tls-cert", &key, "--tls-key", &key, "--http", "127.0.0.1:0"]);
    assert!(wrong.code() == Some(74) && wrong.stderr.contains("could not read the certificate"), "{wrong}");
}

fn a_socket_is_only_for_its_user(env: &TestEnv) {
    let path = env.folder("run").join("cb.sock");
    let address = format!("unix:{}", path.display());
    let bridge = env.bridge().args(&["serve", "--http", &address]).spawn();
    let token = eventually("it listens", Duration::from_secs(30), || {
        let log = bridge.log();
        let token = log.lines().find(|line| line.starts_with("token, "))?.rsplit(' ').next()?;
        (token.len() == 68).then(|| token.to_owned())
    });
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let bearer = format!("Bearer {token}");
    let answer = exchange(
        UnixStream::connect(&path).unwrap(),
        &request("GET", "/metrics", &[("Host", "localhost"), ("Authorization", &bearer)], ""),
    );
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    let taken = command(env, &["serve", "--http", &address]);
    assert!(taken.code() == Some(74) && taken.stderr.contains("another process listens on it"), "{taken}");
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(Duration::from_secs(30));
    // A socket that nobody listens on is replaced; it goes with the bridge.
    let bridge = env.bridge().args(&["serve", "--http", &address]).spawn();
    eventually("it listens", Duration::from_secs(30), || UnixStream::connect(&path).ok().map(drop));
    bridge.signal(Signal::TERM);
    assert_eq!(bridge.wait(Duration::from_secs(30)).status.code(), Some(0));
    assert!(!path.exists());
    let file = env.write("run/file", "mine");
    let taken = command(env, &["serve", "--http", &format!("unix:{}", file.display())]);
    assert!(taken.code() == Some(74) && file.exists(), "{taken}");
}

fn metrics_need_their_scope(env: &TestEnv) {
    let (calls, numbers) = (env.token(&["alice"]), env.token(&["prometheus", "--scope", "metrics"]));
    let http = env.bridge().listen();
    let refused = http.get("/metrics", Some(&calls)).expect(403);
    assert!(refused.header("www-authenticate").unwrap().contains("insufficient_scope"), "{refused:?}");
    assert_eq!(http.stranger(&numbers).post(&serde_json::from_str(LIST).unwrap()).status, 403);
    let client = http.client(&calls);
    let _ = client.call(json!({ "code": 1 })).expect("validation_error");
    let metrics = http.get("/metrics", Some(&numbers)).expect(200);
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"), "{metrics:?}");
    for line in [
        "codebridge_http_refused_total{reason=\"scope\"} 2",
        "codebridge_users 1",
        "codebridge_mcp_sessions 1",
        "codebridge_runs 0",
        "# TYPE codebridge_runs_total counter",
    ] {
        assert!(metrics.body.lines().any(|other| other == line), "{line}: {}", metrics.body);
    }
    for line in metrics.body.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("codebridge_") && value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(!metrics.body.contains("alice"), "{}", metrics.body);
    terminate(http);
}

fn both_eras_are_spoken(env: &TestEnv) {
    let http = env.bridge().listen();
    let token = http.start_token();
    let client = http.client(&token);
    assert_eq!(client.ask("tools/list", json!({}))["tools"][0]["annotations"]["destructiveHint"], true);
    let session = client.session.lock().unwrap().clone().unwrap();
    let newer = http.stranger(&token);
    let discovered = newer.ask("server/discover", modern(&json!({}), json!({})));
    assert!(
        discovered["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")),
        "{discovered}"
    );
    assert!(discovered["instructions"].as_str().unwrap().contains("run_python"), "{discovered}");
    assert_eq!(newer.ask("tools/list", modern(&json!({}), json!({})))["tools"][0]["name"], "run_python");
    let params = modern(&json!({}), json!({ "name": "run_python", "arguments": {} }));
    assert_eq!(newer.ask("tools/call", params)["structuredContent"]["status"], "validation_error");
    // A session ends with DELETE.
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str()), ("Mcp-Session-Id", &session)];
    let ended = http.send("DELETE", "/mcp", &headers, "");
    assert!(ended.status < 300, "{ended:?}");
    assert_eq!(client.post(&serde_json::from_str(LIST).unwrap()).status, 404);
    terminate(http);
}

fn a_token_that_was_revoked_or_expired_is_noticed(env: &TestEnv) {
    let (first, second) = (env.token(&["alice"]), env.token(&["alice"]));
    let brief = env.token(&["bob", "--expires", "2s"]);
    let http = env.bridge().listen();
    let (client, other, bob) = (http.client(&first), http.client(&second), http.client(&brief));
    let list: Value = serde_json::from_str(LIST).unwrap();
    let id = command(env, &["token", "ls", "--json"]).ok();
    let id: Vec<Value> = serde_json::from_str(&id).unwrap();
    command(env, &["token", "revoke", id[0]["id"].as_str().unwrap()]).ok();
    // The older one was made first.
    assert_eq!((client.post(&list).status, other.post(&list).status), (401, 200));
    eventually("the token expires", Duration::from_secs(20), || {
        (bob.post(&list).status == 401).then_some(())
    });
    // A token that is made while the bridge runs holds at once.
    let late = env.token(&["carol"]);
    assert_eq!(http.client(&late).ask("ping", json!({})), json!({}));
    terminate(http);
}

fn wrong_options_are_named(env: &TestEnv) {
    for (words, code, text) in [
        (&["serve", "--http", "8765"][..], 2, "invalid address '8765'"),
        (&["serve", "--tls-cert", "x"], 2, "--http"),
        (
            &["serve", "--http", "127.0.0.1:0", "--oidc-issuer", "http://example.com", "--audience", "x"],
            2,
            "invalid issuer",
        ),
        (&["serve", "--http", "127.0.0.1:0", "--oidc-issuer", "https://example.com"], 2, "--audience"),
        (&["serve", "--http", "192.0.2.1:1"], 74, "could not listen on 192.0.2.1:1"),
    ] {
        let refused = command(env, words);
        assert!(refused.code() == Some(code) && refused.stderr.contains(text), "{refused}");
    }
}
