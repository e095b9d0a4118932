"""A scripted MCP server over stdio that knows protocol 2026-07-28 alone: it asks with its answers, and says what changes where it is
asked to. Standard library only."""

import json
import sys

VERSION = "2026-07-28"
tools = ["plant", "graft", "nag", "touch", "grow", "watched"]
# What is listened to, by the ids of the requests.
listening = {}
# The answers to the questions of tasks, and how often each task was looked at.
tasks = {}
form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def question(text):
    return {"method": "elicitation/create", "params": {"mode": "form", "message": text, "requestedSchema": form}}


def text(text):
    return {"resultType": "complete", "content": [{"type": "text", "text": text}]}


def who(params, what):
    """Returns the name that the person gave; None as long as nobody was asked."""
    if params.get("requestState") != "asked about " + what:
        return None
    answer = params["inputResponses"]["who"]
    return answer["content"]["name"] if answer["action"] == "accept" else "nobody"


def ask(what):
    state = "asked about " + what
    return {"resultType": "input_required", "inputRequests": {"who": question("Who is it for: %s?" % what)}, "requestState": state}


def tell(method, params, wanted):
    for id, filter in listening.items():
        if wanted(filter):
            send({"method": method, "params": {**params, "_meta": {"io.modelcontextprotocol/subscriptionId": id}}})


def call(params):
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "plant":
        name = who(params, arguments["kind"])
        return text("%s plants the %s" % (name, arguments["kind"])) if name else ask(arguments["kind"])
    if name == "graft":
        tasks["graft"] = None
        return {"resultType": "task", "taskId": "graft", "status": "working", "ttlMs": None}
    if name == "nag":
        return {"resultType": "input_required", "requestState": "again"}
    if name == "touch":
        uri = arguments["uri"]
        tell("notifications/resources/updated", {"uri": uri}, lambda filter: uri in filter.get("resourceSubscriptions", []))
        return text("touched")
    if name == "grow":
        tools.append(arguments["tool"])
        tell("notifications/tools/list_changed", {}, lambda filter: filter.get("toolsListChanged"))
        return text("grown")
    if name == "watched":
        return text(json.dumps(sorted(uri for filter in listening.values() for uri in filter.get("resourceSubscriptions", []))))
    return text("the tool %s answers" % name)


def look_at(task):
    state = {"resultType": "complete", "taskId": task, "status": "working", "pollIntervalMs": 10, "ttlMs": None}
    if tasks[task] is None:
        return {**state, "status": "input_required", "inputRequests": {"who": question("Who grafts?")}}
    return {**state, "status": "completed", "result": text("%s grafts" % tasks[task]["who"]["content"]["name"])}


def answer(method, id, params):
    if method == "server/discover":
        changes = {"listChanged": True}
        capabilities = {"tools": changes, "prompts": {}, "resources": {"subscribe": True}}
        info = {"name": "modern", "version": "1"}
        return {"supportedVersions": [VERSION], "capabilities": capabilities, "serverInfo": info, "ttlMs": 0, "cacheScope": "private"}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools], "ttlMs": 0, "cacheScope": "private"}
    if method == "tools/call":
        return call(params)
    if method == "tasks/get":
        return look_at(params["taskId"])
    if method == "tasks/update":
        tasks[params["taskId"]] = params["inputResponses"]
        return {}
    if method == "resources/read":
        name = who(params, params["uri"])
        contents = [{"uri": params["uri"], "text": "%s reads" % name}]
        return {"contents": contents, "ttlMs": 0, "cacheScope": "private"} if name else ask(params["uri"])
    if method == "prompts/get":
        name = who(params, params["name"])
        content = {"type": "text", "text": "%s is asked" % name}
        return {"messages": [{"role": "user", "content": content}]} if name else ask(params["name"])
    return None


for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "notifications/cancelled":
        listening.pop(params["requestId"], None)
    elif method is None or id is None:
        pass
    elif method == "initialize":
        send({"id": id, "error": {"code": -32601, "message": "not me"}})
    elif params.get("_meta", {}).get("io.modelcontextprotocol/protocolVersion") != VERSION:
        send({"id": id, "error": {"code": -32602, "message": "%s says no version" % method}})
    elif method == "subscriptions/listen":
        listening[id] = params["notifications"]
        meta = {"io.modelcontextprotocol/subscriptionId": id}
        refused = params["notifications"].get("resourceSubscriptions") == ["note://gone"]
        if refused:
            send({"id": id, "error": {"code": -32602, "message": "there is no note://gone"}})
        else:
            send({"method": "notifications/subscriptions/acknowledged", "params": {"_meta": meta, "notifications": listening[id]}})
    else:
        result = answer(method, id, params)
        if result is None:
            send({"id": id, "error": {"code": -32601, "message": "unknown method " + method}})
        else:
            send({"id": id, "result": {"resultType": "complete", **result}})
