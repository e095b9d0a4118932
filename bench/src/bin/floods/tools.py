"""An MCP server with many tools."""

import json
import sys

seed, count = int(sys.argv[1]), int(sys.argv[2])
words = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu".split()


def tool(number):
    name = f"{words[number % 12]}_{words[number // 12 % 12]}_{seed}_{number}"
    return {"name": name, "description": f"Does {name.replace('_', ' ')}.", "inputSchema": {"type": "object"}}


for line in sys.stdin:
    request = json.loads(line)
    result = None
    if request.get("method") == "initialize":
        info = {"name": "tools", "version": "1"}
        version = request["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif request.get("method") == "tools/list":
        result = {"tools": [tool(number) for number in range(count)]}
    if "id" in request and result is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
