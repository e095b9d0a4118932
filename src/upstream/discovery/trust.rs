//! The user's approvals of definitions in the working directory.
//!
//! Such a definition comes with a folder, which may be somebody else's work, and names a program to run or a server that gets
//! the user's credentials. It is used only after the user has approved it: this definition, in this folder. An approval is
//! one file in the state folder, named by a digest of both; when the definition changes, so does its digest.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use super::definition::Proposal;
use super::document::{Node, Value};
use super::files::Stamp;
use super::forms::Entry;
use super::surroundings::Surroundings;

/// The folder of the approvals, in the state folder.
const FOLDER: &str = "trust";

/// An approval that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("could not record the approval in '{folder}': {source}")]
pub struct TrustError {
    folder: PathBuf,
    source: io::Error,
}

/// The approvals that hold in one working directory.
#[derive(Debug)]
pub(super) struct Trust {
    folder: PathBuf,
    /// The working directory with links resolved.
    project: PathBuf,
    /// Whether everything is approved: `MCP_BRIDGE_TRUST_PROJECT`.
    all: bool,
}

impl Trust {
    pub(super) fn new(surroundings: &Surroundings) -> Self {
        let Surroundings { cwd, state_dir, trust_project, .. } = surroundings;
        let project = cwd.canonicalize().unwrap_or_else(|_| cwd.clone());
        Self { folder: state_dir.join(FOLDER), project, all: *trust_project }
    }

    /// Returns a stamp that differs after an approval was added or removed.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        Stamp::of(&self.folder)
    }

    /// Returns what the user has to approve before an entry is used; None if that is done.
    pub(super) fn missing(&self, entry: &Entry<'_>) -> Option<Proposal> {
        if self.all {
            return None;
        }
        let definition = exact(entry.node);
        let project = self.project.as_os_str().as_encoded_bytes();
        let subject = json!([project, entry.name, entry.opencode, definition]);
        let digest = hex::encode(Sha256::digest(subject.to_string()));
        let text = serde_json::to_string_pretty(&readable(entry.node)).unwrap_or_default();
        Some(Proposal { digest, text }).filter(|proposal| !self.holds(proposal))
    }

    /// Returns whether the user has approved a definition.
    pub(super) fn holds(&self, proposal: &Proposal) -> bool {
        self.folder.join(&proposal.digest).is_file()
    }

    /// Records the user's approval.
    pub(super) fn approve(&self, name: &str, proposal: &Proposal) -> Result<(), TrustError> {
        let Proposal { digest, text } = proposal;
        // The name of the file is what counts; its text is for people who look into the folder.
        let note = format!("server '{name}' in '{}':\n{text}\n", self.project.display());
        self.write(digest, &note).map_err(|source| TrustError { folder: self.folder.clone(), source })
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(text.as_bytes())?;
        match file.persist_noclobber(self.folder.join(name)) {
            Err(refused) if refused.error.kind() != ErrorKind::AlreadyExists => Err(refused.error),
            _ => Ok(()),
        }
    }
}

/// Returns a node as JSON in which every difference is kept: order, repeated names, and kinds of values.
fn exact(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Scalar(text) => json!({ "scalar": text }),
        Value::Text(text) => json!(text),
        Value::List(items) => items.iter().map(exact).collect(),
        Value::Table(members) => {
            json!({ "table": members.iter().map(|(name, node)| json!([name, exact(node)])).collect::<Vec<_>>() })
        }
    }
}

/// Returns a node as the JSON that a person would write. Of a repeated name it has the first value, which is the one that is used.
fn readable(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Scalar(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        Value::Text(text) => json!(text),
        Value::List(items) => items.iter().map(readable).collect(),
        Value::Table(members) => {
            let mut table = serde_json::Map::new();
            for (name, node) in members {
                table.entry(name).or_insert_with(|| readable(node));
            }
            Json::Object(table)
        }
    }
}
