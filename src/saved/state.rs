//! What is to be said of a function before it is used.

use std::fmt;

use serde::{Serialize, Serializer};

use super::store::{SavedTool, Trouble};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Ready,
    /// Its example has never been run.
    Untested,
    /// A tool that it names has changed since it was saved, or since its example was run.
    NeedsTest,
    /// Its example has failed.
    Broken,
    NameTaken,
    TooLong,
    Unreadable,
    NeedsApproval,
}

impl SavedTool {
    /// Returns the state. `digest` says what a tool is now, by server and tool: None if that is not known, an empty text if there
    /// is no such tool.
    pub fn state(&self, digest: impl Fn(&str, &str) -> Option<String>) -> State {
        match &self.trouble {
            Some(Trouble::NameTaken) => return State::NameTaken,
            Some(Trouble::TooLong) => return State::TooLong,
            Some(Trouble::Unreadable(_)) => return State::Unreadable,
            Some(Trouble::Unapproved) => return State::NeedsApproval,
            None => {}
        }
        let is_changed = self.schemas.iter().any(|(name, before)| {
            let (server, tool) = name.split_once('.').unwrap_or((name, ""));
            digest(server, tool).is_some_and(|now| now != *before)
        });
        match (&self.tested, is_changed) {
            (_, true) => State::NeedsTest,
            (Some(tested), false) if tested.error.is_some() => State::Broken,
            (None, false) if self.example.is_some() => State::Untested,
            _ => State::Ready,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ready",
            Self::Untested => "untested",
            Self::NeedsTest => "needs test",
            Self::Broken => "broken",
            Self::NameTaken => "name is taken",
            Self::TooLong => "too long",
            Self::Unreadable => "unreadable",
            Self::NeedsApproval => "needs approval",
        })
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
