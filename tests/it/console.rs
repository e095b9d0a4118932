//! The web console: who gets in, that nobody sees or does what is another's, and that what code prints stays text.

use std::io::Read;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::http::{HttpBridge, Reply, request};
use crate::harness::matrix::Kind;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::server_access::{SECRET, define, fake};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "console",
        tests![
            a_browser_signs_in_with_a_token_for_the_console,
            a_browser_is_signed_out_with_its_token,
            forms_of_other_pages_are_refused,
            pages_of_other_origins_are_refused,
        ],
    );
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "console",
        tests![
            runs_are_shown_as_text_and_only_to_their_user,
            a_run_is_watched_while_it_runs_and_stopped,
            questions_are_answered_only_with_a_token_for_approvals,
            what_code_saves_is_never_a_document,
            servers_are_shown_with_their_health_and_no_secret,
        ],
    );
    suite.on(&[Runtime::of_root(Kind::Crun)], "console", tests![sessions_are_shown_with_what_they_take]);
}

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

/// A browser that is signed in.
pub(crate) struct Browser<'a, 'b> {
    http: &'b HttpBridge<'a>,
    pub(crate) cookie: String,
}

pub(crate) fn sign_in(http: &HttpBridge<'_>, token: &str, next: &str) -> Reply {
    http.send("POST", "/console/login", &[FORM], &format!("token={token}&next={next}"))
}

impl<'a, 'b> Browser<'a, 'b> {
    pub(crate) fn signed_in(http: &'b HttpBridge<'a>, token: &str) -> Self {
        let reply = sign_in(http, token, "").expect(303);
        Self::with_cookie(http, reply.header("set-cookie").unwrap())
    }

    /// With the cookie that an answer sets.
    pub(crate) fn with_cookie(http: &'b HttpBridge<'a>, set_cookie: &str) -> Self {
        Self { http, cookie: set_cookie.split(';').next().unwrap().to_owned() }
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.http.send("GET", path, &[("Cookie", &self.cookie)], "")
    }

    /// Sends a form, without what proves that it is from one of the pages.
    pub(crate) fn post_alone(&self, path: &str, fields: &str) -> Reply {
        self.http.send("POST", path, &[("Cookie", &self.cookie), FORM], fields)
    }

    /// Sends a form as a page does.
    pub(crate) fn post(&self, path: &str, fields: &str) -> Reply {
        self.post_alone(path, &format!("form={}&{fields}", self.form_token()))
    }

    pub(crate) fn form_token(&self) -> String {
        let page = self.get("/console/runs").expect(200).body;
        let (_, rest) = page.split_once("name=\"form\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }
}

/// News of a page that is open.
pub(crate) struct News {
    stream: TcpStream,
    pub(crate) text: String,
}

impl News {
    pub(crate) fn open(browser: &Browser<'_, '_>, query: &str) -> Self {
        use std::io::Write;
        let (mut stream, host) = (browser.http.connect(), [("Host", browser.http.address.as_str())]);
        let headers = [&host[..], &[("Cookie", browser.cookie.as_str())]].concat();
        stream.write_all(&request("GET", &format!("/console/live?{query}"), &headers, "")).unwrap();
        Self { stream, text: String::new() }
    }

    /// Reads until something is in the news; false if they end before.
    pub(crate) fn wait_for(&mut self, wanted: &str) -> bool {
        let (began, mut bytes) = (Instant::now(), [0; 16 << 10]);
        while !self.text.contains(wanted) {
            assert!(began.elapsed() < Duration::from_secs(60), "{wanted} is not in {}", self.text);
            match self.stream.read(&mut bytes).unwrap() {
                0 => return false,
                count => self.text.push_str(&String::from_utf8_lossy(&bytes[..count])),
            }
        }
        true
    }
}

fn a_browser_signs_in_with_a_token_for_the_console(env: &TestEnv) {
    let (console, mcp) = (env.token(&["alice", "--scope", "console"]), env.token(&["alice"]));
    let http = env.bridge().listen();
    let away = http.get("/console/runs?q=x", None).expect(303);
    assert_eq!(away.header("location"), Some("/console/login?next=%2Fconsole%2Fruns%3Fq%3Dx"));
    assert!(http.get("/console/login", None).expect(200).body.contains("name=\"token\""));
    for (token, status) in [("", 401), ("cbr_00", 401), ("%3Cscript%3E", 401), (&*mcp, 403)] {
        let refused = sign_in(&http, token, "").expect(status);
        assert!(refused.header("set-cookie").is_none() && !refused.body.contains("<script>"), "{refused:?}");
    }
    let reply = sign_in(&http, &console, "%2Fconsole%2Fruns%3Fq%3Dx").expect(303);
    assert_eq!(reply.header("location"), Some("/console/runs?q=x"));
    let cookie = reply.header("set-cookie").unwrap();
    assert!(cookie.ends_with("; Path=/console; HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(&console[4..]), "the cookie is not the token");
    for elsewhere in ["https%3A%2F%2Fevil.example", "%2F%2Fevil.example", "%2Fmcp"] {
        assert_eq!(sign_in(&http, &console, elsewhere).header("location"), Some("/console"));
    }
    let browser = Browser::signed_in(&http, &console);
    let page = browser.get("/console/runs").expect(200);
    assert!(page.body.contains("Nothing has run yet") && page.body.contains(">alice</span>"), "{page:?}");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
        ("cross-origin-resource-policy", "same-origin"),
        ("referrer-policy", "same-origin"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    assert!(!page.body.contains("style=\"") && !page.body.contains("onclick"), "nothing is inline");
    // Where the token goes, the cookie does not, and the other way round.
    assert_eq!(http.send("POST", "/mcp", &[("Cookie", &browser.cookie)], "{}").status, 401);
    assert_eq!(http.get("/console/runs", Some(&console)).status, 303);
    // Behind a proxy with a certificate the cookie is for HTTPS alone.
    let secure = http.send(
        "POST",
        "/console/login",
        &[FORM, ("X-Forwarded-Proto", "https")],
        &format!("token={console}"),
    );
    assert!(secure.header("set-cookie").unwrap().contains("; Secure"), "{secure:?}");
    assert_eq!(browser.get("/console/nothing").status, 404);
    for asset in ["style.css", "script.js", "icon.svg"] {
        assert!(page.body.contains(&format!("/console/{asset}?v=")), "{asset}");
        let _ = http.get(&format!("/console/{asset}"), None).expect(200);
    }
    assert!(!http.bridge.log().contains(&console[4..]), "{}", http.bridge.log());
}

fn a_browser_is_signed_out_with_its_token(env: &TestEnv) {
    let token = env.token(&["alice", "--scope", "console"]);
    let short = env.token(&["bob", "--scope", "console", "--expires", "5s"]);
    let http = env.bridge().listen();
    let (browser, other, expiring) = (
        Browser::signed_in(&http, &token),
        Browser::signed_in(&http, &token),
        Browser::signed_in(&http, &short),
    );
    let out = browser.post("/console/logout", "").expect(303);
    assert!(out.header("set-cookie").unwrap().ends_with("; Max-Age=0"), "{out:?}");
    assert_eq!((browser.get("/console/runs").status, other.get("/console/runs").status), (303, 200));
    let revoked = env.bridge().args(&["token", "revoke", "alice"]).command().run(env.guard());
    let _ = revoked.ok();
    assert_eq!(other.get("/console/runs").status, 303);
    eventually("the token expires", Duration::from_secs(30), || {
        (expiring.get("/console/runs").status == 303).then_some(())
    });
    let made_up = Browser { http: &http, cookie: other.cookie.replace(|c: char| c.is_ascii_digit(), "a") };
    assert_eq!(made_up.get("/console/runs").status, 303);
}

fn forms_of_other_pages_are_refused(env: &TestEnv) {
    let token = env.token(&["alice", "--scope", "console"]);
    let http = env.bridge().listen();
    let (browser, other) = (Browser::signed_in(&http, &token), Browser::signed_in(&http, &token));
    for fields in ["", "form=", "form=00", &format!("form={}", other.form_token())] {
        let _ = browser.post_alone("/console/logout", fields).expect(403);
    }
    let json = [("Cookie", browser.cookie.as_str()), ("Content-Type", "text/plain")];
    let form = format!("form={}", browser.form_token());
    let _ = http.send("POST", "/console/logout", &json, &form).expect(400);
    let long = format!("{form}&x={}", "x".repeat(1 << 20));
    let _ = browser.post_alone("/console/logout", &long).expect(400);
    assert_eq!(browser.get("/console/runs").status, 200, "it is still signed in");
    let _ = http.send("POST", "/console/logout", &[FORM], &form).expect(401);
    let _ = browser.post("/console/logout", "").expect(303);
}

fn pages_of_other_origins_are_refused(env: &TestEnv) {
    let token = env.token(&["alice", "--scope", "console"]);
    let http = env.bridge().listen();
    let browser = Browser::signed_in(&http, &token);
    let cookie = ("Cookie", browser.cookie.as_str());
    let own = format!("http://{}", http.address);
    let send = |method: &str, more: &[(&str, &str)]| {
        http.send(method, "/console/runs", &[&[cookie], more].concat(), "").status
    };
    assert_eq!(send("GET", &[("Origin", &own), ("Sec-Fetch-Site", "same-origin")]), 200);
    let link = [("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
    assert_eq!(send("GET", &[&[("Sec-Fetch-Site", "cross-site")][..], &link].concat()), 200);
    // A page of another port of this machine, which the bridge serves MCP to.
    for refused in [("Origin", "http://localhost:3000"), ("Origin", "null"), ("Sec-Fetch-Site", "same-site")]
    {
        assert_eq!((send("GET", &[refused]), send("POST", &[refused])), (403, 403), "{refused:?}");
    }
    let reply = http.send("GET", "/console/runs", &[cookie, ("Origin", &own)], "");
    assert_eq!(reply.header("access-control-allow-origin"), None, "{reply:?}");
    let rebound = b"GET /console/login HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(http.send_raw(rebound).status, 403);
}

/// Prints what would be harmful in a page or on a terminal, and much of it.
const HOSTILE: &str = r#"
import sys
print("</pre><script>alert(1)</script><img src=x onerror=alert(2)>")
print("\x1b[31mred\x1b[0m \x1b]0;title\x07\u202etxt")
print("a&b \"quoted\"")
sys.stdout.write("x" * (10 << 20) + "END\n")
raise ValueError("<b>bold</b>")
"#;

fn runs_are_shown_as_text_and_only_to_their_user(env: &TestEnv) {
    let scopes = ["--scope", "mcp,console"];
    let alice = env.token(&[&["alice"][..], &scopes].concat());
    let bob = env.token(&[&["bob"][..], &scopes].concat());
    let http = env.bridge().var("MCP_BRIDGE_AUDIT", "full").listen();
    let _ = http.client(&alice).run(HOSTILE);
    let of_bob = http.client(&bob).run("print('of bob')");
    assert_eq!(of_bob.stdout(), "of bob", "{of_bob:?}");
    let (of_alice, of_bob) = (Browser::signed_in(&http, &alice), Browser::signed_in(&http, &bob));
    let list = of_alice.get("/console/runs").expect(200).body;
    let names: Vec<&str> =
        list.split("data-run=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(names.len() == 1 && !list.contains("of bob"), "{list}");
    let path = format!("/console/runs/{}", names[0]);
    let page = of_alice.get(&path).expect(200).body;
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    for shown in [
        "&#60;/pre&#62;&#60;script&#62;alert(1)",
        "onerror=alert(2)&#62;",
        "red \u{fffd}txt",
        "a&#38;b &#34;quoted&#34;",
        "xxxEND",
        "ValueError",
    ] {
        assert!(page.contains(shown), "{shown}: {}", &page[..page.len().min(20_000)]);
    }
    assert!(!page.contains("<script>alert") && !page.contains("<img") && !page.contains("<b>bold"), "{path}");
    assert!(!page.contains(['\u{1b}', '\u{202e}']));
    let whole = of_alice.get(&format!("{path}/stdout")).expect(200);
    assert_eq!(whole.header("content-type"), Some("text/plain; charset=utf-8"));
    assert!(
        whole.header("content-security-policy").unwrap().starts_with("sandbox"),
        "no document of this origin"
    );
    // The same name says nothing to another user.
    for path in [&path, &format!("{path}/stdout"), &format!("{path}/code")] {
        assert_eq!(of_bob.get(path).status, 404, "{path}");
    }
    for (query, found) in [("q=ALERT(1)", 1), ("q=nowhere", 0), ("outcome=error", 1), ("outcome=ok", 0)] {
        let list = of_alice.get(&format!("/console/runs?{query}")).expect(200).body;
        assert_eq!(list.matches("<tr data-run=").count(), found, "{query}");
    }
}

fn a_run_is_watched_while_it_runs_and_stopped(env: &TestEnv) {
    let scopes = ["--scope", "mcp,console"];
    let alice = env.token(&[&["alice"][..], &scopes].concat());
    let bob = env.token(&[&["bob"][..], &scopes].concat());
    let http = env.bridge().listen();
    let (of_alice, of_bob) = (Browser::signed_in(&http, &alice), Browser::signed_in(&http, &bob));
    let mut news = News::open(&of_alice, "page=now");
    assert!(news.wait_for("Nothing runs"));
    let mut news_of_bob = News::open(&of_bob, "page=now");
    let client = http.client(&alice);
    let code = "print('<i>first', flush=True)\nimport time\nfor i in range(600): time.sleep(0.1)";
    let _ = client.call(json!({ "code": code, "background": true }));
    assert!(news.wait_for("&#60;i&#62;first"), "{}", news.text);
    let page = of_alice.get("/console").expect(200).body;
    let name = page
        .split("<article class=\"run\" data-run=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    let path = format!("/console/runs/{name}");
    let mut output = News::open(&of_alice, &format!("page=run&run={name}"));
    assert!(output.wait_for("\"output\":\"stdout\""), "{}", output.text);
    let run = of_alice.get(&path).expect(200).body;
    assert!(run.contains("data-follow") && run.contains("time.sleep(0.1)"), "{run}");
    // Another user sees nothing of it, and cannot stop it.
    assert!(!of_bob.get("/console").expect(200).body.contains(&name));
    assert_eq!(of_bob.get(&path).status, 404);
    let _ = of_bob.post(&format!("{path}/stop"), "").expect(303);
    assert!(of_alice.get(&path).expect(200).body.contains("data-follow"), "it goes on");
    let sessions = of_alice.get("/console/sessions").expect(200).body;
    assert!(sessions.contains("data-session=\"main\"") && sessions.contains(&name), "{sessions}");
    assert!(!of_bob.get("/console/sessions").expect(200).body.contains("data-session"));
    let _ = of_alice.post_alone(&format!("{path}/stop"), "form=00").expect(403);
    let _ = of_alice.post(&format!("{path}/stop"), "").expect(303);
    assert!(news.wait_for("Just ended"), "{}", news.text);
    let ended = of_alice.get(&path).expect(200).body;
    assert!(!ended.contains("data-follow") && ended.contains("data-outcome=\"cancelled\""), "{ended}");
    let end = format!("bridge={}&session=main", name.split('-').next().unwrap());
    let _ = of_alice.post("/console/sessions", &end).expect(303);
    assert!(!of_alice.get("/console/sessions").expect(200).body.contains("data-session"));
    // Whoever signs out gets no more news.
    let _ = of_bob.post("/console/logout", "").expect(303);
    assert!(
        news_of_bob.wait_for("\"gone\":true") && !news_of_bob.text.contains("first"),
        "{}",
        news_of_bob.text
    );
}

fn questions_are_answered_only_with_a_token_for_approvals(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &[]) }));
    env.write("home/MCPs/policy.toml", "[[rule]]\nserver = \"fake\"\neffect = \"ask\"\n");
    let calls = env.token(&["alice", "--scope", "mcp,console"]);
    let approves = env.token(&["alice", "--scope", "console,approve"]);
    let other = env.token(&["bob", "--scope", "console,approve"]);
    let http = env.bridge().listen();
    let (looks, answers) = (Browser::signed_in(&http, &calls), Browser::signed_in(&http, &approves));
    let of_bob = Browser::signed_in(&http, &other);
    // A client that cannot ask is answered by somebody who looks.
    let mut news = News::open(&answers, "page=approvals");
    assert!(news.wait_for("Nothing waits"));
    let client = http.client(&calls);
    let ask = |value: u32| json!({ "code": format!("await mcp_fake.echo(a={value})"), "servers": ["fake"] });
    let question = |browser: &Browser<'_, '_>| {
        eventually("a question waits", Duration::from_secs(60), || {
            let page = browser.get("/console/approvals").expect(200).body;
            let id = page.split("data-question=\"").nth(1)?.split('"').next()?.to_owned();
            Some((id, page))
        })
    };
    thread::scope(|scope| {
        let called = scope.spawn(|| client.call(ask(1)));
        let (id, page) = question(&looks);
        assert!(page.contains("not for approvals") && !page.contains("value=\"accept\""), "{page}");
        let accept = format!("question={id}&action=accept&field.answer=allow+this+call");
        let _ = looks.post("/console/approvals", &accept).expect(403);
        let _ = of_bob.post("/console/approvals", &accept).expect(409);
        let _ = answers.post_alone("/console/approvals", &accept).expect(403);
        let (_, page) = question(&answers);
        let once = page
            .split("type=\"radio\"")
            .nth(2)
            .unwrap()
            .split("value=\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap();
        let accept = format!("question={id}&action=accept&field.answer={}", once.replace(' ', "+"));
        let _ = answers.post("/console/approvals", &accept).expect(303);
        assert_eq!(called.join().unwrap().ok(), "{'a': 1}");
        assert_eq!(answers.post("/console/approvals", &accept).status, 409, "it counts once");
        let called = scope.spawn(|| client.call(ask(2)));
        let (id, _) = question(&answers);
        let _ = answers.post("/console/approvals", &format!("question={id}&action=decline")).expect(303);
        let refused = called.join().unwrap().expect("error");
        assert!(refused.error().contains("denied") || refused.error().contains("no"), "{refused}");
    });
}

/// Saves what would run in the page of a console that showed it as it is.
const SAVES: &str = r#"
open("/workspace/a.svg", "w").write("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
open("/workspace/b.html", "w").write("<script>alert(1)</script>")
import base64
open("/workspace/c.png", "wb").write(base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="))
for name in ("a.svg", "b.html", "c.png"):
    runtime.save_artifact(f"/workspace/{name}")
from IPython.display import HTML, Image
display(HTML("<script>alert(2)</script>"), Image(filename="/workspace/c.png"))
"#;

fn what_code_saves_is_never_a_document(env: &TestEnv) {
    let token = env.token(&["alice", "--scope", "mcp,console"]);
    let other = env.token(&["bob", "--scope", "console"]);
    let http = env.bridge().listen();
    let _ = http.client(&token).run(SAVES).ok();
    let (browser, of_bob) = (Browser::signed_in(&http, &token), Browser::signed_in(&http, &other));
    let gallery = browser.get("/console/artifacts").expect(200).body;
    assert_eq!((gallery.matches("<figure ").count(), gallery.matches("<img ").count()), (3, 1), "{gallery}");
    assert!(!gallery.contains("<script>alert"));
    // The bytes of a picture are no text.
    let head = |browser: &Browser<'_, '_>, path: &str| {
        let headers = [("Host", http.address.as_str()), ("Cookie", browser.cookie.as_str())];
        let answer = crate::harness::http::exchange(http.connect(), &request("GET", path, &headers, ""));
        String::from_utf8_lossy(&answer).split("\r\n\r\n").next().unwrap().to_ascii_lowercase()
    };
    let is_harmless = |head: &str| {
        head.contains("x-content-type-options: nosniff") && head.contains("content-security-policy: sandbox")
    };
    for (name, kind) in [
        ("a.svg", "application/octet-stream"),
        ("b.html", "application/octet-stream"),
        ("c.png", "image/png"),
    ] {
        let path = format!("/console/artifacts/content?name={name}&version=1");
        let answer = head(&browser, &path);
        assert!(answer.contains(&format!("content-type: {kind}\r\n")) && is_harmless(&answer), "{answer}");
        assert_eq!(answer.contains("content-disposition: attachment"), kind != "image/png", "{answer}");
        assert!(head(&of_bob, &path).starts_with("http/1.1 404"));
    }
    let list = browser.get("/console/runs").expect(200).body;
    let name = list.split("data-run=\"").nth(1).unwrap().split('"').next().unwrap();
    let page = browser.get(&format!("/console/runs/{name}")).expect(200).body;
    assert_eq!(page.matches("<figure ").count(), 2, "{page}");
    assert!(page.contains(&format!("<img src=\"/console/runs/{name}/displays/2/")), "{page}");
    let html = head(&browser, &format!("/console/runs/{name}/displays/1/0"));
    assert!(html.contains("content-disposition: attachment") && is_harmless(&html), "{html}");
    assert!(head(&of_bob, &format!("/console/runs/{name}/displays/1/0")).starts_with("http/1.1 404"));
    assert_eq!(browser.get("/console/numbers").expect(200).body.matches("<svg viewBox=\"0 0 600").count(), 3);
}

fn servers_are_shown_with_their_health_and_no_secret(env: &TestEnv) {
    let cries = "import sys\nsys.exit('<b>no</b> \\x1b[31mred\\x1b[0m, token ' + sys.argv[1])";
    let broken = json!({
        "command": "python3", "args": ["-c", cries, SECRET], "env": { "API_TOKEN": SECRET },
    });
    // What is known of a server is known of its definition: this one is another one.
    let unused = fake(env, &["--few"]);
    define(env, &json!({ "fake": fake(env, &[]), "broken": broken, "unused": unused }));
    let token = env.token(&["alice", "--scope", "mcp,console"]);
    let http = env.bridge().listen();
    let client = http.client(&token);
    let call = |server: &str| json!({ "code": format!("await mcp_{server}.echo(a=1)"), "servers": [server] });
    assert_eq!(client.call(call("fake")).ok(), "{'a': 1}");
    let _ = client.call(call("broken")).expect("error");
    let browser = Browser::signed_in(&http, &token);
    let list = browser.get("/console/servers").expect(200).body;
    let row = |name: &str| {
        let (_, rest) = list.split_once(&format!("<tr data-server=\"{name}\">")).unwrap();
        rest.split("</tr>").next().unwrap().to_owned()
    };
    let (works, failed, unused) = (row("fake"), row("broken"), row("unused"));
    assert!(works.contains("running") && works.contains("says it again"), "{works}");
    // All of it is on the page of the server.
    assert!(failed.contains("failed") && failed.contains("it exited before it was ready"), "{failed}");
    assert!(unused.contains("not asked yet"), "{unused}");
    let page = browser.get("/console/servers/fake").expect(200).body;
    for shown in ["running<", ">echo</td>", "says it again"] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    let wrong = browser.get("/console/servers/broken").expect(200).body;
    for shown in ["Last error", "&#60;b&#62;no&#60;/b&#62;", "token [API_TOKEN]", "not known yet"] {
        assert!(wrong.contains(shown), "{shown}: {wrong}");
    }
    for page in [&list, &page, &wrong] {
        assert!(!page.contains(SECRET) && !page.contains("<b>no") && !page.contains('\u{1b}'), "{page}");
        assert!(!page.contains("mcp_server.py") && !page.contains("all.json"), "how it starts is not theirs");
    }
    assert_eq!(browser.get("/console/servers/nothing").status, 404);
}

fn sessions_are_shown_with_what_they_take(env: &TestEnv) {
    let token = env.token(&["alice", "--scope", "mcp,console"]);
    let http = env.bridge().listen();
    let work = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass";
    let _ = http.client(&token).run(work).ok();
    let browser = Browser::signed_in(&http, &token);
    // The first look finds where the numbers are.
    let [memory, processor, age] = eventually("the numbers are there", env.guard().left(), || {
        let page = browser.get("/console/sessions").expect(200).body;
        let (_, row) = page.split_once("<tr data-session=\"main\"").unwrap();
        let cells = row.split("<td class=\"number").skip(1).take(3);
        let texts = cells.map(|cell| cell.split_once('>').unwrap().1.split('<').next().unwrap().to_owned());
        let texts: [String; 3] = texts.collect::<Vec<_>>().try_into().unwrap();
        texts.iter().all(|text| !text.is_empty()).then_some(texts)
    });
    assert!(memory.ends_with("iB") && memory.starts_with(|first: char| first.is_ascii_digit()), "{memory}");
    let work: f64 = processor.split(' ').next().unwrap().parse().unwrap();
    assert!(processor.ends_with(" ms") && work >= 300.0 || processor.ends_with(" s"), "{processor}");
    assert!(age.ends_with('s') || age.contains("min"), "{age}");
}
