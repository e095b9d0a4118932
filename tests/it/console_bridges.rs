//! `codebridge console`: what bridges on standard input and output do, and questions that their clients cannot show.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::console::Browser;
use crate::harness::http::{HttpBridge, request};
use crate::harness::matrix::Kind;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::policy::write_policy;
use crate::server_access::{define, fake};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once("console_bridges", tests![its_address_signs_in_one_browser_and_no_client]);
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "console_bridges",
        tests![
            runs_of_all_bridges_are_shown_and_stopped_and_leave_nothing,
            a_question_waits_for_the_console_while_somebody_is_there,
        ],
    );
}

const LIMIT: Duration = Duration::from_secs(60);

/// Starts `codebridge console`; returns it with the path and the query of the address that it prints.
pub(crate) fn console(env: &TestEnv) -> (HttpBridge<'_>, String) {
    let bridge = env.bridge().args(&["console"]).spawn();
    let (address, link) = eventually("it prints its address", LIMIT, || {
        let log = bridge.log();
        let (_, rest) = log.split_once("open http://")?;
        let (address, path) = rest.lines().next()?.split_once('/')?;
        path.len().gt(&60).then(|| (address.to_owned(), format!("/{path}")))
    });
    (HttpBridge { bridge, address }, link)
}

/// Follows the address.
pub(crate) fn open<'a, 'b>(http: &'b HttpBridge<'a>, link: &str) -> Browser<'a, 'b> {
    let reply = http.get(link, None).expect(303);
    assert_eq!(reply.header("location"), Some("/console"), "the token does not stay in the address");
    Browser::with_cookie(http, reply.header("set-cookie").unwrap())
}

fn its_address_signs_in_one_browser_and_no_client(env: &TestEnv) {
    let of_a_principal = env.token(&["alice", "--scope", "mcp,console"]);
    let (http, link) = console(env);
    let (_, token) = link.split_once("token=").unwrap();
    assert!(http.get("/console", None).expect(303).header("location").unwrap().starts_with("/console/login"));
    for other in ["", "cbr_00", &of_a_principal] {
        let path = format!("/console/login?token={other}");
        assert!(http.get(&path, None).header("set-cookie").is_none(), "{other}");
    }
    let browser = open(&http, &link);
    let page = browser.get("/console").expect(200).body;
    assert!(!page.contains(token), "{page}");
    assert_eq!(http.get(&link, None).expect(401).header("set-cookie"), None, "it works once");
    assert_eq!(http.get("/mcp", Some(token)).status, 401);
    for page in ["runs", "approvals", "sessions", "servers", "artifacts", "numbers"] {
        let _ = browser.get(&format!("/console/{page}")).expect(200);
    }
    http.bridge.signal(Signal::INT);
    assert!(http.bridge.wait(LIMIT).status.code().is_some());
    assert!(!env.home().join("MCPs/bridges").exists(), "nothing has run");
}

/// The names of the runs that a page shows under way.
fn shown(page: &str) -> Vec<String> {
    let names = page.split("<article ").skip(1).filter_map(|rest| rest.split_once("data-run=\""));
    names.map(|(_, rest)| rest.split('"').next().unwrap().to_owned()).collect()
}

fn runs_of_all_bridges_are_shown_and_stopped_and_leave_nothing(env: &TestEnv) {
    let code = |name: &str| format!("import time\nprint('ready', '<i>{name}', flush=True)\ntime.sleep(100)");
    let (one, two) = (env.bridge().start(), env.bridge().start());
    let first = one.start_until_ready("main", &code("one"), json!({}));
    let second = two.start_until_ready("main", &code("two"), json!({}));
    let (http, link) = console(env);
    let browser = open(&http, &link);
    let page = eventually("both runs are shown", LIMIT, || {
        let page = browser.get("/console").expect(200).body;
        (page.contains("ready &#60;i&#62;one") && page.contains("ready &#60;i&#62;two")).then_some(page)
    });
    let runs = shown(&page);
    assert_eq!(runs.len(), 2, "{page}");
    let folder = env.home().join("MCPs/bridges");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o777;
    let sockets = || fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    assert_eq!((mode(&folder), sockets().iter().map(|path| mode(path)).collect()), (0o700, vec![0o600; 2]));

    let _ = http.send("POST", &format!("/console/runs/{}/stop", runs[0]), &[("Cookie", &browser.cookie)], "");
    assert!(!first.0.is_answered() && !second.0.is_answered(), "a form of another page stops nothing");
    for run in &runs {
        let _ = browser.post(&format!("/console/runs/{run}/stop"), "").expect(303);
    }
    for pending in [first, second] {
        assert_eq!(pending.outcome().expect("cancelled").stdout().split(' ').next(), Some("ready"));
    }
    let sessions = browser.get("/console/sessions").expect(200).body;
    assert_eq!(sessions.matches("data-session=\"main\"").count(), 2, "{sessions}");

    one.signal(Signal::KILL);
    let _ = one.wait(LIMIT);
    assert_eq!(sockets().len(), 2, "a killed bridge leaves its socket");
    let page = browser.get("/console/sessions").expect(200).body;
    assert_eq!(page.matches("data-session=\"main\"").count(), 1, "{page}");
    assert_eq!(sockets().len(), 1, "and whoever finds it removes it");
    let _ = two.close();
    assert_eq!(sockets().len(), 0);
    let _ = browser.get("/console").expect(200);
}

fn a_question_waits_for_the_console_while_somebody_is_there(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &[]) }));
    write_policy(env, "[[rule]]\ntool = 'echo'\neffect = 'ask'\n");
    let bridge = env.bridge().start();
    let call = |code: &str| bridge.start_call(json!({ "code": code, "servers": ["fake"] }));
    let refused = call("await mcp_fake.echo(a=1)").outcome().expect("error");
    assert!(refused.stderr().contains("nobody"), "at once, as no console is open: {refused:?}");

    let (http, link) = console(env);
    let browser = open(&http, &link);
    // A page that is open.
    let mut page = http.connect();
    let headers = [("Host", http.address.as_str()), ("Cookie", &browser.cookie)];
    page.write_all(&request("GET", "/console/live?page=approvals", &headers, "")).unwrap();
    let asking = call(
        "import asyncio\nwhile True:\n    try:\n        print(await mcp_fake.echo(a=2))\n        break\n    \
         except Exception as error:\n        if 'nobody' not in str(error): raise\n        await asyncio.sleep(0.1)",
    );
    let question = eventually("the question is shown", LIMIT, || {
        let page = browser.get("/console/approvals").expect(200).body;
        let (_, rest) = page.split_once("data-question=\"")?;
        assert!(page.contains("tool: fake.echo") && page.contains("a: 2"), "{page}");
        Some(rest.split('"').next().unwrap().to_owned())
    });
    assert!(!asking.0.is_answered());
    let fields = format!("question={question}&action=accept&field.answer=yes%2C+this+call");
    let _ = browser.post("/console/approvals", &fields).expect(303);
    assert_eq!(asking.outcome().ok(), "{'a': 2}");
    let _ = browser.post("/console/approvals", &fields).expect(409);

    let asking = call("await mcp_fake.echo(a=3)");
    let question = eventually("the next question is shown", LIMIT, || {
        let page = browser.get("/console/approvals").expect(200).body;
        Some(page.split_once("data-question=\"")?.1.split('"').next().unwrap().to_owned())
    });
    let _ = browser.post("/console/approvals", &format!("question={question}&action=decline")).expect(303);
    let declined = asking.outcome().expect("error");
    assert!(declined.stderr().contains("the user said no"), "{declined:?}");
    drop(page);

    let _ = bridge.close();
    let audit = env.bridge().args(&["audit", "--json"]).command().run(env.guard()).ok();
    let lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let answers: Vec<_> = lines.filter(|line| line["event"] == "answer").collect();
    assert_eq!(answers.len(), 2, "{audit}");
    let first = &answers[0];
    assert_eq!(
        (&first["by"], &first["server"], &first["session"]),
        (&json!("local"), &json!("codebridge"), &json!("main"))
    );
    assert!(
        first["answer"].as_str().unwrap().starts_with("accept {\"answer\":\"yes, this call\""),
        "{first}"
    );
    assert_eq!(answers[1]["answer"], "decline");
    let shown = env.bridge().args(&["audit"]).command().run(env.guard()).ok();
    assert!(shown.contains("answer to codebridge from local: decline"), "{shown}");
}
