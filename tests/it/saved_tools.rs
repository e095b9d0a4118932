//! `save_tool`: a saved function is defined in every later session, and a broken one does not cost a session.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::matrix::Kind;
use crate::harness::process::{Output, eventually};
use crate::harness::{Runtime, Suite, TestEnv};
use crate::server_access::{define, run};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime(
        "saved_tools",
        tests![
            a_saved_function_is_defined_in_every_later_session,
            a_broken_tool_is_reported_and_skipped,
            no_saved_function_takes_the_name_of_something_else,
        ],
    );
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "saved_tools",
        tests![
            earlier_versions_are_kept_and_shown,
            an_imported_function_is_defined_once_its_source_is_approved,
            a_function_needs_a_test_when_a_tool_that_it_uses_has_changed,
            the_functions_of_a_user_of_http_are_managed_by_name,
            a_bridge_runs_the_example_of_a_function_when_a_tool_has_changed,
        ],
    );
    suite.on(&[Runtime::of_root(Kind::Crun)], "saved_tools", tests![a_full_disk_loses_no_function]);
}

const LEDGER: &str = include_str!("fakes/ledger.py");

fn saved(env: &TestEnv, words: &[&str]) -> Output {
    let builder = env.bridge().without("MCP_BRIDGE_LOG_LEVEL").args(&["saved"]).args(words);
    builder.command().run(env.guard())
}

fn listed(env: &TestEnv) -> Vec<Value> {
    serde_json::from_str(&saved(env, &["ls", "--json"]).ok()).unwrap()
}

fn a_saved_function_is_defined_in_every_later_session(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run_in("earlier", "1").expect("success");
    let code = python!("saved_tools", "double");
    assert!(bridge.run(code).ok().contains("double"));
    let _ = bridge.run(python!("saved_tools", "triple")).expect("success");
    assert_eq!(bridge.run("triple(2)").ok(), "6", "as a decorator it leaves the function");
    assert_eq!(
        bridge.run_in("later", "double(21), triple(1), runtime.list_saved_tools()").ok(),
        "(42, 3, ['double', 'triple'])"
    );
    assert_eq!(bridge.run_in("new", "double(1)").ok(), "2");
    assert_eq!(
        bridge.run_in("later", "import inspect; print(inspect.getsource(triple).strip())").ok(),
        "def triple(n):\n    return 3 * n"
    );
    let _ = bridge.run("save_tool(lambda: 1)").expect("error");
    bridge.close();
    let source = fs::read_to_string(env.home().join("MCPs/tools/double.py")).unwrap();
    assert!(source.starts_with("def double(n):"), "{source}");
    let after_a_restart = env.bridge().start();
    assert_eq!(after_a_restart.run("double(4), triple(4)").ok(), "(8, 12)");
    let replaced = python!("saved_tools", "double_replaced");
    let _ = after_a_restart.run(replaced).expect("success");
    assert_eq!(after_a_restart.run_in("new", "double(1)").ok(), "2.5");
    after_a_restart.close();
}

fn a_broken_tool_is_reported_and_skipped(env: &TestEnv) {
    let state = env.folder("state");
    env.write("state/tools/broken.py", "def broken(:\n    pass\n");
    env.write("state/tools/raises.py", "raise RuntimeError('not today')\n");
    env.write("state/tools/exits.py", "raise SystemExit(3)\n");
    env.write("state/tools/good.py", "def good():\n    return 'good'\n");
    env.write("state/tools/not a name.py", "1 / 0\n");
    env.write("state/tools/notes.txt", "1 / 0\n");
    env.write("state/tools/bytes.py", b"def bytes_(): return '\xff'\n");
    let bridge = env.bridge().var("MCP_BRIDGE_STATE_DIR", &state).start();
    let outcome = bridge.run("good()").expect("success");
    assert_eq!(outcome.stdout(), "'good'");
    for name in ["broken", "raises", "exits"] {
        assert!(outcome.notices().contains(&format!("'{name}'")), "{outcome}");
    }
    let again = bridge.run("good()").expect("success");
    assert_eq!(again.notices(), "", "it is said once");
    bridge.close();
}

fn no_saved_function_takes_the_name_of_something_else(env: &TestEnv) {
    let state = env.folder("state");
    // An earlier version wrote such files.
    for name in ["print", "__builtins__", "mcp_tracker", "runtime"] {
        env.write(&format!("state/tools/{name}.py"), format!("def {name}(*_):\n    raise SystemExit\n"));
    }
    env.write("state/tools/good.py", "def good():\n    return 'good'\n");
    let bridge = env.bridge().var("MCP_BRIDGE_STATE_DIR", &state).start();
    let outcome =
        bridge.run("print(good())").noting("saved functions: good").noting("mcp_tracker, print, runtime");
    assert_eq!(outcome.ok(), "good");
    assert_eq!(bridge.run("1").expect("success").notices(), "", "it is said once");
    // Every name of this Python and of this session, whatever its version.
    assert_eq!(bridge.run(python!("saved_tools", "taken_names")).ok(), "0 saved");
    let error = bridge.run("def open(): pass\nsave_tool(open)").expect("error");
    assert!(error.error().contains("'open', which is a builtin of Python: give it another name"), "{error}");
    bridge.close();
}

fn earlier_versions_are_kept_and_shown(env: &TestEnv) {
    let bridge = env.bridge().start();
    let (first, second) = (python!("saved_tools", "double"), python!("saved_tools", "double_replaced"));
    for code in [first, first, second, python!("saved_tools", "closes")] {
        let _ = bridge.run(code).expect("success");
    }
    // Whatever code sends instead, it gets an error, and what was saved stays.
    assert_eq!(bridge.run(python!("saved_tools", "forged")).ok(), "refused");
    let ls = saved(env, &["ls"]).ok();
    let rows: Vec<Vec<&str>> = ls.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 3, "{ls}");
    assert!(rows[1].starts_with(&["close_all", "1"]) && rows[1][3..5] == ["ready", "tracker"], "{ls}");
    assert!(ls.contains("  async close_all(project: str, *, limit=10) -> int\n"), "{ls}");
    assert!(rows[2].starts_with(&["double", "2"]) && rows[2].ends_with(&["ready", "-", "double(n)"]), "{ls}");
    assert_eq!(listed(env)[0]["doc"], "Closes all issues of a project.");
    assert_eq!(
        bridge.run(python!("saved_tools", "search")).ok(),
        "saved function  close_all async close_all(project: str, *, limit=10) -> int Closes all issues of a project ['tracker']\n\
         Closes all issues of a project. None None\n[('double', 2)]"
    );
    let first = saved(env, &["show", "double", "--version", "1"]);
    assert!(first.stderr.contains("note: this is version 1 of double; the current one is 2"), "{first}");
    assert!(first.ok().contains("'''Twice as much.'''"));
    let shown: Value = serde_json::from_str(&saved(env, &["show", "double", "--json"]).ok()).unwrap();
    assert_eq!((&shown["version"], &shown["earlier"]), (&json!(2), &json!([1])));
    for (words, error) in [
        (&["show", "duble"][..], "there is no saved function 'duble'\nhint: did you mean double?"),
        (&["show", "double", "--version", "7"], "the saved function 'double' has no version 7\nhint: "),
        (&["rm", "../double"], "there is no saved function '../double'"),
    ] {
        let refused = saved(env, words);
        assert!(refused.code() == Some(2) && refused.stderr.contains(error), "{refused}");
    }
    assert!(saved(env, &["rm", "double"]).stderr.contains("removed double with 1 earlier version"));
    assert_eq!(bridge.run_in("new", "runtime.list_saved_tools()").ok(), "['close_all']");
    bridge.close();
}

fn an_imported_function_is_defined_once_its_source_is_approved(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run(python!("saved_tools", "closes")).expect("success");
    let folder = env.folder("home/skills");
    let exported = saved(env, &["export", "close_all", "--to", folder.to_str().unwrap()]);
    let skill = folder.join("close-all");
    assert!(exported.stderr.contains(&format!("wrote {}", skill.join("SKILL.md").display())), "{exported}");
    let text = fs::read_to_string(skill.join("SKILL.md")).unwrap();
    assert!(
        text.starts_with("---\nname: close-all\ndescription: \"Closes all issues of a project.\"\n---\n"),
        "{text}"
    );
    assert!(text.contains("`mcp_tracker`"), "{text}");
    let again = saved(env, &["export", "close_all", "--to", folder.to_str().unwrap()]);
    assert!(
        again.code() == Some(74) && again.stderr.contains("hint: replace existing files with --force"),
        "{again}"
    );
    let _ = saved(env, &["rm", "close_all"]).ok();

    let path = skill.to_str().unwrap();
    let unasked = saved(env, &["import", path]);
    assert!(unasked.stdout.contains("async def close_all(project: str, *, limit=10)"), "{unasked}");
    assert!(
        unasked.code() == Some(2) && unasked.stderr.contains("hint: add --yes if you have read"),
        "{unasked}"
    );
    assert!(listed(env).is_empty());
    for (answer, names) in [("n\n", &[][..]), ("y\n", &["close_all"])] {
        let mut terminal = env.command("script");
        let line = format!("{} saved import {path}", env.binary().display());
        terminal.argv.extend(["-q", "-e", "-c", &line, "/dev/null"].map(Into::into));
        let asked = terminal.run_typing(env.guard(), "in every session? [y/N]", answer.as_bytes());
        assert_eq!(asked.code(), Some(0), "{asked}");
        assert_eq!(listed(env).iter().map(|one| one["name"].clone()).collect::<Vec<_>>(), names);
    }
    assert_eq!(bridge.run_in("new", "close_all.__doc__").ok(), "'Closes all issues of a project.'");

    // Somebody changes it.
    let file = env.home().join("MCPs/tools/close_all.py");
    fs::write(&file, "def close_all():\n    return 'changed'\n").unwrap();
    let outcome = bridge.run_in("new", "'close_all' in globals()").noting("source has changed: close_all");
    assert_eq!(outcome.ok(), "False");
    let ls = saved(env, &["ls"]);
    let command = format!("codebridge saved import {}", file.display());
    assert!(ls.stdout.contains("needs approval") && ls.stderr.contains(&command), "{ls}");
    let _ = saved(env, &["import", file.to_str().unwrap(), "--yes"]).ok();
    assert_eq!(bridge.run_in("new", "close_all()").ok(), "'changed'");
    let approvals = approvals(env, &[]);
    let imported = json!({ "client": "codebridge saved import", "principal": "local", "kind": "function", "name": "close_all" });
    assert_eq!(approvals.len(), 2, "{approvals:?}");
    for (field, value) in imported.as_object().unwrap() {
        assert_eq!(approvals[1][field], *value, "{approvals:?}");
    }
    assert_eq!(approvals[1]["code_sha256"].as_str().unwrap().len(), 64);
    // What is no function, or more than one, cannot be imported.
    let both = env.write("home/both.py", "def one():\n    pass\n\n\nasync def other():\n    pass\n");
    let refused = saved(env, &["import", both.to_str().unwrap(), "--yes"]);
    let told = "defines several functions: one, other\nhint: import a file for each";
    assert!(refused.code() == Some(2) && refused.stderr.contains(told), "{refused}");
    let other = env.write("home/other.py", "x = 1\n");
    let refused = saved(env, &["import", other.to_str().unwrap(), "--yes"]);
    assert!(refused.code() == Some(2) && refused.stderr.contains("defines no function"), "{refused}");
    bridge.close();
}

/// The lines of the audit log about what the person has approved.
fn approvals(env: &TestEnv, more: &[&str]) -> Vec<Value> {
    let log = env.bridge().args(&[&["audit", "--json"], more].concat()).command().run(env.guard()).ok();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["event"] == "approved").collect()
}

fn the_functions_of_a_user_of_http_are_managed_by_name(env: &TestEnv) {
    let source = env.write("home/triple.py", "def triple(n):\n    return 3 * n\n");
    let import = ["import", source.to_str().unwrap(), "--yes", "--principal", "ann"];
    let unknown = saved(env, &import);
    let told = "error: there is no user 'ann' of `serve --http`\nhint: `codebridge token ls`";
    assert!(unknown.code() == Some(2) && unknown.stderr.contains(told), "{unknown}");
    let invalid = saved(env, &["ls", "--principal", "../ann"]);
    assert_eq!(invalid.code(), Some(2), "{invalid}");
    let folder = env.folder("home/MCPs/principals/ann");
    let _ = saved(env, &import).ok();
    assert!(folder.join("tools/triple.py").is_file() && listed(env).is_empty());
    let log = approvals(env, &["--state-dir", folder.to_str().unwrap()]);
    assert_eq!((&log[0]["principal"], &log[0]["name"]), (&json!("ann"), &json!("triple")), "{log:?}");
    let ls = saved(env, &["--principal", "ann", "ls", "--json"]).ok();
    assert_eq!(serde_json::from_str::<Value>(&ls).unwrap()[0]["name"], "triple");
    let _ = saved(env, &["rm", "triple", "--principal", "ann"]).ok();
    assert!(!folder.join("tools/triple.py").exists());
}

fn a_full_disk_loses_no_function(env: &TestEnv) {
    let folder = env.folder("home/MCPs/tools");
    let folder = folder.display();
    let script = format!(
        "mount -t tmpfs -o size=48k,mode=700 none {folder}; \"$@\"; echo exit $?; ls -A {folder} {folder}/.versions/f; cat {folder}/f.py"
    );
    let behind = ["unshare", "--mount", "--", "sh", "-c", &script, "sh"];
    let builder = env.bridge().args(&["exec", "-c", python!("saved_tools", "too_much")]).behind(behind);
    let ran = builder.command().run(env.guard());
    let (printed, left) = ran.stdout.split_once("exit 0\n").unwrap_or_else(|| panic!("{ran}"));
    assert!(printed.contains("could not write to the function: no storage space"), "{ran}");
    assert!(left.ends_with("def f(): return 1\n") && !left.contains(".tmp"), "{ran}");
    assert!(!printed.contains(&format!("{folder}")), "{ran}");
}

fn a_bridge_runs_the_example_of_a_function_when_a_tool_has_changed(env: &TestEnv) {
    let (program, ledger) = (env.write("home/ledger.py", LEDGER), env.home().join("ledger"));
    define(env, &json!({ "Ledger": { "command": "python3", "args": [program, ledger] } }));
    let change = |old: &str, new: &str| env.write("home/ledger.py", LEDGER.replace(old, new));
    let state = || listed(env)[0]["state"].as_str().unwrap().to_owned();
    let written = || fs::read_to_string(&ledger).unwrap_or_default().lines().count();
    let becomes = |wanted: &str| {
        eventually(wanted, Duration::from_secs(20), || (state() == wanted).then_some(()));
    };
    let code = python!("saved_tools", "with_examples");
    let bridge = env.bridge().start();
    let _ = run(&bridge, &["Ledger"], code).expect("success");
    bridge.close();
    let _ = saved(env, &["test", "note", "twice"]).ok();
    let before = written();

    // While it was away, and what it calls may change something: nobody is asked, so nothing is called.
    change("\"required\": [\"line\"]", "\"required\": []");
    let _ = env.bridge().args(&["servers", "refresh"]).command().run(env.guard()).ok();
    let ls = saved(env, &["ls"]);
    assert!(ls.stderr.contains("run its example: `codebridge saved test note`"), "{ls}");
    let bridge = env.bridge().start();
    let _ = bridge.run("1").expect("success");
    let audit = |verdict: &str| {
        let log = env.bridge().args(&["audit", "--json"]).command().run(env.guard()).ok();
        let mut lines = log.lines().filter(|line| line.contains("codebridge saved functions"));
        lines.any(|line| line.contains(verdict)).then_some(())
    };
    eventually("a refusal", Duration::from_secs(20), || audit("\"verdict\":\"unattended\""));
    bridge.close();
    assert_eq!((state().as_str(), written()), ("needs test", before));

    // Where the policy allows the call without asking.
    let rules = "[[rule]]\nserver = 'Ledger'\ntool = 'append'\neffect = 'allow'\n";
    env.write("home/MCPs/policy.toml", rules.replace("allow", "ask"));
    let bridge = env.bridge().start();
    let _ = bridge.run("1").expect("success");
    eventually("a refusal", Duration::from_secs(20), || audit("\"verdict\":\"nobody-to-ask\""));
    bridge.close();
    assert_eq!((state().as_str(), written()), ("needs test", before));
    env.write("home/MCPs/policy.toml", rules);
    let bridge = env.bridge().start();
    let _ = bridge.run("1").expect("success");
    becomes("ready");
    assert_eq!(written(), before + 1);
    bridge.close();

    // A server that has changed while it was not running, and only reads now. The function no longer fits.
    fs::remove_file(env.home().join("MCPs/policy.toml")).unwrap();
    let reads = "\"description\": \"Appends a line.\"";
    let program = LEDGER.replace(reads, &format!("{reads}, \"annotations\": {{\"readOnlyHint\": True}}"));
    env.write("home/ledger.py", program.replace("\"line\"", "\"text\""));
    let bridge = env.bridge().start();
    let _ = run(&bridge, &["Ledger"], "await mcp_ledger.append(text='from code')").expect("success");
    becomes("broken");
    let outcome = bridge.run("runtime.search_tool_docs_sync('note', limit=1)[0]['state']");
    let outcome = outcome.noting("the saved function 'note' is broken: a tool that it uses has changed");
    assert_eq!(outcome.ok(), "'broken'");
    assert_eq!(bridge.run("1").expect("success").notices(), "", "it is said once");
    bridge.close();
    assert_eq!(written(), before + 2, "the example was not called again");
}

fn a_function_needs_a_test_when_a_tool_that_it_uses_has_changed(env: &TestEnv) {
    let program = env.write("home/ledger.py", LEDGER);
    define(env, &json!({ "Ledger": { "command": "python3", "args": [program, env.home().join("ledger")] } }));
    // The program changes, and its definition does not.
    let change = |old: &str, new: &str| {
        env.write("home/ledger.py", LEDGER.replace(old, new));
        let _ = env.bridge().args(&["servers", "refresh"]).command().run(env.guard()).ok();
    };
    let states = || -> Vec<String> {
        listed(env)
            .iter()
            .map(|one| format!("{}: {}", one["name"].as_str().unwrap(), one["state"].as_str().unwrap()))
            .collect()
    };
    change("", "");
    let ran =
        env.bridge().args(&["exec", "--server", "Ledger", "-c", python!("saved_tools", "with_examples")]);
    assert_eq!(ran.command().run(env.guard()).ok(), "written: now\n");
    assert_eq!(states(), ["note: untested", "plain: ready", "twice: untested"]);
    let tested = saved(env, &["test"]).ok();
    assert!(tested.starts_with("passed  note (") && tested.contains("\npassed  twice ("), "{tested}");
    assert_eq!(states(), ["note: ready", "plain: ready", "twice: ready"]);

    change("\"required\": [\"line\"]", "\"required\": []");
    assert_eq!(states(), ["note: needs test", "plain: needs test", "twice: ready"]);
    let _ = saved(env, &["test", "note"]).ok();
    assert_eq!(states(), ["note: ready", "plain: needs test", "twice: ready"]);

    let found = || {
        let found = env.bridge().args(&["tools", "search", "write", "a", "note", "--json"]);
        let found: Value = serde_json::from_str(&found.command().run(env.guard()).ok()).unwrap();
        found.as_array().unwrap().iter().find(|one| one["tool"] == "note").unwrap().clone()
    };
    assert_eq!((&found()["state"], &found()["servers"]), (&Value::Null, &json!(["ledger"])));
    change("\"line\"", "\"text\"");
    assert_eq!(states(), ["note: needs test", "plain: needs test", "twice: ready"]);
    assert_eq!(found()["state"], "needs test");
    let broken = saved(env, &["test", "note", "twice", "--json"]);
    assert_eq!(broken.code(), Some(1), "{broken}");
    let results: Value = serde_json::from_str(&broken.stdout).unwrap();
    assert!(
        results[0]["error"].as_str().unwrap().contains("line") && results[1]["result"] == "passed",
        "{broken}"
    );
    assert_eq!(states(), ["note: broken", "plain: needs test", "twice: ready"]);
    assert_eq!(found()["state"], "broken");

    change("", "");
    assert_eq!(states(), ["note: needs test", "plain: ready", "twice: ready"]);
    let _ = saved(env, &["test", "note"]).ok();
    assert_eq!(states()[0], "note: ready");
    // Without its server nothing is known of it; the others are tested.
    define(env, &json!({}));
    let missing = saved(env, &["test"]);
    assert!(missing.code() == Some(1) && missing.stdout.contains("not tested  note: "), "{missing}");
    assert!(missing.stdout.contains("passed  twice ("), "{missing}");
    assert_eq!(states(), ["note: ready", "plain: ready", "twice: ready"]);
    for (words, error) in [
        (&["test", "plain"][..], "the saved function 'plain' has no example\nhint: "),
        (&["test", "nothing"], "there is no saved function 'nothing'"),
    ] {
        let refused = saved(env, words);
        assert!(refused.code() == Some(2) && refused.stderr.contains(error), "{refused}");
    }
}
