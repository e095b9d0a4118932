"""What one cell after the other does: values, state, tracebacks, source text, input, exit."""

import os
import signal
import tempfile
import textwrap
import time
import unittest

from guest_client import IN_CHROOT, LATER, Guest


class CellTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.guest = Guest()

    @classmethod
    def tearDownClass(cls):
        cls.guest.close()

    def run_cell(self, code, **more):
        return self.guest.run(textwrap.dedent(code).strip("\n"), **more)

    def ok(self, code, **more):
        result = self.run_cell(code, **more)
        self.assertEqual((result.status, result.code, result.error), ("ok", 0, ""), result)
        self.assertEqual(result.traceback, "")
        return result

    def fails(self, code):
        result = self.run_cell(code)
        self.assertEqual((result.status, result.code), ("error", 1), result)
        return result


class Values(CellTest):
    def test_the_last_expression_is_shown_as_at_the_prompt(self):
        self.assertEqual(self.ok("1 + 1").out, "2\n")
        self.assertEqual(self.ok("x = 5\n'a' * x").out, "'aaaaa'\n")
        self.assertEqual(self.ok("_ + 'b'").out, "'aaaaab'\n")

    def test_nothing_else_is_shown(self):
        for code in "None", "1; x = 2", "x = 3", "2\nNone", "", "# nothing", "\n\n":
            self.assertEqual(self.ok(code).out, "", code)

    def test_output_comes_before_the_value_and_in_one_piece(self):
        self.assertEqual(self.ok("print('a'); print('b', end=''); 3").out, "a\nb3\n")

    def test_a_displayhook_of_the_user_is_used(self):
        result = self.ok("import sys\nsys.displayhook = lambda value: print('shown', value)\n1")
        self.assertEqual(result.out, "shown 1\n")
        self.assertEqual(self.ok("sys.displayhook = sys.__displayhook__\n1").out, "1\n")

    def test_a_value_whose_repr_raises_is_an_error_of_the_cell(self):
        result = self.fails("class Bad:\n    def __repr__(self): raise ValueError('no repr')\nBad()")
        self.assertEqual(result.error, "ValueError: no repr")
        self.assertIn("in __repr__", result.traceback)
        self.assertNotIn("codebridge", result.traceback)

    def test_what_cannot_be_encoded_is_escaped(self):
        self.assertEqual(self.ok(r"print('\ud800 ä \udcff')").stdout, "\\ud800 ä \\udcff\n".encode())

    def test_large_output_arrives_whole_and_in_bounded_frames(self):
        before = len(self.guest.frames)
        result = self.ok("import os\nprint('0123456789abcde\\n' * (10 << 16), end='')\nos.write(2, b'e' * 1000000)\nNone")
        self.assertEqual(result.stdout, b"0123456789abcde\n" * (10 << 16))
        self.assertEqual(result.stderr, b"e" * 1000000)
        self.assertLessEqual(max(size for _, _, size in self.guest.frames[before:]), 256 * 1024)


class State(CellTest):
    def test_names_stay(self):
        self.ok("import math\ndef area(r):\n    return math.pi * r * r\nradius = 2")
        self.assertEqual(self.ok("round(area(radius), 3)").out, "12.566\n")

    def test_names_stay_after_an_error(self):
        self.fails("kept = 1\nraise ValueError")
        self.assertEqual(self.ok("kept").out, "1\n")

    def test_the_namespace_is_a_real_main_module(self):
        result = self.ok("import sys\nhere = 7\nprint(__name__, sys.modules['__main__'].here, 'settings' in globals())")
        self.assertEqual(result.out, "__main__ 7 False\n")

    def test_only_what_belongs_there_is_in_the_namespace(self):
        with Guest() as guest:
            names = set(guest.run("print(*[name for name in globals() if name[:2] != '__'])").out.split())
        self.assertEqual(names, {"runtime", "mcp", "mcp_servers", "LOADED_MCP_SERVERS", "save_tool", "display", "In", "Out"})

    def test_classes_of_the_session_can_be_pickled(self):
        self.ok("import pickle, dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: int\n    y: int = 2")
        self.assertEqual(self.ok("pickle.loads(pickle.dumps(Point(1)))").out, "Point(x=1, y=2)\n")

    def test_the_working_directory_is_importable_and_argv_is_a_list(self):
        result = self.ok(
            """
            import os, sys, tempfile
            place = tempfile.mkdtemp(); os.chdir(place)
            with open("neighbour.py", "w") as f: f.write("value = 42")
            import neighbour
            os.remove("neighbour.py"); os.chdir("/"); os.rmdir(place)
            print(neighbour.value, sys.argv)
            """
        )
        self.assertEqual(result.out, "42 ['']\n")

    def test_a_future_import_lasts(self):
        with Guest() as guest:
            guest.run("from __future__ import annotations")
            result = guest.run("def f(x: undefined_name): pass\nf.__annotations__")
            self.assertEqual(result.out, "{'x': 'undefined_name'}\n")


    def test_replaced_builtins_do_not_change_the_guest(self):
        with Guest() as guest:
            guest.run("import builtins\nfor name in 'len', 'print', 'any', 'type', 'open', 'getattr', 'isinstance': setattr(builtins, name, None)")
            self.assertEqual(guest.run("1/0").error, "ZeroDivisionError: division by zero")
            self.assertEqual(guest.run("'alive'").out, "'alive'\n")


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


class Input(CellTest):
    def test_input_says_that_there_is_none(self):
        result = self.fails("input('name? ')")
        self.assertTrue(result.error.startswith("EOFError: input is not available in the sandbox"), result.error)
        self.assertEqual(result.out, "name? ")

    def test_reading_stdin_says_the_same(self):
        for code in "read()", "readline()", "buffer.read()", "readlines()", "__next__()":
            result = self.fails("import sys\nsys.stdin." + code)
            self.assertTrue(result.error.startswith("EOFError: input is not available"), (code, result.error))

    def test_the_descriptor_is_empty_for_children(self):
        result = self.ok("import subprocess, sys\nprint(subprocess.run(['cat'], stdin=sys.stdin, capture_output=True))\n")
        self.assertIn("stdout=b''", result.out)
        self.assertEqual(self.ok("import os\nos.read(0, 10)").out, "b''\n")

    def test_a_stdin_of_the_user_is_left_alone(self):
        self.ok("import sys, io\nreal = sys.stdin; sys.stdin = io.StringIO('line\\n')")
        self.assertEqual(self.ok("got = input(); sys.stdin = real; got").out, "'line'\n")

    def test_breakpoint_does_not_hang(self):
        # The debugger reads the end of its input and quits: by an exception, from 3.14 on by sys.exit().
        result = self.run_cell("breakpoint()\n1")
        self.assertIn(result.status, ("error", "exit"))
        self.assertIn("(Pdb)", result.out)
        self.assertEqual(self.ok("import sys; sys.gettrace()").out, "")


class Exit(CellTest):
    def exits(self, code):
        result = self.run_cell(code)
        self.assertEqual((result.status, result.error, result.traceback), ("exit", "", ""), result)
        return result

    def test_codes(self):
        for argument, code in ("3", 3), ("", 0), ("None", 0), ("0", 0), ("True", 1), ("-1", 255), ("256", 0):
            self.assertEqual(self.exits("import sys\nsys.exit(%s)" % argument).code, code, argument)

    def test_text_goes_to_stderr(self):
        result = self.exits("print('before')\nraise SystemExit('went wrong')")
        self.assertEqual((result.code, result.out, result.err), (1, "before\n", "went wrong\n"))

    def test_the_session_is_kept(self):
        self.exits("survives = 1\nexit(4)")
        self.assertEqual(self.exits("quit()").code, 0)
        self.assertEqual(self.ok("survives").out, "1\n")
        self.assertTrue(self.fails("input()").error.startswith("EOFError: input is not available"))

    def test_inside_asyncio(self):
        self.assertEqual(self.exits("import asyncio, sys\nawait asyncio.sleep(0)\nsys.exit(5)").code, 5)
        self.assertEqual(self.exits("async def main(): sys.exit(6)\nasyncio.run(main())").code, 6)
        self.assertEqual(self.ok("await asyncio.sleep(0, 'alive')").out, "'alive'\n")


class Hints(CellTest):
    def test_a_coroutine_as_the_value(self):
        self.ok("async def fetch(): return 1")
        result = self.ok("fetch()")
        self.assertEqual(result.notices, ["hint: fetch(...) was never awaited: write await fetch(...)"])
        # It is forgotten later, and that is no news.
        later = self.ok("5")
        self.assertEqual((later.notices, later.err), ([], ""))

    def test_a_coroutine_that_was_dropped(self):
        for _ in range(2):
            result = self.ok("async def send(): pass\nsend()\nNone")
            hint = "hint: send(...) was never awaited: write await send(...)"
            self.assertEqual((result.notices, result.err), ([hint], ""), result)

    def test_the_hint_names_the_call_as_it_was_written(self):
        result = self.ok("import asyncio\nclass Client:\n    async def send(self): pass\nclient = Client()\nprint(client.send())")
        self.assertEqual(result.notices, ["hint: client.send(...) was never awaited: write await client.send(...)"])
        result = self.ok("asyncio.sleep(1)\n1")
        self.assertEqual(result.notices, ["hint: asyncio.sleep(...) was never awaited: write await asyncio.sleep(...)"])

    def test_a_coroutine_that_is_used_as_its_result(self):
        hint = "hint: f(...) was never awaited: write await f(...)"
        for code in ("async def f(): return {}\nvalue = f()\nvalue['a']", "f()['a']", "f().items()"):
            result = self.fails(code)
            self.assertEqual(result.notices, [hint], code)

    def test_awaited_ones_are_fine(self):
        result = self.ok("async def fine(): return 1\nawait fine()")
        self.assertEqual((result.out, result.notices), ("1\n", []))

    def test_other_warnings_are_not_taken_for_it(self):
        result = self.ok("import warnings\nwarnings.warn('careful')\n")
        self.assertEqual(result.notices, [])
        self.assertRegex(result.err, r"^<cell \d+>:2: UserWarning: careful\n")


class Streams(CellTest):
    def test_replaced_streams_come_back(self):
        self.assertEqual(self.ok("import sys, io\nsys.stdout = io.StringIO(); print('lost')").out, "")
        self.assertEqual(self.ok("print('back')").out, "back\n")
        self.ok("sys.stdout = sys.stderr = None")
        self.assertEqual(self.ok("print('back')").out, "back\n")
        result = self.ok("from contextlib import redirect_stdout\nwith redirect_stdout(sys.stderr): print('moved')")
        self.assertEqual((result.out, result.err), ("", "moved\n"))

    def test_a_wrapper_that_takes_the_buffer_along(self):
        result = self.ok("import sys, io\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint('kept')")
        self.assertEqual(result.out, "kept\n")
        self.assertEqual(self.ok("import gc; gc.collect(); print('and on')").out, "and on\n")

    def test_closed_streams_come_back(self):
        self.run_cell("import sys\nsys.stdout.close(); sys.stderr.close()")
        result = self.ok("print('out'); print('err', file=sys.stderr)")
        self.assertEqual((result.out, result.err), ("out\n", "err\n"))
        self.run_cell("sys.stdout.detach()")
        self.assertEqual(self.ok("print('again')").out, "again\n")

    def test_closed_descriptors_come_back(self):
        self.run_cell("import os\nos.close(1); os.close(2)")
        result = self.ok("print('out'); import sys; print('err', file=sys.stderr); os.system('echo child')")
        self.assertEqual((result.out, result.err), ("out\nchild\n0\n", "err\n"))

    def test_a_descriptor_that_was_made_non_blocking_is_restored(self):
        self.ok("import os\nos.set_blocking(1, False)")
        self.assertEqual(len(self.ok("print('x' * 3_000_000)").stdout), 3_000_001)

    def test_text_without_a_newline_is_not_delayed(self):
        self.assertEqual(self.ok("print('half', end='')").out, "half")

    def test_output_streams_while_the_code_runs(self):
        number = self.guest.start("import time\nprint('first')\nwhile True: time.sleep(0.01)")
        self.guest.until(lambda: self.guest.results[number].stdout == b"first\n")
        self.guest.interrupt(number)
        self.assertEqual(self.guest.finish(number).status, "interrupted")

    def speak_after_this_run(self, text):
        """Runs a cell that starts a thread, and lets that one print once the run is over: until then it waits for an answer."""
        self.guest.answers["echo"] = LATER
        code = "import threading\ndef speak():\n    runtime._ask('echo', 1)\n    print(%r)\nthreading.Thread(target=speak).start()"
        self.assertEqual(self.ok(code % text).out, "")
        self.guest.until(lambda: self.guest.questions)
        self.guest.send(b"A", self.guest.questions[-1][0], b'{"ok": ""}')

    def test_output_of_threads_between_runs_belongs_to_no_run(self):
        self.guest.results[0] = type(self.guest.results[0])()
        self.speak_after_this_run("from a thread")
        self.guest.until(lambda: self.guest.results[0].stdout == b"from a thread\n")

    def test_output_between_runs_comes_before_that_of_the_next_run(self):
        before = len(self.guest.frames)
        self.speak_after_this_run("between")
        self.guest.until(lambda: (b"O", 0, 8) in self.guest.frames[before:])
        self.assertEqual(self.ok("print('after')").out, "after\n")

    def test_what_c_code_prints(self):
        result = self.ok("import ctypes\nctypes.CDLL(None).printf(b'from C\\n')\nNone")
        self.assertEqual(result.out, "from C\n")


class Order(CellTest):
    def test_everything_of_a_run_comes_before_its_end(self):
        # Many short runs: no sleep can make this right, only the order in the supervisor.
        for number in range(200):
            result = self.ok("import os\nos.write(1, b'%d' * 1000)\nos.write(2, b'e')\nNone" % (number % 10))
            self.assertEqual((len(result.stdout), result.stderr), (1000, b"e"))

    def test_a_flood_does_not_delay_the_end(self):
        """To a host that reads so slowly that the pipe is never empty."""
        with Guest() as guest:
            guest.run("import subprocess\nflood = subprocess.Popen(['yes', 'x' * 1000])")
            number = guest.start("1 + 1")
            while number not in guest.done:
                time.sleep(0.001)
                guest.receive(time.monotonic() + 60)
                self.assertLess(len(guest.results[number].stdout), 32 << 20)
            guest.run("flood.kill()")

    @unittest.skipIf(IN_CHROOT, "the guest does not see our folder")
    def test_output_from_before_a_run_is_not_taken_for_its_own(self):
        """Written while the supervisor stands still, and in the pipe beside a run that waits for it."""
        with Guest() as guest, tempfile.TemporaryDirectory() as folder:
            mark = os.path.join(folder, "mark")
            guest.run(
                "import os, threading\ngo = threading.Event()\n"
                "def speak():\n    go.wait(); os.write(1, b'before'); os.mkdir(%r)\n" % mark
                + "threading.Thread(target=speak).start()\nthreading.Timer(0.2, go.set).start()"
            )
            os.kill(guest.process.pid, signal.SIGSTOP)
            try:
                while not os.path.exists(mark):
                    time.sleep(0.01)
                number = guest.start("os.write(1, b'after')\nNone")
            finally:
                os.kill(guest.process.pid, signal.SIGCONT)
            self.assertEqual(guest.finish(number).out, "after")
            self.assertEqual(guest.results[0].out, "before")


if __name__ == "__main__":
    unittest.main()


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
