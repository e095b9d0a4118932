//! Entries, and how a file changes with them, whatever its format.

use std::ffi::OsStr;
use std::path::Path;

use crate::upstream::discovery::runs_this_bridge;

/// The name of the entry.
pub(super) const NAME: &str = "codebridge";

/// What registers codebridge in a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: the entry is there.
    None,
    /// A new entry.
    Add {
        /// The text of the new file.
        text: String,
    },
    /// Another command in an entry that starts another copy of codebridge, or the bridge that it replaces.
    Replace {
        /// The text of the new file.
        text: String,
        /// The name of the entry.
        name: String,
        /// What the entry started before; empty if it started nothing here.
        old: String,
    },
}

/// What is wrong in a file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Problem(pub(super) String);

/// An entry as far as it says what to start.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) name: String,
    /// None if it starts nothing here, such as one with an address.
    pub(super) command: Option<String>,
    pub(super) args: Vec<String>,
}

impl Entry {
    /// Returns its command line.
    pub(super) fn line(&self) -> String {
        let words = self.command.iter().chain(&self.args).map(String::as_str);
        shlex::try_join(words).unwrap_or_default()
    }

    /// Whether it is the one to change: it has our name, or starts us.
    pub(super) fn is_ours(&self) -> bool {
        self.name == NAME
            || self.command.as_ref().is_some_and(|command| runs_this_bridge(command, &self.args))
    }

    /// Whether its arguments are arguments of codebridge, and not those of `uvx` or of another program.
    pub(super) fn keeps_arguments(&self) -> bool {
        let program = self.command.as_deref().and_then(|command| Path::new(command).file_name());
        program == Some(OsStr::new(NAME))
    }
}

/// Returns the only one of the entries that is to be changed.
pub(super) fn only_one<T>(ours: Vec<(Entry, T)>) -> Result<Option<(Entry, T)>, Problem> {
    if let [(first, _), (second, _), ..] = &*ours {
        let (first, second) = (&first.name, &second.name);
        return Err(Problem(format!("'{first}' and '{second}' both start codebridge; remove one of them")));
    }
    Ok(ours.into_iter().next())
}
