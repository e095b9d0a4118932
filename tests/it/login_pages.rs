//! Logins during a call: the client shows a page. Over HTTP it is one of the console, where each user logs in.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::console::Browser;
use crate::harness::bridge::Bridge;
use crate::harness::http::{HttpBridge, HttpClient};
use crate::harness::matrix::Kind;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::http::terminate;
use crate::login::Place;
use crate::questions::modern;
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once("login_pages", tests![what_is_pasted_while_a_login_ends_does_not_undo_it]);
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "login_pages",
        tests![
            an_answer_that_comes_while_a_login_ends_does_not_undo_it,
            a_call_that_lacks_a_permission_goes_on_after_another_login,
            each_user_logs_in_on_a_page_of_the_console,
            a_login_on_a_page_ends_once_in_the_browser_that_began_it,
            a_call_over_http_goes_on_after_the_login,
        ],
    );
}

const PAGE: &str = "/console/servers/web";
const START: Duration = Duration::from_secs(60);

/// The page of a login that the client is asked to show.
fn shown(bridge: &Bridge<'_>) -> Value {
    eventually("a page", bridge.env().guard().left(), || {
        bridge.unasked().into_iter().find(|message| message["method"] == "elicitation/create")
    })
}

fn accept(bridge: &Bridge<'_>, page: &Value) {
    bridge.send(&json!({ "jsonrpc": "2.0", "id": page["id"], "result": { "action": "accept" } }));
}

fn is_held(place: &Place<'_>, env: &TestEnv) {
    eventually("the provider is asked for a token", env.guard().left(), || {
        (place.seen("held") == 1).then_some(())
    });
}

fn an_answer_that_comes_while_a_login_ends_does_not_undo_it(env: &TestEnv) {
    let place = Place::new(env, &json!({}));
    let hold = place.hold_tokens();
    let bridge = env.bridge().start_for(json!({ "elicitation": { "url": {} } }));
    let call = json!({ "code": "await mcp_web.whoami()", "servers": ["web"], "timeout": 5 });
    let pending = bridge.start_call(call);
    let page = shown(&bridge);
    place.browse(page["params"]["url"].as_str().unwrap(), "alice", false);
    is_held(&place, env);
    accept(&bridge, &page);
    // Messages are read in their order.
    let _ = bridge.ask("ping", json!({}));
    fs::remove_file(hold).unwrap();
    assert_eq!(pending.outcome().ok(), "'alice'");
    bridge.close();
}

fn what_is_pasted_while_a_login_ends_does_not_undo_it(env: &TestEnv) {
    let place = Place::new(env, &json!({}));
    let hold = place.hold_tokens();
    let command = place.command(&["servers", "login", "web", "--no-browser"], "nobody");
    let mut running = command.spawn(env.guard(), Stdio::piped(), Stdio::piped(), Stdio::piped());
    let mut lines = BufReader::new(running.child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let page = lines.find(|line| line.starts_with("http://")).unwrap();
    place.browse(&page, "alice", false);
    is_held(&place, env);
    let mut input = running.child.stdin.take().unwrap();
    writeln!(input, "two words").unwrap();
    assert!(lines.any(|line| line.contains("this is neither a code nor the address of the last page")));
    fs::remove_file(hold).unwrap();
    assert!(running.wait_within(START).success());
    assert_eq!(place.call("web.whoami"), "alice");
}

fn a_call_that_lacks_a_permission_goes_on_after_another_login(env: &TestEnv) {
    let place = Place::new(env, &json!({}));
    assert!(place.log_in().contains("with the permissions 'read'"));
    let bridge = env.bridge().start_for(json!({ "elicitation": { "url": {} } }));
    let call = json!({ "code": "await mcp_web.write()", "servers": ["web"], "timeout": 5 });
    let pending = bridge.start_call(call);
    let page = shown(&bridge);
    accept(&bridge, &page);
    place.browse(page["params"]["url"].as_str().unwrap(), "alice", false);
    assert_eq!(pending.outcome().ok(), "'written'");
    let count = json!({ "code": "await mcp_web.writes()", "servers": ["web"] });
    assert_eq!(bridge.call(count).ok(), "1");
    assert_eq!(place.login()["scopes"], json!(["read", "write"]));
    bridge.close();
}

/// Users of a bridge over HTTP, each with a client and a browser.
struct Users<'a, 'b> {
    http: &'b HttpBridge<'a>,
    place: &'b Place<'a>,
}

impl<'a, 'b> Users<'a, 'b> {
    fn browser(&self, env: &TestEnv, user: &str) -> Browser<'a, 'b> {
        Browser::signed_in(self.http, &env.token(&[user, "--scope", "console"]))
    }

    /// Begins a login, and has a person go through the pages of the provider. Returns the path that the browser is sent back to.
    fn until_back(&self, browser: &Browser<'_, '_>, person: &str) -> String {
        let page = browser.post(&format!("{PAGE}/login"), "").expect(200).body;
        let (_, url) = page.split_once("<a href=\"").unwrap();
        let url = url.split('"').next().unwrap().replace("&#38;", "&");
        let back = self.place.browse(&url, person, true);
        let base = format!("http://{}", self.http.address);
        back.strip_prefix(&base).unwrap_or_else(|| panic!("{back}")).to_owned()
    }
}

fn whoami(client: &HttpClient<'_, '_>) -> crate::harness::outcome::Outcome {
    client.call(json!({ "code": "await mcp_web.whoami()", "servers": ["web"] }))
}

/// The credentials of a user's login.
fn secrets(place: &Place<'_>, user: &str) -> Vec<String> {
    let files = place.files(&format!("MCPs/principals/{user}"));
    assert_eq!(files.len(), 1);
    let login: Value = serde_json::from_str(&fs::read_to_string(&files[0]).unwrap()).unwrap();
    let secrets = ["access_token", "refresh_token"].into_iter().filter_map(|name| login[name].as_str());
    secrets.map(str::to_owned).collect()
}

fn each_user_logs_in_on_a_page_of_the_console(env: &TestEnv) {
    let place = Place::new(env, &json!({}));
    let level = "codebridge=trace,rmcp=debug,reqwest=trace,hyper=trace,oauth2=trace";
    let http = env.bridge().var("MCP_BRIDGE_LOG_LEVEL", level).listen();
    let users = Users { http: &http, place: &place };
    let (alice, bob) = (http.client(&env.token(&["alice"])), http.client(&env.token(&["bob"])));
    let wanted = whoami(&alice).expect("error");
    let address = format!("log in at http://{}{PAGE}", http.address);
    let command = "codebridge servers login web --principal alice";
    for text in ["'web' wants a login", &address, command] {
        assert!(wanted.error().contains(text), "{wanted}");
    }

    let browser = users.browser(env, "alice");
    assert!(browser.get(PAGE).expect(200).body.contains("You are not logged in"));
    let back = users.until_back(&browser, "alice");
    // Browsers keep the cookie from what another site has led to, and send it where this page leads.
    let bounced = http.get(&back, None).expect(200).body.replace("&#38;", "&");
    let again = format!("{back}&again=1");
    assert!(bounced.contains(&format!("content=\"0; url={again}\"")), "{bounced}");
    assert!(http.get(&again, None).expect(401).body.contains("You are signed out"));
    assert_eq!(browser.get(&again).expect(303).header("location"), Some(PAGE));
    assert!(browser.get(PAGE).expect(200).body.contains("You are logged in at http://127.0.0.1:"));
    assert_eq!(whoami(&alice).ok(), "'alice'");

    // Another user has no part in it.
    let other = users.browser(env, "bob");
    assert!(other.get(PAGE).expect(200).body.contains("You are not logged in"));
    let refused = whoami(&bob).expect("error");
    assert!(refused.error().contains("wants a login") && refused.error().contains(&address), "{refused}");
    let _ = other.get(&users.until_back(&other, "bob")).expect(303);
    assert_eq!((whoami(&alice).ok(), whoami(&bob).ok()), ("'alice'".into(), "'bob'".into()));

    let code = back.split_once("code=").unwrap().1.split('&').next().unwrap().to_owned();
    let mut hidden = vec![code];
    hidden.extend(["alice", "bob"].iter().flat_map(|user| secrets(&place, user)));
    let log = http.bridge.log();
    assert!(hidden.iter().all(|secret| !log.contains(secret)), "a credential is in the log");

    assert_eq!(browser.post(&format!("{PAGE}/logout"), "").expect(303).header("location"), Some(PAGE));
    assert!(whoami(&alice).expect("error").error().contains("wants a login"));
    assert_eq!(whoami(&bob).ok(), "'bob'");
    terminate(http);
}

fn a_login_on_a_page_ends_once_in_the_browser_that_began_it(env: &TestEnv) {
    let place = Place::new(env, &json!({}));
    let http = env.bridge().listen();
    let users = Users { http: &http, place: &place };
    let browser = users.browser(env, "alice");
    let strangers = [users.browser(env, "alice"), users.browser(env, "bob")];
    let _ = browser.post_alone(&format!("{PAGE}/login"), "form=0").expect(403);
    let refused = |browser: &Browser<'_, '_>, path: &str| {
        let page = browser.get(path).expect(400).body;
        assert!(page.contains("This login is not awaited"), "{page}");
    };
    // Who the provider is must be true.
    let back = users.until_back(&browser, "alice");
    let (start, _) = back.split_once("&iss=").unwrap();
    let wrong = browser.get(&format!("{start}&iss=http%3A%2F%2Fevil.example")).expect(502).body;
    assert!(wrong.contains("its provider says that it is"), "{wrong}");
    refused(&browser, &back);
    let before = place.seen("POST /token");
    assert_eq!(before, 0);

    let back = users.until_back(&browser, "alice");
    for stranger in &strangers {
        refused(stranger, &back);
    }
    let (start, rest) = back.split_once("state=").unwrap();
    refused(&browser, &format!("{start}state=x{rest}"));
    assert!(place.files("MCPs/principals/alice").is_empty() && place.seen("POST /token") == 0);
    let _ = browser.get(&back).expect(303);
    refused(&browser, &back);
    assert_eq!(place.files("MCPs/principals/alice").len(), 1);
    assert!(place.files("MCPs/principals/bob").is_empty());
    terminate(http);
}

fn a_call_over_http_goes_on_after_the_login(env: &TestEnv) {
    let place = Place::new(env, &json!({}));
    let http = env.bridge().listen();
    let users = Users { http: &http, place: &place };
    let client = http.stranger(&env.token(&["alice"]));
    let browser = users.browser(env, "alice");
    let arguments = json!({ "code": "await mcp_web.whoami()", "servers": ["web"], "timeout": 5 });
    let mut params = json!({ "name": "run_python", "arguments": arguments });
    let pages = json!({ "elicitation": { "url": {} } });
    let asked = client.ask("tools/call", modern(&pages, params.clone()));
    let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    // The person signs in there: whoever else gets the address logs in for nobody but themselves.
    assert_eq!(question["params"]["url"], format!("http://{}{PAGE}", http.address), "{asked}");
    let _ = browser.get(&users.until_back(&browser, "alice")).expect(303);
    params["inputResponses"] = json!({ key: { "action": "accept" } });
    params["requestState"] = asked["requestState"].clone();
    let done = client.ask("tools/call", modern(&pages, params));
    assert_eq!(done["content"][0]["text"], "'alice'", "{done}");
    terminate(http);
}
