//! Definitions as they are written: for copies of them.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;

use super::definition::Source;
use super::document::{Node, parse_json, parse_toml};
use super::files::{LARGEST_OF_USER, read};
use super::forms::{self, Entry};
use super::itself::is_itself;
use super::snapshot::Discovery;
use super::sources::{Form, files_of, places};
use super::trust::readable;
use super::warning::{Warning, WarningKind};

/// A definition as it is written in a file: nothing in it is expanded.
#[derive(Debug)]
pub struct Written {
    pub name: String,
    pub source: Source,
    /// In the form of `mcpServers`.
    pub definition: Json,
    /// Whether it starts this bridge, as far as its command says.
    pub is_itself: bool,
    /// Why it cannot be copied.
    pub problem: Option<&'static str>,
}

impl Written {
    fn of(entry: &Entry<'_>, path: &Arc<Path>) -> Self {
        let mut definition = readable(entry.node);
        let problem = match entry.opencode {
            true => plain_references(&mut definition),
            false => None,
        };
        let is_object = definition.is_object();
        let words = forms::command_as_written(entry.node);
        Self {
            name: entry.name.to_owned(),
            source: Source { path: Arc::clone(path), line: entry.node.line },
            definition,
            is_itself: words.is_some_and(|words| is_itself(&words[0], &words[1..], None)),
            problem: problem.or((!is_object).then_some("it is not an object")),
        }
    }
}

impl Discovery {
    /// Returns the definitions that are used, as they are written, in the order of the snapshot.
    pub fn written(&self) -> Vec<Written> {
        let snapshot = self.snapshot();
        let mut all = Vec::new();
        for place in places(self.surroundings()).into_iter().flat_map(files_of) {
            let path: Arc<Path> = place.path.as_path().into();
            if let Ok(Some(root)) = parse(&path) {
                let found = forms::entries(&root, place.form, self.projects());
                all.extend(found.entries.iter().map(|entry| Written::of(entry, &path)));
            }
        }
        let mut used = Vec::new();
        for server in &snapshot.servers {
            let at = all.iter().position(|it| it.source == server.source && *it.name == *server.name);
            used.extend(at.map(|at| all.swap_remove(at)));
        }
        used
    }

    /// Returns the definitions of one file, whatever its form, as they are written.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn written_in(&self, path: &Path) -> Result<Vec<Written>, Warning> {
        let path: Arc<Path> = path.into();
        let root = parse(&path)?;
        let entries = root.as_ref().map(|root| forms::entries(root, Form::Any, self.projects()).entries);
        Ok(entries.iter().flatten().map(|entry| Written::of(entry, &path)).collect())
    }
}

fn parse(path: &Arc<Path>) -> Result<Option<Node>, Warning> {
    let warning =
        |line, message| Warning { path: Arc::clone(path), line, kind: WarningKind::Content, message };
    let text = read(path, LARGEST_OF_USER).map_err(|error| warning(error.line(), error.to_string()))?;
    let Some(text) = text else { return Ok(None) };
    let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    let root = if is_toml { parse_toml(&text) } else { parse_json(&text) };
    root.map_err(|error| warning(Some(error.line), format!("could not parse it: {}", error.message)))
}

/// Writes the references of opencode as others are. Returns why that is not possible.
fn plain_references(value: &mut Json) -> Option<&'static str> {
    match value {
        Json::String(text) if text.contains("{file:") => Some("it refers to a file, as only opencode does"),
        Json::String(text) => {
            *text = text.replace("{env:", "${env:").replace("$${env:", "${env:");
            None
        }
        Json::Array(items) => items.iter_mut().find_map(plain_references),
        Json::Object(members) => members.iter_mut().find_map(|(_, value)| plain_references(value)),
        _ => None,
    }
}
