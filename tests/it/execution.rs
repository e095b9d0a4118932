//! What code does in a session, and what stays in the session afterwards.

use serde_json::json;

use crate::harness::matrix::Kind;
use crate::harness::{Suite, TestEnv};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime(
        "execution",
        tests![
            a_session_keeps_variables_imports_functions_and_files,
            code_awaits_at_top_level_and_its_tasks_go_on_between_calls,
            output_of_every_kind_is_captured_line_by_line,
            code_that_fails_is_reported_and_the_session_continues,
            the_sandbox_is_as_the_readme_says,
            what_the_sandbox_refuses_is_said_in_one_line,
        ],
    );
}

fn a_session_keeps_variables_imports_functions_and_files(env: &TestEnv) {
    let bridge = env.bridge().start();
    assert_eq!(bridge.run("x = 20\nx + 1").ok(), "21", "the value of a last expression");
    assert_eq!(bridge.run("x = None; x").text, "Success (no output)");
    let code = python!("execution", "define_and_write");
    assert_eq!(bridge.run(code).ok(), "9");
    assert_eq!(
        bridge.run("print(json.dumps(twice(4)), open('/tmp/a').read(), open('/workspace/b').read())").ok(),
        "8 tmp workspace"
    );
    assert_eq!(bridge.run("print(inspect.getsource(twice), end='')").ok(), "def twice(n):\n    return 2 * n");
    assert_eq!(bridge.run_in("another", "'x' in globals()").ok(), "False", "sessions share nothing");
    assert_eq!(bridge.run_in("another", "import os; os.path.exists('/tmp/a')").ok(), "False");
    assert_eq!(bridge.run_in("new", "'x' in globals()").ok(), "False");
    // `_` is what it is at a prompt only by habit; what the session defines is there by promise.
    assert_eq!(
        bridge
            .run("sorted({'runtime', 'mcp', 'mcp_servers', 'LOADED_MCP_SERVERS', 'save_tool'} - set(dir()))")
            .ok(),
        "[]"
    );
    assert_eq!(bridge.run("from mcp import runtime as r\nr is runtime").ok(), "True");
    assert!(bridge.run("print(runtime.capability_summary())").ok().contains("runtime.output("));
    bridge.close();
}

fn code_awaits_at_top_level_and_its_tasks_go_on_between_calls(env: &TestEnv) {
    let bridge = env.bridge().start();
    let code = python!("execution", "await_at_top_level");
    assert_eq!(bridge.run(code).ok(), "2");
    assert_eq!(bridge.run("print(sum(await asyncio.gather(*(f(n) for n in range(5)))))").ok(), "15");
    let background = python!("execution", "task_in_background");
    let _ = bridge.run(background).expect("success");
    // No code runs meanwhile that could drive the loop: another session is asked, then this one waits in a thread.
    let _ = bridge.run_in("another", "import time; time.sleep(0.3)").expect("success");
    assert_eq!(bridge.run("ticked.is_set()").ok(), "True", "the task ran between the calls");
    assert_eq!(bridge.run("asyncio.run(f(41))").ok(), "42", "also with a loop of its own");
    let forgotten = bridge.run("f(1)").noting("was never awaited: write await f(...)");
    assert_eq!(forgotten.status(), "success");
    // What Python says of a coroutine in the place of its result does not name the reason, and is said once.
    for code in ["later = f(1)\nfor x in later: pass", "later = f(1)\nlater[0]", "later = f(1)\nlater.x"] {
        let _ = bridge.run(code).expect("error").noting("was never awaited: write await f(...)");
        assert_eq!(bridge.run("later = None").expect("success").notices(), "");
    }
    bridge.close();
}

fn output_of_every_kind_is_captured_line_by_line(env: &TestEnv) {
    let bridge = env.bridge().start();
    let code = python!("execution", "every_kind_of_output");
    let outcome = bridge.run(code).expect("success");
    assert_eq!(outcome.structured["stdout"], json!(["a", "", "  b", "child", "\u{fffd}\u{fffd}", "raw"]));
    assert_eq!(outcome.stderr(), "oops");
    assert_eq!(outcome.text, "a\n\n  b\nchild\n\u{fffd}\u{fffd}\nraw\nstderr:\noops");
    let outcome =
        bridge.run("import os; os.system('ls /nowhere 2>/dev/null; echo status $?')").expect("success");
    assert_eq!(outcome.stdout().lines().next(), Some("status 2"));
    let _ = bridge.run("import sys; sys.stdout.close()");
    assert_eq!(bridge.run("print('open again')").ok(), "open again");
    bridge.close();
}

fn code_that_fails_is_reported_and_the_session_continues(env: &TestEnv) {
    let bridge = env.bridge().start();
    let outcome = bridge.run(python!("execution", "failing_function")).expect("error");
    assert_eq!(outcome.exit(), Some(1));
    assert_eq!(outcome.error(), "ValueError: no luck");
    let traceback = outcome.stderr();
    assert!(traceback.starts_with("Traceback (most recent call last):"), "{outcome}");
    assert!(traceback.contains("raise ValueError('no luck')") && traceback.contains("in f"), "{outcome}");
    assert!(!traceback.contains("codebridge"), "the bridge's own frames are not shown: {outcome}");
    assert!(outcome.text.starts_with("status: error\nexit: 1\n"), "{outcome}");
    assert!(bridge.run("x ===").expect("error").error().starts_with("SyntaxError"));
    let exit = bridge.run("import sys; print('last words'); sys.exit(3)").expect("error");
    assert_eq!((exit.exit(), exit.stdout().as_str()), (Some(3), "last words"), "{exit}");
    assert_eq!(bridge.run("sys.exit(0)").exit(), Some(0));
    assert_eq!(bridge.run("sys.exit()").status(), "success");
    assert!(bridge.run("input()").expect("error").error().starts_with("EOFError"));
    assert_eq!(bridge.run("x").ok(), "1", "none of these cost the session");
    bridge.close();
}

fn the_sandbox_is_as_the_readme_says(env: &TestEnv) {
    let bridge = env.bridge().var("SECRET_OF_THE_HOST", "hunter2").start();
    let code = python!("execution", "surroundings");
    let said: serde_json::Value = serde_json::from_str(&bridge.run(code).ok()).unwrap();
    assert_eq!((&said["cwd"], &said["home"]), (&json!("/workspace"), &json!("/workspace")));
    assert_eq!(said["env"], json!(false), "no environment of the host");
    assert_eq!((&said["nnp"], &said["seccomp"]), (&json!("1"), &json!("2")));
    assert_eq!((&said["caps"], &said["bnd"]), (&json!("0000000000000000"), &json!("0000000000000000")));
    if env.runtime().kind != Kind::Kubernetes {
        // A pod cannot say how its folders are mounted.
        let writable = json!(["nodev", "noexec", "nosuid", "rw"]);
        assert_eq!((&said["tmp"], &said["workspace"]), (&writable, &writable));
        assert_eq!(said["sizes"], json!([64, 128]));
    }
    assert_eq!((&said["ids"][0], &said["ids"][1]), (&json!(65534), &json!(65534)), "{said}");
    if env.user().is_some() || matches!(env.runtime().kind, Kind::Crun | Kind::Runc) {
        assert_ne!(said["users"], json!(["0", "0", "4294967295"]), "a user namespace of its own");
    }
    let refused = bridge.run("open('/usr/x', 'w')").expect("error");
    assert!(
        refused.error().contains("Read-only file system") || refused.error().contains("Permission denied"),
        "{refused}"
    );
    bridge.close();
}

fn what_the_sandbox_refuses_is_said_in_one_line(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_MAX_TIMEOUT", "2").start();
    let no_network = "the sandbox has no network; call an MCP server (servers=[…]) to fetch data";
    for code in [
        "import urllib.request\nurllib.request.urlopen('https://example.com')",
        "import socket\nsocket.create_connection(('192.0.2.1', 80))",
        "import asyncio\nawait asyncio.open_connection('example.com', 80)",
    ] {
        let outcome = bridge.run(code).expect("error");
        assert_eq!(outcome.error(), no_network, "{outcome}");
        let said = outcome.stderr();
        assert!(said.contains("line 2, in <module>") && said.ends_with(no_network), "{outcome}");
        assert!(said.lines().count() <= 4 && !outcome.text.contains("error: "), "{outcome}");
    }
    let caught = "try: socket.create_connection(('192.0.2.1', 80))\nexcept OSError as e: print(e.errno)";
    assert_eq!(bridge.run(caught).ok(), "101");
    let writable = "only /workspace and /tmp are writable";
    for path in ["/x", "/usr/x", "/etc/passwd"] {
        let outcome = bridge.run(&format!("open('{path}', 'a')")).expect("error");
        let outcome = outcome.because(writable).because(path);
        assert!(outcome.stderr().lines().count() <= 4, "{outcome}");
    }
    for folder in ["/workspace", "/tmp", "/projects", "/dev/shm"] {
        assert_eq!(bridge.run(&format!("open('{folder}/x', 'w').write('x')")).ok(), "1");
    }
    let late =
        bridge.call(json!({ "code": "import time; time.sleep(60)", "timeout": 600 })).expect("timeout");
    assert_eq!(
        late.error(),
        "stopped after 2 s (600 requested, limit 2 from MCP_BRIDGE_MAX_TIMEOUT); variables are kept"
    );
    let gone = bridge.call(json!({ "code": "import time; time.sleep(60)", "timeout": 1, "session": "new" }));
    assert_eq!(gone.error(), "stopped after 1 s");
    bridge.close();
}
