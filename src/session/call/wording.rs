//! The words of messages that depend on who reads them: a client whose session goes on, or a person at a terminal.

use std::time::Duration;

use super::outcome::{Clamped, RunRequest};

/// How the messages about one run are worded.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::session) struct Wording {
    /// Whether a later call can see the variables of this one.
    keeps: bool,
    one_shot: bool,
    clamped: Option<Clamped>,
}

impl Wording {
    pub(in crate::session) fn of(request: &RunRequest, throw_away: bool, one_shot: bool) -> Self {
        Self { keeps: !throw_away && !one_shot, one_shot, clamped: request.clamped }
    }

    /// Returns what a message adds where the session goes on.
    pub(in crate::session) fn variables_are_kept(self) -> &'static str {
        if self.keeps { "; variables are kept" } else { "" }
    }

    /// Returns the notice that a session has ended; None where there is none to speak of.
    pub(in crate::session) fn session_ended(self, session: &str) -> Option<String> {
        self.keeps.then(|| {
            format!("session '{session}' has ended; the next call starts a new one without its variables")
        })
    }

    /// Returns where the rest of an output that was cut is.
    pub(in crate::session) fn rest_of_output(self, run: u32, stream: &str) -> String {
        if self.one_shot {
            return "without --output, all of it is printed".into();
        }
        format!(
            "read it with runtime.output({run}, \"{stream}\", start, length) or as resource codebridge://runs/{run}/{stream}"
        )
    }

    /// Returns `stopped after 3 s`, and why no later.
    pub(in crate::session) fn stopped(self, after: Duration) -> String {
        let text = format!("stopped after {} s", after.as_secs());
        match self.clamped {
            Some(clamped) => format!("{text} ({})", clamped.describe(after)),
            None => text,
        }
    }

    /// Returns what to do when memory ran out; `limit` in bytes.
    pub(in crate::session) fn raise_memory(self, limit: u64) -> String {
        let size = size_text(limit.saturating_mul(2));
        if self.one_shot {
            format!("raise it with --memory {size}")
        } else {
            format!("raise it with MCP_BRIDGE_MEMORY={size}")
        }
    }
}

/// Returns a size as settings take it.
fn size_text(bytes: u64) -> String {
    let units = [(1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")];
    let whole = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    whole.map_or_else(|| bytes.to_string(), |(unit, letter)| format!("{}{letter}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Origin;

    #[test]
    fn a_run_at_a_terminal_has_no_session_and_has_flags() {
        let client = Wording { keeps: true, ..Wording::default() };
        let terminal = Wording { one_shot: true, ..Wording::default() };
        assert_eq!(client.variables_are_kept(), "; variables are kept");
        assert_eq!((terminal.variables_are_kept(), terminal.session_ended("main")), ("", None));
        assert_eq!(terminal.rest_of_output(7, "stdout"), "without --output, all of it is printed");
        assert!(client.rest_of_output(7, "stdout").contains("runtime.output(7, \"stdout\""));
        assert_eq!(client.raise_memory(1 << 30), "raise it with MCP_BRIDGE_MEMORY=2g");
        assert_eq!(terminal.raise_memory(100 << 20), "raise it with --memory 200m");
        assert_eq!(terminal.raise_memory(17_000_000), "raise it with --memory 34000000");
    }

    #[test]
    fn a_limit_that_was_lowered_says_by_what() {
        let clamped = Some(Clamped { requested: Duration::from_secs(600), limit_from: Origin::Default });
        let text = Wording { clamped, ..Wording::default() }.stopped(Duration::from_secs(3));
        assert_eq!(text, "stopped after 3 s (600 requested, limit 3 from MCP_BRIDGE_MAX_TIMEOUT)");
        assert_eq!(Wording::default().stopped(Duration::from_secs(3)), "stopped after 3 s");
    }
}
