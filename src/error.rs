//! How the program ends: one exit code for each kind of failure, none used twice.

use std::process::ExitCode;

/// The exit codes of `codebridge`.
///
/// `exec` passes on the exit status of the code itself. So the bridge uses codes that programs rarely use: those of
/// `sysexits.h`, of `timeout` and of shells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Success = 0,
    Differs = 1,
    Usage = 2,
    Reduced = 10,
    NotReady = 11,
    Tool = 65,
    NoRuntime = 69,
    Sandbox = 70,
    NoImage = 72,
    Io = 74,
    Server = 76,
    Denied = 77,
    StateFolder = 78,
    Timeout = 124,
    Interrupted = 130,
    Unread = 141,
    Terminated = 143,
}

/// What the documentation says of each exit code, in ascending order.
const MEANINGS: [(Exit, &str); 17] = [
    (Exit::Success, "success"),
    (
        Exit::Differs,
        "`policy test`: the policy decides something else than expected; `audit verify`: the log was changed; `replay`: the output differs; `saved test`: an example failed",
    ),
    (Exit::Usage, "the command line or a setting is invalid"),
    (Exit::Reduced, "`doctor`: code runs, with reduced guarantees"),
    (Exit::NotReady, "`doctor`: no code can run"),
    (Exit::Tool, "the called tool failed"),
    (Exit::NoRuntime, "no container runtime works on this machine; see `codebridge doctor`"),
    (
        Exit::Sandbox,
        "the sandbox or its runtime failed, or packages or files that the code needs are unavailable",
    ),
    (Exit::NoImage, "the image is unavailable"),
    (Exit::Io, "a file, standard input or standard output could not be read or written, or exists already"),
    (Exit::Server, "an MCP server could not be started, or did not answer"),
    (Exit::Denied, "the policy or the user denied the call"),
    (Exit::StateFolder, "the state folder was written by a newer codebridge, or its version is damaged"),
    (Exit::Timeout, "the code exceeded its time limit"),
    (Exit::Interrupted, "interrupted with Ctrl-C"),
    (Exit::Unread, "`exec`: the code was stopped, because nobody reads its output any more"),
    (Exit::Terminated, "terminated by SIGTERM"),
];

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        (exit as u8).into()
    }
}

/// Returns the table of the documentation.
pub fn markdown_table() -> String {
    let mut table = String::from("| exit code | meaning |\n|---|---|\n");
    for (exit, meaning) in MEANINGS {
        table.push_str(&format!("| {} | {meaning} |\n", exit as u8));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_exit_code_is_used_twice() {
        let codes: Vec<_> = MEANINGS.iter().map(|(exit, _)| *exit as u8).collect();
        assert!(codes.is_sorted_by(|left, right| left < right), "{codes:?}");
    }

    #[test]
    fn the_table_has_one_line_for_each_exit_code() {
        let table = markdown_table();
        assert_eq!(table.lines().count(), MEANINGS.len() + 2);
        assert!(table.contains("| 124 | the code exceeded its time limit |"));
    }
}
