"""A scripted MCP server over stdio with resources, prompts and tasks: what the real one does not do on demand. Standard library only."""

import base64
import json
import sys
import threading
from urllib.parse import unquote

tools = ["touch", "grow"]
extra_resources = []
subscribed = set()
asked = []
lock = threading.Lock()


def send(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def read(uri):
    kind, _, rest = uri.partition("://")
    if kind == "note":
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "the note " + rest}]}
    if kind == "bytes":
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": base64.b64encode(bytes.fromhex(rest)).decode()}]}
    if kind == "parts":
        parts = [{"uri": uri + "/1", "text": "one"}, {"uri": uri + "/2", "blob": "AAEC", "mimeType": "application/zip"}]
        return {"contents": parts}
    if kind == "large":
        return {"contents": [{"uri": uri, "blob": base64.b64encode(b"x" * (int(rest) << 20)).decode()}]}
    if kind == "raw":
        return json.loads(unquote(rest))
    return None


def resources(cursor):
    listed = [{"uri": "note://%d" % n, "name": "note %d" % n, "description": "A note about gardening."} for n in range(3)]
    listed += [{"uri": uri, "name": uri} for uri in extra_resources]
    return {"resources": listed[:2], "nextCursor": "2"} if not cursor else {"resources": listed[2:]}


def call(id, params):
    name, arguments = params["name"], params.get("arguments") or {}
    text = lambda text: {"content": [{"type": "text", "text": text}]}
    if name == "touch":
        if arguments["uri"] in subscribed:
            send({"method": "notifications/resources/updated", "params": {"uri": arguments["uri"]}})
        return text(json.dumps(sorted(subscribed)))
    if name == "grow":
        tools.append(arguments["tool"])
        extra_resources.append(arguments["tool"] + "://list")
        send({"method": "notifications/tools/list_changed"})
        send({"method": "notifications/resources/list_changed"})
        return text("grown")
    if name in tools:
        return text("the tool %s answers" % name)
    return None


def answer(message):
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if id is None or method is None:
        return
    asked.append(method)
    result = None
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {"subscribe": True, "listChanged": True}}
        result = {
            "protocolVersion": params["protocolVersion"], "capabilities": capabilities,
            "serverInfo": {"name": "offers", "version": "1"}, "instructions": "Water the plants first.",
        }
    elif method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}
    elif method == "tools/call":
        result = call(id, params)
    elif method == "resources/list":
        result = resources(params.get("cursor"))
    elif method == "resources/templates/list":
        template = {"uriTemplate": "note://{number}{?form,color}", "name": "a note", "description": "Any note by its number."}
        result = {"resourceTemplates": [template]}
    elif method == "resources/read":
        result = read(params["uri"])
    elif method == "resources/subscribe":
        subscribed.add(params["uri"])
        result = {}
    elif method == "resources/unsubscribe":
        subscribed.discard(params["uri"])
        result = {}
    elif method == "prompts/list":
        arguments = [{"name": "plant", "required": True}, {"name": "season"}]
        result = {"prompts": [{"name": "advice", "description": "How to treat a plant.", "arguments": arguments}]}
    elif method == "prompts/get" and params["name"] == "advice":
        text = {"type": "text", "text": json.dumps(params["arguments"], sort_keys=True)}
        result = {"description": "advice", "messages": [{"role": "user", "content": text}]}
    elif method == "prompts/get" and params["name"] == "odd":
        result = {"messages": "none"}
    if result is None:
        send({"id": id, "error": {"code": -32602, "message": "there is no " + str(params.get("uri") or params.get("name"))}})
    else:
        send({"id": id, "result": result})


for line in sys.stdin:
    answer(json.loads(line))
