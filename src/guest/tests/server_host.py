"""A host that answers as the bridge does, for tests of servers."""

import base64
import json

from guest_client import Refusal
from test_cells import CellTest

PIXEL = base64.b64encode(b"\x89PNG").decode()
NAMES = {"forge": "forge", "My Tracker": "my_tracker", "filesystem": "filesystem"}


def text(value):
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def tool(name, *parameters, description="Does a thing. At length.", alias=None):
    """Parameters as `name`, `name?` and `name:type`."""
    alias = alias or name.replace("-", "_")
    listed = []
    for parameter in parameters:
        known, _, kind = parameter.partition(":")
        listed.append({"name": known.rstrip("?"), "required": not known.endswith("?"), "type": kind or "str"})
    schema = {"type": "object", "properties": {one["name"]: {"description": "the " + one["name"]} for one in listed}}
    return {
        "server": "forge",
        "serverAlias": "forge",
        "tool": name,
        "toolAlias": alias,
        "name": name,
        "signature": "%s(%s)" % (alias, ", ".join(parameters)),
        "description": description,
        "inputSchema": schema,
        "parameters": listed,
    }


TOOLS = {
    one["tool"]: one
    for one in (
        tool("create-issue", "repo", "title", "body?", "labels?:list[str]", description="Creates an issue."),
        tool("search", "project?", "state?"),
        tool("odd", "from", "a-b?"),
        tool("list_names", "path?"),
        tool("read_file", "path"),
    )
}


class Host:
    """What the bridge would answer; calls are kept."""

    def __init__(self):
        self.calls = []
        self.results = {}
        self.names = dict(NAMES)
        self.listed = list(TOOLS.values())

    def answers(self):
        return {
            "servers": self.servers,
            "server": self.server,
            "tool": self.tool,
            "tools": self.tools,
            "describe": self.describe,
            "search": self.search,
            "call": self.call,
        }

    def servers(self, params):
        wanted = params.get("aliases")
        known = [{"name": name, "alias": alias, "description": "about " + name} for name, alias in self.names.items()]
        return [one for one in known if wanted is None or one["alias"] in wanted]

    def server(self, params):
        known = [{"name": name, "alias": alias} for name, alias in self.names.items()]
        for key in ("alias", "name") if params.get("alias_first") else ("name", "alias"):
            for one in known:
                if params["server"] == one[key]:
                    return one
        return Refusal("no server named '%s'; did you mean 'forge'?" % params["server"], "server")

    def tool(self, params):
        for key in ("toolAlias", "tool") if params.get("alias_first") else ("tool", "toolAlias"):
            for one in self.listed:
                if params["tool"] == one[key]:
                    return one
        return Refusal("'forge' has no tool '%s'; did you mean 'search'?" % params["tool"], "tool")

    def tools(self, params):
        if params.get("tool"):
            found = self.tool(params)
            return found if isinstance(found, Refusal) else [found]
        return self.listed

    def describe(self, params):
        tools = [
            {"name": one["tool"], "alias": one["toolAlias"], "description": "", "input_schema": one["inputSchema"]}
            for one in self.listed
        ]
        return {**self.server(params), "description": "", "cwd": None, "tools": tools}

    def search(self, params):
        return {"items": self.listed[: params["limit"]], "pending": ["slow"]}

    def call(self, params):
        self.calls.append(params)
        result = self.results.get(params["tool"], text("done"))
        return result(params) if callable(result) else result


class ServerTest(CellTest):
    def setUp(self):
        super().setUp()
        self.host = Host()
        self.guest.answers.update(self.host.answers())

    def returns(self, tool, result):
        self.host.results[tool] = result


del CellTest
