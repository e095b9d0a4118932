//! The tool. Its definition is part of every conversation, so each word costs every user.

use rmcp::model::{Tool, ToolAnnotations, object};
use serde_json::json;

use super::arguments::Timeouts;

pub(super) const RUN_PYTHON: &str = "run_python";

const DESCRIPTION: &str = "Runs Python in a sandbox without network. \
    Start with print(runtime.capability_summary()). \
    MCP servers: runtime.discovered_servers() names them, await runtime.search_tool_docs('words') finds tools; \
    with servers=['x'] code may await mcp_x.tool(arg=1). \
    Variables and files in /workspace and /tmp stay. \
    The result is what it prints and its last expression.";

/// What a client tells its model of this server.
pub(super) const INSTRUCTIONS: &str = "Runs Python with access to other MCP servers: prefer one run_python call that combines many steps, and print only what you need.";

pub(super) fn run_python(timeouts: Timeouts) -> Tool {
    let seconds = format!("Seconds, 1 to {}; default {}", timeouts.max.as_secs(), timeouts.default.as_secs());
    let schema = json!({
        "type": "object",
        "properties": {
            "code": { "type": "string", "description": "Python source" },
            "servers": {
                "type": "array",
                "items": { "type": "string" },
                "description": "MCP servers the code may call; ['*'] = any",
            },
            "timeout": { "type": "integer", "description": seconds },
            "session": {
                "type": "string",
                "description": "Interpreter, default main; new = this call only",
            },
            "background": { "type": "boolean", "description": "Answer with the run's number" },
            "run": { "type": "integer", "description": "Instead of code: look at this run" },
            "stop": { "type": "boolean", "description": "Stop that run" },
        },
    });
    // What servers do on behalf of the code may change anything.
    let annotations =
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(true);
    Tool::new(RUN_PYTHON, DESCRIPTION, object(schema)).with_title("Run Python").with_annotations(annotations)
}
