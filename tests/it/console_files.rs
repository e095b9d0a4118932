//! What runs leave and show in the console: files of a session are saved, never shown, and objects are there while their run goes on.

use serde_json::json;

use crate::console::{Browser, News};
use crate::harness::matrix::Kind;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "console_files",
        tests![
            files_of_a_session_are_saved_as_they_are_now_by_their_user,
            objects_are_shown_while_their_run_goes_on,
        ],
    );
}

const FILES: &str = r#"
import os
open('a b;"<i>.html', 'w').write('<script>alert(1)</script>')
os.makedirs('sub')
open('sub/large.txt', 'w').write('0123456789' * 70_000)
open('empty', 'w').close()
open('secret', 'w').write('mine')
os.symlink('/etc/passwd', 'link')
"#;

/// The addresses of the files on the page of a run, by name.
fn files(page: &str, run: &str) -> Vec<(String, String)> {
    let start = format!("<a href=\"/console/runs/{run}/files/");
    let links = page.split(&start).skip(1);
    links
        .map(|rest| {
            let (number, rest) = rest.split_once("\">").unwrap();
            let name = rest.split_once("</a>").unwrap().0;
            (name.to_owned(), format!("/console/runs/{run}/files/{number}"))
        })
        .collect()
}

/// The names of the runs in the list, the latest first.
fn runs(browser: &Browser<'_, '_>) -> Vec<String> {
    let list = browser.get("/console/runs").expect(200).body;
    list.split("data-run=\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

fn files_of_a_session_are_saved_as_they_are_now_by_their_user(env: &TestEnv) {
    let scopes = ["--scope", "mcp,console"];
    let alice = env.token(&[&["alice"][..], &scopes].concat());
    let bob = env.token(&[&["bob"][..], &scopes].concat());
    let http = env.bridge().listen();
    let (of_alice, of_bob) = (Browser::signed_in(&http, &alice), Browser::signed_in(&http, &bob));
    let client = http.client(&alice);
    let _ = client.run(FILES).expect("success");
    let run = runs(&of_alice).remove(0);
    let page = of_alice.get(&format!("/console/runs/{run}")).expect(200).body;
    let files = files(&page, &run);
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let escaped = "a b;&#34;&#60;i&#62;.html";
    assert_eq!(names, [escaped, "empty", "secret", "sub/large.txt"], "no link is followed: {page}");
    let path = |name: &str| files.iter().find(|(known, _)| known == name).unwrap().1.as_str();

    let html = of_alice.get(path(escaped)).expect(200);
    assert_eq!(html.body, "<script>alert(1)</script>");
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("content-disposition", "attachment; filename*=UTF-8''a%20b%3B%22%3Ci%3E.html"),
        ("content-length", "25"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox; default-src 'none'"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(html.header(name), Some(value), "{name}");
    }
    let large = of_alice.get(path("sub/large.txt")).expect(200);
    assert!(large.body == "0123456789".repeat(70_000), "{} bytes", large.body.len());
    assert_eq!(large.header("content-disposition"), Some("attachment; filename*=UTF-8''large.txt"));
    assert_eq!(of_alice.get(path("empty")).expect(200).body, "");

    // Another user has no such run, and there are no other files.
    assert_eq!(of_bob.get(path("secret")).status, 404);
    assert_eq!(http.get(path("secret"), Some(&alice)).status, 303, "a token is no cookie");
    for other in ["0", "5", "999999999999999999999", "-1", "..%2F..%2Fetc%2Fpasswd"] {
        let reply = of_alice.get(&format!("/console/runs/{run}/files/{other}"));
        assert!([400, 404].contains(&reply.status) && !reply.body.contains("root:"), "{other}: {reply:?}");
    }
    // What has become a link, or is gone, is no file; while code runs, files can be read too.
    let changes = "import os\nos.remove('secret'); os.symlink('/etc/passwd', 'secret')\nos.remove('empty')\n\
                   os.rename('sub', 'moved'); os.symlink('/etc', 'sub')\n\
                   open('a b;\"<i>.html', 'w').write('changed')\nimport time; time.sleep(100)";
    let _ = client.call(json!({ "code": changes, "background": true }));
    eventually("the files have changed", std::time::Duration::from_secs(60), || {
        (of_alice.get(path(escaped)).body == "changed").then_some(())
    });
    for gone in ["secret", "empty", "sub/large.txt"] {
        let reply = of_alice.get(path(gone));
        assert!(reply.status == 404 && reply.body.contains("The file is gone"), "{gone}: {reply:?}");
    }
    let sessions = of_alice.get("/console/sessions").expect(200).body;
    let bridge = sessions.split("name=\"bridge\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let _ = of_alice.post("/console/sessions", &format!("bridge={bridge}&session=main")).expect(303);
    let reply = of_alice.get(path(escaped));
    assert!(reply.status == 404 && reply.body.contains("session has ended"), "{reply:?}");
}

fn objects_are_shown_while_their_run_goes_on(env: &TestEnv) {
    let alice = env.token(&["alice", "--scope", "mcp,console"]);
    let http = env.bridge().listen();
    let (browser, client) = (Browser::signed_in(&http, &alice), http.client(&alice));
    let code = "from IPython.display import HTML\nimport time\nprint('begun', flush=True)\n\
                for n in range(2): display(HTML(f'<b>object {n}</b>'))\ntime.sleep(100)";
    let begun = client.call(json!({ "code": code, "background": true }));
    let number = begun.structured["runId"].as_u64().unwrap();
    let run = eventually("the run is listed", std::time::Duration::from_secs(60), || {
        runs(&browser).into_iter().find(|run| run.ends_with(&format!("-{number}")))
    });
    let mut news = News::open(&browser, &format!("page=run&run={run}"));
    assert!(news.wait_for("display-2"), "{}", news.text);
    let object = |number: usize| browser.get(&format!("/console/runs/{run}/displays/{number}/0"));
    for (number, text) in [(1, "<b>object 0</b>"), (2, "<b>object 1</b>")] {
        let reply = object(number).expect(200);
        assert_eq!(reply.body, text);
        assert!(reply.header("content-disposition").unwrap().starts_with("attachment"), "{reply:?}");
    }
    assert_eq!(object(3).status, 404);
    assert!(
        browser.get(&format!("/console/runs/{run}")).expect(200).body.contains("data-follow"),
        "it goes on"
    );
    let _ = client.call(json!({ "run": number, "stop": true }));
    assert_eq!(object(2).expect(200).body, "<b>object 1</b>", "and it is kept");
}
