//! Logins to remote servers: a certified provider, a server of the official SDK, and a person in a browser.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::matrix::{Kind, prepared_command, which};
use crate::harness::process::{Output, Prepared, Running, free_port};
use crate::harness::suite::ignore;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "login",
        tests![
            a_person_logs_in_and_out_and_no_token_is_shown,
            a_login_is_renewed_before_it_expires_and_when_it_is_refused,
            a_login_without_a_browser_takes_what_is_pasted,
            a_missing_permission_is_asked_for_at_the_next_login,
            a_client_that_was_registered_beforehand_is_used,
            a_client_that_is_described_by_a_document_is_not_registered,
            each_user_has_logins_of_its_own,
        ],
    );
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "login",
        tests![a_client_that_shows_pages_shows_the_login, exec_in_a_terminal_opens_the_login_and_goes_on],
    );
}

pub(crate) const FAKES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fakes");
/// How long the provider and the server may take to start, on a loaded machine.
const START: Duration = Duration::from_secs(60);

/// A provider, and a server that trusts it.
pub(crate) struct Place<'a> {
    env: &'a TestEnv,
    /// Variables of its commands.
    pub(crate) variables: BTreeMap<OsString, OsString>,
    provider: u16,
    server: u16,
    _running: [Running; 2],
}

impl<'a> Place<'a> {
    /// Starts them, and defines the server with these members.
    pub(crate) fn new(env: &'a TestEnv, more: &Value) -> Self {
        let (Some(provider_words), Some(python)) =
            (prepared_command("PROVIDER"), prepared_command("CLIENT_PYTHON"))
        else {
            ignore("no provider was prepared, see tests/check")
        };
        let (provider, server) = (free_port(), free_port());
        let mut first = env.command(&provider_words[0]);
        let seen = env.folder("home").join("seen");
        first.argv.extend([format!("{FAKES}/provider.mjs"), provider_words[1].clone()].map(Into::into));
        first.argv.extend([provider.to_string(), "300".to_owned()].map(OsString::from));
        first.argv.push(seen.into());
        let mut second = env.command(&python[0]);
        let script = format!("{FAKES}/protected_server.py");
        let issuer = format!("http://127.0.0.1:{provider}");
        second.argv.extend([script, server.to_string(), issuer].map(OsString::from));
        let listens = |port| move || TcpStream::connect(("127.0.0.1", port)).ok().map(drop);
        let running = [
            first.serve(env.guard(), START, listens(provider)),
            second.serve(env.guard(), START, listens(server)),
        ];
        let place = Self { env, variables: BTreeMap::new(), provider, server, _running: running };
        place.define(more);
        place
    }

    fn define(&self, more: &Value) {
        let mut web = json!({ "url": format!("http://127.0.0.1:{}/mcp", self.server) });
        web.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.env.write("home/MCPs/web.json", json!({ "mcpServers": { "web": web } }).to_string());
    }

    /// A command whose browser has this person in it.
    pub(crate) fn command(&self, words: &[&str], person: &str) -> Prepared {
        let mut command = self.env.command(self.env.binary());
        command.argv.extend(words.iter().map(Into::into));
        let browser = format!("{} {FAKES}/browser.py", which("python3").unwrap().display());
        command.env.insert("BROWSER".into(), browser.into());
        command.env.insert("PERSON".into(), person.into());
        let level = "codebridge=trace,rmcp=trace,oauth2=trace,hyper=trace,reqwest=trace";
        command.env.insert("MCP_BRIDGE_LOG_LEVEL".into(), level.into());
        command.env.extend(self.variables.clone());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.run_as(words, "alice")
    }

    fn run_as(&self, words: &[&str], person: &str) -> Output {
        let output = self.command(words, person).run(self.env.guard());
        self.shows_no_secret(&output);
        output
    }

    pub(crate) fn log_in(&self) -> String {
        self.run(&["servers", "login", "web"]).ok()
    }

    /// The text of a tool's result.
    pub(crate) fn call(&self, tool: &str) -> String {
        let result: Value = serde_json::from_str(&self.run(&["call", tool]).ok()).unwrap();
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The files of the logins in a state folder.
    pub(crate) fn files(&self, state: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.env.folder("home").join(state).join("logins")).into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
    }

    pub(crate) fn login(&self) -> Value {
        let files = self.files("MCPs");
        assert_eq!(files.len(), 1);
        serde_json::from_str(&fs::read_to_string(&files[0]).unwrap()).unwrap()
    }

    /// Changes the login as it is kept.
    pub(crate) fn change_login(&self, change: impl FnOnce(&mut Value)) {
        let mut login = self.login();
        change(&mut login);
        fs::write(&self.files("MCPs")[0], login.to_string()).unwrap();
    }

    /// Has the provider keep the answer to who wants a token, until the file is removed. It says `held`.
    pub(crate) fn hold_tokens(&self) -> PathBuf {
        self.env.write("home/seen.hold", "")
    }

    /// Opens a page in a browser with this person in it. Returns where it ends: at the page after the login, or before that with
    /// `stop`.
    pub(crate) fn browse(&self, url: &str, person: &str, stop: bool) -> String {
        let mut browser = self.env.command(which("python3").unwrap());
        browser.argv.extend([format!("{FAKES}/browser.py"), url.to_owned()].map(OsString::from));
        browser.env.insert("PERSON".into(), person.into());
        let last = self.env.folder("home").join("last");
        if stop {
            browser.env.insert("STOP_AT".into(), last.clone().into());
        }
        let said = browser.run(self.env.guard()).ok();
        if stop { fs::read_to_string(last).unwrap().trim().to_owned() } else { said }
    }

    /// What the provider was asked for.
    pub(crate) fn seen(&self, what: &str) -> usize {
        let seen = fs::read_to_string(self.env.folder("home").join("seen")).unwrap();
        seen.lines().filter(|line| line.contains(what)).count()
    }

    fn shows_no_secret(&self, output: &Output) {
        for file in self.files("MCPs") {
            let login: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
            for name in ["access_token", "refresh_token", "client_secret"] {
                if let Some(secret) = login[name].as_str() {
                    assert!(!output.to_string().contains(secret), "{name} is shown: {output}");
                }
            }
        }
    }
}

pub(crate) fn refused<'a>(output: &'a Output, what: &str) -> &'a str {
    assert!(output.code() == Some(76) && output.stderr.contains(what), "{output}");
    &output.stderr
}

fn a_person_logs_in_and_out_and_no_token_is_shown(env: &TestEnv) {
    let place = Place::new(env, &json!({}));
    let before = place.run(&["call", "web.whoami"]);
    let hint = "hint: run `codebridge servers login web`";
    assert!(refused(&before, "server 'web' wants a login (HTTP 401 Unauthorized").contains(hint), "{before}");
    assert!(place.run(&["servers", "whoami"]).ok().is_empty());

    // Whoever says no has no login.
    let denied = place.run_as(&["servers", "login", "web"], "deny");
    refused(&denied, "could not log in to 'web': its provider refused: ");
    assert!(denied.stderr.contains("(access_denied)") && place.files("MCPs").is_empty(), "{denied}");

    let said = place.log_in();
    assert!(
        said.contains("logged in to 'web', with the permissions 'read'") && said.contains("3 tools"),
        "{said}"
    );
    let file = &place.files("MCPs")[0];
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(file), mode(&file.parent().unwrap().to_path_buf())), (0o600, 0o700));
    assert_eq!(place.call("web.whoami"), "alice");
    let accounts: Value = serde_json::from_str(&place.run(&["servers", "whoami", "--json"]).ok()).unwrap();
    assert_eq!(accounts[0]["provider"], format!("http://127.0.0.1:{}", place.provider));
    assert_eq!((&accounts[0]["valid"], &accounts[0]["renewed"]), (&json!(true), &json!(true)));

    // Another server under this name does not get the token.
    place.define(&json!({ "url": format!("http://127.0.0.1:{}/other", place.server) }));
    let elsewhere = place.run(&["call", "web.whoami"]);
    refused(&elsewhere, "server 'web' ");
    place.define(&json!({}));

    assert_eq!(place.run(&["servers", "logout", "web"]).ok(), "logged out of 'web'\n");
    assert!(place.files("MCPs").is_empty());
    let log = place.run(&["audit"]).ok();
    assert!(log.contains("  server web (") && log.contains("logged-in  approved"), "{log}");
    assert_eq!(place.seen("POST /token/revocation 200"), 1);
    refused(&place.run(&["call", "web.whoami"]), hint);
}

fn a_login_is_renewed_before_it_expires_and_when_it_is_refused(env: &TestEnv) {
    let place = Place::new(env, &json!({ "oauth": { "scopes": ["openid", "read"] } }));
    assert!(place.log_in().contains("logged in to 'web' as alice"));
    let renewals = || place.seen("POST /token 200 grant_type=refresh_token");
    assert_eq!(place.call("web.whoami"), "alice");
    assert_eq!(renewals(), 0);
    let past = json!("2020-01-01T00:00:00Z");

    // Two programs at once: the provider takes a refresh token once, and ends the login of who sends it again.
    let first = place.login();
    place.change_login(|login| login["renew_at"] = past.clone());
    std::thread::scope(|scope| {
        for call in [(); 2].map(|()| scope.spawn(|| place.call("web.whoami"))) {
            assert_eq!(call.join().unwrap(), "alice");
        }
    });
    let second = place.login();
    assert_ne!(first["access_token"], second["access_token"]);
    assert_ne!(first["refresh_token"], second["refresh_token"]);
    assert_eq!(renewals(), 1);

    // The server says earlier than the clock that a token does not hold.
    place.change_login(|login| login["access_token"] = json!("not-a-token"));
    assert_eq!(place.call("web.whoami"), "alice");
    assert_eq!(renewals(), 2);

    // One without a refresh token ends, and nothing is sent.
    place.change_login(|login| {
        login.as_object_mut().unwrap().remove("refresh_token");
        login["expires"] = past.clone();
        login["renew_at"] = past.clone();
    });
    let expired = place.run(&["call", "web.whoami"]);
    let hint = "hint: run `codebridge servers login web`";
    assert!(
        refused(&expired, "could not use server 'web': the login has expired").contains(hint),
        "{expired}"
    );
    assert!(place.run(&["servers", "whoami"]).ok().contains("expired"));

    // Nor does one that the provider has ended.
    place.change_login(|login| login["refresh_token"] = first["refresh_token"].clone());
    refused(&place.run(&["call", "web.whoami"]), "the login has expired");

    // Another provider than the one that granted it does not get the refresh token.
    place.change_login(|login| login["issuer"] = json!("https://other.example"));
    let before = place.seen("POST /token");
    refused(&place.run(&["call", "web.whoami"]), "the login has expired");
    assert_eq!(place.seen("POST /token"), before);
}

fn a_login_without_a_browser_takes_what_is_pasted(env: &TestEnv) {
    let place = Place::new(env, &json!({}));
    let command = place.command(&["servers", "login", "web", "--no-browser"], "nobody");
    let mut running = command.spawn(env.guard(), Stdio::piped(), Stdio::piped(), Stdio::piped());
    let mut lines = BufReader::new(running.child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let page = lines.find(|line| line.starts_with("http://")).unwrap();
    let last = place.browse(&page, "alice", true);
    let mut input = running.child.stdin.take().unwrap();
    // What belongs to another login does not end this one.
    let (address, state) = last.split_once("&state=").unwrap();
    writeln!(input, "{address}&state=x{state}").unwrap();
    assert!(lines.any(|line| line.contains("this is neither a code nor the address of the last page")));
    // Nor does a code that could be that of another provider: this one confirms itself in the address.
    writeln!(input, "some-code").unwrap();
    assert!(lines.any(|line| line.contains("a code is not enough at this provider")));
    writeln!(input, "{last}").unwrap();
    assert!(running.wait_within(START).success());
    assert_eq!(place.call("web.whoami"), "alice");
}

fn a_missing_permission_is_asked_for_at_the_next_login(env: &TestEnv) {
    let place = Place::new(env, &json!({}));
    place.log_in();
    let lacking = place.run(&["call", "web.write"]);
    let told = "server 'web' denies access (HTTP 403 Forbidden";
    refused(&lacking, told);
    assert!(lacking.stderr.contains("it wants the permissions 'read write'"), "{lacking}");
    let hint = "hint: to ask for more permissions, run `codebridge servers login web`";
    assert!(lacking.stderr.contains(hint), "{lacking}");
    assert!(place.run(&["servers", "whoami", "web"]).ok().contains("lacks write"));
    assert_eq!(place.call("web.whoami"), "alice");
    let said = place.log_in();
    assert!(said.contains("with the permissions 'read write'"), "{said}");
    assert_eq!(place.call("web.write"), "written");
}

fn a_client_that_was_registered_beforehand_is_used(env: &TestEnv) {
    let port = free_port();
    let secret = "hunter2-of-the-client";
    let oauth =
        json!({ "clientId": "registered", "clientSecret": "${SECRET_OF_CLIENT}", "redirectPort": port });
    let place = Place::new(env, &json!({ "oauth": oauth }));
    let with_secret = |words: &[&str], secret: &str| {
        let mut command = place.command(words, "alice");
        command.env.insert("SECRET_OF_CLIENT".into(), secret.into());
        command.run(env.guard())
    };
    let wrong = with_secret(&["servers", "login", "web"], "hunter2-is-wrong");
    refused(&wrong, "could not log in to 'web': its provider refused: ");
    assert!(!wrong.to_string().contains("hunter2"), "{wrong}");
    let said = with_secret(&["servers", "login", "web"], secret);
    assert!(!said.to_string().contains("hunter2"), "{said}");
    assert!(said.ok().contains("logged in to 'web'"));
    assert_eq!(place.seen("POST /reg"), 0);
    assert!(place.seen("client_id=registered") > 0);
    place.change_login(|login| login["renew_at"] = json!("2020-01-01T00:00:00Z"));
    assert!(with_secret(&["call", "web.whoami"], secret).ok().contains("alice"));
}

fn each_user_has_logins_of_its_own(env: &TestEnv) {
    let place = Place::new(env, &json!({}));
    let login = |user: &str, person: &str| {
        place.run_as(&["servers", "login", "web", "--principal", user], person).ok()
    };
    login("ann", "alice");
    login("ben", "bob");
    assert!(place.files("MCPs").is_empty());
    refused(&place.run(&["call", "web.whoami"]), "wants a login");
    let tokens = ["ann", "ben"].map(|user| {
        let files = place.files(&format!("MCPs/principals/{user}"));
        assert_eq!(files.len(), 1);
        let login: Value = serde_json::from_str(&fs::read_to_string(&files[0]).unwrap()).unwrap();
        login["access_token"].clone()
    });
    assert_ne!(tokens[0], tokens[1]);
    let known = place.run(&["servers", "whoami", "--principal", "ben", "--json"]).ok();
    assert_eq!(serde_json::from_str::<Value>(&known).unwrap()[0]["server"], "web");
    let folder = env.home().join("MCPs/principals/ann");
    let log = place.run(&["audit", "--state-dir", folder.to_str().unwrap()]).ok();
    assert!(log.contains("  server web (") && log.contains("logged-in  approved"), "{log}");
    place.run(&["servers", "logout", "web", "--principal", "ben"]).ok();
    assert!(place.files("MCPs/principals/ben").is_empty() && place.files("MCPs/principals/ann").len() == 1);
}

fn a_client_that_is_described_by_a_document_is_not_registered(env: &TestEnv) {
    let document = "https://people.example/codebridge.json";
    let place = Place::new(env, &json!({ "oauth": { "clientMetadataUrl": document } }));
    place.log_in();
    assert_eq!(place.login()["client_id"], document);
    assert_eq!(place.seen("POST /reg"), 0);
    place.change_login(|login| login["renew_at"] = json!("2020-01-01T00:00:00Z"));
    assert_eq!(place.call("web.whoami"), "alice");
}

fn a_client_that_shows_pages_shows_the_login(env: &TestEnv) {
    let place = Place::new(env, &json!({}));
    let bridge = env.bridge().start_for(json!({ "elicitation": { "url": {} } }));
    let page = |number: usize| {
        eventually("a page", env.guard().left(), || {
            let mut pages =
                bridge.unasked().into_iter().filter(|message| message["method"] == "elicitation/create");
            pages.nth(number)
        })
    };
    let answer = |page: &Value, action: &str| {
        bridge.send(&json!({ "jsonrpc": "2.0", "id": page["id"], "result": { "action": action } }));
    };
    let call = json!({ "code": "await mcp_web.whoami()", "servers": ["web"], "timeout": 5 });

    // A page that was closed is no login, and the error says what to type.
    let pending = bridge.start_call(call.clone());
    answer(&page(0), "cancel");
    let closed = pending.outcome().expect("error");
    assert!(closed.to_string().contains("codebridge servers login web"), "{closed}");

    let pending = bridge.start_call(call);
    let shown = page(1);
    assert_eq!(shown["params"]["mode"], "url");
    assert!(shown["params"]["message"].as_str().unwrap().contains("'web'"), "{shown}");
    answer(&shown, "accept");
    place.browse(shown["params"]["url"].as_str().unwrap(), "alice", false);
    assert_eq!(pending.outcome().ok(), "'alice'");
    let done = eventually("a notification", env.guard().left(), || {
        let mut said = bridge.unasked().into_iter();
        said.find(|message| message["method"] == "notifications/elicitation/complete")
    });
    assert_eq!(done["params"]["elicitationId"], shown["params"]["elicitationId"]);

    // The token is not in the sandbox, nor in what the client reads.
    let look = "import os, pathlib\nstr(dict(os.environ)) + ''.join(p.read_text() for p in pathlib.Path('/proc/self').glob('environ'))";
    let token = place.login()["access_token"].as_str().unwrap().to_owned();
    assert!(!bridge.run(look).ok().contains(&token) && !bridge.log().contains(&token));
    bridge.close();
    let log = place.run(&["audit"]).ok();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("  server web (")).collect();
    assert!(lines.len() == 1 && lines[0].ends_with("  logged-in  approved"), "{log}");
}

fn exec_in_a_terminal_opens_the_login_and_goes_on(env: &TestEnv) {
    let place = Place::new(env, &json!({}));
    let exec = "exec --server web -c 'print(await mcp_web.whoami())'";
    let asked = |answer: &[u8]| {
        let mut terminal = env.command("script");
        let line = format!("{} {exec}", env.binary().display());
        terminal.argv.extend(["-q", "-e", "-c", &line, "/dev/null"].map(Into::into));
        terminal.env.extend(place.command(&[], "alice").env);
        terminal.run_typing(env.guard(), "Open this page in a browser? [y/N]", answer)
    };
    let refused = asked(b"n\n");
    assert!(
        refused.code() == Some(1) && refused.stdout.contains("codebridge servers login web"),
        "{refused}"
    );
    let logged_in = asked(b"y\n");
    assert!(logged_in.code() == Some(0) && logged_in.stdout.contains("\nalice\r\n"), "{logged_in}");
    assert_eq!(place.call("web.whoami"), "alice");
}
