//! Logins in the keyring of the desktop: the one of GNOME on a session bus of its own, and keyrings that give nothing.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::matrix::{prepared_command, which};
use crate::harness::process::{Output, Running};
use crate::harness::suite::ignore;
use crate::harness::{Suite, TestEnv, eventually};
use crate::login::{Place, refused};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "login_keyring",
        tests![
            tokens_are_in_the_keyring_and_move_there_and_back,
            a_keyring_that_gives_nothing_leaves_the_file,
        ],
    );
}

const START: Duration = Duration::from_secs(60);
/// A bus that starts nothing by itself: nobody can ask for a password.
const BUS: &str = r#"<busconfig><type>session</type><listen>unix:path=BUS</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
</busconfig>"#;
/// Writes down what it is started with, then is the command itself.
const WATCHED: &str = "#!/bin/sh\necho \"$@\" >>\"$HOME/arguments\"\nexec REAL \"$@\"\n";

/// A session bus with a keyring.
struct Desktop<'a> {
    env: &'a TestEnv,
    bus: PathBuf,
    keyring: Option<Running>,
    _bus: Running,
}

impl<'a> Desktop<'a> {
    fn new(env: &'a TestEnv) -> Self {
        // Clients that start a bridge leave the variables of the session out: it is found without them.
        let bus = env.folder("run").join("bus");
        let config = env.write("bus.conf", BUS.replace("BUS", bus.to_str().unwrap()));
        let mut daemon = env.command(which("dbus-daemon").unwrap());
        daemon.argv.extend(["--nofork".into(), format!("--config-file={}", config.display()).into()]);
        let listens = || UnixStream::connect(&bus).ok().map(drop);
        let _bus = daemon.serve(env.guard(), START, listens);
        Self { env, bus, keyring: None, _bus }
    }

    /// Starts the keyring, in place of the one before.
    fn keyring(&mut self, password: Option<&str>) {
        let Some(words) = prepared_command("KEYRING") else {
            ignore("no keyring was prepared, see tests/check")
        };
        drop(self.keyring.take());
        let mut daemon = self.env.command(&words[0]);
        daemon.argv.extend(["--foreground", "--components=secrets"].map(Into::into));
        daemon.env.insert("DBUS_SESSION_BUS_ADDRESS".into(), self.address().into());
        if password.is_some() {
            daemon.argv.push("--unlock".into());
        }
        let mut running = daemon.spawn(self.env.guard(), Stdio::piped(), Stdio::null(), Stdio::null());
        let mut input = running.child.stdin.take().unwrap();
        input.write_all(password.unwrap_or_default().as_bytes()).unwrap();
        drop(input);
        self.keyring = Some(running);
        eventually("the keyring answers", START, || {
            let found = self.secret_tool(&["search", "application", "nobody"], "");
            found.stderr.is_empty().then_some(())
        });
    }

    fn address(&self) -> String {
        format!("unix:path={}", self.bus.display())
    }

    fn secret_tool(&self, words: &[&str], input: &str) -> Output {
        let mut command = self.env.command(which("secret-tool").unwrap());
        command.argv.extend(words.iter().map(Into::into));
        command.env.insert("DBUS_SESSION_BUS_ADDRESS".into(), self.address().into());
        command.run_with_input(self.env.guard(), input.as_bytes())
    }

    /// The login in the keyring.
    fn secret(&self, key: &str) -> Option<Value> {
        let found = self.secret_tool(&["lookup", "application", "codebridge", "login", key], "");
        serde_json::from_str(&found.stdout).ok()
    }
}

/// A command in place of `secret-tool`.
fn program(env: &TestEnv, text: &str) -> PathBuf {
    let path = env.write("home/bin/secret-tool", text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.parent().unwrap().to_path_buf()
}

fn set(place: &mut Place<'_>, name: &str, value: &str) {
    place.variables.insert(name.into(), value.into());
}

fn path_with(folder: &Path) -> String {
    format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", folder.display())
}

fn kept(place: &Place<'_>) -> Value {
    let listed: Value = serde_json::from_str(&place.run(&["servers", "whoami", "--json"]).ok()).unwrap();
    listed[0]["kept"].clone()
}

fn tokens_are_in_the_keyring_and_move_there_and_back(env: &TestEnv) {
    let mut desktop = Desktop::new(env);
    desktop.keyring(Some("hunter2"));
    let mut place = Place::new(env, &json!({}));
    let watched = program(env, &WATCHED.replace("REAL", which("secret-tool").unwrap().to_str().unwrap()));
    set(&mut place, "PATH", &path_with(&watched));
    set(&mut place, "MCP_BRIDGE_KEYRING", "1");
    place.log_in();
    let written = place.login();
    let key = written["keyring"]["key"].as_str().unwrap().to_owned();
    let first = desktop.secret(&key).unwrap();
    let token = |login: &Value| login["access_token"].as_str().unwrap().to_owned();
    for name in ["access_token", "refresh_token", "client_secret"] {
        assert!(written[name].is_null(), "{name} is in the file");
    }
    let said = place.run(&["call", "web.whoami"]);
    assert!(said.stdout.contains("alice") && !said.to_string().contains(&token(&first)), "{said}");
    assert_eq!(kept(&place), "keyring");
    assert!(place.run(&["servers", "whoami"]).ok().contains("keyring"));

    // It is renewed there.
    let renewals = || place.seen("POST /token 200 grant_type=refresh_token");
    let mut stale = first.clone();
    stale["renew_at"] = json!("2020-01-01T00:00:00Z");
    let entry = ["store", "--label=x", "application", "codebridge", "login", &key];
    assert_eq!(desktop.secret_tool(&entry, &stale.to_string()).code(), Some(0));
    assert_eq!(place.call("web.whoami"), "alice");
    let second = desktop.secret(&key).unwrap();
    assert!(renewals() == 1 && token(&first) != token(&second));
    assert_ne!(written["keyring"]["revision"], place.login()["keyring"]["revision"]);

    // No token was an argument of a command.
    let arguments = fs::read_to_string(env.home().join("arguments")).unwrap();
    assert!(arguments.contains(&key), "{arguments}");
    for login in [&first, &second] {
        for name in ["access_token", "refresh_token"] {
            assert!(!arguments.contains(login[name].as_str().unwrap()), "{name} is an argument");
        }
    }

    // Whoever wants files gets the login from the keyring, and the next one that is written is a file.
    set(&mut place, "MCP_BRIDGE_KEYRING", "0");
    assert_eq!(place.call("web.whoami"), "alice");
    place.log_in();
    assert!(place.login()["access_token"].is_string() && desktop.secret(&key).is_none());
    assert_eq!(kept(&place), "file");

    // A login that is in a file moves to the keyring when it is renewed.
    set(&mut place, "MCP_BRIDGE_KEYRING", "1");
    place.change_login(|login| login["renew_at"] = json!("2020-01-01T00:00:00Z"));
    assert_eq!(place.call("web.whoami"), "alice");
    assert!(place.login()["access_token"].is_null() && desktop.secret(&key).is_some());

    // Another server under this name does not get what is in the keyring.
    let other = desktop.secret(&key).map(|mut login| {
        login["url"] = json!("https://other.example/mcp");
        login.to_string()
    });
    let right = desktop.secret(&key).unwrap().to_string();
    assert_eq!(desktop.secret_tool(&entry, &other.unwrap()).code(), Some(0));
    refused(&place.run(&["call", "web.whoami"]), "the keyring does not have it any more");
    assert_eq!(desktop.secret_tool(&entry, &right).code(), Some(0));

    let ended = || place.seen("POST /token/revocation 200");
    assert_eq!(
        (ended(), place.run(&["servers", "logout", "web"]).ok().as_str()),
        (0, "logged out of 'web'\n")
    );
    assert_eq!(ended(), 1);
    assert!(desktop.secret(&key).is_none() && place.files("MCPs").is_empty());
    set(&mut place, "MCP_BRIDGE_RUNTIME", "crun");
    set(&mut place, "MCP_BRIDGE_IMAGE", "host:");
    let doctor: Value = serde_json::from_str(&place.run(&["doctor", "--json"]).stdout).unwrap();
    assert_eq!(doctor["logins"], json!({ "kept": "keyring", "why": null }));
}

fn a_keyring_that_gives_nothing_leaves_the_file(env: &TestEnv) {
    let mut desktop = Desktop::new(env);
    desktop.keyring(Some("hunter2"));
    let mut place = Place::new(env, &json!({}));
    set(&mut place, "MCP_BRIDGE_KEYRING", "1");
    place.log_in();
    let key = place.login()["keyring"]["key"].as_str().unwrap().to_owned();

    // Locked, as after a new start of the desktop, and nobody is there.
    desktop.keyring(None);
    let locked = place.run(&["call", "web.whoami"]);
    let hint = "hint: unlock the keyring, or keep the login in a file: `MCP_BRIDGE_KEYRING=0 codebridge servers login web`";
    let why = "could not use server 'web': its login is in the keyring, and the keyring is locked";
    assert!(refused(&locked, why).contains(hint), "{locked}");
    // Who is logged in is known without it.
    assert_eq!(kept(&place), "keyring");
    let again = place.run(&["servers", "login", "web"]);
    let warning = "warning: the login is kept in a file that you alone can read: the keyring is locked";
    assert!(again.code() == Some(0) && again.stderr.contains(warning), "{again}");
    assert_eq!((kept(&place), place.call("web.whoami")), (json!("file"), "alice".to_owned()));
    // A logout removes what the keyring had before it refused.
    desktop.keyring(Some("hunter2"));
    assert!(desktop.secret(&key).is_some());
    assert_eq!(place.run(&["servers", "logout", "web"]).ok(), "logged out of 'web'\n");
    assert!(desktop.secret(&key).is_none());
    place.log_in();
    assert!(place.login()["access_token"].is_null() && desktop.secret(&key).is_some());

    // A logout counts also where the keyring cannot be changed.
    desktop.keyring(None);
    let out = place.run(&["servers", "logout", "web"]);
    refused(
        &out,
        "could not finish the logout from 'web': the login is not used any more, but it is still in the keyring: the keyring is locked",
    );
    assert!(place.files("MCPs").is_empty());
    refused(&place.run(&["call", "web.whoami"]), "wants a login");

    // Without its command, and where no keyring runs, there is nothing to be said at a login.
    let silent = |place: &Place<'_>| {
        let said = place.run(&["servers", "login", "web"]);
        assert!(said.code() == Some(0) && !said.stderr.contains("warning: the login"), "{said}");
        assert_eq!(kept(place), "file");
    };
    let programs = env.programs(&["python3", "sh"]);
    set(&mut place, "PATH", programs.to_str().unwrap());
    silent(&place);
    place.variables.remove(OsStr::new("PATH"));
    drop(desktop.keyring.take());
    silent(&place);

    // A bus that never answers.
    let mute = env.folder("run").join("mute");
    let _mute = UnixListener::bind(&mute).unwrap();
    set(&mut place, "DBUS_SESSION_BUS_ADDRESS", &format!("unix:path={}", mute.display()));
    let said = place.run(&["servers", "login", "web"]);
    assert!(said.stderr.contains("the keyring did not answer within 5s"), "{said}");
    assert_eq!((kept(&place), place.call("web.whoami")), (json!("file"), "alice".to_owned()));
}
