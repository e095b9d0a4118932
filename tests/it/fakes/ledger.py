"""An MCP server that writes to the world outside of sandboxes: its tool appends a line to a file. Standard library only."""

import json
import os
import sys

LEDGER = sys.argv[1]
TOOL = {
    "name": "append",
    "description": "Appends a line.",
    "inputSchema": {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]},
}


def result_of(method, params):
    if method == "initialize":
        info = {"name": "ledger", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        line = params["arguments"]["line"]
        ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(ledger, (line + "\n").encode())
        os.close(ledger)
        return {"content": [{"type": "text", "text": "written: " + line}]}
    return None


for text in sys.stdin:
    message = json.loads(text)
    if "id" not in message:
        continue
    result = result_of(message["method"], message.get("params"))
    answer = {"result": result} if result is not None else {"error": {"code": -32601, "message": "unknown method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
