//! Catalogues and queries from files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use codebridge::upstream::ToolDoc;
use serde::Deserialize;
use serde_json::Value;

/// A server and the documentation of its tools.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) docs: Vec<ToolDoc>,
}

/// A query and its relevant tools.
#[derive(Deserialize)]
pub(crate) struct Query {
    pub(crate) id: String,
    pub(crate) style: String,
    #[serde(rename = "query")]
    pub(crate) text: String,
    pub(crate) relevant: Vec<Relevant>,
}

/// A relevant tool. Grade 2 is the wanted tool, grade 1 an acceptable one.
#[derive(Deserialize)]
pub(crate) struct Relevant {
    pub(crate) server: String,
    pub(crate) tool: String,
    pub(crate) grade: u8,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    server: String,
    tool: String,
    title: Option<String>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    input_schema: Value,
    output_schema: Option<Value>,
}

/// Reads `catalog.json` of a folder: one list of tools, grouped by server.
pub(crate) fn read_servers(folder: &Path) -> io::Result<Vec<Server>> {
    let entries: Vec<Entry> = read(&folder.join("catalog.json"))?;
    let mut servers: Vec<Server> = Vec::new();
    for entry in entries {
        if servers.last().is_none_or(|server| server.name != entry.server) {
            servers.push(Server { name: entry.server, docs: Vec::new() });
        }
        let doc = ToolDoc {
            name: entry.tool,
            title: entry.title,
            description: entry.description,
            input_schema: entry.input_schema,
            output_schema: entry.output_schema,
        };
        servers.last_mut().into_iter().for_each(|server| server.docs.push(doc.clone()));
    }
    Ok(servers)
}

pub(crate) fn query_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("queries") && name.ends_with(".json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

pub(crate) fn read_queries(file: &Path) -> io::Result<Vec<Query>> {
    read(file)
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<T> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let bytes = fs::read(path).map_err(named)?;
    serde_json::from_slice(&bytes).map_err(|error| named(error.into()))
}
