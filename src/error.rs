//! How the program ends: one exit code for each kind of failure, none used twice.

use std::fmt;
use std::process::ExitCode;

/// The exit codes of `codebridge`.
///
/// `exec` passes on the exit status of the code itself, so the codes of the bridge lie where programs rarely
/// look for theirs: those of `sysexits.h`, and what `timeout` and shells use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All went well.
    Fine,
    /// The command line or a setting cannot be used.
    Usage,
    /// A tool of an MCP server was called, and says that it failed.
    Tool,
    /// `doctor`: code runs, with fewer guarantees than it could.
    Reduced,
    /// `doctor`: no code can run.
    NotReady,
    /// No container runtime works on this machine.
    NoRuntime,
    /// The sandbox, or the runtime that ran it, failed.
    Sandbox,
    /// The image is not to be had.
    NoImage,
    /// Standard input or output failed.
    Io,
    /// An MCP server that was asked for failed.
    Server,
    /// The code ran longer than it may.
    Timeout,
    /// Interrupted with Ctrl-C.
    Interrupted,
    /// Ended by SIGTERM.
    Terminated,
}

impl Exit {
    /// Every code, in ascending order.
    pub const ALL: [Self; 13] = [
        Self::Fine,
        Self::Usage,
        Self::Reduced,
        Self::NotReady,
        Self::Tool,
        Self::NoRuntime,
        Self::Sandbox,
        Self::NoImage,
        Self::Io,
        Self::Server,
        Self::Timeout,
        Self::Interrupted,
        Self::Terminated,
    ];

    /// The number that the process ends with.
    pub const fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Usage => 2,
            Self::Reduced => 10,
            Self::NotReady => 11,
            Self::Tool => 65,
            Self::NoRuntime => 69,
            Self::Sandbox => 70,
            Self::NoImage => 72,
            Self::Io => 74,
            Self::Server => 76,
            Self::Timeout => 124,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }

    /// What it means, as the README says it.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Usage => "the command line or a setting cannot be used",
            Self::Reduced => "`doctor`: code runs, with fewer guarantees than it could",
            Self::NotReady => "`doctor`: no code can run",
            Self::Tool => "the tool that was called says that it failed",
            Self::NoRuntime => "no container runtime works on this machine; `codebridge doctor` says why",
            Self::Sandbox => "the sandbox, or the runtime that ran it, failed",
            Self::NoImage => "the image is not to be had",
            Self::Io => "standard input or output failed",
            Self::Server => "an MCP server could not be started, or gave no answer",
            Self::Timeout => "the code ran longer than it may",
            Self::Interrupted => "interrupted with Ctrl-C",
            Self::Terminated => "ended by SIGTERM",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.meaning())
    }
}

/// The table of exit codes as the README shows it.
pub fn markdown_table() -> String {
    let mut table = String::from("| exit code | meaning |\n|---|---|\n");
    for exit in Exit::ALL {
        table.push_str(&format!("| {} | {} |\n", exit.code(), exit.meaning()));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_exit_code_is_used_twice() {
        let codes: Vec<_> = Exit::ALL.iter().map(|exit| exit.code()).collect();
        assert!(codes.is_sorted_by(|left, right| left < right), "{codes:?}");
    }

    #[test]
    fn the_table_has_a_line_for_each_code() {
        let table = markdown_table();
        assert_eq!(table.lines().count(), Exit::ALL.len() + 2);
        assert!(table.contains("| 124 | the code ran longer than it may |"));
    }
}
