"""What is shown of errors: tracebacks, source text, and explanations of failures that the sandbox causes."""

import unittest

from guest_client import Guest
from test_cells import CellTest


class Tracebacks(CellTest):
    def test_frames_of_the_user_with_their_lines_and_nothing_else(self):
        self.ok("def inner(n):\n    return 1 / n  # here")
        number = self.guest.run_number
        result = self.fails("def outer():\n    inner(0)\nouter()")
        lines = [line for line in result.traceback.splitlines() if not set(line) <= set(" ~^")]
        self.assertEqual(
            lines,
            [
                "Traceback (most recent call last):",
                '  File "<cell %d>", line 3, in <module>' % (number + 1),
                "    outer()",
                '  File "<cell %d>", line 2, in outer' % (number + 1),
                "    inner(0)",
                '  File "<cell %d>", line 2, in inner' % number,
                "    return 1 / n  # here",
                "ZeroDivisionError: division by zero",
            ],
        )
        self.assertEqual(result.error, "ZeroDivisionError: division by zero")

    def test_library_frames_stay(self):
        result = self.fails("import json\njson.loads('{')")
        self.assertIn("json/decoder.py", result.traceback)
        self.assertTrue(result.error.startswith("json.decoder.JSONDecodeError: Expecting property name"), result.error)

    def test_chained_exceptions(self):
        result = self.fails("try:\n    {}['a']\nexcept KeyError as e:\n    raise RuntimeError('outer') from e")
        self.assertIn("direct cause", result.traceback)
        self.assertEqual(result.traceback.count('File "<cell'), 2)
        result = self.fails("try:\n    {}['a']\nexcept KeyError:\n    raise RuntimeError('outer')")
        self.assertIn("During handling", result.traceback)
        self.assertNotIn("codebridge", result.traceback)

    def test_exception_groups(self):
        if self.ok("import sys\nsys.version_info >= (3, 11)").out != "True\n":
            self.skipTest("there are none before 3.11")
        result = self.fails(
            """
            def fail(text):
                try: raise ValueError(text)
                except ValueError as e: return e
            raise ExceptionGroup("several", [fail("one"), fail("two")])
            """
        )
        self.assertEqual(result.error, "ExceptionGroup: several (2 sub-exceptions)")
        self.assertIn("ValueError: one", result.traceback)
        self.assertIn("ValueError: two", result.traceback)
        self.assertEqual(result.traceback.count("try: raise ValueError(text)"), 2)
        self.assertNotIn("codebridge", result.traceback)

    def test_syntax_errors_show_the_place(self):
        result = self.fails("x = 1\ny = (2,\nz = = 3")
        self.assertRegex(result.traceback, r'^  File "<cell \d+>", line \d\n    ')
        self.assertRegex(result.traceback, r"\n +\^+\n")
        self.assertTrue(result.error.startswith("SyntaxError: "), result.error)

    def test_syntax_errors_found_after_parsing_show_the_place_too(self):
        result = self.fails("x = 1\nreturn x")
        self.assertRegex(result.traceback, r'^  File "<cell \d+>", line 2\n    return x\n')
        self.assertEqual(result.error, "SyntaxError: 'return' outside function")

    def test_endless_recursion(self):
        result = self.fails("def f(): f()\nf()")
        self.assertTrue(result.error.startswith("RecursionError: maximum recursion depth exceeded"), result.error)
        self.assertIn("repeated", result.traceback)
        self.assertLess(len(result.traceback), 4000)

    def test_an_exception_whose_text_raises(self):
        result = self.fails("class Odd(Exception):\n    def __str__(self): raise TypeError\nraise Odd")
        self.assertEqual(result.error, "Odd: <exception str() failed>")
        self.assertIn("raise Odd", result.traceback)

    def test_only_the_first_line_of_a_message_is_the_error(self):
        result = self.fails("raise ValueError('first\\nsecond')")
        self.assertEqual(result.error, "ValueError: first")
        self.assertTrue(result.traceback.endswith("ValueError: first\nsecond\n"))

    def test_an_endless_message_is_cut(self):
        result = self.fails("raise ValueError('x' * 50_000_000)")
        self.assertLess(len(result.traceback), 2 << 20)
        self.assertLess(len(result.error), 3000)
        # Not even when each character takes the most bytes.
        self.fails(r"raise ValueError('\ud800' * 5_000_000)")
        self.ok(r"def f(): yield" + "\nasync def g(): pass\ng.__qualname__ = 'q' * 10_000_000\ng()")

    def test_code_that_cannot_even_be_compiled(self):
        for code in "x = '\0'", "(" * 5000 + ")" * 5000:
            self.fails(code)
        self.guest.send(b"R", 1_000_000, b"x = '\xff'\nlen(x)")
        self.assertEqual(self.guest.finish(1_000_000).out, "1\n")

    def test_a_broken_traceback_module_does_not_break_the_session(self):
        with Guest() as guest:
            result = guest.run("import traceback\ntraceback.TracebackException = None\n1/0")
            self.assertEqual(result.error, "ZeroDivisionError: division by zero")
            self.assertTrue(result.traceback.startswith("ZeroDivisionError: division by zero\n(no traceback: "))
            self.assertEqual(guest.run("1").out, "1\n")


class Source(CellTest):
    def test_inspect_knows_functions_and_classes(self):
        self.ok("def twice(x):\n    # doubles\n    return 2 * x")
        self.ok("class Empty:\n    size = 0")
        self.ok("class Full:\n    def method(self):\n        return 1")
        code = "import inspect\nfor o in twice, Empty, Full, Full.method: print(inspect.getsource(o), end='--\\n')"
        self.assertEqual(
            self.ok(code).out,
            "def twice(x):\n    # doubles\n    return 2 * x\n--\n"
            "class Empty:\n    size = 0\n--\n"
            "class Full:\n    def method(self):\n        return 1\n--\n"
            "    def method(self):\n        return 1\n--\n",
        )

    def test_in_the_first_cell_that_imports_inspect(self):
        with Guest() as guest:
            result = guest.run("import inspect\ndef f(): return 1\nclass C: pass\nprint(inspect.getsource(f), inspect.getsource(C))")
            self.assertEqual(result.out, "def f(): return 1\n class C: pass\n\n")

    def test_the_newest_definition_of_a_class_is_meant(self):
        self.ok("class Changed:\n    version = 1")
        self.ok("class Changed:\n    version = 2")
        self.assertIn("version = 2", self.ok("import inspect\nprint(inspect.getsource(Changed))").out)

    def test_a_class_without_source_is_still_an_error(self):
        result = self.fails("import inspect\ninspect.getsource(type('Made', (), {}))")
        self.assertRegex(result.error, "OSError|TypeError")
        self.assertTrue(self.fails("inspect.getsource(int)").error.startswith("TypeError: "))

    def test_tracebacks_that_user_code_prints_have_source_lines(self):
        with Guest() as guest:
            guest.run("def f():\n    raise KeyError('printed')  # marked")
            result = guest.run("try: f()\nexcept KeyError:\n    import traceback; traceback.print_exc()")
            self.assertIn("raise KeyError('printed')  # marked", result.err)

    def test_code_without_source_has_no_lines(self):
        with Guest() as guest:
            for code in "exec('def g(): 1/0')\ng()", "exec('1/0')":
                traceback = guest.run(code).traceback
                self.assertIn('File "<string>", line 1, in', traceback)
                self.assertNotIn("import os", traceback)

    def test_lines_survive_a_cleared_cache(self):
        self.ok("import linecache\ndef broken():\n    raise ValueError  # still here")
        self.ok("linecache.clearcache()")
        self.assertIn("raise ValueError  # still here", self.fails("broken()").traceback)


class Surroundings(CellTest):
    """Failures that the sandbox causes, in one line and with the user's own frames."""

    NO_NETWORK = "the sandbox has no network; call an MCP server (servers=[…]) to fetch data"

    def setUp(self):
        super().setUp()
        # As it is in a sandbox, whatever this machine can reach.
        self.ok("""
            import socket, urllib.request
            def lookup(*_): raise socket.gaierror(-3, "Temporary failure in name resolution")
            socket.getaddrinfo = lookup
            del lookup
        """)

    def test_a_library_without_a_network(self):
        result = self.fails("def fetch():\n    return urllib.request.urlopen('http://example.com')\nfetch()")
        self.assertEqual((result.error, result.notices), (self.NO_NETWORK, []))
        lines = result.traceback.splitlines()
        self.assertIn("line 3, in <module>", lines[0])
        self.assertIn("return urllib.request.urlopen(", result.traceback)
        self.assertEqual(lines[-1], self.NO_NETWORK)
        self.assertNotIn("urllib/request.py", result.traceback)

    def test_a_connection_without_a_route(self):
        for errno in (100, 101, 113):
            self.assertEqual(self.fails("raise OSError(%d, 'no')" % errno).error, self.NO_NETWORK)
        self.assertEqual(self.fails("raise ConnectionRefusedError(111, 'no')").error, "ConnectionRefusedError: [Errno 111] no")

    def test_code_that_catches_it_gets_the_exception(self):
        result = self.ok("try: urllib.request.urlopen('http://example.com')\nexcept OSError as e: print(e)")
        self.assertEqual((result.out, result.notices), ("<urlopen error [Errno -3] Temporary failure in name resolution>\n", []))

    def test_what_the_user_raises_stays_with_a_note(self):
        code = "try: urllib.request.urlopen('http://example.com')\nexcept OSError as e: raise ValueError('no prices') from e"
        result = self.fails(code)
        self.assertEqual((result.error, result.notices), ("ValueError: no prices", [self.NO_NETWORK]))
        self.assertIn("direct cause", result.traceback)
        # A mistake of a library in a handler of the user is one too.
        code = "import json\ntry: urllib.request.urlopen('http://example.com')\nexcept OSError: json.loads('{')"
        self.assertTrue(self.fails(code).error.startswith("json.decoder.JSONDecodeError: "))

    def test_a_group_of_failures(self):
        code = """
            import asyncio
            async def get():
                urllib.request.urlopen("http://example.com")
            async def main():
                async with asyncio.TaskGroup() as group:
                    group.create_task(get()); group.create_task(get())
            if hasattr(asyncio, "TaskGroup"): await main()
            else: await get()
        """
        self.assertEqual(self.fails(code).error, self.NO_NETWORK)

    def test_a_file_of_the_host_is_explained_once(self):
        guest = Guest()
        self.addCleanup(guest.close)
        for code in ("open('missing')", "open('/usr/missing')", "open('/tmp/../etc/no')"):
            self.assertEqual(guest.run(code).notices, [], code)
        nonsense = "class Odd(FileNotFoundError): pass\nraise Odd(1, 'x', object())"
        for code in (nonsense, "raise FileNotFoundError(1, 'x', object())", "raise FileNotFoundError('/home/x')"):
            self.assertEqual(guest.run(code).notices, [], code)
        self.assertEqual(guest.run("import subprocess; subprocess.run(['/opt/none'])").notices, [])
        [notice] = guest.run("open('~/data.csv')").notices
        self.assertTrue(notice.startswith("host files are not visible in the sandbox; "), notice)
        self.assertIn("--share DIR", notice)
        self.assertEqual(guest.run("open('/home/me/data.csv')").notices, [])
        other = Guest()
        self.addCleanup(other.close)
        self.assertEqual(other.run("import os; os.listdir(b'/Users/me')").notices, [notice])

    def test_a_path_that_is_read_only(self):
        only = "only /workspace and /tmp are writable"
        result = self.fails("raise OSError(30, 'Read-only file system', '/x')")
        self.assertEqual(result.error, "OSError: [Errno 30] Read-only file system: '/x': " + only)
        self.assertEqual(result.traceback.splitlines()[-1], result.error)

    def test_a_refusal_is_of_a_read_only_path_only_where_something_was_to_be_written(self):
        only = "only /workspace and /tmp are writable"
        # Which kinds of access there are, whoever runs this test.
        self.ok("import os, subprocess\nallowed, access = {}, os.access")
        self.ok("os.access = lambda path, mode: mode & allowed.get(path, 0) == mode")
        self.addCleanup(self.run_cell, "os.access = access")
        refused = "raise PermissionError(13, 'no', %r)"
        for code, allowed, is_hinted in (
            (refused % "/usr/new", {"/usr": 5}, True),
            (refused % "/usr/new", {"/usr": 7}, False),
            # The folder cannot be searched, or is not there.
            (refused % "/usr/new", {"/usr": 4}, False),
            (refused % "/usr/none/new", {"/usr": 5}, False),
            (refused % "/etc/passwd", {"/etc/passwd": 4}, True),
            (refused % "/etc/passwd", {"/etc/passwd": 6}, False),
            (refused % "/etc/passwd", {}, False),
            (refused % "/usr", {"/usr": 4}, False),
            (refused % "/tmp/x", {"/tmp": 5}, False),
            ("subprocess.run(['/etc/passwd'])", {"/etc/passwd": 4}, False),
        ):
            self.ok("allowed = %r" % allowed)
            result = self.fails(code)
            self.assertIn("PermissionError: [Errno 13]", result.error)
            self.assertEqual(only in result.error, is_hinted, (code, allowed))

    def test_attributes_of_exceptions_may_be_anything(self):
        code = "class Odd(Exception):\n    @property\n    def reason(self): 1/0\nraise Odd('odd')"
        self.assertEqual(self.fails(code).error, "Odd: odd")
        code = "class Loop(Exception): pass\na, b = Loop('a'), Loop('b')\na.__cause__, b.__cause__ = b, a\nraise a"
        self.assertEqual(self.fails(code).error, "Loop: a")


if __name__ == "__main__":
    unittest.main()
