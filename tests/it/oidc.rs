//! Access tokens of an OpenID Connect issuer: which hold, and which do not.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::console::{Browser, sign_in};
use crate::harness::http::HttpBridge;
use crate::harness::{Suite, TestEnv};
use crate::http::command;
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "oidc",
        tests![
            only_tokens_of_the_issuer_for_this_audience_hold,
            keys_can_change,
            a_stream_ends_with_its_token,
            a_token_with_the_scope_opens_the_console_until_it_expires,
            a_refused_user_is_out_at_once,
        ],
    );
}

const AUDIENCE: &str = "https://mcp.example.com/mcp";

/// An issuer on this machine.
#[derive(Debug)]
struct Issuer {
    url: String,
    keys: Arc<Mutex<Value>>,
    asked: Arc<AtomicUsize>,
}

impl Issuer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (keys, asked) = (Arc::new(Mutex::new(json!({ "keys": [] }))), Arc::<AtomicUsize>::default());
        let issuer = Self { url, keys, asked };
        let (url, keys, asked) = (issuer.url.clone(), Arc::clone(&issuer.keys), Arc::clone(&issuer.asked));
        // It ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(&stream, |path| match path {
                    "/.well-known/openid-configuration" => {
                        Some(json!({ "issuer": url, "jwks_uri": format!("{url}/keys") }))
                    }
                    "/keys" => {
                        asked.fetch_add(1, Ordering::SeqCst);
                        Some(keys.lock().unwrap().clone())
                    }
                    _ => None,
                });
            }
        });
        issuer
    }

    fn publish(&self, keys: &[&Key]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.published()).collect();
        *self.keys.lock().unwrap() = json!({ "keys": keys });
    }

    /// A bridge that accepts its tokens.
    fn bridge<'a>(&self, env: &'a TestEnv) -> HttpBridge<'a> {
        env.bridge()
            .args(&["serve", "--oidc-issuer", &self.url, "--audience", AUDIENCE, "--http", "127.0.0.1:0"])
            .spawn_listening()
    }
}

/// Answers one request.
fn answer(mut stream: &TcpStream, find: impl Fn(&str) -> Option<Value>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    for _ in lines.take_while(|line| !line.is_empty()) {}
    let found = first.split(' ').nth(1).and_then(find);
    let (status, body) =
        found.map_or(("404 Not Found", String::new()), |value| ("200 OK", value.to_string()));
    let length = body.len();
    let _ =
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
}

/// A key of an issuer.
struct Key {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Key {
    fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        Self { id, pair }
    }

    fn published(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..65]));
        json!({ "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id, "x": x, "y": y })
    }

    fn sign(&self, claims: &Value) -> String {
        let text = encoded(&json!({ "alg": "ES256", "typ": "at+jwt", "kid": self.id }), claims);
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn encoded(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn claims(issuer: &Issuer, more: &Value) -> Value {
    let mut claims =
        json!({ "iss": issuer.url, "aud": AUDIENCE, "sub": "alice", "exp": now() + 600, "iat": now() });
    for (name, value) in more.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

fn list(http: &HttpBridge<'_>, token: &str) -> u16 {
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    match http.stranger(token).post(&message).status {
        // Known, but without a session.
        422 | 400 => 200,
        other => other,
    }
}

fn only_tokens_of_the_issuer_for_this_audience_hold(env: &TestEnv) {
    let (issuer, key, other) = (Issuer::start(), Key::new("one"), Key::new("one"));
    issuer.publish(&[&key]);
    let http = issuer.bridge(env);
    let refused = http.get("/mcp", None).expect(401);
    let expected =
        format!("resource_metadata=\"http://{}/.well-known/oauth-protected-resource/mcp\"", http.address);
    assert!(refused.header("www-authenticate").unwrap().contains(&expected), "{refused:?}");
    let resource = &http.get("/.well-known/oauth-protected-resource/mcp", None).expect(200).messages()[0];
    assert_eq!(resource["authorization_servers"], json!([issuer.url]));
    // The audience of the tokens, which is a URL here.
    assert_eq!(resource["resource"], json!(AUDIENCE));
    assert_eq!(resource["scopes_supported"], json!(["mcp", "console", "approve", "metrics"]));

    let holds = |more: &Value| list(&http, &key.sign(&claims(&issuer, more)));
    let client = http.client(&key.sign(&claims(&issuer, &json!({}))));
    assert_eq!(client.ask("ping", json!({})), json!({}));
    for good in
        [json!({ "aud": ["other", AUDIENCE] }), json!({ "sub": "auth0|Bob" }), json!({ "nbf": now() - 5 })]
    {
        assert_eq!(holds(&good), 200, "{good}");
    }
    for bad in [
        json!({ "exp": now() - 600 }),
        json!({ "exp": null }),
        json!({ "exp": "never" }),
        json!({ "nbf": now() + 600 }),
        json!({ "aud": "https://other.example" }),
        json!({ "aud": null }),
        json!({ "iss": "https://other.example" }),
        json!({ "iss": null }),
        json!({ "sub": null }),
        json!({ "sub": "../x" }),
        json!({ "sub": "" }),
    ] {
        assert_eq!(holds(&bad), 401, "{bad}");
    }
    let good = claims(&issuer, &json!({}));
    let unsigned = format!("{}.", encoded(&json!({ "alg": "none" }), &good));
    let symmetric = format!("{}.{}", encoded(&json!({ "alg": "HS256", "kid": "one" }), &good), "AAAA");
    let signed = key.sign(&good);
    let (rest, signature) = signed.rsplit_once('.').unwrap();
    let altered = format!(
        "{}.{signature}",
        encoded(&json!({ "alg": "ES256", "kid": "one" }), &claims(&issuer, &json!({ "sub": "bob" })))
    );
    let cut = format!("{rest}.");
    for bad in [unsigned, symmetric, other.sign(&good), altered, cut, "a.b.c".to_owned(), "..".to_owned()] {
        assert_eq!(list(&http, &bad), 401, "{bad}");
    }
    let principals = env.home().join("MCPs/principals");
    assert!(!principals.join("../x").exists() && !env.home().join("x").exists());
    let bearer = format!("Bearer {signed}");
    assert_eq!(http.send("GET", "/metrics", &[("Authorization", &bearer)], "").status, 403);
    let log = stop(http);
    for why in [
        "its subject \"../x\" cannot be the name of a user",
        "ExpiredSignature",
        "InvalidIssuer",
        "InvalidAudience",
        "InvalidSignature",
        "it is no JWT of a known algorithm",
    ] {
        assert!(log.contains(why), "{why}: {log}");
    }
    assert!(!log.contains(signature), "{log}");
}

fn keys_can_change(env: &TestEnv) {
    let (issuer, old, new) = (Issuer::start(), Key::new("old"), Key::new("new"));
    issuer.publish(&[&old]);
    let http = issuer.bridge(env);
    let good = claims(&issuer, &json!({}));
    assert_eq!(list(&http, &old.sign(&good)), 200);
    // Unknown keys do not make it ask again and again.
    for _ in 0..20 {
        assert_eq!(list(&http, &new.sign(&good)), 401);
    }
    assert_eq!(issuer.asked.load(Ordering::SeqCst), 1);
    issuer.publish(&[&new]);
    crate::harness::eventually("the new key is fetched", Duration::from_secs(60), || {
        (list(&http, &new.sign(&good)) == 200).then_some(())
    });
    assert_eq!(list(&http, &old.sign(&good)), 401);
    stop(http);
}

fn a_stream_ends_with_its_token(env: &TestEnv) {
    let (issuer, key) = (Issuer::start(), Key::new("one"));
    issuer.publish(&[&key]);
    let http = issuer.bridge(env);
    let client = http.client(&key.sign(&claims(&issuer, &json!({}))));
    // Clocks may differ by a minute.
    let brief = key.sign(&claims(&issuer, &json!({ "exp": now() - 56 })));
    let session = client.session.lock().unwrap().clone().unwrap();
    let bearer = format!("Bearer {brief}");
    let headers =
        [("Authorization", bearer.as_str()), ("Mcp-Session-Id", &session), ("Accept", "text/event-stream")];
    let began = Instant::now();
    let stream = http.send("GET", "/mcp", &headers, "");
    assert_eq!(stream.status, 200, "{stream:?}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    crate::harness::eventually("the token expires", Duration::from_secs(60), || {
        (http.send("GET", "/mcp", &headers, "").status == 401).then_some(())
    });
    assert_eq!(client.ask("ping", json!({})), json!({}), "the session goes on with another token");
    stop(http);
}

fn a_token_with_the_scope_opens_the_console_until_it_expires(env: &TestEnv) {
    let (issuer, key) = (Issuer::start(), Key::new("one"));
    issuer.publish(&[&key]);
    let http = issuer.bridge(env);
    let token = |more: &Value| key.sign(&claims(&issuer, more));
    for (without, why) in [
        (json!({}), "ask its issuer"),
        (json!({ "scope": "openid consoles" }), "ask its issuer"),
        (json!({ "scope": ["console"], "aud": "other" }), "unknown, expired or revoked"),
        (json!({ "scope": "console", "exp": now() - 600 }), "unknown, expired or revoked"),
    ] {
        let refused = sign_in(&http, &token(&without), "");
        assert!([401, 403].contains(&refused.status) && refused.body.contains(why), "{without}: {refused:?}");
        assert_eq!(refused.header("set-cookie"), None);
    }
    assert!(http.get("/console/login", None).expect(200).body.contains("of your identity provider"));
    let plain = token(&json!({ "scope": "openid console" }));
    let browser = Browser::signed_in(&http, &plain);
    let page = browser.get("/console/runs").expect(200).body;
    assert!(page.contains(">oidc.alice</span>"), "{page}");
    assert_eq!(list(&http, &plain), 200, "it is for calls, too");
    // What may approve is not for calls, however the issuer writes it.
    let approves = token(&json!({ "scp": ["console", "approve"], "sub": "bob" }));
    let _ = Browser::signed_in(&http, &approves).get("/console/approvals").expect(200);
    assert_eq!(list(&http, &approves), 403);
    // Clocks may differ by a minute.
    let brief = Browser::signed_in(&http, &token(&json!({ "scope": "console", "exp": now() - 56 })));
    let _ = brief.get("/console/runs").expect(200);
    crate::harness::eventually("the token expires", Duration::from_secs(60), || {
        (brief.get("/console/runs").status == 303).then_some(())
    });
    let _ = browser.get("/console/runs").expect(200);
    let log = stop(http);
    assert!(!log.contains(plain.rsplit_once('.').unwrap().1), "{log}");
}

fn a_refused_user_is_out_at_once(env: &TestEnv) {
    let (issuer, key) = (Issuer::start(), Key::new("one"));
    issuer.publish(&[&key]);
    let http = issuer.bridge(env);
    let token = |sub: &str| key.sign(&claims(&issuer, &json!({ "sub": sub, "scope": "console" })));
    let (alice, bob) = (token("auth0|Alice"), token("bob"));
    let (of_alice, of_bob) = (http.client(&alice), http.client(&bob));
    let (browser, other) = (Browser::signed_in(&http, &alice), Browser::signed_in(&http, &bob));
    let refused = command(env, &["token", "revoke", "oidc.auth0|Alice"]).ok();
    assert!(refused.starts_with("tokens of the issuer for oidc-sha256."), "{refused}");
    let name = refused.split(' ').nth(5).unwrap().to_owned();
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    assert_eq!((browser.get("/console/runs").status, of_alice.post(&ping).status), (303, 403));
    let again = sign_in(&http, &alice, "");
    assert!(again.status == 403 && again.body.contains("refuses this user"), "{again:?}");
    assert_eq!((other.get("/console/runs").status, of_bob.post(&ping).status), (200, 200));
    let listed = command(env, &["token", "ls", "--json"]).ok();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["refused"]), (&json!(name), &json!(true)), "{listed}");
    // A new token of the issuer changes nothing, and what was open has ended when the user is allowed again.
    assert_eq!(list(&http, &token("auth0|Alice")), 403);
    crate::harness::eventually("its sessions end", Duration::from_secs(30), || {
        http.bridge.log().contains("its sessions end").then_some(())
    });
    let allowed = command(env, &["token", "allow", &name]).ok();
    assert_eq!(allowed, format!("tokens of the issuer for {name} are accepted\n"));
    assert_eq!(of_alice.post(&ping).status, 404, "the session is gone");
    assert_eq!(http.client(&alice).ask("ping", json!({})), json!({}));
    for unknown in [&name, "oidc.nobody", "alice"] {
        let failed = command(env, &["token", "allow", unknown]);
        assert!(failed.code() == Some(2) && failed.stderr.contains("is not a refused user"), "{failed}");
    }
    let log = stop(http);
    assert!(log.contains(&format!("refused a user of the issuer principal={name}")), "{log}");
}

fn stop(http: HttpBridge<'_>) -> String {
    http.bridge.signal(Signal::TERM);
    let ended = http.bridge.wait(Duration::from_secs(60));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    ended.log
}
