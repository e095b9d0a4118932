//! A server that does nothing fast: it says what it was told, and offers as many tools as it should.

use std::io::{self, BufRead, Write};

use serde_json::{Value, json};

const VERBS: [&str; 10] =
    ["create", "list", "delete", "update", "search", "export", "archive", "assign", "merge", "review"];
const THINGS: [&str; 20] = [
    "issue", "branch", "invoice", "ticket", "calendar_event", "page", "dashboard", "bucket", "message",
    "contact", "deployment", "alert", "pipeline", "table", "release", "comment", "folder", "webhook",
    "label", "order",
];
const PLACES: [&str; 10] = [
    "project", "team", "workspace", "account", "region", "repository", "customer", "cluster", "channel",
    "archive",
];

pub(crate) fn serve(tools: usize, seed: usize) -> io::Result<()> {
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?).map_err(io::Error::other)?;
        let Some(id) = message.get("id") else { continue };
        let params = &message["params"];
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "bench", "version": "1" },
            }),
            "tools/list" => {
                json!({ "tools": (0..tools).map(|at| tool(seed * tools + at)).collect::<Vec<_>>() })
            }
            "tools/call" => {
                let text = params["arguments"]["text"].as_str().unwrap_or_default();
                json!({ "content": [{ "type": "text", "text": text }] })
            }
            _ => json!({}),
        };
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        output.write_all(format!("{answer}\n").as_bytes())?;
        output.flush()?;
    }
    Ok(())
}

/// A tool of about the size that they have.
fn tool(number: usize) -> Value {
    let verb = VERBS[number % 10];
    let thing = THINGS[number / 10 % 20];
    let place = PLACES[number / 200 % 10];
    let filler =
        format!("Works on every {thing} that the caller may see in the {place}, oldest first. ").repeat(6);
    let field = |about: &str| json!({ "type": "string", "description": format!("The {about} of the {thing}, as the {place} knows it") });
    json!({
        "name": format!("{verb}_{thing}_{number}"),
        "description": format!("{verb} a {thing} in a {place} by its {number}th rule. {filler}"),
        "inputSchema": {
            "type": "object",
            "properties": {
                "text": field("text"), "identifier": field("identifier"), "title": field("title"),
                "limit": { "type": "integer", "default": 20, "description": "How many at most" },
                "labels": { "type": "array", "items": { "type": "string" }, "description": "Only those with all of these labels" },
            },
            "required": ["text"],
        },
    })
}

/// The name of the first tool.
pub(crate) fn first_tool() -> String {
    tool(0)["name"].as_str().unwrap_or_default().to_owned()
}
