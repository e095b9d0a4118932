//! `codebridge help`: topics and flags, in a pager where there is a terminal.

use std::process::Stdio;

use codebridge::help::{self, TOPICS};

use crate::harness::process::{Output, Prepared, Transcript, collect, open_terminal};
use crate::harness::{Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "help",
        tests![
            help_lists_all_topics,
            a_topic_is_printed_as_it_is_where_there_is_no_terminal,
            a_topic_is_shown_before_the_command_of_its_name,
            an_unknown_topic_is_a_usage_error_that_names_the_nearest,
            help_works_where_settings_cannot_be_used,
            a_terminal_gets_a_pager,
            a_pager_that_quits_early_is_no_error,
            without_a_pager_a_terminal_gets_the_text,
        ],
    );
}

fn help(env: &TestEnv, args: &[&str]) -> Output {
    env.bridge().args(&["help"]).args(args).command().run(env.guard())
}

fn help_lists_all_topics(env: &TestEnv) {
    let text = help(env, &[]).ok();
    for topic in &TOPICS {
        assert!(text.contains(&format!("\n  {:<16} {}\n", topic.name, topic.summary())), "{text}");
    }
    assert!(text.contains("`codebridge COMMAND --help`"), "{text}");
}

fn a_topic_is_printed_as_it_is_where_there_is_no_terminal(env: &TestEnv) {
    let topic = help::find("images").unwrap();
    assert_eq!(help(env, &["images"]).ok(), topic.text);
}

fn a_topic_is_shown_before_the_command_of_its_name(env: &TestEnv) {
    for name in ["servers", "doctor"] {
        let text = help(env, &[name]).ok();
        assert!(text.starts_with(help::find(name).unwrap().text), "{text}");
        assert!(text.contains("\n## Flags\n\n"), "{text}");
        assert!(text.contains(&format!("Usage: codebridge {name}")), "{text}");
    }
    let text = help(env, &["image", "pull"]).ok();
    assert!(text.contains("Usage: codebridge image pull [OPTIONS] <IMAGE>"), "{text}");
}

fn an_unknown_topic_is_a_usage_error_that_names_the_nearest(env: &TestEnv) {
    let output = help(env, &["imges"]);
    assert_eq!((output.code(), output.stdout.as_str()), (Some(2), ""), "{output}");
    assert_eq!(
        output.stderr,
        "error: unknown help topic or command 'imges'\n\
         hint: try `codebridge help images`; `codebridge help` lists all topics\n"
    );
}

fn help_works_where_settings_cannot_be_used(env: &TestEnv) {
    let output = env.bridge().var("MCP_BRIDGE_TIMEOUT", "soon").args(&["help", "settings"]).command();
    assert_eq!(output.run(env.guard()).ok(), help::find("settings").unwrap().text);
}

/// Runs `codebridge help TOPIC` on a terminal; returns what the terminal shows.
fn on_a_terminal(env: &TestEnv, topic: &str, pager: &str) -> String {
    shown_on_a_terminal(env, env.bridge().var("PAGER", pager).args(&["help", topic]).command())
}

/// Runs a command whose standard output is a terminal; returns what the terminal shows.
pub(crate) fn shown_on_a_terminal(env: &TestEnv, command: Prepared) -> String {
    let (terminal, screen) = open_terminal();
    // Reading ends once nobody has the other end any more.
    let shown = collect(terminal, Transcript::default());
    let mut running = command.spawn(env.guard(), Stdio::null(), Stdio::from(screen), Stdio::piped());
    assert_eq!(running.wait().code(), Some(0));
    drop(running);
    String::from_utf8(shown.join().unwrap()).unwrap().replace("\r\n", "\n")
}

fn a_terminal_gets_a_pager(env: &TestEnv) {
    let pager = env.write_program("pager", "#!/bin/sh\necho \"shown by $1, $LESS\"\ncat\n");
    let shown = on_a_terminal(env, "exit-codes", &format!("{} 'a pager'", pager.display()));
    let text = help::for_terminal(help::find("exit-codes").unwrap().text);
    assert_eq!(shown, format!("shown by a pager, FRX\n{text}"));
}

fn a_pager_that_quits_early_is_no_error(env: &TestEnv) {
    let pager = env.write_program("pager", "#!/bin/sh\nexec head -n 1\n");
    let shown = on_a_terminal(env, "settings", pager.to_str().unwrap());
    assert_eq!(shown, "# Settings: environment variables and flags\n");
}

fn without_a_pager_a_terminal_gets_the_text(env: &TestEnv) {
    let text = help::for_terminal(help::find("security").unwrap().text);
    for pager in ["", "cat"] {
        assert_eq!(on_a_terminal(env, "security", pager), text);
    }
}
