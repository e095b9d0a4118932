//! What a person sees who mistypes, sets what does not exist, or reads only the first line.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::process::{Output, Transcript, collect, open_terminal};
use crate::harness::{BridgeBuilder, Suite, TestEnv, eventually};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "manners",
        tests![
            words_that_are_no_command_get_the_command_that_is_meant,
            a_setting_that_changes_nothing_for_a_command_is_refused,
            exec_refuses_a_session,
            an_unknown_variable_is_a_warning_that_names_the_nearest,
            a_timeout_that_is_cut_is_a_warning,
            a_file_of_definitions_that_does_not_exist_is_said_once,
            a_bad_definition_is_said_once,
            what_a_script_needs_is_json,
            a_reader_that_goes_away_is_no_error,
            the_log_has_colours_on_a_terminal_that_wants_them,
            serve_on_a_terminal_says_what_it_waits_for,
        ],
    );
}

/// A command of a person: with no level of the log set, and no runtime.
fn person<'a>(env: &'a TestEnv) -> BridgeBuilder<'a> {
    env.bridge().without("MCP_BRIDGE_LOG_LEVEL").var("PATH", env.folder("nothing"))
}

fn run(env: &TestEnv, args: &[&str]) -> Output {
    person(env).args(args).command().run(env.guard())
}

fn words_that_are_no_command_get_the_command_that_is_meant(env: &TestEnv) {
    for (args, hint) in [
        (&["-c", "1"][..], "hint: to run code, use `codebridge exec -c CODE`"),
        (&["script.py"], "hint: to run a file, use `codebridge exec script.py`"),
        (&["images"], "hint: `codebridge help images` shows this topic"),
        (&["exec", "--output-mode", "json"], "hint: `exec` prints another format with `--output`"),
    ] {
        let output = run(env, args);
        assert_eq!(output.code(), Some(2), "{output}");
        assert!(output.stderr.starts_with("error: ") && output.stderr.trim_end().ends_with(hint), "{output}");
    }
    for args in [&["nonsense"][..], &["tools", "-c"]] {
        let output = run(env, args);
        assert!(output.code() == Some(2) && !output.stderr.contains("hint: "), "{output}");
    }
}

fn a_setting_that_changes_nothing_for_a_command_is_refused(env: &TestEnv) {
    for args in [&["ps", "--memory", "1g"][..], &["--memory", "1g", "ps"]] {
        let output = run(env, args);
        assert_eq!(output.code(), Some(2), "{output}");
        assert!(output.stderr.starts_with("error: unexpected argument '--memory' found"), "{output}");
    }
}

fn exec_refuses_a_session(env: &TestEnv) {
    let output = run(env, &["exec", "--session", "x", "-c", "1"]);
    assert_eq!(output.code(), Some(2), "{output}");
    assert_eq!(
        output.stderr,
        "error: exec has no sessions: nothing is left when it ends\n\
         hint: give exec all of the code at once; only clients of `codebridge serve` have sessions\n"
    );
}

fn an_unknown_variable_is_a_warning_that_names_the_nearest(env: &TestEnv) {
    let person = || {
        let variables = [("MCP_BRIDGE_TIMEOT", "5"), ("MCP_BRIDGE_WOMBAT", "1"), ("MCP_SERVERS_CONFG", "x")];
        variables.into_iter().fold(person(env), |builder, (name, value)| builder.var(name, value))
    };
    let expected = [
        "unknown variable MCP_BRIDGE_TIMEOT is ignored: did you mean MCP_BRIDGE_TIMEOUT?",
        "unknown variable MCP_BRIDGE_WOMBAT is ignored: `codebridge help settings` lists the variables",
        "unknown variable MCP_SERVERS_CONFG is ignored: did you mean MCP_SERVERS_CONFIG?",
    ];
    let output = person().args(&["servers"]).command().run(env.guard());
    let warnings: String = expected.iter().map(|text| format!("warning: {text}\n")).collect();
    assert!(output.code() == Some(0) && output.stderr.starts_with(&warnings), "{output}");
    assert_eq!(output.stderr.matches("warning: ").count(), expected.len(), "{output}");
    let served = person().command().run(env.guard()).stderr;
    for text in expected {
        assert_eq!(
            served.matches(&format!(" WARN codebridge::cli::cautions: {text}\n")).count(),
            1,
            "{served}"
        );
    }
}

fn a_timeout_that_is_cut_is_a_warning(env: &TestEnv) {
    let output =
        person(env).var("MCP_BRIDGE_MAX_TIMEOUT", "10").args(&["exec", "--timeout", "1m", "-c", "1"]);
    let output = output.command().run(env.guard());
    let text = "warning: --timeout of 60 s is longer than MCP_BRIDGE_MAX_TIMEOUT allows: 10 s is used\n";
    assert!(output.stderr.starts_with(text), "{output}");
    // It changes nothing for other commands.
    let output = person(env).var("MCP_BRIDGE_MAX_TIMEOUT", "10").var("MCP_BRIDGE_TIMEOUT", "1m");
    let output = output.args(&["ps"]).command().run(env.guard());
    assert_eq!(output.stderr, "", "{output}");
}

fn a_file_of_definitions_that_does_not_exist_is_said_once(env: &TestEnv) {
    let missing = env.home().join("missing.json");
    let missing = missing.to_str().unwrap();
    for args in [&["exec", "-c", "1"][..], &["servers"], &["tools", "search", "x"]] {
        let output = run(env, &[args, &["--servers-config", missing]].concat());
        let text = format!("error: could not read {missing}, the file of --servers-config: No such file");
        assert!(output.code() == Some(2) && output.stderr.starts_with(&text), "{output}");
        let output = person(env).var("MCP_SERVERS_CONFIG", missing).args(args).command().run(env.guard());
        let text = format!("warning: could not read {missing}, the file of MCP_SERVERS_CONFIG: No such file");
        assert!(output.stderr.starts_with(&text), "{output}");
        assert_eq!(output.stderr.matches("missing.json").count(), 1, "{output}");
    }
}

fn a_bad_definition_is_said_once(env: &TestEnv) {
    env.write("home/MCPs/bad.json", r#"{"mcpServers": {"bad": {"command": 3}}}"#);
    env.write("home/MCPs/broken.json", "{");
    let why = "'command' must be a string, not a number";
    let listed = run(env, &["servers"]);
    assert_eq!((listed.stdout.matches(why).count(), listed.stderr.matches(why).count()), (1, 0), "{listed}");
    assert!(listed.stderr.starts_with("warning: ") && listed.stderr.lines().count() == 1, "{listed}");
    let searched = run(env, &["tools", "search", "x"]);
    assert_eq!(searched.stderr.matches(why).count(), 1, "{searched}");
    let said: Vec<&str> = searched.stderr.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(said, ["warning:", "warning:", "no", "hint:"], "{searched}");
}

fn what_a_script_needs_is_json(env: &TestEnv) {
    for args in [&["ps"][..], &["reap"], &["servers"], &["tools", "search", "x"], &["image", "ls"]] {
        let output = run(env, &[args, &["--json"]].concat());
        assert!(serde_json::from_str::<Value>(&output.stdout).is_ok(), "{output}");
    }
    for args in [&["image", "pull"][..], &["image", "rm"], &["image", "prune"], &["image", "build"]] {
        let help = run(env, &[args, &["-h"]].concat()).ok();
        assert!(help.contains("--json"), "{help}");
    }
}

fn a_reader_that_goes_away_is_no_error(env: &TestEnv) {
    env.write("home/MCPs/one.json", r#"{"mcpServers": {"one": {"command": "true"}}}"#);
    for args in [&["help", "sandbox"][..], &["servers"], &["servers", "--json"], &["image", "ls"], &["-h"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let command = person(env).args(args).command();
        let mut running = command.spawn(env.guard(), Stdio::null(), Stdio::from(writer), Stdio::piped());
        let errors = collect(running.child.stderr.take().unwrap(), running.transcript.clone());
        assert_eq!(running.wait().code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8(errors.join().unwrap()).unwrap(), "", "{args:?}");
    }
    // Nor is one of the errors.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let command = person(env).args(&["help", "nonsense"]).command();
    let mut running = command.spawn(env.guard(), Stdio::null(), Stdio::null(), Stdio::from(writer));
    assert_eq!(running.wait().code(), Some(2));
}

fn the_log_has_colours_on_a_terminal_that_wants_them(env: &TestEnv) {
    for (name, value, colours) in [("NO_COLOR", "", true), ("NO_COLOR", "1", false), ("TERM", "dumb", false)]
    {
        let (terminal, screen) = open_terminal();
        let shown = collect(terminal, Transcript::default());
        let command = person(env).var(name, value).var("MCP_BRIDGE_WOMBAT", "1").command();
        let mut running = command.spawn(env.guard(), Stdio::null(), Stdio::null(), Stdio::from(screen));
        assert_eq!(running.wait().code(), Some(0));
        drop(running);
        let shown = String::from_utf8(shown.join().unwrap()).unwrap();
        assert!(shown.contains("MCP_BRIDGE_WOMBAT"), "{shown}");
        assert_eq!(shown.contains('\x1b'), colours, "{name}={value}: {shown}");
    }
}

fn serve_on_a_terminal_says_what_it_waits_for(env: &TestEnv) {
    let (_terminal, screen) = open_terminal();
    let command = person(env).command();
    let mut running = command.spawn(env.guard(), Stdio::from(screen), Stdio::null(), Stdio::piped());
    let errors = collect(running.child.stderr.take().unwrap(), running.transcript.clone());
    eventually("it waits", std::time::Duration::from_secs(60), || {
        running.transcript.text().contains('\n').then_some(())
    });
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), Some(0));
    let text = String::from_utf8(errors.join().unwrap()).unwrap();
    assert!(text.starts_with("waiting for an MCP client on standard input; "), "{text}");
}
