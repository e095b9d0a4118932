"""Resources and prompts: what the host is asked, and the values that its answers become."""

import json
import unittest

from guest_client import Guest, Refusal
from test_cells import CellTest


def contents(*parts):
    """An answer with contents: a line of JSON, and the bytes of all."""
    bodies = [data.encode() if isinstance(data, str) else data for data, _ in parts]
    heads = [
        dict(head, bytes=len(body), is_text=isinstance(data, str)) for body, (data, head) in zip(bodies, parts)
    ]
    return json.dumps({"contents": heads}).encode() + b"\n" + b"".join(bodies)


class Offers(CellTest):
    def setUp(self):
        del self.guest.questions[:]
        self.guest.raw_answers.pop("read_resource", None)

    def asked(self, method):
        return [params for _, name, params in self.guest.questions if name == method]

    def answers_with(self, answer):
        self.guest.raw_answers["read_resource"] = lambda params: answer

    def test_contents_are_texts_and_bytes(self):
        self.answers_with(contents(("grü\nße", {"uri": "a:1", "mimeType": "text/x"}), (b"\n\x00", {"uri": "a:2"})))
        done = self.ok(
            """
            import copy, pickle
            parts = await runtime.read_resource("s", "a:1")
            text, blob = parts
            print([text, bytes(blob)], text.uri, text.mime_type, blob.mimeType, text.raw, blob.raw)
            print([type(copy.copy(part)).__name__ for part in parts], pickle.loads(pickle.dumps(parts)) == parts)
            """
        )
        raw = "{'contents': [{'uri': 'a:1', 'mimeType': 'text/x', 'text': 'grü\\nße'}]} {'contents': [{'uri': 'a:2', 'blob': 'CgA='}]}"
        self.assertEqual(done.out, "['grü\\nße', b'\\n\\x00'] a:1 text/x None %s\n['str', 'bytes'] True\n" % raw)
        self.assertEqual(self.asked("read_resource")[0]["line"], 2)

    def test_a_resource_is_written_to_a_file_with_all_of_its_bytes(self):
        self.answers_with(contents(("one\n", {}), (b"\xff", {})))
        done = self.ok(
            """
            import pathlib, tempfile
            path = pathlib.Path(tempfile.mkdtemp(), "x")
            print(await runtime.read_resource("s", "a:1", path=path) == str(path), path.read_bytes())
            """
        )
        self.assertEqual(done.out, "True b'one\\n\\xff'\n")

    def test_a_refusal_of_the_host_is_an_error(self):
        self.guest.answers["read_resource"] = Refusal("the resource 'a:1' is denied", "denied")
        done = self.ok(
            """
            try:
                runtime.read_resource("s", "a:1")
            except runtime.MCPError as error:
                print(error.kind, error)
            """
        )
        self.assertEqual(done.out, "denied the resource 'a:1' is denied\n")

    def test_templates_are_expanded_as_the_standard_says(self):
        self.answers_with(contents(("", {})))
        for template, arguments, uri in [
            ("a://{x}/b", {"x": "ü /"}, "a://%C3%BC%20%2F/b"),
            ("a://{+x}", {"x": "b/c d"}, "a://b/c%20d"),
            ("a://h{/x,y}", {"x": 1, "y": "z"}, "a://h/1/z"),
            ("a://h{?q,n*}", {"n": [1, 2]}, "a://h?n=1,2"),
            ("a://h?a=1{&q}{#f}", {"q": "x&y"}, "a://h?a=1&q=x%26y"),
            ("a://h{;x}{.y}", {"x": True, "y": "z"}, "a://h;x=true.z"),
            ("a://{x:3}", {"x": "abcdef"}, "a://abc"),
            ("a://{as is}", {}, "a://{as is}"),
        ]:
            self.ok("runtime.read_resource('s', %r, **%r)" % (template, arguments))
            self.assertEqual(self.asked("read_resource")[-1]["uri"], uri)
        for template, arguments, why in [
            ("a://{x}{y}", {"y": 1}, "the URI template needs the variable x"),
            ("a://{x}", {"x": 1, "z": 2}, "the URI template a://{x} has no variable z"),
        ]:
            error = self.guest.run("runtime.read_resource('s', %r, **%r)" % (template, arguments)).error
            self.assertEqual(error, "TypeError: " + why)

    def test_arguments_of_prompts_are_texts(self):
        text = {"type": "text", "text": "one"}
        inner = {"type": "resource", "resource": {"uri": "a:1", "text": "two"}}
        messages = [{"role": "user", "content": text}, {"role": "user", "content": [inner, {"type": "image", "data": ""}]}, 7]
        self.guest.answers["get_prompt"] = {"messages": messages, "description": "d"}
        done = self.ok(
            """
            prompt = await runtime.get_prompt("s", "p", {"a": "x", "b": [1, None]}, c=2, d=None)
            print([prompt.text], prompt.messages[0].content.text, prompt["description"], prompt == dict(prompt))
            """
        )
        self.assertEqual(done.out, "['one\\n\\ntwo'] one d True\n")
        self.assertEqual(self.asked("get_prompt")[0]["arguments"], {"a": "x", "b": "[1, null]", "c": "2"})

    def test_answers_without_values_are_errors(self):
        for answer in {}, {"completion": {}}, [], {"completion": {"values": "x"}}:
            self.guest.answers["complete"] = answer
            self.assertIn("MCPError: s: the answer of the server has no values", self.guest.run("runtime.complete('s', 'p', 'a')").error)
        self.guest.answers["complete"] = {"completion": {"values": ["x", "y"], "hasMore": True}}
        self.assertEqual(self.ok("await runtime.complete('s', 'p', 'a', 'x', b=1)").out, "['x', 'y']\n")
        self.assertEqual(self.asked("complete")[-1]["others"], {"b": "1"})

    def test_a_list_that_is_cut_says_so(self):
        self.guest.answers["offers"] = {"items": [{"uri": "a:1", "name": "n"}], "cut": True}
        done = self.ok("print(runtime.list_resources('s')[0].name, (await runtime.list_prompts('s'))[0]['uri'])")
        self.assertEqual(done.out, "n a:1\n")
        self.assertEqual(done.notices[0], "resources of s lists more than are shown")

    def test_a_watch_ends_once(self):
        self.guest.answers.update(watch={"watch": 7}, watch_next={"uri": "a:1"}, watch_end=lambda params: None)
        self.answers_with(contents(("now", {})))
        done = self.ok(
            """
            async with runtime.watch_resource("s", "a:1") as watch:
                async for uri in watch:
                    print(uri, await uri.read())
                    break
            await watch.close()
            print(list(watch), [uri async for uri in watch])
            """
        )
        self.assertEqual(done.out, "a:1 now\n[] []\n")
        self.assertEqual(self.asked("watch_end"), [{"watch": 7}])


if __name__ == "__main__":
    unittest.main()
