//! Why a call is denied.

use std::sync::Arc;

use super::shell::shell_word;
use crate::policy::{Denial, MOST_QUESTIONS, PinError, PolicyError, RuleName, Spent};

/// Why a call is denied.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// Then every call is denied.
    #[error("the policy has an error: {0}")]
    Policy(PolicyError),
    #[error(transparent)]
    Rule(Denial),
    #[error(transparent)]
    Budget(Spent),
    #[error("the tool is new since the tools of '{server}' were accepted")]
    NewTool { server: Arc<str> },
    #[error("the tool has changed since the tools of '{server}' were accepted")]
    ChangedTool { server: Arc<str> },
    #[error(transparent)]
    Pins(PinError),
    #[error("the user said no (rule at {rule})")]
    Refused { rule: RuleName },
    #[error("the user was asked {MOST_QUESTIONS} times in this run without a yes (rule at {rule})")]
    AskedTooOften { rule: RuleName },
    #[error("the user gave no answer (rule at {rule})")]
    Unanswered { rule: RuleName },
    #[error("the rule at {rule} asks the user, and nobody can be asked here")]
    NobodyToAsk { rule: RuleName },
    #[error("the rule at {rule} asks the user, and the arguments are too long to be read")]
    TooLarge { rule: RuleName },
    #[error("codebridge runs this test by itself, and may call only tools that change nothing")]
    Unattended,
}

impl Denied {
    /// The same for something else than a call.
    pub(super) fn hint_of_other(&self) -> Option<String> {
        match self {
            Self::Rule(_) => {
                Some("`codebridge help policy` explains rules for other things than tools".into())
            }
            other => other.hint("", ""),
        }
    }

    /// Returns what the user can do about it.
    pub(super) fn hint(&self, server: &str, tool: &str) -> Option<String> {
        let name = shell_word(&format!("{server}.{tool}"));
        match self {
            Self::Policy(_) => Some("correct the file; no restart is needed".into()),
            Self::NewTool { server } | Self::ChangedTool { server } => {
                Some(format!("`codebridge policy accept {}` shows the difference", shell_word(server)))
            }
            Self::NobodyToAsk { .. } => Some(
                "use a client that can show forms (elicitation), open the console (`codebridge help console`), or allow the call in the policy"
                    .into(),
            ),
            Self::Rule(_) => Some(format!("`codebridge policy check {name}` explains it")),
            Self::TooLarge { .. } => Some("make several smaller calls".into()),
            Self::Budget(_)
            | Self::Pins(_)
            | Self::Refused { .. }
            | Self::AskedTooOften { .. }
            | Self::Unanswered { .. }
            | Self::Unattended => None,
        }
    }
}
