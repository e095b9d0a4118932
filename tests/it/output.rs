//! Output that is longer than a result shows: a notice, both ends of it, access to the rest, and bounded memory.

use serde_json::{Value, json};

use crate::harness::{Suite, TestEnv};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime(
        "output",
        tests![
            long_output_is_cut_in_the_middle_and_nothing_is_lost,
            standard_error_and_tracebacks_have_budgets_of_their_own,
            a_hundred_megabytes_cost_bounded_memory,
            every_output_mode_says_the_same,
        ],
    );
}

fn long_output_is_cut_in_the_middle_and_nothing_is_lost(env: &TestEnv) {
    let bridge = env.bridge().start();
    let outcome = bridge.run("for n in range(20_000): print('line', n, 'ä')").expect("success");
    let whole: String = (0..20_000).map(|n| format!("line {n} ä\n")).collect();
    let shown = outcome.stdout();
    let lines: Vec<&str> = shown.lines().collect();
    let notice = lines[0];
    assert!(notice.contains(&format!("{} bytes in total", whole.len())), "{notice}");
    assert!(shown.len() < 21_000, "{}", shown.len());
    assert_eq!((lines[1], *lines.last().unwrap()), ("line 0 ä", "line 19999 ä"));
    let id = outcome.structured["runId"].as_i64().unwrap();
    assert!(
        notice.contains(&format!("runtime.output({id}")),
        "the notice says how to get the rest: {notice}"
    );
    assert!(notice.contains(&format!("codebridge://runs/{id}/stdout")), "{notice}");
    // From code, also of another session.
    let code = format!(
        "text = runtime.output({id})\nlen(text), text == ''.join(f'line {{n}} ä\\n' for n in range(20_000))"
    );
    let expected = format!("({}, True)", whole.chars().count());
    assert_eq!(bridge.run(&code).ok(), expected);
    assert_eq!(bridge.run_in("other", &code).ok(), expected);
    let part = format!("runtime.output({id}, 'stdout', 0, 7)");
    assert_eq!(bridge.run(&part).ok(), "'line 0 '");
    assert!(bridge.run("runtime.output(999999)").expect("error").error().contains("999999"));
    // By the client.
    let uri = format!("codebridge://runs/{id}/stdout");
    let listed = bridge.ask("resources/list", json!({}));
    assert!(listed["resources"].as_array().unwrap().iter().any(|it| it["uri"] == *uri), "{listed}");
    let read = bridge.ask("resources/read", json!({ "uri": uri }));
    assert_eq!(read["contents"][0]["text"], Value::from(whole));
    // What fits is not kept, and says nothing of it.
    let small = bridge.run("print('small')").expect("success");
    assert_eq!(small.structured, json!({ "stdout": ["small"] }));
    bridge.close();
}

fn standard_error_and_tracebacks_have_budgets_of_their_own(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_OUTPUT_LIMIT", "1000").start();
    let code = python!("output", "noise_and_deep_traceback");
    let outcome = bridge.run(code).expect("error");
    assert_eq!(outcome.stdout(), "result");
    let stderr = outcome.stderr();
    assert!(stderr.contains("bytes in total") && stderr.contains("noise 0\n"), "{outcome}");
    assert!(stderr.contains("Traceback (most recent call last):"), "{outcome}");
    assert!(stderr.trim_end().ends_with("ZeroDivisionError: division by zero"), "{outcome}");
    assert!(stderr.len() < 20_000, "{}", stderr.len());
    assert_eq!(outcome.error(), "ZeroDivisionError: division by zero");
    // A long message is cut, and can be read.
    let outcome = bridge.run("raise ValueError('z' * 100_000)").expect("error");
    let id = outcome.structured["runId"].as_i64().unwrap();
    assert!(outcome.stderr().contains(&format!("runtime.output({id}, \"traceback\"")), "{outcome}");
    assert_eq!(
        bridge.run(&format!("runtime.output({id}, 'traceback').count('z')")).ok(),
        "100001",
        "the line itself has one"
    );
    let wrong = bridge.run("runtime.output('1')").expect("error");
    assert_eq!(wrong.error(), "ValueError: run_id must be a whole number, not '1'");
    let cut = bridge.run("print('x' * 5000)").expect("success");
    assert!(cut.text.len() < 2000, "{}", cut.text);
    bridge.close();
}

fn a_hundred_megabytes_cost_bounded_memory(env: &TestEnv) {
    let bridge = env.bridge().start();
    let _ = bridge.run("line = 'x' * 1023 + '\\n'").expect("success");
    let before = bridge.peak_memory();
    let code = "import sys\nfor _ in range(100): sys.stdout.write(line * 1024)";
    let outcome = bridge.call(json!({ "code": code, "timeout": 100 })).expect("success");
    assert!(
        outcome.stdout().contains("104857600 bytes in total"),
        "{}",
        outcome.text.lines().next().unwrap()
    );
    let grown = bridge.peak_memory() - before;
    assert!(grown < 24 << 20, "the bridge has grown by {} MiB", grown >> 20);
    // The end of it can be read without reading all.
    let id = outcome.structured["runId"].as_i64().unwrap();
    let code = format!("runtime.output({id}, 'stdout', 104857600 - 3, 3)");
    assert_eq!(bridge.run(&code).ok(), "'xx\\n'");
    bridge.close();
}

fn every_output_mode_says_the_same(env: &TestEnv) {
    let code = python!("output", "both_streams_and_exit");
    let full = json!({
        "status": "error", "summary": "Error: exit code 3", "exitCode": 3,
        "stdout": ["a", "", "b, c"], "stderr": ["warned"],
    });
    for (mode, beginning) in [
        ("compact", "status: error\nexit: 3\na\n\nb, c\nstderr:\nwarned"),
        ("json", "```json\n{"),
        ("toon", "```toon\nstatus: error\n"),
    ] {
        let bridge = env.bridge().var("MCP_BRIDGE_OUTPUT_MODE", mode).start();
        let outcome = bridge.run(code).expect("error");
        assert!(outcome.text.starts_with(beginning), "{outcome}");
        match mode {
            "compact" => assert_eq!(outcome.structured["exitCode"], 3),
            _ => assert_eq!(outcome.structured, full, "{mode}"),
        }
        bridge.close();
    }
}
