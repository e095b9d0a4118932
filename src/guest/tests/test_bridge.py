"""What the bridge gives to user code: the modules, questions to the host, saved tools, the context of a run."""

import json
import os
import re
import tempfile
import textwrap
import unittest

from guest_client import IN_CHROOT, LATER, Guest
from test_cells import CellTest


class Names(CellTest):
    def test_they_are_available_and_importable(self):
        self.ok(
            """
            from mcp import runtime as r, mcp_servers as s
            import mcp as m, mcp.runtime as mr
            assert r is runtime is mr is mcp.runtime and s is mcp_servers is mcp.mcp_servers and m is mcp
            from mcp.runtime import *
            from mcp.runtime import output as o
            assert o is output is runtime.output
            assert "output" in dir(runtime) and save_tool.__doc__
            """
        )
        self.assertEqual(self.ok("len(mcp_servers), list(mcp_servers), LOADED_MCP_SERVERS").out, "(0, [], [])\n")

    def test_a_session_that_does_not_touch_them_does_not_compile_them(self):
        with Guest() as guest:
            guest.run("import inspect, pkgutil\n[getattr(m, '__file__', None) for m in list(sys.modules.values())]")
            self.assertEqual(guest.run("type(runtime).__name__").out, "'LazyModule'\n")
            self.assertEqual(guest.run("runtime.output\ntype(runtime).__name__").out, "'module'\n")

    def test_star_import_first(self):
        with Guest() as guest:
            self.assertEqual(guest.run("from mcp.runtime import *\noutput is runtime.output").out, "True\n")
            self.assertEqual(guest.run("import mcp.nothing").error, "ModuleNotFoundError: No module named 'mcp.nothing'")

    def test_the_summary_lists_every_helper_and_nothing_else(self):
        text = self.ok("print(runtime.capability_summary())").out
        helpers = text[text.index("- ") :]
        listed = set(
            re.findall(r"\b[a-z]+(?:_[a-z]+)+\b|\boutput\b|(?<=runtime\.)(?:artifacts|reset|install|pages|progress|runs|step|complete)\b", helpers)
        ) - {"run_id"}
        self.assertEqual(listed, set(self.ok("print(*[n for n in runtime.__all__ if n[:3] != 'MCP'])").out.split()))


    def test_the_summary_names_python_and_the_packages(self):
        code = """
            import os, sys
            sys.path[:] = ["/tmp/%d" % os.getpid()]
            names = ["numpy-2.3.1.dist-info", "PyYAML-6.0.2.egg-info", "pip-25.0.dist-info", "odd"]
            names += ["package_%02d-1.dist-info" % n for n in range(20)]
            for name in names:
                os.makedirs(os.path.join(sys.path[0], name))
            print(runtime.capability_summary().splitlines()[0])
            import shutil
            shutil.rmtree(sys.path[0])
        """
        with Guest() as guest:
            guest.run("import shutil")
            shown = guest.run(textwrap.dedent(code)).out
        self.assertRegex(shown, r"^Python 3\.\d+\.\d+\. Packages beside the standard library: numpy 2\.3\.1, pyyaml 6\.0\.2, package-00 1, ")
        self.assertTrue(shown.endswith(", package-09 1, 10 more.\n"), shown)


class Context(CellTest):
    def context(self, *names, **more):
        return {"servers": [{"name": name, "alias": name} for name in names], **more}

    def test_it_says_which_servers_a_call_may_use(self):
        with Guest() as guest:
            self.assertEqual(guest.run("LOADED_MCP_SERVERS", self.context("a", "b")).out, "['a', 'b']\n")
            self.assertEqual(guest.run("LOADED_MCP_SERVERS", {}).out, "[]\n")
            guest.run("def servers(): return LOADED_MCP_SERVERS")
            self.assertEqual(guest.run("servers()", self.context("ü", more=1)).out, "['ü']\n")

    def test_a_call_without_servers_costs_nothing(self):
        with Guest() as guest:
            loaded = "import sys\n'json' in sys.modules, 'servers' in runtime._guest.parts"
            self.assertEqual(guest.run(loaded, {}).out, "(False, False)\n")
            self.assertEqual(guest.run(loaded, self.context("a")).out, "(True, True)\n")


class Output(CellTest):
    def test_arguments_and_text(self):
        asked = []

        def answer(params):
            asked.append(params)
            return {"text": "some text", "end": 15, "last": True}

        self.guest.answers["output"] = answer
        self.assertEqual(self.ok("runtime.output(3, 'stderr', 10, length=5)").out, "'some text'\n")
        self.assertEqual(asked, [{"run_id": 3, "stream": "stderr", "start": 10, "length": 5}])
        self.assertTrue(self.fails("runtime.output(3, 'stdin')").error.startswith("ValueError: "))

    def test_pieces_are_put_together(self):
        text = "0123456789"

        def answer(params):
            start, length = params["start"], params["length"]
            wanted = len(text) - start if length is None else length
            end = start + min(wanted, 4)
            return {"text": text[start:end], "end": end, "last": wanted <= 4}

        self.guest.answers["output"] = answer
        self.assertEqual(self.ok("runtime.output(1), runtime.output(1, start=1, length=6)").out, "('0123456789', '123456')\n")


class Questions(CellTest):
    """Any question, by the way that all helpers take."""

    def setUp(self):
        self.guest.answers.clear()
        self.guest.questions.clear()

    def test_values_of_any_size_and_kind(self):
        self.guest.answers["echo"] = lambda params: params
        self.assertEqual(self.ok("len(runtime._ask('echo', 'ä' * 3_000_000))").out, "3000000\n")
        for value in "None", "0", "''", "[]", "{'a': [1.5, None]}":
            self.assertEqual(self.ok("print(runtime._ask('echo', %s))" % value).out.strip(), value.strip("'"))

    def test_a_refusal_is_an_error(self):
        result = self.fails("def ask():\n    return runtime.output(9)\nask()")
        self.assertEqual(result.error, "mcp.runtime.MCPError: no such method: output")
        self.assertEqual(result.traceback.count("  File "), 2, result.traceback)
        self.assertNotIn("During handling", result.traceback)

    def test_bars_of_rich_are_reported_where_it_prints_none(self):
        self.guest.answers["progress"] = lambda params: None
        # What is used of it, as in rich 15.
        rich = """
        class Text:
            plain = property(lambda self: self.markup.replace("[b]", ""))
            from_markup = classmethod(lambda cls, markup: vars(text := cls()).update(markup=markup) or text)
        class Bar:
            visible = True
            def __init__(self, completed, total, description):
                self.completed, self.total, self.description = completed, total, description
            finished = property(lambda self: self.completed == self.total)
        class Progress:
            def __init__(self, *tasks, is_terminal=False):
                self.tasks, self.console = list(tasks), self
                self.is_terminal, self.is_dumb_terminal = is_terminal, False
            def get_renderable(self):
                return "shown"
        """
        code = """
        import os, sys
        os.makedirs("/tmp/modules/rich", exist_ok=True)
        open("/tmp/modules/rich/__init__.py", "w").close()
        open("/tmp/modules/rich/progress.py", "w").write(__import__("textwrap").dedent(%r))
        sys.path.insert(0, "/tmp/modules")
        from rich.progress import Bar, Progress
        bars = Progress(Bar(3, 3, "first"), Bar(1, 4, "[b]second"))
        bars.get_renderable(), bars.get_renderable()
        bars.tasks[1].completed = 4
        bars.get_renderable(), Progress().get_renderable(), Progress(Bar(1, 2, "x"), is_terminal=True).get_renderable()
        """
        self.assertEqual(self.ok(code % rich).out.split("\n")[-2], "('shown', 'shown', 'shown')")
        reported = [params for _, method, params in self.guest.questions if method == "progress"]
        self.assertEqual([list(params.values()) for params in reported], [[1, 4, "second"], [4, 4, "second"]])

    def test_too_much_is_refused_before_it_is_sent(self):
        result = self.fails("runtime._ask('echo', 'x' * (65 << 20))")
        self.assertIn("the host takes at most", result.error)
        self.assertEqual(self.guest.questions, [])

    def test_many_threads_at_once_with_answers_out_of_order(self):
        self.guest.answers["echo"] = LATER
        number = self.guest.start(
            """
import threading
got = {}
def ask(i): got[i] = runtime._ask('echo', i)
threads = [threading.Thread(target=ask, args=(i,)) for i in range(20)]
for t in threads: t.start()
for t in threads: t.join()
sorted(got.items()) == [(i, i * i) for i in range(20)]
"""
        )
        self.guest.until(lambda: len(self.guest.questions) == 20)
        for query, _, params in reversed(self.guest.questions):
            self.guest.send(b"A", query, json.dumps({"ok": params**2}))
        self.assertEqual(self.guest.finish(number).out, "True\n")

    def test_a_thread_may_wait_while_others_ask_and_runs_come_and_go(self):
        self.guest.answers["echo"] = LATER
        self.ok(
            """
            import threading
            def ask(): print("late", runtime._ask("echo", 0))
            thread = threading.Thread(target=ask); thread.start()
            """
        )
        self.guest.until(lambda: len(self.guest.questions) == 1)
        waiting = self.guest.questions[0][0]
        self.guest.answers["echo"] = "quick"
        for code in (
            "runtime._ask('echo', 1)",
            "import asyncio\nawait asyncio.sleep(0)\nruntime._ask('echo', 2)",
            "await runtime._ask_async('echo', 3)",
        ):
            self.assertEqual(self.ok(code).out, "'quick'\n")
        self.assertEqual(self.ok("thread.is_alive()").out, "True\n")
        self.guest.send(b"A", waiting, '{"ok": "answer"}')
        self.guest.until(lambda: b"late answer" in self.guest.results[0].stdout)
        self.assertEqual(self.ok("thread.join(); 'joined'").out, "'joined'\n")

    def test_a_thread_that_asks_between_runs(self):
        with Guest() as guest:
            guest.answers["echo"] = "between"
            guest.run("import threading\ndef ask(): print('got', runtime._ask('echo', 1))\nthreading.Timer(0.05, ask).start()")
            guest.until(lambda: b"got between" in guest.results[0].stdout)
            self.assertEqual(guest.run("1").out, "1\n")

    def test_a_thread_that_waits_between_runs_is_not_left_behind_by_the_next_run(self):
        """The main thread read for it; from the start of the run on it has to read for itself."""
        with Guest() as guest:
            guest.answers["echo"] = LATER
            guest.run("import threading\ndef ask():\n    go.wait(); print('got', runtime._ask('echo', 1))\ngo = threading.Event()\nthreading.Thread(target=ask).start()\nthreading.Timer(0.05, go.set).start()")
            guest.until(lambda: guest.questions)
            number = guest.start("import time\nprint('running')\nwhile True: time.sleep(0.01)")
            guest.until(lambda: guest.results[number].stdout == b"running\n")
            guest.send(b"A", guest.questions[0][0], '{"ok": "it"}')
            guest.until(lambda: b"got it" in guest.results[number].stdout)
            guest.interrupt(number)
            guest.finish(number)

    def test_the_reader_hands_over_to_a_waiting_thread(self):
        """The first thread to ask reads for all; when it has its answer, the others still get theirs."""
        self.guest.answers["echo"] = LATER
        number = self.guest.start(
            """
import threading, os
def ask(i): os.write(1, b'%d' % runtime._ask('echo', i))
threads = [threading.Thread(target=ask, args=(i,)) for i in range(5)]
for t in threads: t.start()
for t in threads: t.join()
"""
        )
        self.guest.until(lambda: len(self.guest.questions) == 5)
        for count, (query, _, _) in enumerate(self.guest.questions, 1):
            self.guest.send(b"A", query, json.dumps({"ok": count}))
            self.guest.until(lambda: len(self.guest.results[number].stdout) == count)
        self.assertEqual(self.guest.finish(number).out, "12345")

    def test_awaited_questions_overlap(self):
        self.guest.answers["echo"] = LATER
        for wrap in "print(%s)", "async def main(): print(%s)\nasyncio.run(main())":
            self.guest.questions.clear()
            asking = "await asyncio.gather(*[runtime._ask_async('echo', i) for i in range(10)])"
            number = self.guest.start("import asyncio\n" + wrap % asking)
            self.guest.until(lambda: len(self.guest.questions) == 10)
            for query, _, params in reversed(self.guest.questions):
                self.guest.send(b"A", query, json.dumps({"ok": params}))
            self.assertEqual(self.guest.finish(number).out, "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n")

    def test_an_awaited_refusal_is_an_error(self):
        self.assertEqual(self.fails("await runtime._ask_async('nothing', 1)").error, "mcp.runtime.MCPError: no such method: nothing")

    def test_background_tasks_ask_between_runs(self):
        self.guest.answers["echo"] = "kept"
        self.ok(
            """
            import asyncio
            async def later():
                await asyncio.sleep(0.05)
                print("awaited", await runtime._ask_async("echo", {}), "plain", runtime._ask("echo", 1))
            task = asyncio.create_task(later())
            await asyncio.sleep(0)
            """
        )
        self.guest.until(lambda: b"awaited kept plain kept" in self.guest.results[0].stdout)
        self.ok("task.done()")

    def test_an_answer_to_nothing_is_dropped(self):
        for query in 0, 4_000_000_000:
            self.guest.send(b"A", query, '{"ok": 1}')
        self.assertEqual(self.ok("'fine'").out, "'fine'\n")

    def test_a_forked_child_cannot_ask(self):
        result = self.ok(
            """
            import os, sys
            pid = os.fork()
            if not pid:
                try: runtime._ask("echo", 1)
                except mcp.runtime.MCPError as error: print(error)
                sys.stdout.flush(); os._exit(0)
            os.waitpid(pid, 0)[1]
            """
        )
        self.assertEqual(result.out, "a forked child process cannot use the bridge; do it in the parent process\n0\n")
        self.assertEqual(self.guest.questions, [])


class SavedTools(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.guest = Guest("projects=" + self.folder.name)
        self.addCleanup(self.guest.close)
        self.saved, self.params = {}, {}

        def save(params):
            self.saved[params["name"]], self.params = params["source"], params

        self.guest.answers["save_tool"] = save
        self.guest.answers["list_saved_tools"] = lambda params: sorted(self.saved)

    def ok(self, code):
        result = self.guest.run(code)
        self.assertEqual(result.status, "ok", result)
        return result

    def test_a_call_confirms(self):
        result = self.ok("def double(x):\n    # twice\n    return 2 * x\nsave_tool(double)")
        self.assertEqual(result.out, "'Saved: double() is defined in every later session.'\n")
        self.assertEqual(self.saved, {"double": "def double(x):\n    # twice\n    return 2 * x\n"})
        self.assertEqual(self.ok("runtime.list_saved_tools()").out, "['double']\n")

    def test_a_decorator_gives_the_function_back(self):
        result = self.ok("@save_tool\ndef double(x):\n    return 2 * x\nprint(double(4))")
        self.assertEqual(result.out, "8\n")
        self.assertEqual(self.saved, {"double": "def double(x):\n    return 2 * x\n"})

    def test_other_decorators_stay_and_nested_functions_are_dedented(self):
        self.ok(
            "import functools\nif True:\n    @functools.lru_cache(\n        maxsize=None)\n    @runtime.save_tool\n    async def fetch(): return 1"
        )
        self.assertEqual(self.saved, {"fetch": "@functools.lru_cache(\n    maxsize=None)\nasync def fetch(): return 1\n"})

    def test_what_is_known_of_a_function_goes_with_it(self):
        self.guest.answers["servers"] = lambda params: []
        self.ok(
            '''
            from mcp import runtime as r
            @save_tool(example="""
                assert await close("x") is None
            """)
            async def close(title, *, n: int = 3, **more) -> "None":
                """Closes an issue.

                By its title."""
                from mcp.servers.forge import create_issue as new, close
                import mcp.servers.notes
                x = mcp_tracker.get(id=title), mcp_servers["My Calendar"].add, mcp.mcp_walls.paint, mcp_alone
                await r.call_tool("Post-Office", "send.letter", {}), getattr(mcp_tracker, "find"), getattr(x, n), mcp_servers[title]
            '''
        )
        self.assertEqual(self.params["example"], 'assert await close("x") is None\n')
        self.assertTrue(self.params["source"].startswith("async def close("), self.params)
        self.assertEqual(
            self.params["details"],
            {
                "signature": "async close(title, *, n: int=3, **more) -> 'None'",
                "doc": "Closes an issue.\n\nBy its title.",
                "servers": ["alone", "forge", "my_calendar", "notes", "post_office", "tracker", "walls"],
                "tools": [
                    ["forge", "close"], ["forge", "create_issue"], ["my_calendar", "add"], ["post_office", "send_letter"],
                    ["tracker", "find"], ["tracker", "get"], ["walls", "paint"],
                ],
            },
        )
        for example, error in (("1", "TypeError: example must be text"), ("'1 +'", "SyntaxError: ")):
            result = self.guest.run("def f(): pass\nsave_tool(f, example=%s)" % example)
            self.assertTrue((result.error or "").startswith(error), result)
        self.assertEqual(list(self.saved), ["close"])

    def test_names_of_the_session_are_listed(self):
        result = self.ok("import math, json\nfactor = 2; default = 1\ndef f(x=default):\n    import json\n    return json.dumps(math.pi * factor * len(x.json))\nsave_tool(f)")
        self.assertIn("It uses default, factor, math of this session", result.out)

    def test_functions_that_depend_on_the_session_are_refused(self):
        for code, error in (
            ("save_tool(lambda: 1)", "TypeError: save_tool needs a function made with def"),
            ("save_tool(len)", "TypeError: save_tool needs a function made with def"),
            ("def outer():\n    x = 1\n    def inner(): return x\n    return inner\nsave_tool(outer())", "ValueError: inner() uses variables of the function around it: x"),
            ("def f(): pass\nf.__name__ = '../../evil'\nsave_tool(f)", "ValueError: the source of"),
            ("exec('def g(): pass')\nsave_tool(g)", "OSError: "),
        ):
            result = self.guest.run(code)
            self.assertTrue((result.error or "").startswith(error), result)
        self.assertEqual(self.saved, {})

    def test_a_refusal_of_the_host_is_an_error_and_nothing_is_kept(self):
        del self.guest.answers["save_tool"]
        result = self.guest.run("def f(): pass\nsave_tool(f)")
        self.assertEqual(result.error, "mcp.runtime.MCPError: no such method: save_tool")
        self.assertEqual(os.listdir(self.folder.name), [])

    @unittest.skipIf(IN_CHROOT, "the guest does not see our folder")
    def test_a_copy_is_written_to_the_projects_folder(self):
        self.ok("def f(): return 'ä'\nsave_tool(f)")
        with open(os.path.join(self.folder.name, "f.py"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "def f(): return 'ä'\n")

    def test_they_are_defined_before_the_first_run(self):
        with Guest() as guest:
            guest.send(b"S", 0, "first\ndef first(): return 1")
            guest.send(b"S", 0, "second\ndef second(): return first() + 1\n")
            result = guest.run("second()")
            self.assertEqual((result.out, result.notices), ("2\n", []))
            self.assertEqual(guest.run("import inspect; inspect.getsource(first)").out, "'def first(): return 1\\n'\n")

    def test_their_tracebacks_have_source_lines(self):
        with Guest() as guest:
            guest.send(b"S", 0, "fails\ndef fails():\n    return 1 / 0")
            traceback = guest.run("fails()").traceback
            self.assertIn('  File "<saved tool fails>", line 2, in fails\n    return 1 / 0\n', traceback)

    def test_a_broken_one_is_skipped_with_a_notice(self):
        with Guest() as guest:
            guest.send(b"S", 0, "broken\ndef broken(: pass")
            guest.send(b"S", 0, "raises\ndef raises(x=not_there): pass")
            guest.send(b"S", 0, "leaves\ndef leaves(x=exit(1)): pass")
            guest.send(b"S", 0, "more\nprint('runs in every session')\ndef more(): pass")
            guest.send(b"S", 0, "other\ndef print(): pass")
            guest.send(b"S", 0, "fine\ndef fine(): return 'fine'")
            result = guest.run("fine()")
            self.assertEqual((result.status, result.out), ("ok", "'fine'\n"))
            self.assertEqual(len(result.notices), 5, result.notices)
            self.assertTrue(result.notices[0].startswith("The saved tool 'broken' is broken and was skipped: SyntaxError"))
            self.assertIn("NameError: name 'not_there' is not defined", result.notices[1])
            self.assertIn("it is not a single function definition of that name", result.notices[3])
            self.assertIn("it is not a single function definition of that name", result.notices[4])
            self.assertEqual(guest.run("1").notices, [])

    def test_one_that_hangs_is_interrupted_and_skipped(self):
        with Guest() as guest:
            guest.send(b"S", 0, "hangs\ndef hangs(x=(print('ready'), all(True for _ in iter(int, 1)))): pass")
            guest.send(b"S", 0, "fine\ndef fine(): return 'fine'")
            number = guest.start("fine()")
            guest.until(lambda: guest.results[number].stdout == b"ready\n")
            guest.interrupt(number)
            self.assertEqual(guest.finish(number).status, "interrupted")
            self.assertIn("'hangs'", guest.results[number].notices[0])
            self.assertEqual(guest.run("fine()").out, "'fine'\n")


if __name__ == "__main__":
    unittest.main()
