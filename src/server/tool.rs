//! The tool. Its definition is part of every conversation, so each word costs every user.

use rmcp::model::{Tool, object};
use serde_json::json;

use super::arguments::Timeouts;

pub(super) const RUN_PYTHON: &str = "run_python";

const DESCRIPTION: &str = "Runs Python in a sandbox without network. \
    Start with print(runtime.capability_summary()). \
    MCP servers: runtime.discovered_servers() names them, await runtime.search_tool_docs('words') finds tools; \
    with servers=['x'] code may await mcp_x.tool(arg=1). \
    Variables, imports and files in /workspace and /tmp stay for later calls. \
    The result is what the code prints and the value of its last expression.";

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
                "description": "Interpreter, default main; new = only for this call",
            },
        },
        "required": ["code"],
    });
    Tool::new(RUN_PYTHON, DESCRIPTION, object(schema)).with_title("Run Python")
}
