"""What calls of servers return, and what helpers say of servers."""

import json
import textwrap
import unittest

from guest_client import Guest
from server_host import NAMES, PIXEL, ServerTest, text, tool


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


del ServerTest

if __name__ == "__main__":
    unittest.main()
