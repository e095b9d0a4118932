"""A small MCP server of a kind that usually needs an account: it answers like the real ones, from a few fixed records.

The first argument says which: tracker, forge, filesystem or calendar. Standard library only.
"""

import json
import os
import sys

KIND = sys.argv[1]
ISSUES = [
    {"id": "CORE-1", "title": "Parser", "state": "open", "by": {"name": "Ada"}},
    {"id": "CORE-2", "title": "Typo", "state": "open", "by": {"name": "Bo"}},
]
BODIES = {"CORE-1": "A CRASH in the parser", "CORE-2": "a typo"}
FILES = {"a.py": "x = 1  # FIXME: later", "b.py": "done"}
attempts = {}


def text(value):
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def search(project, state="open"):
    return text([issue for issue in ISSUES if issue["state"] == state and issue["id"].startswith(project)])


def get(id):
    # Both, as servers do that know the newer form.
    issue = {"id": id, "body": BODIES[id]}
    return {**text(issue), "structuredContent": issue}


def create_issue(repo, title, body, labels=None):
    return text({"number": 7, "repo": repo, "title": title, "body": body, "labels": labels or []})


def flaky():
    attempts["flaky"] = attempts.get("flaky", 0) + 1
    if attempts["flaky"] % 2:
        return {**text("try again"), "isError": True}
    return text("at last")


def list_names(path):
    return text(sorted(FILES))


def read_file(path):
    return text(FILES[path])


def write_file(path, content):
    FILES[path] = content
    return text(f"wrote {len(content)} characters to {path}")


def free_slots(day, minutes=30):
    return text([{"from": "09:00", "to": "09:30"}])


TOOLS = {
    "tracker": (search, get),
    "forge": (create_issue, flaky),
    "filesystem": (list_names, read_file, write_file),
    "calendar": (free_slots,),
}
SAID = {
    "search": "Searches issues of a project.",
    "get": "Gets an issue with its body.",
    "create_issue": "Creates an issue in a repository.",
    "flaky": "Works every second time.",
    "list_names": "Lists the names of files.",
    "read_file": "Reads a file.",
    "write_file": "Writes a file.",
    "free_slots": "Finds free slots in the calendar.",
}


def described(function):
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer" if name == "minutes" else "string", "description": f"the {name}"} for name in names},
        "required": list(names[: len(names) - len(function.__defaults__ or ())]),
    }
    if "labels" in names:
        schema["properties"]["labels"] = {"type": "array", "items": {"type": "string"}}
    return {"name": function.__name__, "description": SAID[function.__name__], "inputSchema": schema}


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": KIND, "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [described(function) for function in TOOLS[KIND]]}
    if method == "tools/call":
        known = {function.__name__: function for function in TOOLS[KIND]}
        return known[params["name"]](**params.get("arguments") or {})
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
