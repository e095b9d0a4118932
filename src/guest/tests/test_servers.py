"""The user's MCP servers as code sees them, with a host that answers as the bridge does."""

import base64
import json
import textwrap
import unittest

from guest_client import LATER, Guest, Refusal
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


class Names(ServerTest):
    def test_a_server_is_defined_in_code_that_mentions_it(self):
        out = self.ok("mcp_forge, mcp_my_tracker, (lambda: mcp_filesystem)()").out
        self.assertEqual(
            out,
            "(<MCP server 'forge': mcp_forge>, <MCP server 'My Tracker': mcp_my_tracker>, "
            "<MCP server 'filesystem': mcp_filesystem>)\n",
        )
        why = "no server named 'nobody'; did you mean 'forge'?"
        self.assertEqual(self.run_cell("mcp_nobody").error, "NameError: name 'mcp_nobody' is not defined: " + why)
        self.assertEqual(self.run_cell("def f(): return mcp_forge\nmcp_nobody.x").error[-len(why) :], why)
        for code in "from mcp import mcp_nobody", "from mcp.servers import nobody", "import mcp.servers.nobody.x":
            error = self.run_cell(code).error
            self.assertTrue("Error: " + why in error and "cannot import" not in error, error)
        # Where nobody asked, nothing changes.
        self.ok("assert not hasattr(__import__('mcp'), 'mcp_nobody')")
        self.ok("try:\n    mcp_nobody\nexcept NameError as e:\n    assert str(e) == \"name 'mcp_nobody' is not defined\"")
        self.assertEqual(self.run_cell("nobody").error, "NameError: name 'nobody' is not defined")
        odd = "class Odd:\n    def __repr__(self): raise ValueError\n    __str__ = lambda self: 'mcp_x'\n"
        self.assertEqual(self.run_cell(odd + "raise NameError(Odd())").error, "NameError: mcp_x")
        self.ok("mcp_forge = 5\nassert mcp_forge == 5\ndel mcp_forge")

    def test_those_of_the_call_are_defined_from_the_start(self):
        with Guest() as guest:
            guest.answers.update(self.host.answers())
            context = {"servers": [{"name": "forge", "alias": "forge"}]}
            self.assertEqual(guest.run("'mcp_' + 'forge' in globals()", context).out, "True\n")

    def test_all_servers_are_defined_without_a_mention_and_without_a_question(self):
        with Guest() as guest:
            listed = [{"name": "server-%d" % at, "alias": "server_%d" % at} for at in range(5000)]
            context = {"any": True, "servers": listed}
            guest.run("globals().update({'mcp_' + 'server_7': 'mine', 'mcp_' + 'server_8': None})")
            code = "known = [name for name in dir() if name.startswith('mcp_server_')]\nlen(known), eval('mcp_' + 'server_1'), 'mcp_' + 'server_4999' in globals(), mcp_server_7, mcp_server_8"
            expected = "(5000, <MCP server 'server-1': mcp_server_1>, True, 'mine', None)\n"
            self.assertEqual(guest.run(code, context).out, expected)
            self.assertEqual(guest.run("exec('del mcp_' + 'server_1')", context).error, "")
            self.assertEqual(guest.run(code, context).out, expected)
            context["servers"] = [{"name": "Server 1", "alias": "server_1"}]
            self.assertEqual(guest.run("eval('mcp_' + 'server_1')", context).out, "<MCP server 'Server 1': mcp_server_1>\n")
            self.assertEqual(guest.questions, [])

    def test_initial_names_come_back_and_variables_stay(self):
        with Guest() as guest:
            guest.answers.update(self.host.answers())
            context = {"servers": [{"name": "forge", "alias": "forge"}]}
            names = "runtime", "mcp", "mcp_servers", "LOADED_MCP_SERVERS", "save_tool", "mcp_forge"
            given = guest.run(", ".join(names), context).out
            self.assertIn("['forge']", given)
            for name in names:
                self.assertEqual(guest.run("del %s\n%r in globals()" % (name, name), context).out, "False\n")
                self.assertEqual(guest.run("%r in globals()" % name, context).out, "True\n")
            self.assertEqual(guest.run(", ".join(names), context).out, given)
            guest.run("runtime = 5; mcp_forge = None; save_tool = 'mine'", context)
            self.assertEqual(guest.run("runtime, mcp_forge, save_tool", context).out, "(5, None, 'mine')\n")
            guest.run("del runtime, mcp_forge, save_tool", context)
            self.assertEqual(guest.run(", ".join(names), context).out, given)

    def test_every_way_to_name_one_leads_to_the_same(self):
        self.ok(
            """
            from mcp import mcp_servers, mcp_forge, mcp_my_tracker
            import mcp.servers.forge, mcp.servers
            from mcp.servers import my_tracker
            from mcp.servers.forge import create_issue
            assert mcp_servers["forge"] is mcp_forge is mcp.mcp_forge and mcp.servers.forge.search is mcp_forge.search
            assert create_issue is mcp_forge.create_issue is mcp_forge["create-issue"]
            assert mcp_servers["My Tracker"] is mcp_my_tracker and mcp_servers.get("nobody") is None
            """
        )
        self.ok("from mcp.servers.forge import *\nassert create_issue and search and odd")
        for code, error in (
            ("import mcp.servers.nobody", "ModuleNotFoundError: no server named 'nobody'; did you mean 'forge'?"),
            ("from mcp import mcp_nobody", "ImportError"),
            ("mcp_servers['nobody']", "KeyError"),
            ("from mcp.servers.forge import serch", "ImportError"),
            ("mcp_forge.serch", "'forge' has no tool 'serch'; did you mean 'search'?"),
        ):
            self.assertIn(error, self.run_cell(code).error, code)
        self.assertEqual(self.ok("hasattr(mcp_forge, 'serch'), dir(mcp_forge).count('search')").out, "(False, 1)\n")

    def test_an_alias_means_what_it_is_documented_for(self):
        with Guest() as guest:
            guest.answers.update(self.host.answers())
            self.host.names = {"Forge": "forge", "forge": "forge_2"}
            self.host.listed = [
                tool("list-items"), tool("list_items", alias="list_items_2"), tool("CREATE", alias="create"),
                tool("create", alias="create_2"),
            ]
            result = guest.run(
                """
from mcp import mcp_forge as imported, mcp_servers
import mcp.servers.forge as module
assert mcp.mcp_forge is imported is mcp_forge is module._codebridge_server is mcp_servers["Forge"]
assert mcp_servers["forge"] is mcp_forge_2 is not mcp_forge
for known in mcp_forge, module: await known.list_items(); await known.list_items_2()
from mcp.servers.forge import list_items, list_items_2
await list_items(); await list_items_2()
from mcp.servers.forge import *
await list_items(); await list_items_2(); await create(); await create_2()
# The exact name second, and first where it is asked for as an item.
await mcp_forge.CREATE(); await mcp_forge["create"](); await mcp_forge["list_items"](); await mcp_forge["list_items_2"]()
assert mcp_forge["list-items"] is list_items and mcp_forge.list_items_2 is mcp_forge["list_items"]
[(await runtime.query_tool_docs("Forge", known))["tool"] for known in (list_items, list_items_2)]
"""
            )
            self.assertEqual((result.out, result.error), ("['list-items', 'list_items']\n", ""), result)
        first, second = "list-items", "list_items"
        called = [call["tool"] for call in self.host.calls]
        self.assertEqual(called[:8], [first, second] * 4)
        self.assertEqual(called[8:], ["CREATE", "create", "CREATE", "create", second, second])
        self.assertEqual({call["server"] for call in self.host.calls}, {"Forge"})

    def test_names_that_begin_with_underscores(self):
        with Guest() as guest:
            guest.answers.update(self.host.answers())
            self.host.names = {"forge": "forge", "日本": "_", "中文": "__2"}
            self.host.listed = [tool("查询", alias="_"), tool("删除", alias="__2"), tool("_repr_html_")]
            result = guest.run(
                """
from mcp.servers import __2 as imported
from mcp.servers.forge import __2, _repr_html_
import copy
assert __2 is mcp_forge.__2 and imported is mcp___2 and mcp_forge._repr_html_ is _repr_html_
await mcp_forge._(); await mcp_forge.__2(); await mcp__.__2()
asked = runtime._ask
def ask(*more): raise AssertionError(more)
runtime._ask = ask
print(copy.copy(mcp_forge), hasattr(mcp_forge, "__deepcopy__"), hasattr(mcp_forge, "__wrapped__"))
runtime._ask = asked
"""
            )
            self.assertEqual((result.out, result.error), ("<MCP server 'forge': mcp_forge> False False\n", ""), result)
            self.assertEqual([call["tool"] for call in self.host.calls], ["查询", "删除", "删除"])
            # What shows objects asks for these, and a server that cannot be had is no reason to fail.
            guest.answers["tool"] = Refusal("it does not start")
            self.assertEqual(guest.run("hasattr(mcp___2, '_repr_png_'), hasattr(mcp___2, '_ipython_display_')").out, "(False, False)\n")
            self.assertIn("it does not start", guest.run("mcp___2.search").error)

    def test_a_star_import_skips_names_that_would_hide_others(self):
        taken = ["print", "open", "list", "__init__", "__class__", "__dict__", "__doc__", "__custom__", "_codebridge_name", "mcp", "runtime", "save_tool"]
        given = ["_repr_html_", "search", "_", "__2", "broken"]
        with Guest() as guest:
            guest.answers.update(self.host.answers())
            self.host.listed = [tool(name) for name in taken + given]
            answer = self.host.tool
            guest.answers["tool"] = lambda params: Refusal("damaged") if params["tool"] == "broken" else answer(params)
            result = guest.run(
                """
before = dict(globals())
from mcp.servers.forge import *
print(sorted(name for name in globals() if name != "before" and globals()[name] is not before.get(name)))
for name in ("print", "open", "list"): await getattr(mcp_forge, name)()
for name in ("__init__", "__class__", "__custom__", "_codebridge_name"): await mcp_forge[name]()
"""
            )
            self.assertEqual((result.out, result.error), ("['_', '__2', '_repr_html_', 'search']\n", ""), result)
            called = [call["tool"] for call in self.host.calls]
            self.assertEqual(called, ["print", "open", "list", "__init__", "__class__", "__custom__", "_codebridge_name"])

    def test_a_saved_tool_finds_its_servers(self):
        with Guest() as guest:
            guest.answers.update(self.host.answers())
            source = "async def issues():\n    try: return await mcp_forge.search()\n    except MCPError as error: return str(error)\n"
            guest.send(b"S", 0, "issues\n" + source)
            self.assertEqual(guest.run("await issues()").out, "'done'\n")
            self.returns("search", Refusal("not today"))
            self.assertEqual(guest.run("await issues()").out, "'not today'\n")
            # So nothing is said of these when it is saved, but of what is the session's own.
            guest.answers["save_tool"] = lambda params: None
            saved = "'Saved: issues() is defined in every later session.%s'\n"
            self.assertEqual(guest.run(source + "save_tool(issues)").out, saved % "")
            told = " It uses mcp_forge of this session, which later sessions do not have: import or define that inside the function."
            self.assertEqual(guest.run("mcp_forge = 5\n" + source + "save_tool(issues)").out, saved % told)


class Functions(ServerTest):
    def test_they_document_their_arguments(self):
        self.ok("make = mcp_forge.create_issue")
        out = self.ok("import inspect\ninspect.signature(make), inspect.iscoroutinefunction(make)").out
        self.assertEqual(
            out, "(<Signature (repo: 'str', title: 'str', body: 'str' = None, labels: 'list[str]' = None)>, True)\n"
        )
        told = self.ok("help(make)\nhelp(mcp_forge.odd)").out
        for line in ("create_issue(repo: ", "Creates an issue.", "labels (list[str], optional): the labels", "**more"):
            self.assertIn(line, told)
        self.assertEqual(self.ok("make.__name__, make.__module__").out, "('create_issue', 'mcp.servers.forge')\n")

    def test_arguments_go_by_name_and_by_place(self):
        self.ok("await mcp_forge.create_issue('acme/app', 't', labels=['a'])\nawait mcp_forge.odd(**{'from': 1, 'a-b': None})")
        self.assertEqual(
            [(call["server"], call["tool"], call["arguments"]) for call in self.host.calls],
            [
                ("forge", "create-issue", {"labels": ["a"], "repo": "acme/app", "title": "t"}),
                ("forge", "odd", {"from": 1, "a-b": None}),
            ],
        )
        for code in ("mcp_forge.read_file(1, 2)", "mcp_forge.read_file(1, path=2)", "mcp_forge.search(state=object())"):
            error = self.run_cell("await " + code).error
            self.assertIn("MCPArgumentError", error)
        self.assertEqual(len(self.host.calls), 2)

    def test_values_that_json_has_no_form_for(self):
        self.ok(
            """
            import datetime, pathlib
            await mcp_forge.search(project=b"\\x00\\xff", state=[pathlib.Path("/a"), {1}, datetime.date(2026, 1, 2), "ü\\ud83d"])
            """
        )
        self.assertEqual(
            self.host.calls[0]["arguments"], {"project": "AP8=", "state": ["/a", [1], "2026-01-02", "ü?"]}
        )
        self.assertIn("MCPArgumentError", self.run_cell("await mcp_forge.search(state=float('nan'))").error)

    def test_what_the_bridge_refuses(self):
        self.returns("search", Refusal("search() takes no 'stat'; did you mean 'state'?", "arguments"))
        error = self.run_cell("await mcp_forge.search(stat=1)").error
        self.assertEqual(error, "mcp.runtime.MCPArgumentError: search() takes no 'stat'; did you mean 'state'?")
        self.ok("try:\n    await mcp_forge.search(stat=1)\nexcept TypeError: pass")
        self.ok("try:\n    await mcp_forge.search(stat=1)\nexcept MCPError: pass")
        self.ok("from mcp import MCPError as other\nassert other is MCPError is runtime.MCPError")
        self.returns("search", Refusal("Server 'forge' is not available"))
        error = self.run_cell("await mcp_forge.search()").error
        self.assertEqual(error, "mcp.runtime.MCPError: Server 'forge' is not available")
        hint = "hint: mcp_forge.search(...) was never awaited: write await mcp_forge.search(...)"
        self.assertEqual(self.run_cell("print(mcp_forge.search())").notices, [hint])


class Calls(ServerTest):
    def test_by_name_with_and_without_await(self):
        self.ok(
            """
            assert await runtime.call_tool("forge", "search", {"state": "open"}) == "done"
            assert runtime.call_tool_sync("forge", "search") == "done"
            """
        )

    def test_at_once_from_tasks_threads_and_loops(self):
        self.guest.withdrawn.clear()
        waiting = []

        def hold(params):
            waiting.append(self.guest.questions[-1][0])
            if len(waiting) == 3:
                for number in waiting:
                    self.guest.send(b"A", number, json.dumps({"ok": text("late")}))
                waiting.clear()
            return LATER

        self.returns("search", hold)
        self.ok("import asyncio\nassert await asyncio.gather(*[mcp_forge.search() for _ in range(3)]) == ['late'] * 3")
        self.ok(
            """
            import asyncio, concurrent.futures
            async def three(): return await asyncio.gather(*[mcp_forge.search() for _ in range(3)])
            assert asyncio.run(three()) == ["late"] * 3
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                assert list(pool.map(lambda _: asyncio.run(mcp_forge.search()), range(3))) == ["late"] * 3
                assert list(pool.map(lambda _: runtime.call_tool_sync("forge", "search"), range(3))) == ["late"] * 3
            """
        )
        self.assertEqual(self.guest.withdrawn, [])

    def test_an_abandoned_call_is_withdrawn(self):
        self.returns("search", lambda params: LATER)
        self.ok(
            """
            import asyncio
            try: await asyncio.wait_for(mcp_forge.search(), 0.01)
            except asyncio.TimeoutError: pass
            """
        )
        self.assertEqual(self.guest.withdrawn, [self.guest.questions[-1][0]])
        for code in ("await mcp_forge.search()", "runtime.call_tool_sync('forge', 'search')"):
            before = len(self.guest.questions)
            number = self.guest.start(code)
            self.guest.until(lambda: len(self.guest.questions) > before)
            self.guest.interrupt(number)
            self.assertEqual(self.guest.finish(number).status, "interrupted")
            self.assertEqual(self.guest.withdrawn[-1], self.guest.questions[-1][0])


class Bytes(ServerTest):
    def notices(self, code, **properties):
        listed = tool("write_file", "path", "content?", "parts?", "encoding?" if "encoding" in properties else "x?")
        listed["inputSchema"] = {"type": "object", "properties": properties}
        self.host.listed = [listed]
        with Guest() as guest:
            guest.answers.update(self.host.answers())
            result = guest.run(code)
            self.assertEqual(result.error, "")
            return result.notices

    def test_bytes_in_a_plain_string_are_noticed_once(self):
        code = "for _ in range(3): await mcp_forge.write_file(path='x', content=b'1', parts=[{'a': (b'2',)}])"
        said = ['bytes were sent as base64 text to "%s" of forge.write_file' % name for name in ("content", "parts")]
        self.assertEqual(self.notices(code, path={}, content={"type": "string"}), said)

    def test_a_notice_of_bytes_asks_the_host_nothing(self):
        for call in "await runtime.call_tool", "runtime.call_tool_sync":
            before = len(self.guest.questions)
            self.ok(call + "('forge', 'search', {'project': bytearray(b'1')})")
            self.assertEqual([asked[1] for asked in self.guest.questions[before:]], ["call"])

    def test_a_call_that_fails_is_the_only_failure(self):
        self.returns("search", Refusal("the server is gone", "server"))
        for code in "await mcp_forge.search(project=b'1')", "runtime.call_tool_sync('forge', 'search', {'project': b'1'})":
            before = len(self.guest.questions)
            result = self.fails(code)
            self.assertIn("the server is gone", result.error)
            self.assertEqual((self.guest.questions[-1][1], result.notices), ("call", []))

    def test_nothing_is_noticed_where_base64_is_expected(self):
        code = "await mcp_forge.write_file(content=b'1')"
        for schema in {"contentEncoding": "base64"}, {"description": "The data, in Base64."}, {"format": "base64"}:
            self.assertEqual(self.notices(code, content=schema), [])
        self.assertEqual(self.notices(code, content={"type": "string"}, encoding={"enum": ["utf-8", "base64"]}), [])
        self.assertEqual(self.notices("await mcp_forge.write_file(content='1')", content={}), [])


class Results(ServerTest):
    def check(self, result, code):
        self.returns("search", result)
        self.ok("r = await mcp_forge.search()\n" + code)

    def test_text(self):
        self.check(
            text("FIXME: all"),
            """assert r == "FIXME: all" and "FIXME" in r and r[:3] == "FIX" and isinstance(r, str)
assert r["content"][0]["text"] == r.content[0].text == r.raw["content"][0].text == r""",
        )
        self.check(text("[unclosed"), "assert r == '[unclosed' and r.upper()")
        self.check(text(""), "assert r == ''")

    def test_documentation_is_printed_without_repeated_values(self):
        item = {"server": "my-forge", "serverAlias": "my_forge", "tool": "search", "toolAlias": "search", "name": "search", "signature": "search()"}
        self.ok(
            "tool = runtime._Tool(%r)\n" % item
            + "assert repr([tool]) == \"[{'server': 'my-forge', 'serverAlias': 'my_forge', 'tool': 'search', 'signature': 'search()'}]\"\n"
            + "assert tool['toolAlias'] == tool['name'] == 'search' and len(tool) == 6"
        )

    def test_json_in_a_text(self):
        self.check(
            text([{"id": 7, "title": "t", "by": {"name": "n"}, "items": [1]}]),
            """assert r[0].id == 7 and r[0]["title"] == "t" and r[0].by.name == "n" and len(r) == 1 and isinstance(r, list)
assert r["content"][0]["type"] == "text" and r.raw["content"] and r[0]["items"] == [1] and [x.id for x in r] == [7]
import json, pickle, copy
assert json.loads(json.dumps(r)) == pickle.loads(pickle.dumps(r)) == copy.deepcopy(r) == r""",
        )
        self.check(text({"body": "B", "raw": 1}), "assert r.body.lower() == 'b' and r['content'] and r['raw'] == 1 and r.raw['content']")
        self.check(text(42), "assert r == 42 and r + 1 == 43 and r.raw['content'][0]['text'] == '42' == r['content'][0].text")
        self.check(text(1.5), "assert r * 2 == 3 and r.raw")
        # A file that holds a number is read as text.
        self.check(text(12345), "assert 'FIXME' not in r and '34' in r and r.splitlines() == ['12345'] and r[:2] == '12'")
        self.check({"content": [], "structuredContent": {"result": 7}}, """assert r == 7 and not hasattr(r, "split")
try: 'x' in r
except TypeError: pass
else: raise AssertionError""")
        # What code asks of these with `is` and sends on as JSON counts more than their raw result, which they cannot carry.
        self.check(text(True), "assert r is True")
        self.check(text(" false\n"), "assert r is False")
        self.check(text(None), "assert r is None")
        self.check(text(123456789012345678901234567890), "assert r == 123456789012345678901234567890")

    def test_fields_that_are_called_as_methods_of_dictionaries(self):
        record = {
            "items": [{"title": "x", "values": [1], "keys": {"a": 1}}], "keys": "abc", "values": 1.5, "get": 7, "copy": {"b": 2},
            "pop": None, "update": True, "popitem": False, "setdefault": [], "clear": "", "fromkeys": "f",
        }
        code = """
        import copy, json, pickle, pprint, sys
        plain = json.loads(%r)
        assert [i.title for i in r.items] == ["x"] and r.items == r["items"] and r.items is r["items"] and isinstance(r.items, list)
        assert r.items[0].values == [1] and r.items[0].keys.a == 1 and r.keys.upper() == "ABC" and r.values * 2 == 3.0
        assert r.get + 1 == 8 and r.copy.b == 2 and r.setdefault == [] and r.clear == "" and r.fromkeys == "f"
        for name in "items", "keys", "values", "get", "copy", "setdefault", "clear", "fromkeys":
            assert getattr(r, name) == plain[name] and repr(getattr(r, name)) == repr(plain[name])
        # true, false and null are no objects of their own.
        assert callable(r.pop) and r["pop"] is None and r["update"] is True
        # To Python it is a mapping all the same.
        def given(**fields): return fields
        for same in (dict(r), {**r}, given(**r), {} | r, json.loads(json.dumps(r)), json.loads(json.dumps(r, indent=1)), r.copy(),
                     pickle.loads(pickle.dumps(r)), copy.copy(r), copy.deepcopy(r), dict(zip(r.keys(), r.values())), dict(r.items())):
            assert same == plain == r and list(same) == list(plain) == list(r), same
        assert json.dumps(r, sort_keys=True) == json.dumps(plain, sort_keys=True)
        if sys.version_info >= (3, 10):
            exec("match r:\\n    case {'get': got}: assert got == 7\\n    case _: assert False")
        assert "items" in r and len(r) == len(plain) and r.get("nothing", 3) == 3 and r.get("get") == 7
        assert type(pickle.loads(pickle.dumps(r.items))) is list and json.dumps(r.items) == json.dumps(plain["items"])
        assert pprint.pformat(r) == pprint.pformat(plain) and type(copy.deepcopy(r).copy).__mro__[1:] == type(r.copy).__mro__[1:]
        r.items.append(5)
        assert r["items"][-1] == 5 and type(r).items(r) == dict.items(r)
        assert r.fromkeys is r["fromkeys"] and r.fromkeys("ab") == {"a": None, "b": None}
        r.update(items=[6]); r.items.append(7)
        assert r.items == [6, 7] == r["items"] and r.popitem()[0] == "fromkeys" and callable(r.fromkeys)
        other = copy.copy(r)
        other["new"] = 1
        assert ("new" in other.keys()) and "new" not in r.keys() and len(other.items()) == len(other)
        r.items, other.items = other.items, type(r.items)([8])
        assert r.items == [6, 7] and dict(r.items()) == r and other.items == [8] and dict(other.items()) == other
        r.items = {"a": 1}
        assert r.items.a == 1 and dict(r.items.items()) == {"a": 1} and len(r.items()) == len(r)
        """ % json.dumps(record)
        self.check(text(record), textwrap.dedent(code))
        self.check({"content": [], "structuredContent": record}, textwrap.dedent(code) + "assert r.raw['structuredContent'] == r")

    def test_structured_content_wins(self):
        result = {**text("for people"), "structuredContent": {"a": {"b": [1]}, "content": "own"}}
        self.check(result, "assert r.a.b == [1] and r['content'] == 'own' and r.raw['content'][0].text == 'for people'")
        self.check({**text("[1, 2]"), "structuredContent": {"result": [1, 2]}}, "assert r == [1, 2] == r.result == r['result'] and r['content']")
        self.check({**text("hello"), "structuredContent": {"content": "hello"}}, "assert r == 'hello' and r['content'][0]['text'] == 'hello'")
        self.check({**text("x"), "structuredContent": {"content": "hello"}}, "assert r == {'content': 'hello'}")
        self.check({**text("{}"), "structuredContent": {"result": {"a": 1}}}, "assert r.result.a == 1")

    def test_images_and_lists_of_blocks(self):
        image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
        self.check(
            {"content": [image]},
            """assert r == b"\\x89PNG" and r.mime_type == r.mimeType == r["mimeType"] == "image/png" and isinstance(r, bytes)
assert r["content"][0]["data"] == r.raw["content"][0].data and repr(r) == "<image/png, 4 bytes>" """,
        )
        self.check(
            {"content": [{"type": "text", "text": "[1]"}, image]},
            "assert r[0].text == '[1]' and r[0]['type'] == 'text' and r[1].mime_type and r['content'] and len(r) == 2",
        )
        file = {"type": "resource", "resource": {"uri": "https://h/a.zip", "mimeType": "application/zip", "blob": PIXEL}}
        self.check({"content": [file]}, "assert r == b'\\x89PNG' and r.mime_type == 'application/zip' and r['resource'].uri == 'https://h/a.zip'")
        written = {"type": "resource", "resource": {"uri": "file:///a", "text": "t"}}
        self.check({"content": [written]}, "assert r[0].resource.text == 't'")
        link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
        self.check({"content": [link]}, "assert r[0].uri == 'file:///a' and r.raw")
        self.check({"content": []}, "assert r == [] and r.raw == {'content': []}")
        self.check({}, "assert r == []")

    def test_pages_follow_each_other(self):
        def page(params):
            number = params["arguments"].get("page", 1)
            following = {"page": number + 1} if number < 3 else {"page": 1} if params["arguments"].get("state") == "circle" else None
            return {**text([number]), "_meta": {"codebridge/next": following}}

        self.returns("search", page)
        code = "[page async for page in runtime.pages(mcp_forge.search, state=%r)]"
        self.assertEqual(self.ok(code % "open").out, "[[1], [2], [3]]\n")
        arguments = [call["arguments"] for call in self.host.calls]
        self.assertEqual(arguments, [{"state": "open"}, {"state": "open", "page": 2}, {"state": "open", "page": 3}])
        self.assertEqual(self.ok(code % "circle").out, "[[1], [2], [3], [1]]\n")

    def test_an_error_raises(self):
        self.returns("search", {**text("no such project"), "isError": True})
        result = self.run_cell("await mcp_forge.search()")
        self.assertEqual(result.error, "mcp.runtime.MCPError: forge.search: no such project")
        self.assertNotIn("codebridge", result.traceback)
        self.ok(
            """
            try: await mcp_forge.search()
            except Exception as e: assert e.result == "no such project" and e.result.raw["isError"] is True
            """
        )

    def test_an_answer_that_is_not_a_result_raises_too(self):
        whole, content = "the answer of the server is not an MCP result", "the content in the answer of the server is not a list of blocks"
        for answer, error in (
            ([], whole + ": []"),
            ([{"type": "text", "text": "ä"}], whole + ': [{"type": "text", "text": "ä"}]'),
            (7, whole + ": 7"),
            ("text", whole + ': "text"'),
            (None, whole + ": null"),
            ({"content": "text"}, content + ': "text"'),
            ({"content": {"type": "text", "text": "t"}, "isError": True}, content + ': {"type": "text", "text": "t"}'),
        ):
            self.returns("search", lambda params: answer)
            for code in "await mcp_forge.search()", "runtime.call_tool_sync('forge', 'search')":
                self.assertEqual(self.run_cell(code).error, "mcp.runtime.MCPError: forge.search: " + error)
            self.ok("try: await mcp_forge.search()\nexcept MCPError as error: assert error.result == %r, error.result" % (answer,))
        self.check({"content": "text", "structuredContent": {"a": 1}}, "assert r.a == 1")
        self.check({"content": None}, "assert r == []")

    def test_fields_that_are_not_there(self):
        self.returns("search", text({"title": 1, "id": 2}))
        error = self.run_cell("(await mcp_forge.search()).titel").error
        self.assertEqual(error, "AttributeError: no field 'titel'; the fields are: title, id")
        self.assertIn("KeyError: 'titel'", self.run_cell("(await mcp_forge.search())['titel']").error)
        self.assertIn("AttributeError", self.run_cell("(await mcp_forge.search()).__array__").error)


class Helpers(ServerTest):
    def test_all_of_them(self):
        self.ok(
            """
            assert runtime.discovered_servers() == await runtime.discovered_servers() == ["forge", "My Tracker", "filesystem"]
            assert runtime.discovered_servers(detailed=True)[0] == {"name": "forge", "description": "about forge"}
            assert await runtime.list_servers() == runtime.list_servers_sync() == []
            d = runtime.describe_server("forge")
            assert d == await runtime.describe_server(mcp_forge) and d["tools"][0]["alias"] == "create_issue"
            assert await runtime.list_tools("forge") == runtime.list_tools_sync("forge") == d["tools"]
            docs = await runtime.query_tool_docs("forge")
            assert [t["name"] for t in docs["tools"]][0] == docs[0]["tool"] == "create-issue" and len(docs) == 5
            one = await runtime.query_tool_docs("forge", tool="create_issue", detail="full")
            assert one["inputSchema"] and one == runtime.query_tool_docs_sync("forge", "create_issue", "full") == one["tools"][0]
            assert "search_tool_docs" in runtime.capability_summary()
            """
        )
        result = self.ok("for hit in await runtime.search_tool_docs('issues', limit=2): print(hit['tool'], hit.get('description', ''))")
        self.assertEqual(result.out, "create-issue Creates an issue.\nsearch Does a thing. At length.\n")
        self.assertIn("search again in a moment: slow", result.notices[0])
        self.assertEqual(self.ok("len(runtime.search_tool_docs_sync('x'))").out, "5\n")

    def test_the_servers_of_the_call(self):
        with Guest() as guest:
            guest.answers.update(self.host.answers())
            context = {"servers": [{"name": "My Tracker", "alias": "my_tracker"}]}
            code = "LOADED_MCP_SERVERS, list(mcp_servers), await runtime.list_servers(), [m['name'] for m in runtime.list_loaded_server_metadata()]"
            self.assertEqual(guest.run(code, context).out, "(%s)\n" % ", ".join(["['My Tracker']"] * 4))
            code = "LOADED_MCP_SERVERS, len(mcp_servers), 'forge' in mcp_servers, runtime.list_servers_sync()"
            context = {"any": True, "servers": [{"name": name, "alias": alias} for name, alias in NAMES.items()]}
            self.assertEqual(guest.run(code, context).out, "(%r, 3, True, %r)\n" % (list(NAMES), list(NAMES)))
            self.assertEqual(guest.run(code, {}).out, "([], 0, False, [])\n")


del ServerTest, CellTest

if __name__ == "__main__":
    unittest.main()
