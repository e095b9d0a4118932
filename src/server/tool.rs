//! The one tool. Its definition is paid for by every conversation, so every word of it has to earn its place.

use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use super::arguments::Timeouts;

/// The name of the tool.
pub(super) const RUN_PYTHON: &str = "run_python";

const DESCRIPTION: &str = "Runs Python in a sandbox without network. \
    Start with print(runtime.capability_summary()). \
    MCP servers: runtime.discovered_servers() names them, await runtime.search_tool_docs('words') finds tools; \
    with servers=['x'] code may await mcp_x.tool(arg=1). \
    Variables, imports and files in /workspace and /tmp stay for later calls. \
    The result is what the code prints and its last expression.";

/// The definition as clients list it.
pub(super) fn run_python(timeouts: Timeouts) -> Tool {
    let seconds = format!("Seconds, 1 to {}; default {}", timeouts.max.as_secs(), timeouts.default.as_secs());
    let schema = json!({
        "type": "object",
        "properties": {
            "code": { "type": "string", "description": "Python source" },
            "servers": {
                "type": "array",
                "items": { "type": "string" },
                "description": "MCP servers that the code may call; ['*'] = any",
            },
            "timeout": { "type": "integer", "description": seconds },
            "session": {
                "type": "string",
                "description": "Interpreter, default main; new = a throw-away one",
            },
        },
        "required": ["code"],
    });
    let schema = match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    };
    Tool::new(RUN_PYTHON, DESCRIPTION, schema).with_title("Run Python")
}
