//! The user's approvals of definitions in the working directory.
//!
//! Such a definition comes with a folder, which may be somebody else's work, and names a program to run or a server that gets
//! the user's credentials. It is used only after the user has approved it: this definition, in this folder. An approval is
//! one file in the state folder, named by a digest of both; when the definition changes, so does its digest.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use super::definition::{Launch, Proposal, Source};
use super::document::{Node, Value};
use super::forms::Entry;
use super::surroundings::Surroundings;
use crate::file_stamp::FileStamp;

/// The folder of the approvals, in the state folder.
const FOLDER: &str = "trust";
/// Characters of the name of a server that others have defined.
const LONGEST_NAME: usize = 64;

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
        let Surroundings { cwd, trust_project, .. } = surroundings;
        let project = cwd.canonicalize().unwrap_or_else(|_| cwd.clone());
        Self { folder: surroundings.definitions().join(FOLDER), project, all: *trust_project }
    }

    /// Returns a stamp that differs after an approval was added or removed.
    pub(super) fn stamp(&self) -> Option<FileStamp> {
        FileStamp::at(&self.folder)
    }

    /// Returns what the user has to approve before an entry with this description is used; None if that is done.
    pub(super) fn missing(
        &self,
        entry: &Entry<'_>,
        description: Option<&str>,
        source: &Source,
    ) -> Option<Proposal> {
        if self.all {
            return None;
        }
        let project = self.project.as_os_str().as_encoded_bytes();
        let subject = json!([project, entry.name, entry.opencode, description, exact(entry.node)]);
        let digest = hex::encode(Sha256::digest(subject.to_string()));
        if self.is_approved(&digest) {
            return None;
        }
        let mut shown = readable(entry.node);
        if let (Json::Object(shown), Some(description)) = (&mut shown, description) {
            shown.insert("description".into(), json!(description));
        }
        let text = in_ascii(&serde_json::to_string_pretty(&shown).unwrap_or_default());
        Some(Proposal { digest, source: source.clone(), text })
    }

    /// Returns whether the user has approved a definition.
    pub(super) fn holds(&self, proposal: &Proposal) -> bool {
        self.is_approved(&proposal.digest)
    }

    fn is_approved(&self, digest: &str) -> bool {
        self.folder.join(digest).is_file()
    }

    /// Records the user's approval.
    pub(super) fn approve(&self, name: &str, proposal: &Proposal) -> Result<(), TrustError> {
        let Proposal { digest, source, text } = proposal;
        // The name of the file is what counts; its text is for people who look into the folder.
        let note = format!("server '{name}' of '{source}', used in '{}':\n{text}\n", self.project.display());
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

/// Returns a node as the JSON that a person would write; of a repeated name, the last value.
pub(super) fn readable(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Scalar(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        Value::Text(text) => json!(text),
        Value::List(items) => items.iter().map(readable).collect(),
        Value::Table(members) => members
            .iter()
            .map(|(name, node)| (name.clone(), readable(node)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

/// Returns a text in ASCII, as JSON has it: nothing in it is hidden, turned around or of a look-alike script.
pub fn in_ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || matches!(c, ' '..='~') {
            text.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")));
        }
    }
    text
}

/// Adds to a proposal what is used of the definition, in front: other members may distract from that.
pub(super) fn with_use(mut proposal: Proposal, launch: &Launch) -> Proposal {
    let used = match launch {
        Launch::Stdio { command, args, .. } => {
            let words: Vec<&String> = [command].into_iter().chain(args).collect();
            format!("runs {}", json!(words))
        }
        Launch::Http { url, .. } => format!("connects to {}", json!(url)),
        Launch::OpenApi(openapi) => {
            let to = openapi
                .base_url
                .as_ref()
                .map_or_else(|| "the hosts in it".into(), |url| json!(url).to_string());
            format!("reads {} and sends requests to {to}", json!(openapi.document.to_string()))
        }
    };
    proposal.text = format!("{}\n{}", in_ascii(&used), proposal.text);
    proposal
}

/// Returns why a person could read an entry as something else than it is; None if it is plain.
pub(super) fn misleading(entry: &Entry<'_>) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '/' | ' ');
    let name = entry.name;
    if name.len() > LONGEST_NAME
        || !name.chars().all(is_plain)
        || name.starts_with(['-', ' '])
        || name.ends_with(' ')
    {
        return Some(format!(
            "in the working directory, a name has at most {LONGEST_NAME} characters: letters, digits, spaces and -_.@/"
        ));
    }
    repeated(entry.node).map(|name| format!("'{}' occurs twice in it", in_ascii(name)))
}

/// Returns a name that a table in the node has twice: programs differ in which one counts.
fn repeated(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Table(members) => {
            let mut known = HashSet::new();
            let twice = members.iter().find(|(name, _)| !known.insert(name.as_str()));
            let twice = twice.map(|(name, _)| name.as_str());
            twice.or_else(|| members.iter().find_map(|(_, node)| repeated(node)))
        }
        Value::List(items) => items.iter().find_map(repeated),
        _ => None,
    }
}
