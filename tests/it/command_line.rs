//! `exec`, `doctor` and `ps` on the command line: output and exit status.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::host::{REMOVAL, instance_of};
use crate::harness::process::{Output, REAPER, collect, eventually};
use crate::harness::{Suite, TestEnv};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime(
        "command_line",
        tests![
            exec_passes_on_output_and_exit_status,
            exec_is_ended_by_a_signal_and_leaves_nothing,
            exec_ends_quietly_when_its_reader_goes_away,
            doctor_and_ps_list_what_exists,
        ],
    );
    suite.once(
        "command_line",
        tests![usage_errors_have_an_exit_code_of_their_own, help_and_version_are_printed],
    );
}

fn exec(env: &TestEnv, args: &[&str]) -> Output {
    env.bridge().without("MCP_BRIDGE_LOG_LEVEL").args(&["exec"]).args(args).command().run(env.guard())
}

fn exec_passes_on_output_and_exit_status(env: &TestEnv) {
    let code = "print('out')\nimport sys; print('err', file=sys.stderr)\n6 * 7";
    let output = exec(env, &["-c", code]);
    assert_eq!(
        (output.code(), output.stdout.as_str(), output.stderr.as_str()),
        (Some(0), "out\n42\n", "err\n"),
        "{output}"
    );
    let output = exec(env, &["-c", "import sys; sys.exit(3)"]);
    assert_eq!((output.code(), output.stdout.as_str()), (Some(3), ""), "{output}");
    let output = exec(env, &["-c", "1 / 0"]);
    assert_eq!(output.code(), Some(1), "{output}");
    assert!(output.stderr.ends_with("ZeroDivisionError: division by zero\n"), "{output}");
    let output = exec(env, &["--timeout", "1", "-c", "import time; time.sleep(1000)"]);
    assert_eq!(output.code(), Some(124), "{output}");
    assert!(!speaks_of_sessions(&output.stderr), "{output}");
    let file = env.write("code.py", "\u{feff}print('from a file')");
    assert_eq!(exec(env, &[file.to_str().unwrap()]).ok(), "from a file\n");
    let piped = env.bridge().args(&["exec", "-"]).command().run_with_input(env.guard(), b"print('piped')");
    assert_eq!(piped.ok(), "piped\n");
    let result: Value =
        serde_json::from_str(&exec(env, &["--output", "json", "-c", "print(1); 2"]).ok()).unwrap();
    assert_eq!(
        result,
        json!({ "status": "success", "summary": "Success", "exitCode": 0, "stdout": ["1", "2"] })
    );
    // There is nobody to be asked later for what is cut.
    let long = exec(env, &["--output", "json", "-c", "print('x' * 100_000)"]).ok();
    let long: Value = serde_json::from_str(&long).unwrap();
    assert_eq!(long["stdout"][0].as_str().map(str::len), Some(100_000));
    let cut =
        exec(env, &["--output", "compact", "--output-limit", "1000", "-c", "print('x' * 100_000)"]).ok();
    assert!(cut.len() < 2_000 && cut.contains("; without --output, all of it is printed]"), "{cut}");
}

/// Whether a text promises something to a later call. After `exec` there is none.
fn speaks_of_sessions(text: &str) -> bool {
    ["session", "variables", "next call", "runtime.output"].iter().any(|words| text.contains(words))
}

fn exec_is_ended_by_a_signal_and_leaves_nothing(env: &TestEnv) {
    for (signal, exit) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let code = python!("sleep", "imports_first");
        let command = env.bridge().without("MCP_BRIDGE_LOG_LEVEL").args(&["exec", "-c", code]).command();
        let mut running = command.spawn(env.guard(), Stdio::null(), Stdio::piped(), Stdio::piped());
        collect(running.child.stderr.take().unwrap(), running.transcript.clone());
        collect(running.child.stdout.take().unwrap(), running.transcript.clone());
        eventually("it runs", Duration::from_secs(60), || {
            running.transcript.text().contains("ready").then_some(())
        });
        let (_, folder) = instance_of(env, running.pid()).unwrap();
        running.signal(signal);
        let status = running.wait_within(REMOVAL);
        let text = running.transcript.text();
        assert_eq!(status.code(), Some(exit), "{text}");
        assert!(!speaks_of_sessions(&text) && !text.contains("error: "), "{text}");
        assert!(!folder.exists(), "{} is left", folder.display());
    }
}

fn exec_ends_quietly_when_its_reader_goes_away(env: &TestEnv) {
    let code = "while True: print('x' * 100)";
    let command = env.bridge().without("MCP_BRIDGE_LOG_LEVEL").args(&["exec", "-c", code]).command();
    let mut running = command.spawn(env.guard(), Stdio::null(), Stdio::piped(), Stdio::piped());
    let errors = collect(running.child.stderr.take().unwrap(), running.transcript.clone());
    let mut output = running.child.stdout.take().unwrap();
    output.read_exact(&mut [0; 10]).unwrap();
    let (_, folder) = instance_of(env, running.pid()).unwrap();
    drop(output);
    let status = running.wait_within(REMOVAL);
    // As if the code had been ended by SIGPIPE.
    assert_eq!(status.code(), Some(141), "{}", running.transcript.text());
    assert_eq!(String::from_utf8(errors.join().unwrap()).unwrap(), "");
    assert!(!folder.exists(), "{} is left", folder.display());
}

fn doctor_and_ps_list_what_exists(env: &TestEnv) {
    let kind = env.runtime().kind.name();
    let output = env.bridge().args(&["doctor"]).command().run(env.guard());
    let code = output.code();
    let text = output.diagnosed();
    assert!(
        text.contains(&format!("picked   {kind}, '")) && text.contains("limits       memory: "),
        "{text}"
    );
    assert!(text.contains("run      print(6*7) in a new session: 42 after "), "{text}");
    assert!(text.lines().count() <= 40, "more than a screen:\n{text}");
    // What stands in for a control group is less than one, and that shows in the exit status.
    let less = text.contains("rlimit,") || text.contains("less         ");
    assert_eq!(code, Some(if less { 10 } else { 0 }), "{text}");
    let bridge = env.bridge().start();
    let _ = bridge.run("1").expect("success");
    let (id, _) = instance_of(env, bridge.pid()).unwrap();
    let listed = env.bridge().args(&["ps", "--json"]).command().run(env.guard()).ok();
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let ours: Vec<&Value> = listed
        .iter()
        .filter(|it| it["name"].as_str().unwrap().starts_with(&format!("codebridge-{id}-")))
        .collect();
    assert_eq!(ours.len(), 1, "{listed:?}");
    assert_eq!((&ours[0]["owner"], &ours[0]["owner_pid"]), (&json!("alive"), &json!(bridge.pid())));
    assert!(ours[0]["runtime"].as_str().unwrap().starts_with(kind), "{listed:?}");
    let table = env.bridge().args(&["ps"]).command().run(env.guard()).ok();
    assert!(table.starts_with("NAME ") && table.contains(&id), "{table}");
    bridge.close();
    let listed = env.bridge().args(&["ps", "--json"]).command().run(env.guard()).ok();
    assert!(!listed.contains(&id), "{listed}");
}

fn usage_errors_have_an_exit_code_of_their_own(env: &TestEnv) {
    let run = |args: &[&str]| env.bridge().args(args).command().run(env.guard());
    for args in [
        &["exec", "--no-such-flag"][..],
        &["no-such-command"],
        &["exec", "--in", "/no/such/file", "-c", "1"],
        &["exec", "--in", "-", "-c", "1"],
        &["exec", "/no/such/file.py"],
        &["exec", "--timeout", "soon", "-c", "1"],
        &["exec", "--output", "xml", "-c", "1"],
    ] {
        let output = run(args);
        assert_eq!(output.code(), Some(2), "{output}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{output}");
    }
}

fn help_and_version_are_printed(env: &TestEnv) {
    let run = |args: &[&str]| env.bridge().args(args).command().run(env.guard());
    assert_eq!(run(&["--version"]).ok(), format!("codebridge {}\n", env!("CARGO_PKG_VERSION")));
    let help = run(&["--help"]).ok();
    for variable in codebridge::settings::ALL {
        let shown = [" ", "["].map(|end| format!("--{}{end}", variable.flag));
        assert!(shown.iter().any(|flag| help.contains(flag)), "{}: {help}", variable.flag);
    }
    assert!(!help.contains(REAPER), "{help}");
    let exec = run(&["help", "exec"]).ok();
    assert!(exec.contains("--server") && exec.contains("--memory"), "{exec}");
    assert!(!exec.contains("--session") && !exec.contains("--output-mode"), "{exec}");
    let short = run(&["exec", "-h"]).ok();
    assert!(short.lines().count() < 20 && !short.contains("--memory"), "{short}");
}
