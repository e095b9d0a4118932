"""What one cell after the other does: values, state, input, exit, output."""

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
