"""Artifacts: what code can save, and how the bytes reach the host."""

import unittest

from guest_client import Guest, Refusal

RECORD = {"name": "n", "version": 1, "bytes": 3}


class Artifacts(unittest.TestCase):
    def setUp(self):
        self.guest = Guest()
        self.addCleanup(self.guest.close)
        self.begun = []
        self.guest.answers.update(
            artifact_begin=lambda params: self.begun.append(params),
            artifact_check={},
            artifact_commit=lambda params: dict(RECORD, bytes=params["bytes"]),
            artifact_abort={},
        )

    def save(self, code):
        """Runs code that saves one artifact; returns its name and its bytes."""
        before = len(self.begun)
        result = self.guest.run(code)
        self.assertEqual(result.status, "ok", result.traceback)
        self.assertEqual(len(self.begun), before + 1)
        params = self.begun[-1]
        return params["name"], bytes(self.guest.uploads[params["transfer"]])

    def test_every_kind_of_source_is_saved(self):
        self.guest.run("import io, os, pathlib, tempfile\nfolder = tempfile.mkdtemp()\npath = folder + '/p.txt'\nopen(path, 'w').write('abc')")
        for code, name, content in (
            ("runtime.save_artifact(path)", "p.txt", b"abc"),
            ("await runtime.save_artifact(pathlib.Path(path), 'other')", "other", b"abc"),
            ("runtime.save_artifact(b'abc', 'b')", "b", b"abc"),
            ("runtime.save_artifact(memoryview(b'abcdef')[::2], 'b')", "b", b"ace"),
            ("runtime.save_artifact('t\\xe4', name='t')", "t", "t\xe4".encode()),
            ("runtime.save_artifact(open(path, 'rb'))", "p.txt", b"abc"),
            ("runtime.save_artifact(io.StringIO('text'), 's')", "s", b"text"),
            ("runtime.save_artifact((b'x' * 300000 for _ in range(3)), 'i')", "i", b"x" * 900000),
            ("runtime.save_artifact(b'', 'empty', 'why')", "empty", b""),
        ):
            self.assertEqual(self.save(code), (name, content), code)
        self.assertEqual(self.begun[-1]["description"], "why")

    def test_frames_and_figures_are_saved_in_the_form_of_their_name(self):
        self.guest.run(
            "class Frame:\n"
            "    index = None\n"
            "    def to_csv(self, file, index): file.write('a,b\\r\\n'); file.write('1,2\\r\\n')\n"
            "    def to_parquet(self, file): file.write(b'PAR1')\n"
            "class Polars:\n"
            "    def write_csv(self, file): file.write(b'a')\n"
        )
        self.assertEqual(self.save("runtime.save_artifact(Frame())"), ("data.csv", b"a,b\r\n1,2\r\n"))
        self.assertEqual(self.save("runtime.save_artifact(Frame(), 'x.parquet')"), ("x.parquet", b"PAR1"))
        self.assertEqual(self.save("runtime.save_artifact(Polars())"), ("data.csv", b"a"))

    def test_plain_values_are_saved_as_json(self):
        self.assertEqual(self.save("runtime.save_artifact({'ä': [1, None]})"), ("data.json", '{\n  "ä": [\n    1,\n    null\n  ]\n}\n'.encode()))
        self.assertEqual(self.save("runtime.save_artifact((), 'x.json')"), ("x.json", b"[]\n"))

    def test_what_cannot_be_saved_says_why(self):
        for code, error in (
            ("runtime.save_artifact([{1}], 'x')", "TypeError: save_artifact keeps a list as JSON, and this one is none (Object of type set"),
            ("runtime.save_artifact('nothing.csv')", "FileNotFoundError: [Errno 2] No such file; to keep the text itself"),
            ("runtime.save_artifact('a\\nb')", "ValueError: an artifact needs a name"),
            ("runtime.save_artifact(b'x')", "ValueError: an artifact needs a name"),
            ("runtime.save_artifact(7, 'x')", "TypeError: save_artifact takes a path, bytes, text"),
            ("runtime.save_artifact(b'x', 7)", "TypeError: name must be text"),
            (
                "runtime.save_artifact('x.txt', b'ab')",
                "TypeError: save_artifact takes what to keep first, then its name: save_artifact(b'ab', 'x.txt')",
            ),
            ("runtime.save_artifact('x.txt', bytes(99))", "save_artifact(bytes, 'x.txt')"),
            ("runtime.save_artifact(iter([7]), 'x')", "TypeError: an iterator for save_artifact must yield bytes"),
        ):
            self.assertIn(error, self.guest.run(code).error, code)
        self.guest.answers["artifact_begin"] = Refusal("no space")
        self.assertEqual(self.guest.run("runtime.save_artifact(b'x', 'x')").error, "mcp.runtime.MCPError: no space")

    def test_an_error_in_the_middle_is_told_to_the_host(self):
        code = "def pieces():\n    yield b'x'\n    raise ValueError('middle')\nruntime.save_artifact(pieces(), 'x')"
        self.assertEqual(self.guest.run(code).error, "ValueError: middle")
        self.guest.run("1")
        self.assertEqual(self.guest.questions[-1][1], "artifact_abort")
        self.guest.answers["artifact_check"] = Refusal("the disk is full")
        code = "import itertools\nruntime.save_artifact(itertools.repeat(bytes(1 << 20)), 'x')"
        self.assertEqual(self.guest.run(code).error, "mcp.runtime.MCPError: the disk is full")

    def test_an_interrupt_ends_a_save(self):
        code = "import itertools\nprint('go')\nruntime.save_artifact(itertools.repeat(bytes(1 << 20)), 'x')"
        number = self.guest.start(code)
        self.guest.until(lambda: self.guest.uploads)
        self.guest.interrupt(number)
        self.assertEqual(self.guest.finish(number).status, "interrupted")
        self.assertEqual(self.guest.run("1").out, "1\n")
        self.assertEqual(self.guest.questions[-1][1], "artifact_abort")

    def test_an_artifact_is_loaded_in_parts_of_one_version(self):
        content = bytes(range(256)) * 10000

        def part(params):
            start = params["start"]
            head = b'{"version": 3, "bytes": %d}\n' % len(content)
            return head + content[start : start + params["length"]]

        self.guest.raw_answers["artifact_read"] = part
        code = "got = await runtime.load_artifact('n')\nimport hashlib\nprint(len(got), hashlib.md5(got).hexdigest(), type(got[:1]).__name__)"
        import hashlib

        self.assertEqual(self.guest.run(code).out, "2560000 %s bytes\n" % hashlib.md5(content).hexdigest())
        versions = [params["version"] for _, method, params in self.guest.questions if method == "artifact_read"]
        self.assertEqual(versions, [None, 3, 3])
        code = "from itertools import islice\nparts = runtime._guest.part('artifacts').pieces('n', None)\nlen(next(parts)), parts.close()"
        self.assertEqual(self.guest.run(code).out, "(1048576, None)\n")
        code = (
            "import os, tempfile\npath = tempfile.mkdtemp() + '/x'\n"
            "print(runtime.load_artifact('n', path) == path, os.path.getsize(path), os.listdir(os.path.dirname(path)))"
        )
        self.assertEqual(self.guest.run(code).out, "True 2560000 ['x']\n")


if __name__ == "__main__":
    unittest.main()
