"""An MCP server with one tool, whose call makes it send requests without end and read nothing."""

import json
import sys

method = sys.argv[1]


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "initialize":
        info = {"name": "flood", "version": "1"}
        version = request["params"]["protocolVersion"]
        send({"id": request["id"], "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}})
    elif request.get("method") == "tools/list":
        send({"id": request["id"], "result": {"tools": [{"name": "flood", "inputSchema": {"type": "object"}}]}})
    elif request.get("method") == "tools/call":
        number = 0
        while True:
            lines = []
            for number in range(number, number + 1_000):
                lines.append(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {}}))
            sys.stdout.write("\n".join(lines) + "\n")
