//! Code as notebooks have it: shells, magics, help, and the values of earlier cells.

use crate::harness::matrix::Kind;
use crate::harness::{Runtime, Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("notebook", tests![cells_of_a_notebook_run]);
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "notebook",
        tests![the_examples_of_the_documentation_run, a_cell_of_a_shell_is_stopped_like_any_other],
    );
}

fn cells_of_a_notebook_run(env: &TestEnv) {
    let bridge = env.bridge().start();
    let done = bridge.run("n = 3\nprint('a')\n!echo $n {n + 1}; pwd; exit 2").expect("success");
    assert_eq!((done.stdout(), done.stderr()), ("a\n3 4\n/workspace".into(), "[exit status 2]".into()));
    assert_eq!(bridge.run("%%bash\nmkdir -p sub && cd sub\nexport KEPT='x y'\necho $0").ok(), "bash");
    assert_eq!(bridge.run("here = !pwd; echo $KEPT\nhere").ok(), "['/workspace/sub', 'x y']");
    assert_eq!(bridge.run("%%writefile m.py\nv = __name__").ok(), "Writing m.py");
    assert_eq!(bridge.run("%run m.py\nv, _, Out[3] is _, len(In)").ok().lines().count(), 1);
    let failed = bridge.run("```sh\necho no > /etc/passwd; exit 5\n```").expect("error");
    assert_eq!(failed.exit(), Some(5));
    assert!(failed.stderr().contains("Read-only file system"), "{}", failed.stderr());
    let unknown = bridge.run("%tiem 1").expect("error");
    assert!(unknown.error().contains("did you mean %time?"), "{}", unknown.error());
    assert_eq!(bridge.run("1 + 1;").ok(), "");
    assert_eq!(
        bridge.run("import asyncio\nasyncio.get_event_loop().run_until_complete(asyncio.sleep(0, 7))").ok(),
        "7"
    );
    let reset = bridge.run("await runtime.reset()").expect("success");
    assert!(reset.stdout().contains("fresh interpreter") && reset.notices().is_empty(), "{reset:?}");
    assert_eq!(bridge.run("'n' in globals(), open('m.py').read()").ok(), "(False, 'v = __name__\\n')");
    bridge.close();
}

/// Calls of servers, and packages that the image lacks, are compiled only.
fn the_examples_of_the_documentation_run(env: &TestEnv) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/help/python.md");
    let text = std::fs::read_to_string(path).unwrap();
    let examples: Vec<&str> =
        text.split("```python\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 3);
    let bridge = env.bridge().start();
    for example in examples {
        let needs_more =
            ["mcp_", "matplotlib", "runtime.install", "%pip"].iter().any(|word| example.contains(word));
        let code = match needs_more {
            true => format!("compile({example:?}, 'example', 'exec', 0x2000) and None"),
            false => example.to_owned(),
        };
        let _ = bridge.run(&code).expect("success");
    }
    bridge.close();
}

fn a_cell_of_a_shell_is_stopped_like_any_other(env: &TestEnv) {
    let bridge = env.bridge().start();
    let arguments = serde_json::json!({ "code": "%%bash\nexport A=1\nsleep 1000", "timeout": 1 });
    let stopped = bridge.call(arguments).expect("timeout");
    assert!(stopped.stderr().ends_with("    %%bash\nKeyboardInterrupt"), "{}", stopped.stderr());
    assert_eq!(bridge.run("%%bash\nsleep 1000 &\necho alive").ok(), "alive");
    bridge.close();
}
