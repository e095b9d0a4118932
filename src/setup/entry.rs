//! Entries, and how a file changes with them, whatever its format.

use crate::upstream::discovery::own_arguments;

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
        /// The command line that the entry had.
        old: String,
        /// The one that it gets.
        new: String,
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
    /// Returns the change of its command. Its words are those of the user's own file.
    pub(super) fn replaced(&self, text: String, command: &str, kept: &[String]) -> Change {
        let line = |words: &mut dyn Iterator<Item = &str>| shlex::try_join(words).unwrap_or_default();
        let old = line(&mut self.command.iter().chain(&self.args).map(String::as_str));
        let new = line(&mut std::iter::once(command).chain(kept.iter().map(String::as_str)));
        Change::Replace { text, name: self.name.clone(), old, new }
    }

    /// Whether it is the one to change: it starts us, or has our name.
    pub(super) fn is_ours(&self) -> bool {
        self.name == NAME || self.own_arguments().is_some()
    }

    /// Returns the arguments that codebridge gets, which it keeps with another command: not those of `uvx`.
    ///
    /// # Errors
    /// It starts something else.
    pub(super) fn kept_arguments(&self) -> Result<&[String], Problem> {
        self.own_arguments().ok_or_else(|| {
            let name = &self.name;
            Problem(format!("'{name}' starts something else; rename it, or remove it"))
        })
    }

    fn own_arguments(&self) -> Option<&[String]> {
        own_arguments(self.command.as_ref()?, &self.args)
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
