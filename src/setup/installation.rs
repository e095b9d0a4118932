//! A client on this machine: its file, what the file says about codebridge, and the change that registers it.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::clients::{Client, Folders, Form};
use super::entry::{Change, Problem};
use super::{json, toml};
use crate::config_file::{ConfigFile, FileError};

/// A client on this machine, with its file of server definitions.
#[derive(Debug)]
pub struct Installation {
    pub client: &'static Client,
    /// The file that the client reads; it may not exist yet.
    pub file: PathBuf,
    /// Whether the client was found: its file, its folder or its program.
    pub is_found: bool,
}

/// What a file says about codebridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The client was not found.
    NotFound,
    /// The client was found, and has no entry.
    NotRegistered,
    /// The entry starts this program.
    Registered,
    /// The entry starts another program: another copy of codebridge, or the bridge that it replaces.
    OtherCommand,
    /// The file cannot be read or changed.
    Unreadable,
}

impl State {
    /// Returns the words for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::NotRegistered => "not registered",
            Self::Registered => "registered",
            Self::OtherCommand => "registered with another command",
            Self::Unreadable => "file cannot be read",
        }
    }
}

/// Why codebridge could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("could not add codebridge to '{file}': {problem}")]
    Problem { file: PathBuf, problem: Problem },
}

impl Installation {
    /// Looks for a client.
    pub fn find(client: &'static Client, folders: &Folders<'_>) -> Self {
        let (file, is_found) = folders.find(client);
        Self { client, file, is_found }
    }

    /// Returns the change that registers `command`, the absolute path of codebridge.
    ///
    /// # Errors
    /// The file cannot be read, or is not what the client expects.
    pub fn plan(&self, command: &str) -> Result<Change, SetupError> {
        Ok(self.change(command)?.1)
    }

    /// Registers `command`. Returns the copy of the old file, if there was one. The file is read again: the client may have
    /// changed it since the plan.
    ///
    /// # Errors
    /// As [`Self::plan`], and the file or its copy cannot be written; then the file is as it was.
    pub fn register(&self, command: &str) -> Result<Option<PathBuf>, SetupError> {
        let (file, change) = self.change(command)?;
        match change {
            Change::None => Ok(None),
            Change::Add { text } | Change::Replace { text, .. } => Ok(file.replace(&text)?),
        }
    }

    /// Returns the state of the file.
    pub fn state(&self, command: &str) -> State {
        match self.plan(command) {
            Ok(Change::None) => State::Registered,
            Ok(Change::Replace { .. }) => State::OtherCommand,
            Ok(Change::Add { .. }) if self.is_found => State::NotRegistered,
            Ok(Change::Add { .. }) => State::NotFound,
            Err(_) => State::Unreadable,
        }
    }

    fn change(&self, command: &str) -> Result<(ConfigFile, Change), SetupError> {
        let file = ConfigFile::read(&self.file)?;
        let change = register(self.client.form, file.text(), command)
            .map_err(|problem| SetupError::Problem { file: self.file.clone(), problem })?;
        Ok((file, change))
    }
}

/// Returns the change that makes a file start `command`. Whatever else the file contains stays as it is.
pub(super) fn register(form: Form, text: &str, command: &str) -> Result<Change, Problem> {
    match form {
        Form::Codex => toml::register(text, command),
        _ => json::register(form, text, command),
    }
}

/// Returns the entry of a client as a file that contains nothing else.
pub fn snippet(client: &Client, command: &str) -> String {
    match register(client.form, "", command) {
        Ok(Change::Add { text }) => text,
        // An empty file has no entry, and nothing that could be wrong.
        Ok(_) | Err(_) => String::new(),
    }
}

/// Whether a program is in a cache of `uvx` or `npx`, which may delete it at any time.
pub fn is_in_a_cache(program: &Path) -> bool {
    program.components().any(|part| {
        let part = part.as_os_str();
        part == "_npx" || part.to_string_lossy().starts_with("archive-v")
    })
}
