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

use crate::harness::http::HttpBridge;
use crate::harness::{Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "oidc",
        tests![
            only_tokens_of_the_issuer_for_this_audience_hold,
            keys_can_change,
            a_stream_ends_with_its_token,
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
    assert_eq!(resource["resource"], json!(format!("http://{}/mcp", http.address)));

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
        "its subject is not the name of a user",
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

fn stop(http: HttpBridge<'_>) -> String {
    http.bridge.signal(Signal::TERM);
    let ended = http.bridge.wait(Duration::from_secs(60));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    ended.log
}
