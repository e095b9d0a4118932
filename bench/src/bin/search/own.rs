//! The built-in set: invented servers, and queries for them.

use codebridge::upstream::ToolDoc;
use serde_json::{Map, Value, json};

use crate::data::{Query, Relevant, Server};

/// Reads lines of the form `# server`, then `tool(parameter, optional?, …): what it does`.
pub(crate) fn servers() -> Vec<Server> {
    let mut servers: Vec<Server> = Vec::new();
    for line in lines(include_str!("own_tools.txt")) {
        if let Some(name) = line.strip_prefix("# ") {
            servers.push(Server { name: name.to_owned(), docs: Vec::new() });
        } else if let (Some(server), Some(doc)) = (servers.last_mut(), read_tool(line)) {
            server.docs.push(doc);
        }
    }
    servers
}

/// Reads lines of the form `style | query | server/tool server/tool?`; a question mark marks an acceptable tool.
pub(crate) fn queries() -> Vec<Query> {
    let mut queries = Vec::new();
    for line in lines(include_str!("own_queries.txt")) {
        let mut parts = line.split(" | ");
        let (Some(style), Some(text), Some(fits)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        queries.push(Query {
            id: format!("own-{}", queries.len() + 1),
            style: style.to_owned(),
            text: text.to_owned(),
            relevant: fits.split_whitespace().filter_map(read_fit).collect(),
        });
    }
    queries
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

fn read_tool(line: &str) -> Option<ToolDoc> {
    let (name, rest) = line.split_once('(')?;
    let (parameters, description) = rest.split_once("): ")?;
    let mut properties = Map::new();
    let mut required = Vec::new();
    for parameter in parameters.split(", ").filter(|parameter| !parameter.is_empty()) {
        let name = parameter.trim_end_matches('?');
        properties.insert(name.to_owned(), json!({ "type": "string" }));
        if name == parameter {
            required.push(Value::from(name));
        }
    }
    Some(ToolDoc {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: json!({ "type": "object", "properties": properties, "required": required }),
        ..ToolDoc::default()
    })
}

fn read_fit(text: &str) -> Option<Relevant> {
    let (name, grade) = text.strip_suffix('?').map_or((text, 2), |name| (name, 1));
    let (server, tool) = name.split_once('/')?;
    Some(Relevant { server: server.to_owned(), tool: tool.to_owned(), grade })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_relevant_tool_exists() {
        let servers = servers();
        let queries = queries();
        assert_eq!(lines(include_str!("own_queries.txt")).count(), queries.len());
        for query in &queries {
            assert!(query.relevant.iter().any(|fit| fit.grade == 2), "{}", query.text);
            for fit in &query.relevant {
                let server = servers.iter().find(|server| server.name == fit.server);
                assert!(
                    server.is_some_and(|server| server.docs.iter().any(|doc| doc.name == fit.tool)),
                    "{}/{}",
                    fit.server,
                    fit.tool
                );
            }
        }
    }

    #[test]
    fn every_line_of_a_tool_is_read() {
        let tools: usize = servers().iter().map(|server| server.docs.len()).sum();
        let written = lines(include_str!("own_tools.txt")).filter(|line| !line.starts_with("# ")).count();
        assert_eq!(tools, written);
    }
}
