//! Files of `/workspace`: a result names what its run made or changed, clients read it while the session lives, and `exec`
//! copies it to a folder.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::matrix::Kind;
use crate::harness::{Bridge, Runtime, Suite, TestEnv};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("files", tests![changed_files_are_named_and_can_be_read]);
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "files",
        tests![
            hostile_files_cost_nobody_anything,
            a_large_tree_is_named_in_part_and_costs_little,
            background_output_does_not_hide_the_files,
            the_size_of_the_workspace_is_a_setting,
            exec_copies_what_a_run_leaves,
        ],
    );
    suite.on(&[Runtime::of_root(Kind::Runc)], "files", tests![a_forged_list_of_files_makes_no_folders]);
}

fn read(bridge: &Bridge<'_>, uri: &str) -> Result<Value, String> {
    let (answer, _) = bridge.request("resources/read", json!({ "uri": uri })).answer();
    match answer.get("error") {
        Some(error) => Err(error["message"].as_str().unwrap().to_owned()),
        None => Ok(answer["result"]["contents"][0].clone()),
    }
}

fn changed_files_are_named_and_can_be_read(env: &TestEnv) {
    let bridge = env.bridge().start();
    let made = bridge.run(python!("changed_files", "make"));
    assert_eq!(made.text, "done\nfiles: out.csv (1.1 KiB), sub/x/p.png (4 B)");
    let (csv, png) =
        ("codebridge://sessions/main/files/out.csv", "codebridge://sessions/main/files/sub/x/p.png");
    let expected = json!([
        { "path": "out.csv", "bytes": 1200, "uri": csv },
        { "path": "sub/x/p.png", "bytes": 4, "uri": png },
    ]);
    assert_eq!(made.structured["files"], expected);
    let quiet = bridge.run("1 + 1");
    assert_eq!((quiet.text.as_str(), &quiet.structured["files"]), ("2", &Value::Null));
    assert_eq!(bridge.run("_ = open('out.csv', 'a').write('x')").text, "files: out.csv (1.1 KiB)");
    // Also beside running code.
    let busy = bridge.start_until_ready("main", python!("changed_files", "busy"), json!({ "timeout": 100 }));
    let text = read(&bridge, csv).unwrap();
    assert_eq!((&text["mimeType"], text["text"].as_str().unwrap().len()), (&json!("text/csv"), 1201));
    let rest = read(&bridge, &format!("{csv}?start=1196")).unwrap();
    assert_eq!((&rest["text"], &rest["_meta"]["end"]), (&json!("a,b\nx"), &json!(1201)));
    assert_eq!(read(&bridge, png).unwrap()["blob"], STANDARD.encode(b"\x89PNG"));
    assert_eq!(read(&bridge, "codebridge://sessions/main/files/while.txt").unwrap()["text"], "running");
    busy.0.cancel();
    let listed = bridge.ask("resources/list", json!({}))["resources"].to_string();
    assert!(listed.contains(csv) && listed.contains(png), "{listed}");
    // Nobody can read what ends with its call.
    let thrown_away = bridge.run_in("new", "_ = open('a', 'w').write('x')");
    assert_eq!(thrown_away.structured["files"], json!([{ "path": "a", "bytes": 1 }]));
    bridge.close();
}

fn hostile_files_cost_nobody_anything(env: &TestEnv) {
    let bridge = env.bridge().start();
    let made = bridge.run(python!("changed_files", "hostile")).expect("success");
    assert_eq!(made.text.lines().count(), 1, "{made}");
    assert!(!made.text.contains(['\x1b', '\u{202e}']) && made.text.len() < 500, "{made}");
    let files = made.structured["files"].as_array().unwrap();
    assert_eq!(files.len(), 4, "{made}");
    for file in files {
        let content = read(&bridge, file["uri"].as_str().unwrap()).unwrap();
        assert!(content["blob"] == "" || content["text"] == "", "{content}");
    }
    for path in [
        "link", "folder/passwd", "guest/environ", "pipe", "d", "", "..", "../etc/passwd",
        "%2e%2e/etc/passwd", "%2Fetc/passwd", "sub/..%2f..%2fetc/passwd", "a%00b", "nothing",
    ] {
        let why = read(&bridge, &format!("codebridge://sessions/main/files/{path}")).unwrap_err();
        assert!(!why.is_empty() && !why.contains("root:"), "{path}: {why}");
    }
    for uri in ["codebridge://sessions/other/files/link", "codebridge://sessions/main%2F..%2Fmain/files/pipe"]
    {
        assert!(read(&bridge, uri).unwrap_err().starts_with("there is no session"), "{uri}");
    }
    // Behind the end there is nothing, however far.
    let uri = format!("{}?start={}", files[0]["uri"].as_str().unwrap(), u64::MAX);
    assert!(read(&bridge, &uri).is_ok());
    // The interpreter cannot speak for process 1: it ends its own session.
    for (session, kind) in [("f", "b'F'"), ("g", "b'G'")] {
        let code = format!("FORGED = [{kind}]\n{}", python!("changed_files", "forged"));
        let _ = bridge.run_in(session, &code).expect("error").noting("its protocol was broken");
    }
    assert_eq!(bridge.run("1 + 1").ok(), "2");
    bridge.close();
}

fn a_large_tree_is_named_in_part_and_costs_little(env: &TestEnv) {
    let bridge = env.bridge().start();
    let made = bridge.run(python!("changed_files", "many")).expect("success");
    assert!(made.text.ends_with(" and at least 1990 more"), "{made}");
    assert_eq!(made.structured["files"].as_array().unwrap().len(), 20);
    assert_eq!(bridge.run("1 + 1").text, "2");
    assert_eq!(read(&bridge, "codebridge://sessions/main/files/f7").unwrap()["blob"], "");
    bridge.close();
}

fn background_output_does_not_hide_the_files(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run(python!("changed_files", "floods_later")).expect("success");
    for _ in 0..20 {
        let content = read(&bridge, "codebridge://sessions/main/files/behind.txt").unwrap();
        assert_eq!(content["text"], "read me");
    }
    bridge.close();
}

fn the_size_of_the_workspace_is_a_setting(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_WORKSPACE_SIZE", "2m").start();
    let code = "import os; s = os.statvfs('/workspace'); s.f_blocks * s.f_frsize";
    assert_eq!(bridge.run(code).ok(), (2 << 20).to_string());
    let full = bridge.run("open('big', 'wb').write(bytes(3 << 20))").expect("error");
    assert!(full.stderr().contains("No space left on device"), "{full}");
    assert_eq!(bridge.run("1 + 1").ok(), "2");
    bridge.close();
}

fn exec_copies_what_a_run_leaves(env: &TestEnv) {
    let code = format!(
        "{}\n{}\n_ = runtime.save_artifact(b'kept', name='kept.bin')\n\
         display(Image(png(2, 1)))\n_ = open('a\\n\\x1b[2Jb', 'w').write('odd')",
        python!("display", "names"),
        python!("changed_files", "make")
    );
    let out = env.folder("out");
    let exec = |more: &[&str], code: &str| {
        let folder = out.to_str().unwrap();
        let args = [&["exec", "--log-level", "warn", "--out", folder, "-c", code][..], more].concat();
        env.bridge().args(&args).command().run(env.guard())
    };
    let output = exec(&[], &code);
    assert_eq!(output.code(), Some(0), "{output}");
    for name in
        ["display-1.png (", "kept.bin (4 B)", "out.csv (1.1 KiB)", "sub/x/p.png (4 B)", "a__[2Jb (3 B)"]
    {
        assert!(output.stderr.contains(&format!("wrote {}/{name}", out.display())), "{name}: {output}");
    }
    assert_eq!(fs::read(out.join("sub/x/p.png")).unwrap(), b"\x89PNG");
    assert_eq!(fs::read(out.join("out.csv")).unwrap().len(), 1200);
    assert!(fs::read(out.join("display-1.png")).unwrap().starts_with(b"\x89PNG"));
    // What exists is left as it is, and said.
    let again = exec(&[], "_ = open('out.csv', 'w').write('new')");
    assert_eq!(again.code(), Some(74), "{again}");
    assert!(
        again.stderr.contains("out.csv': it exists\nhint: replace existing files with --force"),
        "{again}"
    );
    assert_eq!(fs::read(out.join("out.csv")).unwrap().len(), 1200);
    let forced = exec(&["--force"], "_ = open('out.csv', 'w').write('new')");
    assert_eq!(forced.code(), Some(0), "{forced}");
    assert_eq!(fs::read(out.join("out.csv")).unwrap(), b"new");
}

fn a_forged_list_of_files_makes_no_folders(env: &TestEnv) {
    let out = env.folder("out");
    let folder = out.to_str().unwrap();
    let args = ["exec", "--out", folder, "-c", python!("changed_files", "forged_past_process_1")];
    let output = env.bridge().args(&args).command().run(env.guard());
    assert_eq!(output.code(), Some(74), "{output}");
    assert!(output.stderr.contains("it has too many files"), "{output}");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
}
