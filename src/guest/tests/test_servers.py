"""The user's MCP servers as code sees them: their names, functions and calls."""

import base64
import json
import unittest

from guest_client import LATER, Guest, Refusal
from server_host import ServerTest, text, tool


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


del ServerTest

if __name__ == "__main__":
    unittest.main()
