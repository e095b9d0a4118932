//! Profiles: named sets of servers. With a profile, only its servers are used.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::definition::{Server, Skip, Source};
use super::document::{Node, Problem, Value};

/// Where a file has its profiles.
pub(super) const KEY: &str = "profiles";

/// A named set of servers, as a file defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) name: Arc<str>,
    pub(super) servers: Vec<String>,
    pub(super) source: Source,
}

impl Profile {
    /// Returns what is wrong with it, given the names of all servers.
    pub(super) fn problems<'a>(&'a self, names: &'a HashSet<&str>) -> impl Iterator<Item = String> + 'a {
        let missing = self.servers.iter().filter(|name| !names.contains(name.as_str()));
        let profile = self.name.escape_debug();
        missing.map(move |name| {
            format!("profile '{profile}' has '{}', and there is no such server", name.escape_debug())
        })
    }
}

/// The profile that was asked for, and what a file says of it, if one does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen<'a> {
    pub(super) name: &'a Arc<str>,
    pub(super) profile: Option<&'a Profile>,
}

impl Chosen<'_> {
    /// Returns why a definition that would be used, or could be approved, is not used.
    pub(super) fn skips(&self, server: &Server) -> Option<Skip> {
        let is_in = self.profile.is_some_and(|profile| profile.servers.iter().any(|it| **it == *server.name));
        let could_be_used = matches!(server.definition, Ok(_) | Err(Skip::Untrusted(_)));
        (could_be_used && !is_in).then(|| Skip::NotInProfile(Arc::clone(self.name)))
    }
}

/// The profile that was asked for, which no file defines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no profile named '{name}'; {}", list(.known))]
pub struct UnknownProfile {
    pub name: Arc<str>,
    /// The names that there are, sorted.
    pub known: Vec<Arc<str>>,
}

fn list(known: &[Arc<str>]) -> String {
    match known {
        [] => "no file of definitions has 'profiles'".into(),
        known => format!("the profiles are {}", known.join(", ")),
    }
}

/// Reads the profiles of a file, and what is wrong with them.
pub(super) fn parse(root: &Node, path: &Arc<Path>) -> (Vec<Profile>, Vec<Problem>) {
    let (mut profiles, mut problems) = (Vec::new(), Vec::new());
    let Some(table) = root.get(KEY) else { return (profiles, problems) };
    if !table.is_table() {
        let message = format!("'{KEY}' must be an object of lists, not {}", table.kind());
        problems.push(Problem { line: table.line, message });
    }
    for (name, node) in table.members() {
        match names(node) {
            Some(servers) => {
                let source = Source { path: Arc::clone(path), line: node.line };
                profiles.push(Profile { name: name.as_str().into(), servers, source });
            }
            None => {
                let message = format!("profile '{}' must be a list of names of servers", name.escape_debug());
                problems.push(Problem { line: node.line, message });
            }
        }
    }
    (profiles, problems)
}

fn names(node: &Node) -> Option<Vec<String>> {
    let Value::List(items) = &node.value else { return None };
    let name = |item: &Node| match &item.value {
        Value::Text(name) => Some(name.clone()),
        _ => None,
    };
    items.iter().map(name).collect()
}

/// Returns the first profile of a name.
pub(super) fn find<'a>(
    name: &Arc<str>,
    profiles: impl Iterator<Item = &'a Profile> + Clone,
) -> Result<&'a Profile, UnknownProfile> {
    profiles.clone().find(|profile| profile.name == *name).ok_or_else(|| {
        let mut known: Vec<_> = profiles.map(|profile| Arc::clone(&profile.name)).collect();
        known.sort();
        known.dedup();
        UnknownProfile { name: Arc::clone(name), known }
    })
}
