//! What is known of a function without running it: signature, documentation, servers and tools.

use std::collections::BTreeSet;

use codebridge_runtimes::exec::{visible, visible_line};
use serde::{Deserialize, Serialize};

use super::scan;

/// Bytes of everything else that code says of a function; the guest sends less.
pub const LONGEST_DETAILS: usize = 48 << 10;
/// Bytes of a signature.
const LONGEST_SIGNATURE: usize = 1_000;
/// Bytes of a docstring.
pub(super) const LONGEST_DOC: usize = 2_000;
/// Bytes of a name of a server or a tool in Python.
const LONGEST_NAME: usize = 200;
/// Servers, and tools.
const MOST_NAMES: usize = 100;

/// What code in a sandbox says of a function that it saves.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RawDetails {
    pub signature: Option<String>,
    pub doc: Option<String>,
    pub servers: Vec<String>,
    pub tools: Vec<(String, String)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    /// `add(a, b=1)`, or `async add(a, b=1)`, in one line.
    pub signature: String,
    pub doc: String,
    /// The servers that the function uses, by their names in Python.
    pub servers: Vec<String>,
    /// The tools that it names: server and tool, by their names in Python.
    pub tools: Vec<(String, String)>,
}

impl Details {
    /// Returns what a sandbox said, as far as it can be true.
    pub fn checked(name: &str, raw: RawDetails, source: &str) -> Self {
        let RawDetails { signature, doc, servers, tools } = raw;
        let fits = |text: &String| {
            let call = text.strip_prefix("async ").unwrap_or(text);
            text.len() <= LONGEST_SIGNATURE
                && call.strip_prefix(name).is_some_and(|rest| rest.starts_with('('))
                && *text == visible_line(text)
        };
        let signature = signature.filter(fits).unwrap_or_else(|| signature_in(name, source));
        let tools = tools.into_iter().filter(|(server, tool)| is_alias(server) && is_python_name(tool));
        let tools: BTreeSet<_> = tools.take(MOST_NAMES).collect();
        let servers = servers.into_iter().filter(|server| is_alias(server)).take(MOST_NAMES);
        let servers: BTreeSet<_> = servers.chain(tools.iter().map(|(server, _)| server.clone())).collect();
        Self {
            signature,
            doc: bounded(&doc.unwrap_or_default()),
            servers: servers.into_iter().collect(),
            tools: tools.into_iter().collect(),
        }
    }

    /// Returns what the text of a source says, without a parser: for files that did not come from a sandbox.
    pub fn scanned(name: &str, source: &str) -> Self {
        let (servers, tools) = scan::used(source);
        let doc = scan::definition(name, source).and_then(|(_, body)| scan::docstring(body));
        let raw = RawDetails { signature: None, doc, servers, tools };
        Self::checked(name, raw, source)
    }

    /// Returns the first line of the documentation.
    pub fn summary(&self) -> &str {
        self.doc.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
    }
}

/// Returns the signature that the source shows, in one line.
fn signature_in(name: &str, source: &str) -> String {
    let written =
        scan::definition(name, source).map(|(head, _)| head).filter(|head| head.len() <= LONGEST_SIGNATURE);
    written.map_or_else(|| format!("{name}(…)"), |head| visible_line(&head))
}

fn bounded(doc: &str) -> String {
    let end = (0..=doc.len().min(LONGEST_DOC)).rev().find(|at| doc.is_char_boundary(*at)).unwrap_or(0);
    visible(doc[..end].trim())
}

fn is_alias(name: &str) -> bool {
    is_python_name(name) && !name.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_python_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
