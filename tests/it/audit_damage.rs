//! An audit log that was changed, or that cannot be written.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::audit::{audit, files, folder, is_in_order, lines, of, run};
use crate::harness::matrix::Kind;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::server_access::{define, fake};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "audit_damage",
        tests![
            verify_finds_what_is_changed_removed_or_cut_off,
            a_killed_bridge_leaves_a_log_in_order,
            a_log_that_cannot_be_written_is_said,
            where_it_is_required_nothing_happens_without_it,
        ],
    );
    suite.on(&[Runtime::of_root(Kind::Runc)], "audit_damage", tests![a_full_disk_is_said_and_calls_go_on]);
}

fn verify_finds_what_is_changed_removed_or_cut_off(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    let bridge = env.bridge().start();
    let _ = run(&bridge, "for n in range(5): await mcp_fake.echo(n=n)");
    bridge.close();
    is_in_order(env);
    let heads = audit(env, &["verify", "--json"]).ok();
    let heads = env.write("heads.json", heads);
    let file = files(env).remove(0);
    let name = file.file_name().unwrap().to_str().unwrap();
    let whole = fs::read_to_string(&file).unwrap();
    let all: Vec<&str> = whole.lines().collect();
    let finds = |text: &str, expected: &str| {
        fs::write(&file, text).unwrap();
        let verified = audit(env, &["verify"]);
        assert_eq!(verified.code(), Some(1), "{verified}");
        let expected = format!("{name}{expected}");
        assert!(verified.stdout.contains(&expected), "{expected}\n{verified}");
        assert_eq!(verified.stdout.lines().count(), 2, "{verified}");
        fs::write(&file, &whole).unwrap();
    };
    let joined = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    finds(&whole.replacen("\"tool\":\"echo\"", "\"tool\":\"eche\"", 1), ":3: it was changed: the next line");
    let last = all.len();
    finds(
        &joined(&[&all[..last - 1], &[&all[last - 1].replace("close", "clear")]].concat()),
        &format!(":{last}: it was changed: the head of the log refers to another text"),
    );
    finds(&joined(&[&all[..3], &all[4..]].concat()), ":4: the line before it is missing: number 4");
    finds(&joined(&[&all[..2], &all[4..]].concat()), ":3: lines before it are missing: the numbers 3 to 4");
    finds(&joined(&all[..last - 2]), &format!(":{}: the log is cut off after it: 2 more lines", last - 2));
    finds(
        &whole[..whole.len() - 5],
        &format!(":{}: the log is cut off after it: 1 more line was written", last - 1),
    );
    finds(&joined(&all[2..]), ":1: the lines before it are missing: it has the number 3");
    finds(&whole.replacen('{', "[", 1), ":1: it was changed: it is no line of the log");
    fs::remove_file(&file).unwrap();
    let gone = audit(env, &["verify"]);
    assert!(gone.code() == Some(1) && gone.stdout.contains("the files of this bridge are missing"), "{gone}");

    // With its head too: only a head that was kept elsewhere tells.
    fs::remove_file(file.with_extension("head")).unwrap();
    is_in_order(env);
    let kept = audit(env, &["verify", "--heads", heads.to_str().unwrap()]);
    assert!(kept.code() == Some(1) && kept.stdout.contains("all of its files are missing"), "{kept}");
    fs::write(&file, &whole).unwrap();
    let headless = audit(env, &["verify"]);
    assert!(headless.code() == Some(1) && headless.stdout.contains(".head: it is missing"), "{headless}");
    let doctor = env.bridge().args(&["doctor"]).command().run(env.guard());
    assert!(doctor.stdout.contains("the log was changed"), "{doctor}");
}

fn a_killed_bridge_leaves_a_log_in_order(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    let bridge = env.bridge().start();
    let pending = bridge.start_call(
        json!({ "code": "n = 0\nwhile True: await mcp_fake.echo(n=(n := n + 1))", "servers": ["fake"] }),
    );
    eventually("calls in the log", env.guard().left(), || {
        let text = fs::read_to_string(files(env).first()?).ok()?;
        (text.matches("\"call\"").count() > 50).then_some(())
    });
    bridge.signal(Signal::KILL);
    drop(pending);
    let _ = bridge.wait(env.guard().left());
    is_in_order(env);
    // As if it had been killed in the middle of a line.
    let file = files(env).remove(0);
    let mut text = fs::read(&file).unwrap();
    text.extend_from_slice(b"{\"n\":99999,\"ti");
    fs::write(&file, text).unwrap();
    let verified = audit(env, &["verify"]);
    assert!(verified.code() == Some(0), "{verified}");
    assert!(
        verified.stdout.contains("ends within a line: its bridge is writing it, or was ended"),
        "{verified}"
    );
}

fn a_log_that_cannot_be_written_is_said(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    // A file where the folder should be.
    env.write("home/MCPs/audit", "");
    let bridge = env.bridge().start();
    let outcome = bridge.call(json!({ "code": "await mcp_fake.echo(a=1)", "servers": ["fake"] }));
    let notices = outcome.notices();
    assert!(outcome.text.contains("{'a': 1}"), "{outcome}");
    assert!(
        notices.contains("the audit log cannot be written") && notices.contains("not recorded"),
        "{outcome}"
    );
    // It is written again as soon as that is possible, and says what is missing.
    fs::remove_file(folder(env)).unwrap();
    let outcome = bridge.call(json!({ "code": "await mcp_fake.echo(a=2)", "servers": ["fake"] }));
    assert!(!outcome.notices().contains("audit"), "{outcome}");
    let _ = bridge.close();
    let lines = lines(env);
    let lost = of(&lines, "lost");
    // The last lines of the first run may have been waiting still: each line is written or counted.
    let written: usize = ["run-start", "call", "run"].iter().map(|event| of(&lines, event).len()).sum();
    let missing = lost[0]["lines"].as_u64().unwrap() as usize;
    assert!(lost.len() == 1 && (1..=3).contains(&missing) && written + missing == 6, "{lines:?}");
    is_in_order(env);

    // Others could write it.
    fs::set_permissions(folder(env), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let said = env.bridge().args(&["exec", "-c", "print(1)"]).command().run(env.guard());
    assert!(said.code() == Some(0) && said.stderr.contains("can be written by other users"), "{said}");
}

fn where_it_is_required_nothing_happens_without_it(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    let bridge = env.bridge().var("MCP_BRIDGE_AUDIT", "required").start();
    assert!(run(&bridge, "await mcp_fake.echo(a=1)").contains("{'a': 1}"));
    let lines = lines(env);
    let events: Vec<&Value> = lines.iter().map(|line| &line["event"]).collect();
    assert_eq!(events, ["run-start", "call-start", "call", "run"]);
    assert_eq!(lines[1]["run"], lines[2]["run"]);
    // From here on it cannot be written: it is gone, and so is the right to make it again.
    fs::remove_dir_all(folder(env)).unwrap();
    env.write("home/MCPs/audit", "");
    let refused =
        bridge.call(json!({ "code": "await mcp_fake.echo(a=2)", "servers": ["fake"] })).expect("error");
    assert!(refused.error().contains("the code did not run: the audit log cannot be written"), "{refused}");
    bridge.close();
    let called = env.bridge().var("MCP_BRIDGE_AUDIT", "required").args(&["call", "fake.echo", "{}"]);
    let called = called.command().run(env.guard());
    assert!(
        called.code() == Some(74) && called.stderr.contains("the call of fake.echo is not made"),
        "{called}"
    );
    assert!(called.stderr.contains("hint: "), "{called}");
}

fn a_full_disk_is_said_and_calls_go_on(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    let folder = env.folder("home/MCPs/audit");
    let script = format!(
        "mount -t tmpfs -o size=16k,mode=700 none {0} && \"$@\"; status=$?; {1} audit verify --state-dir {2}; \
         {1} audit --json --state-dir {2}; exit $status",
        folder.display(),
        env.binary().display(),
        env.home().join("MCPs").display(),
    );
    let behind = || ["unshare", "--mount", "--", "sh", "-c", &script, "sh"];
    let code = "for n in range(100): await mcp_fake.echo(n=n)\nprint('all')";
    let exec = ["exec", "--server", "fake", "-c", code];
    let said = env.bridge().args(&exec).behind(behind()).command().run(env.guard());
    assert!(said.code() == Some(0) && said.stdout.starts_with("all\n"), "{said}");
    assert!(said.stderr.contains("No space left on device"), "{said}");
    assert!(said.stdout.contains(": in order\n"), "{said}");
    let required = env.bridge().var("MCP_BRIDGE_AUDIT", "required").args(&exec);
    let refused = required.behind(behind()).command().run(env.guard());
    assert_eq!(refused.code(), Some(1), "{refused}");
    assert!(refused.stderr.contains("the call of fake.echo is not made: the audit log"), "{refused}");
    let lines = refused.stdout.lines().filter(|line| line.starts_with('{'));
    let calls: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |event: &str| calls.iter().filter(|line| line["event"] == event).count();
    assert!(count("call-start") > 3 && count("call-start") < 30, "{refused}");
}
