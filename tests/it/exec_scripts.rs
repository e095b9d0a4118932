//! Scripts on the command line: arguments, modules beside them, files for the sandbox, and standard input.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use crate::harness::matrix::Kind;
use crate::harness::process::{Output, collect, eventually, open_terminal};
use crate::harness::{Runtime, Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("exec_scripts", tests![a_script_runs_as_python_runs_it]);
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "exec_scripts",
        tests![
            a_script_starts_itself,
            standard_input_is_read_when_the_code_reads_it,
            a_terminal_is_read_line_by_line,
            files_that_do_not_fit_are_refused,
        ],
    );
}

fn exec(env: &TestEnv, args: &[&str], input: &[u8]) -> Output {
    let builder = env.bridge().without("MCP_BRIDGE_LOG_LEVEL").args(&["exec"]).args(args);
    builder.command().run_with_input(env.guard(), input)
}

const SCRIPT: &str = "\
import subprocess, sys
import helper
print(sys.argv[1:], __name__, helper.double(2))
print(input())
print(open('data.txt').read())
subprocess.run(['wc', '-c'])
helper.double(None)
'not shown'
";

fn a_script_runs_as_python_runs_it(env: &TestEnv) {
    let script = env.write("script.py", SCRIPT);
    env.write("helper.py", "def double(x):\n    return x / 0 if x is None else x * 2\n");
    let data = env.write("some.data", "data");
    let copied = format!("{}:data.txt", data.display());
    let mut input = b"first\n".to_vec();
    input.resize(1_000_006, b'x');
    let output = exec(env, &["--in", &copied, script.to_str().unwrap(), "--help", "-c", "a b"], &input);
    assert_eq!(output.code(), Some(1), "{output}");
    let mut lines = output.stdout.lines();
    assert_eq!(lines.next(), Some("['--help', '-c', 'a b'] __main__ 4"), "{output}");
    assert_eq!((lines.next(), lines.next()), (Some("first"), Some("data")), "{output}");
    // What sys.stdin has read ahead is not for the child.
    let counted: usize = lines.next().unwrap().trim().parse().unwrap();
    assert!(counted > 0 && counted <= 1_000_000, "{output}");
    let helper = script.with_file_name("helper.py");
    for named in [&script, &helper] {
        assert!(output.stderr.contains(&format!("File \"{}\", line ", named.display())), "{output}");
    }
    assert!(output.stderr.contains("    helper.double(None)\n"), "{output}");
}

fn a_script_starts_itself(env: &TestEnv) {
    let binary = env.binary();
    let text = format!("#!/usr/bin/env -S {} exec\nimport sys\nprint(sys.argv[1:])\n", binary.display());
    let script = env.write_program("self.py", &text);
    assert!(std::fs::metadata(&script).unwrap().permissions().mode() & 0o111 != 0);
    let ran = env.run([script.into_os_string(), "--version".into(), "x".into()]);
    assert_eq!(ran.ok(), "['--version', 'x']\n");
    assert_eq!(exec(env, &["-c", "import sys; sys.argv", "a"], b"").ok(), "['-c', 'a']\n");
    assert_eq!(exec(env, &["-", "a"], b"import sys\nsys.argv").ok(), "['-', 'a']\n");
}

fn standard_input_is_read_when_the_code_reads_it(env: &TestEnv) {
    let count = "import sys\nsize = 0\nfor block in iter(lambda: sys.stdin.buffer.read(1 << 20), b''): size += len(block)\nsize";
    let large = vec![b'x'; 50_000_000];
    assert_eq!(exec(env, &["-c", count], &large).ok(), "50000000\n");
    // Nothing is read of input that never ends, and what one program leaves is there for the next one.
    let command = env.bridge().args(&["exec", "-c", "print(1)"]).command();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"left").unwrap();
    let mut running =
        command.spawn(env.guard(), reader.try_clone().unwrap().into(), Stdio::piped(), Stdio::inherit());
    let printed = collect(running.child.stdout.take().unwrap(), running.transcript.clone());
    assert!(running.wait().success());
    assert_eq!(printed.join().unwrap(), b"1\n");
    drop(writer);
    assert_eq!(std::io::read_to_string(reader).unwrap(), "left");
    assert_eq!(exec(env, &["-c", "!wc -l"], b"a\nb\n").ok(), "2\n");
    assert_eq!(exec(env, &["-c", "import sys; sys.stdin.read()"], b"").ok(), "''\n");
    // The code came from there.
    let output = exec(env, &["-"], b"input()");
    assert!(output.stderr.contains("input is not available"), "{output}");
}

fn a_terminal_is_read_line_by_line(env: &TestEnv) {
    let (mut terminal, screen): (_, OwnedFd) = open_terminal();
    let code = "for _ in range(2): print('got', input('name? '))";
    let command = env.bridge().without("MCP_BRIDGE_LOG_LEVEL").args(&["exec", "-c", code]).command();
    let mut running = command.spawn(env.guard(), screen.into(), Stdio::piped(), Stdio::inherit());
    let _output = collect(running.child.stdout.take().unwrap(), running.transcript.clone());
    for (asked, line, answered) in [("name? ", "Ann\n", "got Ann\nname? "), ("name? ", "Bob\n", "got Bob\n")]
    {
        let shows = |text: &str| running.transcript.text().contains(text).then_some(());
        eventually("it asks", Duration::from_secs(60), || shows(asked));
        terminal.write_all(line.as_bytes()).unwrap();
        eventually("it goes on", Duration::from_secs(60), || shows(answered));
    }
    assert!(running.wait().success());
}

fn files_that_do_not_fit_are_refused(env: &TestEnv) {
    let large = env.write("large", "");
    std::fs::File::options().write(true).open(&large).unwrap().set_len(1 << 40).unwrap();
    let output = exec(env, &["--in", large.to_str().unwrap(), "-c", "print('not run')"], b"");
    assert_eq!((output.code(), output.stdout.as_str()), (Some(2), ""), "{output}");
    assert!(
        output.stderr.contains("could not copy large into the sandbox: /workspace has ")
            && output.stderr.contains("hint: give the sandbox a larger /workspace: --workspace-size "),
        "{output}"
    );
    let output = exec(env, &["--in", "/dev/zero", "-c", "1"], b"");
    assert_eq!(output.code(), Some(2), "{output}");
    let large = large.display();
    let output = exec(env, &["--in", &format!("{large}:../x"), "-c", "1"], b"");
    assert!(output.code() == Some(2) && output.stderr.contains("invalid name '../x'"), "{output}");
}
