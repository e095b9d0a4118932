//! `save_tool`: a saved function is defined in every later session, and a broken one does not cost a session.

use std::fs;

use crate::harness::{Suite, TestEnv};
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
