//! The user's MCP servers through the real binary: found, called, and gone when the bridge is.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::process::{Prepared, start_time};
use crate::harness::{Suite, TestEnv, eventually};
use crate::tests;

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fakes/mcp_server.py");
/// What the guardian allows servers, and some more for a busy machine.
const REMOVAL: Duration = Duration::from_secs(20);

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "servers",
        tests![
            definitions_are_listed_and_their_tools_called,
            a_tool_that_fails_and_a_server_that_fails_are_told_apart_from_success,
            servers_end_with_a_bridge_that_is_killed,
        ],
    );
}

/// A home with one server, and the bridge's command line.
fn bridge(env: &TestEnv, args: &[&str], words: &[&str]) -> Prepared {
    let args: Vec<&str> = [FAKE].iter().chain(args).copied().collect();
    let fake = json!({ "command": "python3", "args": args, "env": { "A_TOKEN": "hunter2!" }, "description": "says it again" });
    let off = json!({ "command": "x", "disabled": true });
    let all = json!({ "mcpServers": { "my-fake": fake, "off": off } });
    env.write("home/MCPs/all.json", all.to_string());
    let mut command = env.command(env.binary());
    command.argv.extend(words.iter().map(Into::into));
    command.cwd = env.folder("home");
    command
}

fn definitions_are_listed_and_their_tools_called(env: &TestEnv) {
    let listed = bridge(env, &[], &["servers", "--json"]).run(env.guard()).ok();
    assert!(!listed.contains("hunter2"), "{listed}");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["alias"]), (&json!("my-fake"), &json!("my_fake")));
    assert_eq!(
        (&listed[0]["transport"], &listed[0]["description"]),
        (&json!("stdio"), &json!("says it again"))
    );
    assert!(listed[1]["skipped"].as_str().unwrap().contains("disabled"), "{listed}");
    let pids = env.folder("home").join("pids");
    let words = ["call", "my_fake.echo", r#"{"z": 123456789012345678901234567890, "a": "\u00e9"}"#];
    let said = bridge(env, &["--pids", pids.to_str().unwrap()], &words).run(env.guard()).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["structuredContent"].to_string(), r#"{"z":123456789012345678901234567890,"a":"é"}"#);
    let pid: u32 = fs::read_to_string(pids).unwrap().trim().parse().unwrap();
    assert_eq!(start_time(pid), None, "the server is still there");
}

fn a_tool_that_fails_and_a_server_that_fails_are_told_apart_from_success(env: &TestEnv) {
    let failed = bridge(env, &[], &["call", "my-fake.fail"]).run(env.guard());
    assert!(failed.code() == Some(76) && failed.stdout.contains("no luck"), "{failed}");
    let crashed =
        bridge(env, &[], &["call", "my-fake.crash", r#"{"words": "hunter2! is to blame"}"#]).run(env.guard());
    assert_eq!((crashed.code(), crashed.stdout.as_str()), (Some(76), ""), "{crashed}");
    assert!(
        crashed.stderr.contains("exit status: 3") && crashed.stderr.contains("[A_TOKEN] is to blame"),
        "{crashed}"
    );
    let unknown = bridge(env, &[], &["call", "my-fak.echo"]).run(env.guard());
    assert!(unknown.code() == Some(76) && unknown.stderr.contains("did you mean 'my-fake'?"), "{unknown}");
}

fn servers_end_with_a_bridge_that_is_killed(env: &TestEnv) {
    let pids = env.folder("home").join("pids");
    let stubborn = ["--ignore-eof", "--ignore-term", "--grandchild", "--pids", pids.to_str().unwrap()];
    let calling = bridge(env, &stubborn, &["call", "my-fake.never"]);
    let mut bridge = calling.spawn(env.guard(), Stdio::null(), Stdio::null(), Stdio::null());
    let pids = eventually("the server is up", env.guard().left(), || fs::read_to_string(&pids).ok());
    let pids: Vec<u32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.iter().filter(|pid| start_time(**pid).is_some()).count(), 2);
    bridge.signal(Signal::KILL);
    bridge.wait();
    eventually("the server and its child are gone", REMOVAL, || {
        pids.iter().all(|pid| start_time(*pid).is_none()).then_some(())
    });
}
