//! How the program ends: one exit code for each kind of failure, none used twice.

use std::process::ExitCode;

/// The exit codes of `codebridge`.
///
/// `exec` passes on the exit status of the code itself. So the bridge uses codes that programs rarely use: those of
/// `sysexits.h`, of `timeout` and of shells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Success,
    Usage,
    Reduced,
    NotReady,
    Tool,
    NoRuntime,
    Sandbox,
    NoImage,
    Io,
    Server,
    Timeout,
    Interrupted,
    Terminated,
}

impl Exit {
    /// Every code, in ascending order.
    pub const ALL: [Self; 13] = [
        Self::Success,
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

    /// Returns the exit code, and what the documentation says of it.
    pub const fn code_and_meaning(self) -> (u8, &'static str) {
        match self {
            Self::Success => (0, "success"),
            Self::Usage => (2, "the command line or a setting is invalid"),
            Self::Reduced => (10, "`doctor`: code runs, with reduced guarantees"),
            Self::NotReady => (11, "`doctor`: no code can run"),
            Self::Tool => (65, "the called tool failed"),
            Self::NoRuntime => (69, "no container runtime works on this machine; see `codebridge doctor`"),
            Self::Sandbox => (70, "the sandbox or its runtime failed"),
            Self::NoImage => (72, "the image is unavailable"),
            Self::Io => (74, "standard input or output failed"),
            Self::Server => (76, "an MCP server could not be started, or did not answer"),
            Self::Timeout => (124, "the code exceeded its time limit"),
            Self::Interrupted => (130, "interrupted with Ctrl-C"),
            Self::Terminated => (143, "terminated by SIGTERM"),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code_and_meaning().0.into()
    }
}

/// Returns the table of the documentation.
pub fn markdown_table() -> String {
    let mut table = String::from("| exit code | meaning |\n|---|---|\n");
    for exit in Exit::ALL {
        let (code, meaning) = exit.code_and_meaning();
        table.push_str(&format!("| {code} | {meaning} |\n"));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_exit_code_is_used_twice() {
        let codes: Vec<_> = Exit::ALL.iter().map(|exit| exit.code_and_meaning().0).collect();
        assert!(codes.is_sorted_by(|left, right| left < right), "{codes:?}");
    }

    #[test]
    fn the_table_has_one_line_for_each_exit_code() {
        let table = markdown_table();
        assert_eq!(table.lines().count(), Exit::ALL.len() + 2);
        assert!(table.contains("| 124 | the code exceeded its time limit |"));
    }
}
