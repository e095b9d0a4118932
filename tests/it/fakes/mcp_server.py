"""A scripted MCP server over stdio: it does what real ones should not, and what few of them do.

Options say how it starts, lists and ends; tools say how it answers. Standard library only.
"""

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time

options = argparse.ArgumentParser()
options.add_argument("--banner", action="append", default=[], help="a line before the first message; \\n for none after it")
options.add_argument("--stderr", action="append", default=[], help="a line on standard error at the start")
options.add_argument("--exit-at-start", type=int, metavar="STATUS")
options.add_argument("--starts", metavar="FILE", help="appends a line for every start")
options.add_argument("--fail-starts", type=int, default=0, help="how many starts of that file fail")
options.add_argument("--mute", action="store_true", help="never answers initialize")
options.add_argument("--refuse", type=int, metavar="CODE", help="answers initialize with an error")
options.add_argument("--modern", action="store_true", help="knows server/discover and no initialize")
options.add_argument("--initialize", metavar="JSON", help="the result of initialize")
options.add_argument("--slow-start", type=float, default=0)
options.add_argument("--tools", type=int, default=0, help="that many more tools")
options.add_argument("--named", action="append", default=[], help="a tool of that name, which answers with it")
options.add_argument("--described", default="Says it again.", help="the description of the tool echo")
options.add_argument("--schema-bytes", type=int, default=0, help="how long these tools go on about an argument")
options.add_argument("--few", action="store_true", help="lists none of the tools that misbehave")
options.add_argument("--restless", action="store_true", help="says after every list that it has changed")
options.add_argument("--quiet", action="store_true", help="does not say that its tools have changed")
options.add_argument("--page", type=int, default=10_000, help="tools on a page")
options.add_argument("--cursor", choices=["good", "same", "endless"], default="good")
options.add_argument("--asks-first", metavar="METHOD", help="asks before it lists; the answer describes the tool echo")
options.add_argument("--no-tools", action="store_true", help="does not know tools/list")
options.add_argument("--ignore-eof", action="store_true")
options.add_argument("--ignore-term", action="store_true")
options.add_argument("--pids", metavar="FILE", help="writes its process id and its child's there, when it is ready")
options.add_argument("--grandchild", action="store_true", help="has a child that ignores everything")
options = options.parse_args()

ODD_TOOLS = [
    "environment", "pids", "crash", "close_output", "never", "sleep", "raw", "line", "big", "progress", "log", "change",
    "listings", "ask", "cancelled", "fail",
]

write_lock = threading.RLock()
deaf = threading.Event()
cancelled = []
answers = {}
arrived = threading.Condition()
listings = 0
metas = {}
extra_tools = options.tools


def put(text):
    with write_lock:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        sys.stdout.buffer.flush()


def send(message):
    put(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def text(value):
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def ask(method, params):
    """Sends a request to the client and waits for its answer."""
    key = f"ask-{len(answers)}-{time.monotonic_ns()}"
    send({"id": key, "method": method, "params": params})
    with arrived:
        arrived.wait_for(lambda: key in answers, timeout=20)
    return answers.get(key)


def call(id, name, arguments, token):
    global extra_tools
    if name == "echo":
        return {"content": [], "structuredContent": arguments}
    if name == "environment":
        return {"content": [], "structuredContent": {"env": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv[1:], "meta": metas.get(id)}}
    if name == "pids":
        return {"content": [], "structuredContent": {"pid": os.getpid(), "grandchild": grandchild and grandchild.pid}}
    if name == "crash":
        print(arguments.get("words", "going down"), file=sys.stderr, flush=True)
        os._exit(arguments.get("status", 3))
    if name == "close_output":
        os.close(1)
        return None
    if name == "never":
        return None
    if name == "sleep":
        time.sleep(arguments["seconds"])
        return text("slept")
    if name == "raw":
        put('{"jsonrpc":"2.0","id":' + str(id) + ',"result":' + arguments["result"] + "}\n")
        return None
    if name == "line":
        put(arguments["text"].replace("ID", str(id)).encode("latin-1"))
        return None
    if name == "big":
        size = arguments["bytes"]
        with write_lock:
            put(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % id)
            for _ in range(size >> 20):
                put(b"x" * (1 << 20))
            put(b"x" * (size & ((1 << 20) - 1)) + b'"}]}}\n')
        return None
    if name == "progress":
        for step in range(1, arguments["steps"] + 1):
            params = {"progressToken": token, "progress": step, "total": arguments["steps"], "message": f"step {step}"}
            send({"method": "notifications/progress", "params": params})
        return text("done")
    if name == "log":
        send({"method": "notifications/message", "params": arguments})
        return text("logged")
    if name == "change":
        extra_tools = arguments["tools"]
        if not options.quiet:
            send({"method": "notifications/tools/list_changed"})
        return text("changed")
    if name == "listings":
        return text(listings)
    if name == "ask":
        return text(ask(arguments["method"], arguments.get("params")))
    if name == "cancelled":
        with arrived:
            arrived.wait_for(lambda: len(cancelled) >= arguments.get("least", 0), timeout=20)
        return text(cancelled)
    if name == "flood":
        deaf.set()
        messages = "".join(arguments["message"].replace("ID", f"flood-{at}") + "\n" for at in range(1_000))
        for round in itertools.count():
            put(messages.replace("flood-", f"flood-{round}-"))
    if name == "values":
        put('{"%s":[%s0]}\n' % (arguments["member"], "0," * (arguments["bytes"] // 2)))
        return text("sent")
    if name == "fail":
        return {"content": [{"type": "text", "text": "no luck"}], "isError": True}
    if name in options.named:
        return text(name)
    send({"id": id, "error": {"code": -32602, "message": f"Unknown tool: {name}", "data": {"tool": name}}})
    return None


def run_call(message):
    params = message["params"]
    token = params.get("_meta", {}).get("progressToken")
    metas[message["id"]] = params.get("_meta")
    result = call(message["id"], params["name"], params.get("arguments") or {}, token)
    if result is not None:
        send({"id": message["id"], "result": result})


def list_after_question(message):
    params = {"message": "Before the tools?", "requestedSchema": {"type": "object", "properties": {}}}
    answer = ask(options.asks_first, params)
    result = list_tools(message.get("params"))
    result["tools"][0]["description"] = json.dumps(answer)
    send({"id": message["id"], "result": result})


def list_tools(params):
    global listings
    listings += 1
    schema = {"type": "object", "properties": {"zeta": {"type": "string"}, "alpha": {"type": "integer"}}}
    tools = [{"name": "echo", "description": options.described, "inputSchema": {**schema, "additionalProperties": True}}]
    if not options.few:
        tools += [{"name": name, "inputSchema": {"type": "object"}} for name in ODD_TOOLS]
    long = {"type": "string", "description": "z" * options.schema_bytes}
    properties = {**schema["properties"], "zeta": long} if options.schema_bytes else schema["properties"]
    tools += [{"name": f"tool-{at}", "inputSchema": {**schema, "properties": properties}} for at in range(extra_tools)]
    tools += [{"name": name, "inputSchema": {"type": "object"}} for name in options.named]
    start = int((params or {}).get("cursor") or 0)
    result = {"tools": tools[start : start + options.page]}
    if options.cursor == "same":
        result["nextCursor"] = "0"
    elif options.cursor == "endless" or start + options.page < len(tools):
        result["nextCursor"] = str(start + options.page)
    return result


def handle(message):
    method, id = message.get("method"), message.get("id")
    if method is None:
        with arrived:
            answers[id] = {key: message[key] for key in ("result", "error") if key in message}
            arrived.notify_all()
    elif method == "initialize":
        time.sleep(options.slow_start)
        if options.mute:
            return
        code = -32601 if options.modern else options.refuse
        if code:
            send({"id": id, "error": {"code": code, "message": "not me"}})
            return
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "fake", "version": "1"},
        }
        send({"id": id, "result": json.loads(options.initialize) if options.initialize else result})
    elif method == "server/discover" and options.modern:
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "1"}}
        send({"id": id, "result": {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}})
    elif method == "tools/list" and options.asks_first:
        threading.Thread(target=list_after_question, args=(message,), daemon=True).start()
    elif method == "tools/list" and not options.no_tools:
        send({"id": id, "result": list_tools(message.get("params"))})
        if options.restless:
            send({"method": "notifications/tools/list_changed"})
    elif method == "tools/call":
        threading.Thread(target=run_call, args=(message,), daemon=True).start()
    elif method == "notifications/cancelled":
        with arrived:
            cancelled.append(message["params"].get("reason"))
            arrived.notify_all()
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": f"Method not found: {method}"}})


if options.ignore_term:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.starts:
    with open(options.starts, "a+") as starts:
        starts.write("start\n")
        starts.flush()
        starts.seek(0)
        if len(starts.readlines()) <= options.fail_starts:
            sys.exit("not this time")
for line in options.stderr:
    print(line, file=sys.stderr, flush=True)
for line in options.banner:
    put(line.removesuffix("\\n") if line.endswith("\\n") else line + "\n")
if options.exit_at_start is not None:
    sys.exit(options.exit_at_start)
grandchild = None
if options.grandchild:
    ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    grandchild = subprocess.Popen([sys.executable, "-c", ignore])
if options.pids:
    with open(options.pids + ".new", "w") as pids:
        pids.write(f"{os.getpid()} {grandchild.pid if grandchild else ''}")
    os.rename(options.pids + ".new", options.pids)
for line in sys.stdin:
    while deaf.is_set():
        time.sleep(60)
    handle(json.loads(line))
while options.ignore_eof:
    time.sleep(60)
