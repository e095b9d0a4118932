//! The user's definitions for people and programs: what is used, from where, and why the rest is not.

use serde::Serialize;

use super::discovery::{Skip, Warning};
use super::{Listed, ServerState};

/// All definitions, and what is wrong with their files.
#[derive(Debug, Serialize)]
pub struct Listing {
    /// First those that are used.
    pub servers: Vec<ListedServer>,
    /// What is wrong with files and entries.
    pub warnings: Vec<String>,
}

/// One definition.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedServer {
    /// Its name.
    pub name: String,
    /// Its name in Python, when it is used.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub alias: String,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `stdio` or `http`; unknown for one that is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<&'static str>,
    /// The folder that it starts in, when its definition names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The file that defines it.
    pub source: String,
    /// The line in it.
    pub line: usize,
    /// `stopped`, `starting`, `running`, `failed`; or `disabled`, `itself`, `duplicate`, `incomplete`, `invalid`.
    pub state: &'static str,
    /// Why it is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How many tools it is known to have.
    pub tools: Option<usize>,
}

impl Listing {
    /// Puts it together.
    pub fn of(servers: &[Listed], warnings: &[Warning]) -> Self {
        Self {
            servers: servers.iter().map(ListedServer::of).collect(),
            warnings: warnings.iter().map(ToString::to_string).collect(),
        }
    }

    /// A table; one line saying so when there is nothing.
    pub fn table(&self) -> String {
        let mut text = String::new();
        if self.servers.is_empty() {
            text.push_str("no servers\n");
        } else {
            let head = ["NAME", "TRANSPORT", "STATE", "TOOLS", "SOURCE"].map(String::from);
            let rows = self.servers.iter().map(|server| {
                [
                    server.name.escape_debug().to_string(),
                    server.transport.unwrap_or("-").into(),
                    server.state.into(),
                    server.tools.map_or_else(|| "-".into(), |count| count.to_string()),
                    format!("{}:{}", server.source, server.line),
                ]
            });
            let rows: Vec<[String; 5]> = std::iter::once(head).chain(rows).collect();
            let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let widths: [usize; 5] = std::array::from_fn(width);
            for row in &rows {
                let cells: Vec<String> =
                    row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
                text.push_str(cells.join("  ").trim_end());
                text.push('\n');
            }
            for server in &self.servers {
                if let Some(why) = &server.why {
                    text.push_str(&format!("{} is not used: {why}\n", server.name.escape_debug()));
                }
            }
        }
        for warning in &self.warnings {
            text.push_str(&format!("warning: {warning}\n"));
        }
        text
    }
}

impl ListedServer {
    fn of(listed: &Listed) -> Self {
        let server = &listed.server;
        let launch = server.definition.as_ref().ok().map(|definition| &definition.launch);
        let skip = server.definition.as_ref().err();
        Self {
            name: server.name.to_string(),
            alias: server.alias.to_string(),
            description: server.description.clone(),
            transport: launch.map(|launch| launch.transport()),
            cwd: launch.and_then(|launch| launch.cwd()).map(|cwd| cwd.display().to_string()),
            source: server.source.path.display().to_string(),
            line: server.source.line,
            state: skip.map_or_else(|| word(listed.state), reason),
            why: skip.map(ToString::to_string),
            tools: listed.tools,
        }
    }
}

fn word(state: ServerState) -> &'static str {
    match state {
        ServerState::Stopped => "stopped",
        ServerState::Starting => "starting",
        ServerState::Running => "running",
        ServerState::Failed => "failed",
    }
}

fn reason(skip: &Skip) -> &'static str {
    match skip {
        Skip::Disabled => "disabled",
        Skip::Itself => "itself",
        Skip::Duplicate(_) => "duplicate",
        Skip::MissingVariable(_) => "incomplete",
        Skip::Invalid(_) => "invalid",
    }
}
