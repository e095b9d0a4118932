//! Why an interpreter is gone, and how the user reads it.

use codebridge_runtimes::{Gone, HeldLimits, Mechanism};

use crate::session::frames::InterpreterEnd;

/// Also how the kernel ends a process that needs more memory than it may have.
const SIGKILL: i32 = 9;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Loss {
    /// It exited, or was ended by a signal.
    Ended(InterpreterEnd),
    /// The sandbox ended without a message.
    Vanished(String),
    /// The cluster that ran it knows why it is gone.
    Explained(Gone),
    /// It sent frames that no interpreter of ours sends.
    Forged(String),
    /// It ignored an interrupt.
    Stubborn,
}

impl Loss {
    /// Returns the same loss, now that a process is known to have been killed because memory ran out.
    pub(super) fn out_of_memory(self) -> Self {
        match self {
            Self::Ended(InterpreterEnd { signal: Some(SIGKILL), .. }) | Self::Vanished(_) => {
                Self::Ended(InterpreterEnd { exit: None, signal: Some(SIGKILL), out_of_memory: true })
            }
            other => other,
        }
    }

    /// Returns whether memory ran out, as far as anybody can tell.
    pub(super) fn is_of_memory(&self, limits: HeldLimits) -> bool {
        match self {
            Self::Ended(InterpreterEnd { out_of_memory: true, .. }) => true,
            Self::Ended(InterpreterEnd { signal, .. }) => {
                *signal == Some(SIGKILL) && limits.memory == Mechanism::Cgroup
            }
            _ => false,
        }
    }

    /// Returns what to do about it, where its runtime knows that.
    pub(super) fn hint(&self) -> Option<&str> {
        match self {
            Self::Explained(gone) => gone.hint.as_deref(),
            _ => None,
        }
    }

    /// Returns the reason in a few words; `memory` is the memory limit in bytes.
    pub(super) fn describe(&self, limits: HeldLimits, memory: u64) -> String {
        let mebibytes = memory >> 20;
        match self {
            Self::Ended(InterpreterEnd { out_of_memory: true, .. }) => {
                format!("out of memory: it needed more than its limit of {mebibytes} MiB")
            }
            Self::Ended(_) if self.is_of_memory(limits) => {
                format!(
                    "killed by SIGKILL, probably because it needed more than its memory limit of {mebibytes} MiB"
                )
            }
            Self::Ended(InterpreterEnd { signal: Some(signal), .. }) => {
                format!("the interpreter was ended by {}", signal_name(*signal))
            }
            Self::Ended(InterpreterEnd { exit, .. }) => {
                format!("the code ended its interpreter with exit status {}", exit.unwrap_or(0))
            }
            Self::Vanished(text) | Self::Explained(Gone { reason: text, .. }) => text.clone(),
            Self::Forged(text) => format!("{text}; the sandbox was ended"),
            Self::Stubborn => "the code ignored the interrupt".into(),
        }
    }
}

/// Returns the usual name of a signal: <https://man7.org/linux/man-pages/man7/signal.7.html>; these numbers are the same on every
/// architecture that runs containers.
fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    name.to_string()
}
