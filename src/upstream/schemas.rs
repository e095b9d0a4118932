//! The schemas of tools that the catalogue has, for those who rely on them: whether they have changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::catalog::ServerDocs;
use super::discovery::Server;
use super::facade::Upstream;
use crate::policy::ToolShape;

/// The tools of all servers, as far as they are known. No server is asked.
#[derive(Debug)]
pub struct Schemas {
    servers: Vec<(Arc<Server>, Arc<ServerDocs>)>,
}

impl Schemas {
    pub async fn known(upstream: &Upstream) -> Self {
        let all = upstream.all_known_docs().await.into_iter();
        Self { servers: all.filter_map(|(server, known)| Some((server, known.docs?))).collect() }
    }

    /// Returns the digest of what a tool takes and returns, by aliases: None if its server is not known, an empty text if the
    /// server has no such tool.
    pub fn digest(&self, server: &str, tool: &str) -> Option<String> {
        let (_, docs) = self.servers.iter().find(|(known, _)| *known.alias == *server)?;
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
