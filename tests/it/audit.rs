//! The audit log: what it says of runs and calls, and how the command shows it.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::bridge::LATEST_WITH_INITIALIZE;
use crate::harness::matrix::Kind;
use crate::harness::process::{Output, Transcript, collect};
use crate::harness::{Bridge, Runtime, Suite, TestEnv, eventually};
use crate::policy::{form, with_forms};
use crate::server_access::{define, fake};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "audit",
        tests![
            each_run_and_each_call_has_a_line,
            refusals_are_recorded_and_do_not_flood,
            what_the_person_says_is_recorded,
            code_and_texts_are_recorded_only_in_full,
            names_cannot_forge_lines,
            the_command_selects_and_follows,
            runs_at_once_are_told_apart,
        ],
    );
    suite.on(
        &[Runtime::of_root(Kind::Podman), Runtime::of_root(Kind::Docker)],
        "audit",
        tests![the_digest_of_an_engine_s_image_is_recorded],
    );
}

pub(crate) fn folder(env: &TestEnv) -> PathBuf {
    env.home().join("MCPs/audit")
}

/// The files of lines.
pub(crate) fn files(env: &TestEnv) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(env)).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect();
    files.sort();
    files
}

/// All lines, without the first and the last of each bridge.
pub(crate) fn lines(env: &TestEnv) -> Vec<Value> {
    let text: String = files(env).iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["event"] != "open" && line["event"] != "close").collect()
}

pub(crate) fn of<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

pub(crate) fn audit(env: &TestEnv, words: &[&str]) -> Output {
    env.bridge().args(&[&["audit"], words].concat()).command().run(env.guard())
}

pub(crate) fn is_in_order(env: &TestEnv) {
    let verified = audit(env, &["verify"]);
    assert!(verified.code() == Some(0) && verified.stdout.ends_with(": in order\n"), "{verified}");
}

pub(crate) fn run(bridge: &Bridge<'_>, code: &str) -> String {
    bridge.call(json!({ "code": code, "servers": ["fake"] })).text
}

/// Code that goes on after errors.
pub(crate) const TRY: &str = "
async def attempt(call):
    try:
        return await call()
    except Exception as error:
        return str(error)
";

fn each_run_and_each_call_has_a_line(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few", "--named", "pay-now"]) }));
    env.write("home/MCPs/policy.toml", "[[rule]]\neffect = 'allow'\n");
    let bridge = env.bridge().start();
    let code = "await runtime.call_tool('fake', 'pay_now', {'a': 1})\nprint('secret output')\n";
    let said = run(&bridge, code);
    assert!(said.contains("secret output"), "{said}");
    let _ = bridge.run_in("other", "raise ValueError('secret message')").expect("error");
    let refused = bridge.call(json!({ "code": "1", "servers": ["nope"] }));
    assert_eq!(refused.status(), "validation_error", "{refused}");
    bridge.close();
    let lines = lines(env);
    let starts = of(&lines, "run-start");
    assert_eq!(starts.len(), 2);
    assert_eq!(starts[0]["servers"], json!(["fake"]));
    let calls = of(&lines, "call");
    assert_eq!(calls.len(), 1);
    let call = calls[0];
    let digest = sha256(code);
    let expected = json!({
        "session": "main", "client": "codebridge-tests 1", "principal": "local", "server": "fake", "tool": "pay-now",
        "called_as": "pay_now", "verdict": "allowed", "outcome": "ok", "sent": 8, "code_sha256": digest,
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(call[key], *value, "{key} of {call}");
    }
    assert!(call["rule"].as_str().unwrap().ends_with("policy.toml:1"), "{call}");
    assert!(call["received"].as_u64() > Some(10) && call["milliseconds"].as_f64() > Some(0.0), "{call}");
    assert!(call["runtime"].as_str().unwrap().contains("crun") && call["image"].is_string(), "{call}");
    let run = call["run"].as_str().unwrap();
    assert!(run.len() == 10 && run.ends_with("-1"), "{run}");
    let runs = of(&lines, "run");
    let outcomes: Vec<&Value> = runs.iter().map(|run| &run["outcome"]).collect();
    assert_eq!(outcomes, ["ok", "error", "refused"]);
    assert_eq!((&runs[0]["run"], &runs[0]["calls"]), (&call["run"], &json!(1)));
    assert_eq!((&runs[1]["session"], &runs[1]["error"]), (&json!("other"), &json!("ValueError")));
    assert!(runs[2]["run"].is_null() && runs[2]["error"].as_str().unwrap().contains("nope"), "{}", runs[2]);
    let text: String = files(env).iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    assert!(!text.contains("secret") && !text.contains("await"), "{text}");
    // A call of the command line has no run.
    let _ = env.bridge().args(&["call", "fake.echo", "{}"]).command().run(env.guard()).ok();
    let lines = self::lines(env);
    let call = lines.iter().find(|line| line["client"] == "codebridge call").unwrap();
    assert!(call["run"].is_null() && call["outcome"] == "ok", "{call}");
    is_in_order(env);
    let doctor = env.bridge().args(&["doctor", "--json"]).command().run(env.guard());
    let doctor: Value = serde_json::from_str(&doctor.stdout).unwrap();
    assert_eq!((&doctor["audit"]["mode"], &doctor["audit"]["problems"]), (&json!("on"), &json!([])));
}

fn sha256(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

fn refusals_are_recorded_and_do_not_flood(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]), "other": fake(env, &["--few"]) }));
    env.write(
        "home/MCPs/policy.toml",
        "[[rule]]\nkind = 'artifact'\neffect = 'deny'\n[[rule]]\narguments.'/n' = { less_than = 5 }\neffect = 'allow'\n\
         [[rule]]\narguments.'/n' = { equals = 9 }\neffect = 'ask'\n[budget.run]\ncalls = 1\n",
    );
    env.write("closed/x", "closed");
    let bridge = env.bridge().var("MCP_BRIDGE_SHARE", env.folder("closed")).start();
    let code = format!(
        "{TRY}
for call in (
    lambda: mcp_fake.echo(n=1),
    lambda: mcp_fake.echo(n=2),
    lambda: mcp_fake.echo(n=7),
    lambda: mcp_fake.echo(n=9),
    lambda: mcp_other.echo(n=1),
    lambda: runtime.call_tool('fake', 'nothing', {{'n': 1}}),
):
    await attempt(call)
await attempt(lambda: runtime.save_artifact(b'x', name='mine'))
for n in range(1500):
    await attempt(lambda: mcp_fake.echo(n=7))
"
    );
    let _ = run(&bridge, &code);
    bridge.close();
    let lines = lines(env);
    let calls = of(&lines, "call");
    let verdicts: Vec<(&str, &str)> = calls
        .iter()
        .take(6)
        .map(|call| (call["verdict"].as_str().unwrap_or("-"), call["outcome"].as_str().unwrap()))
        .collect();
    let expected = [
        ("allowed", "ok"),
        ("budget", "denied"),
        ("no-rule", "denied"),
        ("nobody-to-ask", "denied"),
        ("not-granted", "denied"),
        ("-", "not-called"),
    ];
    assert_eq!(verdicts, expected);
    assert!(calls[3]["rule"].as_str().unwrap().ends_with("policy.toml:7"), "{}", calls[3]);
    let denied = of(&lines, "denied");
    let kinds: Vec<(&Value, &Value)> = denied.iter().map(|line| (&line["kind"], &line["name"])).collect();
    assert_eq!(kinds, [(&json!("share"), &json!("closed")), (&json!("artifact"), &json!("mine"))]);
    let run = of(&lines, "run")[0];
    assert_eq!((&run["calls"], &run["refused"]), (&json!(1), &json!(1506)));
    assert_eq!(run["refused_without_line"], 506);
    assert!(calls.len() <= 1001, "{}", calls.len());
    is_in_order(env);
}

fn code_and_texts_are_recorded_only_in_full(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    let bridge = env.bridge().var("MCP_BRIDGE_AUDIT", "full").start();
    let code = "x = 'y' * 10_000\nprint(await mcp_fake.echo(a=1))\nlen(str(await mcp_fake.echo(a=x)))";
    let _ = run(&bridge, code);
    let token = fake(env, &[])["env"]["API_TOKEN"].as_str().unwrap().to_owned();
    let _ = run(&bridge, &format!("await mcp_fake.echo(a='{token}')"));
    bridge.close();
    let lines = lines(env);
    assert_eq!(of(&lines, "run-start")[0]["code"], code);
    let calls = of(&lines, "call");
    assert_eq!(calls[0]["arguments"], json!({ "a": 1 }));
    assert_eq!(calls[0]["result"]["structuredContent"], json!({ "a": 1 }));
    let blob = &calls[1]["blobs"]["arguments"];
    assert_eq!(blob["bytes"], 10_009, "{}", calls[1]);
    let bridge = files(env)[0].with_extension("blobs");
    let file = bridge.join(blob["sha256"].as_str().unwrap());
    assert!(fs::read_to_string(&file).unwrap().starts_with("{\"a\": \"yyyy"));
    assert!(of(&lines, "run")[0]["stdout"].as_str().unwrap().starts_with("{'a': 1}\n"));
    let text = fs::read_to_string(&files(env)[0]).unwrap();
    assert!(!text.contains(&token) && text.contains("[API_TOKEN]"), "{text}");
    is_in_order(env);
    fs::write(&file, "{}").unwrap();
    let verified = audit(env, &["verify"]);
    assert!(verified.code() == Some(1) && verified.stdout.contains("it was changed"), "{verified}");
    assert!(verified.stdout.contains(".jsonl:4: its arguments is in"), "{verified}");
    fs::remove_file(&file).unwrap();
    let verified = audit(env, &["verify"]);
    assert!(verified.code() == Some(1) && verified.stdout.contains("it is missing"), "{verified}");

    let off = env.bridge().var("MCP_BRIDGE_AUDIT", "off").start();
    assert_eq!(off.run("1 + 1").ok(), "2");
    off.close();
    assert_eq!(files(env).len(), 1);
    let wrong = env.bridge().var("MCP_BRIDGE_AUDIT", "some").args(&["exec", "-c", "1"]);
    assert_eq!(wrong.command().run(env.guard()).code(), Some(2));
}

fn names_cannot_forge_lines(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    let bridge = env.bridge().start();
    let code = format!(
        "{TRY}
evil = 'x\\n{{\"n\":1}}\\r\\x1b[31m\\u202e\\x9b\\u2028' + 'y' * 5000
await attempt(lambda: runtime.call_tool('fake', evil, {{}}))
await attempt(lambda: runtime.call_tool(evil, evil, {{}}))
"
    );
    let _ = bridge.call(json!({ "code": code, "servers": ["fake"], "session": "s\n\u{1b}[2J" }));
    let _ = bridge.call(json!({ "code": "1", "session": "main" }));
    bridge.close();
    for line in fs::read_to_string(&files(env)[0]).unwrap().lines() {
        assert!(line.starts_with("{\"n\":") && line.len() < 4000, "{line}");
        assert!(!line.chars().any(|c| c.is_control() || matches!(c, '\u{202e}' | '\u{2028}')), "{line:?}");
    }
    is_in_order(env);
    for form in [&["--json"][..], &[]] {
        let shown = audit(env, form).ok();
        assert!(!shown.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{shown:?}");
        assert_eq!(shown.lines().count(), fs::read_to_string(&files(env)[0]).unwrap().lines().count());
    }
}

fn the_command_selects_and_follows(env: &TestEnv) {
    let nothing = audit(env, &[]);
    assert!(nothing.code() == Some(0) && nothing.stderr.contains("nothing is recorded"), "{nothing}");
    let bridge = env.bridge().start();
    let follow = env.bridge().args(&["audit", "--follow", "--json"]).command();
    let mut following = follow.spawn(env.guard(), Stdio::null(), Stdio::piped(), Stdio::piped());
    let seen = Transcript::default();
    let reader = collect(following.child.stdout.take().unwrap(), seen.clone());
    let _ = bridge.run("1").ok();
    eventually("the first run", env.guard().left(), || seen.text().contains("-1\"").then_some(()));
    let _ = bridge.run("2").ok();
    eventually("the second run", env.guard().left(), || seen.text().contains("-2\"").then_some(()));
    following.signal(Signal::INT);
    assert_eq!(following.wait().code(), Some(130));
    let _ = reader.join();
    bridge.close();
    let lines = lines(env);
    let run = of(&lines, "run")[1]["run"].as_str().unwrap().to_owned();
    let shown = audit(env, &["--run", &run, "--json"]).ok();
    let shown: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(shown.len() == 2 && shown.iter().all(|line| line["run"] == *run), "{shown:?}");
    let table = audit(env, &["--run", &run]).ok();
    assert!(table.contains(&format!("{run}  run of ")) && table.contains("in main  ok"), "{table}");
    let bridge = run.split('-').next().unwrap();
    assert!(audit(env, &["--run", bridge]).ok().lines().count() >= 6);
    assert_eq!(audit(env, &["--since", "1h"]).ok().lines().count(), audit(env, &[]).ok().lines().count());
    // What has no time in the last second is left out.
    let text = fs::read_to_string(&files(env)[0]).unwrap();
    fs::write(&files(env)[0], text.replace("\"time\":\"2", "\"time\":\"1")).unwrap();
    assert_eq!(audit(env, &["--since", "1h"]).ok(), "");
}

fn runs_at_once_are_told_apart(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    let bridge = env.bridge().spawn();
    bridge.initialize(LATEST_WITH_INITIALIZE);
    let start = |session: &str| {
        let code = format!("for n in range(20): await mcp_fake.echo(s='{session}')");
        bridge.start_call(json!({ "code": code, "servers": ["fake"], "session": session }))
    };
    let both = [start("a"), start("b")];
    for pending in both {
        let _ = pending.outcome().ok();
    }
    bridge.close();
    let lines = lines(env);
    let runs = of(&lines, "run");
    assert_eq!(runs.len(), 2);
    for run in runs {
        let calls = of(&lines, "call");
        let own: Vec<_> = calls.iter().filter(|call| call["run"] == run["run"]).collect();
        assert!(own.len() == 20 && own.iter().all(|call| call["session"] == run["session"]), "{run}");
        assert_eq!(run["calls"], 20);
    }
    is_in_order(env);
}

fn what_the_person_says_is_recorded(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    env.write("home/MCPs/policy.toml", "[[rule]]\neffect = 'ask'\n");
    let bridge = with_forms(env);
    let start = |code: &str| bridge.start_call(json!({ "code": code, "servers": ["fake"] }));
    let answers = |shown: &Value, answer: &Value| {
        bridge.send(&json!({ "jsonrpc": "2.0", "id": shown["id"], "result": answer }));
    };
    let pending = start("await mcp_fake.echo(a=1)");
    let shown = form(env, &bridge, 0);
    let yes = &shown["params"]["requestedSchema"]["properties"]["answer"]["enum"][1];
    answers(&shown, &json!({ "action": "accept", "content": { "answer": yes } }));
    let _ = pending.outcome().ok();
    let pending = start("await mcp_fake.echo(a=2)");
    let shown = form(env, &bridge, 1);
    answers(&shown, &json!({ "action": "decline" }));
    let _ = pending.outcome().expect("error");
    let pending = start("await mcp_fake.echo(a=3)");
    let _ = form(env, &bridge, 2);
    pending.0.cancel();
    assert_eq!(bridge.run("1 + 1").ok(), "2");
    bridge.close();
    let lines = lines(env);
    let verdicts: Vec<(&Value, &Value)> =
        of(&lines, "call").iter().map(|call| (&call["verdict"], &call["outcome"])).collect();
    let expected = [("approved", "ok"), ("refused", "denied"), ("withdrawn", "cancelled")];
    assert_eq!(
        verdicts,
        expected.map(|(verdict, outcome)| (json!(verdict), json!(outcome))).each_ref().map(|(a, b)| (a, b))
    );
    is_in_order(env);
}

fn the_digest_of_an_engine_s_image_is_recorded(env: &TestEnv) {
    let bridge = env.bridge().start();
    // The engine is asked while code runs.
    let digest = eventually("the digest", env.guard().left(), || {
        let _ = bridge.run("1").ok();
        let lines = lines(env);
        lines.iter().rev().find_map(|line| Some(line["image_digest"].as_str()?.to_owned()))
    });
    assert!(digest.len() == 71 && digest.starts_with("sha256:"), "{digest}");
    bridge.close();
    is_in_order(env);
}
