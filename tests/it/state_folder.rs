//! The state folder over the versions of the program: what each version has written is read by this one, and a newer folder is
//! refused.
//!
//! `tests/it/state/N` is a folder that the binary of version N has written. `CODEBRIDGE_UPDATE_STATE=1 tests/check --only
//! state_folder` writes that of this version again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::harness::process::Output;
use crate::harness::{Kind, Runtime, Suite, TestEnv};
use crate::http::terminate;
use crate::login::Place;
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.once("state_folder", tests![a_newer_folder_is_refused_and_left_as_it_is]);
    suite.on(
        &[Runtime::of_root(Kind::Crun)],
        "state_folder",
        tests![this_version_writes_what_is_kept_of_it, what_version_1_has_written_is_used],
    );
}

const LEDGER: &str = include_str!("fakes/ledger.py");
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/state/1");
/// The token that alice got when that folder was written: the folder only has its hash.
const TOKEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/state/1-token");

fn command(env: &TestEnv, words: &[&str]) -> Output {
    env.bridge().without("MCP_BRIDGE_LOG_LEVEL").args(words).command().run(env.guard())
}

/// Runs a command in a project that brings a server along. An approval holds for one folder: the project is always at /mnt.
fn in_project(env: &TestEnv, words: &[&str]) -> String {
    let theirs = json!({ "mcpServers": { "theirs": { "command": "python3", "args": ["server.py"] } } });
    let _ = env.write("project/.mcp.json", theirs.to_string());
    let script = format!("mount --bind {} /mnt && cd /mnt && exec \"$@\"", env.folder("project").display());
    let builder = env.bridge().without("MCP_BRIDGE_LOG_LEVEL").args(words);
    let builder = builder.behind(["unshare", "--mount", "--", "sh", "-c", &script, "sh"]);
    builder.command().run(env.guard()).ok()
}

fn listed(env: &TestEnv, words: &[&str]) -> Value {
    serde_json::from_str(&command(env, words).ok()).unwrap()
}

fn state(env: &TestEnv) -> PathBuf {
    env.home().join("MCPs")
}

fn a_newer_folder_is_refused_and_left_as_it_is(env: &TestEnv) {
    env.write("home/MCPs/schema-version", "2\n");
    let commands: &[&[&str]] = &[
        &[],
        &["serve"],
        &["exec", "-c", "1"],
        &["workflow", "ls"],
        &["doctor"],
        &["servers"],
        &["tools", "search", "append"],
        &["search-model", "status"],
        &["call", "ledger.append"],
        &["gc", "--yes"],
        &["runs"],
        &["artifact", "ls"],
        &["saved", "ls"],
        &["policy", "check", "ledger.append"],
        &["audit", "verify"],
        &["replay", "0"],
        &["console"],
        &["token", "add", "alice"],
    ];
    // Sandboxes are recorded in the runtime folder, images and packages are in the data and cache folders.
    let others: &[&[&str]] = &[
        &["ps"],
        &["reap"],
        &["image", "ls"],
        &["packages", "ls"],
        &["setup", "--list"],
        &["help"],
        &["completions", "bash"],
    ];
    let help = command(env, &["--help"]).ok();
    let all =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let all: BTreeSet<&str> = all.filter_map(|line| line.split_whitespace().next()).collect();
    let named = commands.iter().chain(others).filter_map(|words| words.first().copied());
    assert_eq!(all, named.collect::<BTreeSet<&str>>());
    for words in commands {
        let refused = command(env, words);
        assert_eq!(refused.code(), Some(78), "{refused}");
        let error =
            "was written by a newer codebridge: it has version 2, and this program reads versions up to 1";
        assert!(
            refused.stderr.contains(error) && refused.stderr.contains("\nhint: update codebridge"),
            "{refused}"
        );
    }
    assert_eq!(paths(&state(env)), BTreeSet::from(["schema/version".into()]));
    for words in others {
        let done = command(env, words);
        // What other tests have left may be out of reach.
        let is_done = done.code() == Some(0) || (*words == ["reap"] && done.code() != Some(78));
        assert!(is_done, "it does not use the folder: {done}");
    }
    env.write("home/MCPs/schema-version", "two");
    let damaged = command(env, &["servers"]);
    assert!(damaged.code() == Some(78) && damaged.stderr.contains("hint: write the number"), "{damaged}");
}

/// Has this program write each kind of state that it has without a network.
fn write_state(env: &TestEnv) {
    env.write("home/ledger.py", LEDGER);
    let add =
        ["servers", "add", "ledger", "--description", "a ledger", "--", "python3", "ledger.py", "written"];
    let commands: &[&[&str]] =
        &[&add, &["servers", "refresh"], &["policy", "init"], &["policy", "accept", "ledger", "--yes"]];
    for words in commands {
        let _ = command(env, words).ok();
    }
    let policy = "[[rule]]\nserver = \"ledger\"\neffect = \"allow\"\n\n[[rule]]\nkind = \"artifact\"\neffect = \"allow\"\n";
    env.write("home/MCPs/policy.toml", policy);
    let code = python!("state_folder", "saves");
    let _ = command(env, &["exec", "--server", "ledger", "-c", code]).ok();
    let steps = env.write("home/steps.py", python!("state_folder", "steps"));
    let failed = command(env, &["workflow", "run", steps.to_str().unwrap()]);
    assert_eq!(failed.code(), Some(1), "{failed}");
    let bridge = env.bridge().start();
    let begun = bridge.call(json!({ "code": "print('in the background')", "background": true }));
    assert!(begun.text.contains("in the background"), "{begun}");
    bridge.close();
    assert!(in_project(env, &["servers", "trust", "theirs"]).contains("server.py"));
}

/// Has this program write what it has of a user of `serve --http`. Returns the user's token.
fn write_state_of_alice(env: &TestEnv) -> String {
    let token = env.token(&["alice", "--scope", "mcp,console"]);
    let http = env.bridge().var("MCP_BRIDGE_USER_BYTES", "1m").listen();
    let code = python!("state_folder", "saves_for_alice");
    assert_eq!(http.client(&token).run(code).ok(), "for alice");
    terminate(http);
    token
}

/// The files of a folder, with what is random in their names replaced.
fn paths(folder: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            let parts = name.split(['/', '.', '-']).map(|part| {
                let is_random = part.len() >= 8 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
                if is_random { "*" } else { part }
            });
            all.insert(parts.collect::<Vec<_>>().join("/"));
        }
    }
    all
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            let _ = fs::copy(&path, &target).unwrap();
        }
    }
}

fn this_version_writes_what_is_kept_of_it(env: &TestEnv) {
    write_state(env);
    let token = write_state_of_alice(env);
    // The server does not answer any more when the folder is used.
    assert!(Place::new(env, &json!({})).log_in().contains("logged in to 'web'"));
    if std::env::var_os("CODEBRIDGE_UPDATE_STATE").is_some() {
        let _ = fs::remove_dir_all(KEPT);
        copy(&state(env), Path::new(KEPT));
        fs::write(TOKEN, token).unwrap();
    }
    let (now, kept) = (paths(&state(env)), paths(Path::new(KEPT)));
    assert_eq!(
        now, kept,
        "another kind of file is part of the state: write {KEPT} again, see the head of this test"
    );
}

fn what_version_1_has_written_is_used(env: &TestEnv) {
    copy(Path::new(KEPT), &state(env));
    // Its server is not there: what is known of it is in the folder.
    let names = |list: Value| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|one| one["name"].clone()).collect()
    };
    assert_eq!(names(listed(env, &["saved", "ls", "--json"])), ["double"]);
    assert_eq!(names(listed(env, &["servers", "--json"])), ["ledger", "web"]);
    assert_eq!(names(listed(env, &["token", "ls", "--json"])), ["alice"]);
    assert_eq!(listed(env, &["artifact", "ls", "--all", "--json"]).as_array().unwrap().len(), 2);
    assert_eq!(command(env, &["artifact", "get", "notes.txt", "--version", "1"]).ok(), "first");
    let found = command(env, &["tools", "search", "append", "a", "line"]).ok();
    assert!(found.contains("ledger.append"), "{found}");
    let allowed = command(env, &["policy", "check", "ledger.append"]).ok();
    assert!(allowed.contains("allow"), "{allowed}");
    let workflows = listed(env, &["workflow", "ls", "--json"]);
    let shown = listed(env, &["workflow", "show", workflows[0]["id"].as_str().unwrap(), "--json"]);
    assert_eq!((&shown["status"], &shown["finished"]), (&json!("error"), &json!(1)));
    assert!(command(env, &["runs"]).ok().contains("success"));
    assert!(command(env, &["audit"]).ok().contains("ledger.append"));
    assert_eq!(command(env, &["audit", "verify"]).code(), Some(0));
    let accounts = listed(env, &["servers", "whoami", "--json"]);
    assert_eq!(
        (&accounts[0]["server"], &accounts[0]["renewed"]),
        (&json!("web"), &json!(true)),
        "{accounts}"
    );
    let in_project: Value = serde_json::from_str(&in_project(env, &["servers", "--json"])).unwrap();
    let theirs = in_project.as_array().unwrap().iter().find(|server| server["name"] == "theirs").unwrap();
    assert_eq!(theirs["state"], "new", "{in_project}");
    alice_goes_on(env);
    // It goes on from there.
    let code = python!("state_folder", "uses");
    let used = command(env, &["exec", "-c", code]);
    assert!(used.stdout.starts_with("42 b'second'\n"), "{used}");
    assert_eq!(listed(env, &["artifact", "ls", "--all", "--json"]).as_array().unwrap().len(), 3);
    assert_eq!(command(env, &["audit", "verify"]).code(), Some(0));
    assert_eq!(fs::read_to_string(state(env).join("schema-version")).unwrap(), "1\n");
}

/// The user of `serve --http` has the token, the functions, the files and the quota of before.
fn alice_goes_on(env: &TestEnv) {
    let token = fs::read_to_string(TOKEN).unwrap();
    let http = env.bridge().listen();
    let code = python!("state_folder", "uses_of_alice");
    assert_eq!(http.client(&token).run(code).ok(), "63 b'of alice'");
    terminate(http);
    // As if it had been written today: what was used of the day is more than that.
    let file = state(env).join("principals/alice/usage");
    let mut usage: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    usage["day"] = json!(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400);
    fs::write(&file, usage.to_string()).unwrap();
    let http = env.bridge().var("MCP_BRIDGE_USER_BYTES", "5").listen();
    let refused = http.client(&token).run("1").expect("validation_error");
    assert!(refused.error().contains("MCP_BRIDGE_USER_BYTES"), "{refused}");
    terminate(http);
}
