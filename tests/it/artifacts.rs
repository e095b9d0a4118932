//! Artifacts: files that code keeps for the user, for later sessions and other bridges.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::matrix::Kind;
use crate::harness::process::Output;
use crate::harness::{Bridge, Runtime, Suite, TestEnv};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("artifacts", tests![what_is_saved_is_there_in_every_later_session]);
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "artifacts",
        tests![
            a_large_artifact_moves_with_flat_memory,
            a_name_is_no_path,
            what_is_interrupted_leaves_nothing,
            the_limit_is_said_and_the_session_lives,
            forged_frames_and_questions_reach_nothing,
            the_command_line_lists_gets_and_removes,
        ],
    );
}

fn command(env: &TestEnv, words: &[&str]) -> Output {
    env.bridge().args(&[&["artifact"], words].concat()).command().run(env.guard())
}

fn read(bridge: &Bridge<'_>, uri: &str) -> Value {
    bridge.ask("resources/read", json!({ "uri": uri }))["contents"][0].clone()
}

/// The names in a folder of artifacts, those of the staging folder included.
fn left(env: &TestEnv) -> Vec<String> {
    let names = |folder: &str| {
        let entries = fs::read_dir(env.home().join("MCPs/artifacts").join(folder)).into_iter().flatten();
        entries.flatten().map(|entry| entry.file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let mut found = [names(""), names(".staging")].concat();
    found.retain(|name| name != ".staging" && name != "lock");
    found.sort();
    found
}

fn what_is_saved_is_there_in_every_later_session(env: &TestEnv) {
    let bridge = env.bridge().start();
    let arguments =
        json!({ "name": "run_python", "arguments": { "code": python!("artifacts", "every_kind") } });
    let result = bridge.ask("tools/call", arguments);
    let text = result["content"][0]["text"].as_str().unwrap();
    let expected = "[('p.txt', 1, 4), ('again.txt', 1, 4), ('b.bin', 1, 6), ('t.txt', 1, 7), ('f', 1, 4), \
                    ('i', 1, 1000000), ('t.txt', 2, 6)]\nfiles: p.txt (4 B)\nsaved artifact p.txt (4 B)\n";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.ends_with("saved artifact t.txt, version 2 (6 B)"), "{text}");
    let link = &result["content"][1];
    let uri = "codebridge://artifacts/p.txt?version=1";
    assert_eq!((&link["type"], &link["uri"]), (&json!("resource_link"), &json!(uri)));
    assert_eq!((&link["description"], &link["size"]), (&json!("from a path"), &json!(4)));
    assert_eq!(result["structuredContent"]["artifacts"][6]["version"], 2);
    let uri_of_second = "codebridge://artifacts/t.txt?version=2";
    assert_eq!(result["structuredContent"]["artifacts"][6]["uri"], uri_of_second);
    assert_eq!(read(&bridge, uri)["text"], "path");
    assert_eq!(read(&bridge, "codebridge://artifacts/t.txt")["text"], "second");
    assert_eq!(read(&bridge, "codebridge://artifacts/t.txt?version=1")["text"], "text ä");
    let listed = bridge.ask("resources/list", json!({}))["resources"].to_string();
    assert_eq!(listed.matches("codebridge://artifacts/").count(), 6, "{listed}");
    // Another bridge at the same time, and another session.
    let other = env.bridge().start();
    let code = "[one['name'] for one in runtime.artifacts()], runtime.load_artifact('b.bin')";
    let names = "['again.txt', 'b.bin', 'f', 'i', 'p.txt', 't.txt']";
    assert_eq!(other.run(code).ok(), format!("({names}, b'\\x00bytes')"));
    let code = "open(await runtime.load_artifact('t.txt', 'x.txt', version=1), encoding='utf-8').read()";
    assert_eq!(bridge.run_in("later", code).ok(), "'text ä'");
    let _ = other
        .run("runtime.load_artifact('nothing')")
        .expect("error")
        .because("there is no artifact 'nothing'");
    other.close();
    bridge.close();
}

fn a_large_artifact_moves_with_flat_memory(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run("1").expect("success");
    let before = bridge.peak_memory();
    // More than the disks of the sandbox.
    let code = format!("PIECES = 256\n{}", python!("artifacts", "larger_than_the_disk"));
    let saved = bridge.call(json!({ "code": code, "timeout": 120 }));
    assert_eq!(saved.ok(), "True True");
    let loaded = bridge.call(json!({ "code": python!("artifacts", "load_large"), "timeout": 120 }));
    assert_eq!(loaded.ok(), "True");
    let grown = bridge.peak_memory().saturating_sub(before);
    assert!(grown < 24 << 20, "{} MiB", grown >> 20);
    let first = read(&bridge, "codebridge://artifacts/large.bin");
    assert_eq!(first["_meta"]["next"], "codebridge://artifacts/large.bin?start=1048576");
    bridge.close();
}

fn a_name_is_no_path(env: &TestEnv) {
    let bridge = env.bridge().start();
    assert_eq!(bridge.run(python!("artifacts", "bad_names")).ok(), "refused");
    assert!(left(env).is_empty(), "{:?}", left(env));
    let outside = fs::read_dir(env.home().join("MCPs")).into_iter().flatten().flatten();
    assert!(outside.map(|entry| entry.file_name()).all(|name| name != "x"), "something is outside");
    for name in ["..", "../x", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", ".staging", "a%00b"] {
        let uri = format!("codebridge://artifacts/{name}");
        let (answer, _) = bridge.request("resources/read", json!({ "uri": uri })).answer();
        assert_eq!(answer["error"]["code"], -32002, "{answer}");
    }
    bridge.close();
}

fn what_is_interrupted_leaves_nothing(env: &TestEnv) {
    let bridge = env.bridge().start();
    let endless = python!("artifacts", "endless");
    // A cancelled call, one that runs too long, code that raises, a bridge that is killed.
    let saving = bridge.start_until_ready("main", endless, json!({ "timeout": 100 }));
    saving.0.cancel();
    let late = bridge.call(json!({ "code": endless, "timeout": 1 }));
    assert_eq!(late.status(), "timeout", "{late}");
    let _ =
        bridge.run(python!("artifacts", "fails_in_the_middle")).expect("error").because("ValueError: middle");
    assert_eq!(bridge.run("runtime.artifacts()").ok(), "[]");
    let killed = env.bridge().start();
    let _saving = killed.start_until_ready("main", endless, json!({ "timeout": 100 }));
    killed.signal(Signal::KILL);
    let _ = killed.wait(std::time::Duration::from_secs(60));
    let _ = bridge.run("runtime.save_artifact(b'x', name='whole')").expect("success");
    assert_eq!(left(env), ["whole"]);
    bridge.close();
}

fn the_limit_is_said_and_the_session_lives(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_ARTIFACTS_LIMIT", "20m").start();
    let _ = bridge.run("x = runtime.save_artifact(bytes(15 << 20), name='a')").expect("success");
    let full = bridge.run(python!("artifacts", "endless")).expect("error");
    let why = "the artifact 'endless' does not fit: 15.0 MiB of 20.0 MiB are in use; hint: remove some with";
    assert!(full.error().contains(why), "{full}");
    assert_eq!(bridge.run("len(runtime.load_artifact('a'))").ok(), (15 << 20).to_string());
    let _ = bridge.run("x = runtime.save_artifact(bytes(1 << 20), name='b')").expect("success");
    assert_eq!(left(env), ["a", "b"]);
    // A disk that is full, in place of one: nothing can be written there.
    let _ = fs::remove_dir_all(env.home().join("MCPs/artifacts/.staging"));
    fs::write(env.home().join("MCPs/artifacts/.staging"), "").unwrap();
    let broken = bridge.run("runtime.save_artifact(b'x', name='c')").expect("error");
    assert!(broken.error().contains("the bridge could not create the artifact"), "{broken}");
    assert!(!broken.text.contains("MCPs"), "the sandbox learns a path of the host: {broken}");
    assert_eq!(bridge.run("1 + 1").ok(), "2");
    bridge.close();
}

fn forged_frames_and_questions_reach_nothing(env: &TestEnv) {
    let bridge = env.bridge().start();
    let text = bridge.run(python!("artifacts", "forged")).ok();
    let busy = "a session saves at most 4 artifacts at the same time";
    assert_eq!(text, format!("4 {busy}\n5 {busy}"));
    bridge.close();
    assert_eq!(command(env, &["ls"]).ok(), "no artifacts\n");
}

fn the_command_line_lists_gets_and_removes(env: &TestEnv) {
    let code = "for text in 'one', 'three': x = runtime.save_artifact(text, name='a.txt', description='why')";
    let ran = env.bridge().args(&["exec", "--log-level", "warn", "-c", code]).command().run(env.guard());
    assert_eq!(ran.stderr, "note: saved artifact a.txt (3 B)\nnote: saved artifact a.txt, version 2 (5 B)\n");
    let listed: Value = serde_json::from_str(&command(env, &["ls", "--json", "--all"]).ok()).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!((&listed[1]["version"], &listed[1]["bytes"]), (&json!(2), &json!(5)));
    let table = command(env, &["ls"]).ok();
    assert!(
        table.starts_with("NAME   VERSION  SIZE  SAVED") && table.contains("a.txt  2        5 B"),
        "{table}"
    );
    assert_eq!(command(env, &["get", "a.txt"]).ok(), "three");
    assert_eq!(command(env, &["get", "a.txt", "--version", "1"]).ok(), "one");
    let file = env.folder("got").join("file");
    let path = file.to_str().unwrap();
    let _ = command(env, &["get", "a.txt", "-o", path]).ok();
    let refused = command(env, &["get", "a.txt", "--version", "1", "-o", path]);
    assert_eq!(refused.code(), Some(74), "{refused}");
    assert!(refused.stderr.contains("it exists\nhint: replace existing files with --force"), "{refused}");
    assert_eq!(fs::read(&file).unwrap(), b"three");
    let _ = command(env, &["get", "a.txt", "--version", "1", "-o", path, "--force"]).ok();
    assert_eq!(fs::read(&file).unwrap(), b"one");
    let exported = env.folder("exported");
    let _ = command(env, &["export", exported.to_str().unwrap()]).ok();
    assert_eq!(fs::read(exported.join("a.txt")).unwrap(), b"three");
    let unknown = command(env, &["get", "b.txt"]);
    assert_eq!(unknown.code(), Some(2), "{unknown}");
    assert!(
        unknown.stderr.contains("there is no artifact 'b.txt'\nhint: did you mean a.txt? `codebridge"),
        "{unknown}"
    );
    assert_eq!(command(env, &["prune"]).code(), Some(2));
    assert_eq!(command(env, &["prune", "--keep", "1"]).ok(), "removed a.txt, version 1\nfreed 3 B\n");
    assert_eq!(command(env, &["rm", "a.txt"]).ok(), "removed a.txt, version 2\nfreed 5 B\n");
    assert_eq!(command(env, &["ls"]).ok(), "no artifacts\n");
}
