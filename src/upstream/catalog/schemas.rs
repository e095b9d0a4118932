//! The schemas of tools, for those who rely on them: whether they have changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::server_docs::ServerDocs;
use crate::policy::ToolShape;

/// The tools of all servers that are known, by the aliases of the servers.
#[derive(Debug)]
pub struct Schemas(Vec<(String, Arc<ServerDocs>)>);

impl Schemas {
    pub fn new(servers: Vec<(String, Arc<ServerDocs>)>) -> Self {
        Self(servers)
    }

    /// Returns the digest of what a tool takes and returns, by aliases: None if its server is not known, an empty text if the
    /// server has no such tool.
    pub fn digest(&self, server: &str, tool: &str) -> Option<String> {
        let (_, docs) = self.0.iter().find(|(known, _)| known == server)?;
        let place = docs.tools().iter().position(|known| *known.alias == *tool);
        let Some(doc) = place.and_then(|place| docs.doc(place)) else { return Some(String::new()) };
        let shape = ToolShape {
            title: None,
            description: String::new(),
            input_schema: doc.input_schema,
            output_schema: doc.output_schema,
            annotations: None,
        };
        Some(shape.digest().to_string())
    }

    /// Returns the digests of these tools by `SERVER.TOOL`, as far as the tools are there.
    pub fn digests(&self, tools: &[(String, String)]) -> BTreeMap<String, String> {
        let found = tools.iter().filter_map(|(server, tool)| {
            let digest = self.digest(server, tool).filter(|digest| !digest.is_empty())?;
            Some((format!("{server}.{tool}"), digest))
        });
        found.collect()
    }
}
