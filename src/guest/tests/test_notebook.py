"""What notebooks have beside Python: shells, magics, help, fences, and the values of earlier cells."""

import os
import tempfile
import unittest

from guest_client import Guest
from test_cells import CellTest


class Shells(CellTest):
    def test_a_command_streams_and_shows_its_status(self):
        result = self.ok("print('a')\n!echo b; echo c >&2; exit 3\nprint('d')")
        self.assertEqual(result.out, "a\nb\nd\n")
        self.assertEqual(result.err, "c\n[exit status 3]\n")
        self.assertEqual(self.ok("_exit_code").out, "3\n")

    def test_lines_of_a_command_are_a_value(self):
        self.assertEqual(self.ok("x = !printf 'a\\nb\\n'\nx, x.s, len(x)").out, "(['a', 'b'], 'a b', 2)\n")
        self.assertEqual(self.ok("!!echo a").out, "['a']\n")
        self.assertEqual(self.ok("def f(n):\n    got = !echo {n + 1} $n\n    return got\nf(4)").out, "['5 4']\n")

    def test_values_of_python_are_put_in(self):
        self.ok("name, d, n = 'x y', {'k': 'v'}, 3")
        for command, printed in (
            ("echo {name} $name {d['k']}", "x y x y v"),
            ("echo '$name' \"$name\"", "$name x y"),
            ("echo ${HOME:+set} {1..3} $$n | sed 's/[0-9]*n/PID/'", "set 1 2 3 PID"),
            ("echo a | awk '{print $1}'", "a"),
            ("echo a b | awk '{{print $2}}'", "b"),
            ("echo {f'{n}!'} {undefined_name}", "3! {undefined_name}"),
            ("for i in 1 2; do echo $i; done", "1\n2"),
        ):
            self.assertEqual(self.ok("!" + command).out, printed + "\n", command)

    def test_a_shell_goes_on_where_the_last_one_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            self.ok("import os\nstart = os.getcwd()")
            self.ok("%%%%bash\ncd %s\nexport KEPT='a\nb' GONE=1\nlocal_only=1" % folder)
            self.assertEqual(self.ok("!pwd; echo \"$KEPT\"; echo [$local_only]; unset GONE").out, folder + "\na\nb\n[]\n")
            self.assertEqual(self.ok("%%sh\npwd\necho [$GONE]").out, folder + "\n[]\n")
            self.assertEqual(self.ok("os.getcwd() == start, 'KEPT' in os.environ").out, "(True, False)\n")
            printed, shell = self.ok("!cd /usr\n%cd .\n!pwd").out.split()
            self.assertEqual(printed, shell)
            self.assertEqual(self.ok("%cd /\n!pwd\nos.environ['KEPT'] = 'new'\n!echo $KEPT").out, "/\n/\nnew\n")
            self.ok("os.chdir(start)")

    def test_a_cell_of_a_shell_ends_with_its_status(self):
        result = self.run_cell("%%bash\necho a\nexit 4")
        self.assertEqual((result.status, result.code, result.out, result.err), ("exit", 4, "a\n", "[exit status 4]\n"))
        self.assertEqual(result.traceback, "")
        self.ok("%%bash --no-raise-error\nfalse")
        self.assertEqual(self.run_cell("%%bash\nkill -9 $$").code, 137)
        self.assertEqual(self.ok("%%bash -s one two\necho $2").out, "two\n")
        self.assertEqual(self.ok("%%bash --out text\necho a").out, "")
        self.assertEqual(self.ok("text").out, "'a\\n'\n")

    def test_a_process_in_the_background_is_not_waited_for(self):
        self.assertEqual(self.ok("%%bash\nsleep 1000 &\necho $! > /dev/null\necho started").out, "started\n")
        self.assertEqual(self.ok("x = !sleep 1000 & echo started\nx").out, "['started']\n")

    def test_other_programs_run_scripts(self):
        self.assertEqual(self.ok("%%script python3 -u\nimport sys\nprint(1)").out, "1\n")
        self.assertEqual(self.ok("%%python3\nprint(2)").out, "2\n")
        result = self.fails("%%script no-such-program\n1")
        self.assertIn("the image has no such program: 'no-such-program'", result.error)
        self.fails("%%script\n1")

    def test_long_scripts_and_strange_bytes(self):
        self.assertEqual(self.ok("%%bash\n" + "# comment\n" * 20000 + "echo end").out, "end\n")
        self.assertEqual(self.ok("x = !printf '\\377a'\nx").out, "['\\ufffda']\n".encode().decode("unicode_escape"))

    def test_a_command_is_interrupted(self):
        number = self.guest.start("!echo ready; sleep 1000")
        self.guest.until(lambda: self.guest.results[number].out)
        self.guest.interrupt(number)
        result = self.guest.finish(number)
        self.assertEqual(result.status, "interrupted")
        self.assertRegex(result.traceback, r"line 1, in <module>\n    !echo ready; sleep 1000\nKeyboardInterrupt\n\Z")
        self.assertEqual(self.ok("!echo alive").out, "alive\n")

    def test_what_code_collects_is_collected(self):
        code = "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as f:\n    !echo inner\nf.getvalue()"
        self.assertEqual(self.ok(code).out, "'inner\\n'\n")

    def test_pip_asks_the_host(self):
        self.ok(
            "import sys\ng = display.__closure__[0].cell_contents\nclass Fake:\n    pip = staticmethod(print)\n"
            "g.parts['packages'] = Fake"
        )
        for line, printed in (
            ("%pip install -q 'polars>1' x", "['install', '-q', 'polars>1', 'x']\n"),
            ("!pip install polars 2>&1 | tail -1", "['install', 'polars']\n"),
            ("!python -m pip install a && echo b", "['install', 'a']\nb\n"),
            ("!uv pip install a > /dev/null", "['install', 'a']\n"),
            ("pip install polars", "['install', 'polars']\n"),
            ("p = 'polars'\n!pip install {p}", "['install', 'polars']\n"),
        ):
            self.assertEqual(self.ok(line).out, printed, line)


class Magics(CellTest):
    def test_lines_in_blocks_and_line_numbers(self):
        result = self.ok("for i in range(2):\n    if i:\n        !echo {i}\n    %env X=a\nprint('end')")
        self.assertEqual(result.out, "env: X=a\n1\nenv: X=a\nend\n")
        result = self.fails("x = 1\n!true \\\n   && true\n\nraise ValueError('here')")
        self.assertIn("line 5, in", result.traceback)
        result = self.fails("%cd /no/such\n")
        self.assertIn("line 1, in", result.traceback)
        self.assertIn("%cd /no/such", result.traceback)
        self.assertNotIn("^", result.traceback)
        self.assertNotIn("codebridge", result.traceback)

    def test_text_in_strings_and_brackets_stays(self):
        code = 's = """\n!echo no\n%cd /\n%%bash\n"""\nx = (17\n%5)\ny = 7 \\\n%4\n!echo yes\nprint(s, x, y)'
        self.assertEqual(self.ok(code).out, "yes\n\n!echo no\n%cd /\n%%bash\n 2 3\n")

    def test_an_unknown_magic_names_those_that_exist(self):
        result = self.fails("print('not yet')\n%tiem 1")
        self.assertEqual(result.out, "")
        self.assertRegex(result.error, r"^SyntaxError: unknown magic %tiem: did you mean %time\? there are %autoreload .*%who")
        self.assertIn("line 2", result.traceback)
        self.assertIn("unknown magic %bash: did you mean %%bash?", self.fails("%bash ls").error)
        self.assertIn("unknown magic %bsh: did you mean %%bash?", self.fails("%bsh ls").error)
        self.assertRegex(self.fails("%nothing").error, r"there are %autoreload .* %%bash")
        self.assertIn("unknown magic %%magic:", self.fails("%%magic x").error)
        self.assertIn("there are %%HTML %%bash", self.fails("%%nothing\n1").error)

    def test_python_that_is_wrong_stays_wrong(self):
        result = self.fails("!true\nx = = 1")
        self.assertIn("SyntaxError", result.error)
        self.assertIn("line 2", result.traceback)
        for code in "x = = 1", "print('%d' % )", "if True:", "%", "!x = (", "'''\n!a", "(\n!a":
            self.assertIn(self.run_cell(code).status, ("error", "ok"), code)

    def test_time(self):
        self.assertRegex(self.ok("%time 1 + 1").out, r"\AWall time: [\d.e+]+ [mnu]?s\n2\n\Z")
        self.assertRegex(self.ok("%time x = 5\nx").out, r"\AWall time: .*\n5\n\Z")
        self.assertRegex(self.ok("y = %time x * 2\ny").out, r"\AWall time: .*\n10\n\Z")
        self.assertRegex(self.ok("%%time\nimport asyncio\nawait asyncio.sleep(0)\nz = 3\nz").out, r"\AWall time: .*\n3\n\Z")
        self.assertRegex(self.ok("%time await asyncio.sleep(0, 7)").out, r"\AWall time: .*\n7\n\Z")
        # The clock of processors ticks every 10 ms, and one may fall into the start of the shell.
        self.assertRegex(self.ok("%%time\n!echo a").out, r"\Aa\n(CPU times: .*\n)?Wall time: ")
        self.assertIn("line 3, in", self.fails("%%time\n\n1 / 0").traceback)
        self.assertRegex(self.ok("%timeit -n 10 -r 2 x + 1").out, r"per loop \(mean ± std. dev. of 2 runs, 10 loops each\)\n\Z")
        self.assertRegex(self.ok("%%timeit -n 1 -r 1 q = 4\nq + 1").out, "of 1 run, 1 loop each")

    def test_capture(self):
        self.ok("%%capture got\nprint('a')\n!echo b\nimport sys\nprint('c', file=sys.stderr)\n5")
        self.assertEqual(self.ok("got.stdout, got.stderr").out, "('a\\nb\\n5\\n', 'c\\n')\n")
        self.assertEqual(self.ok("%%capture\nprint('a')\nw = 1").out, "")
        self.fails("%%capture\n1 / 0")
        self.assertEqual(self.ok("print('shown')").out, "shown\n")

    def test_writefile_run_and_the_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            self.ok("%cd " + folder)
            self.assertEqual(self.ok("%%writefile m.py\nimport sys\nv = sys.argv[1:]\n%x").out, "Writing m.py\n")
            self.assertEqual(self.ok("%%writefile m.py\nimport sys\nv = sys.argv[1:]").out, "Overwriting m.py\n")
            self.assertEqual(self.ok("%%writefile -a m.py\nmain = __name__").out, "Appending to m.py\n")
            self.assertEqual(self.ok("%run m.py a 'b c'\nv, main").out, "(['a', 'b c'], '__main__')\n")
            missing = self.run_cell("%run nofile.py")
            self.assertIn("FileNotFoundError: [Errno 2] No such file or directory: 'nofile.py'", missing.traceback)
            self.ok("%%writefile n.py\n1 / 0")
            failed = self.run_cell("%run n.py")
            self.assertIn("n.py", failed.traceback)
            self.assertIn("ZeroDivisionError", failed.traceback)
            self.assertNotIn("runpy", missing.traceback + failed.traceback)
            self.assertEqual(self.ok("%pwd").out, repr(folder) + "\n")
            self.assertEqual(self.ok("%ls\n%cat m.py").out.splitlines()[0], "m.py")
            self.assertEqual(self.ok("%cd /\n%cd -").out, "/\n%s\n" % folder)
            self.fails("%%writefile\nx")
            self.ok("%cd /")

    def test_environment_names_and_reset(self):
        self.assertEqual(self.ok("%env SET=1 2\n%env SET").out, "env: SET=1 2\n'1 2'\n")
        self.ok("mine = 1\n%matplotlib inline\n%config InlineBackend.figure_format = 'retina'\n%load_ext autoreload\n%autoreload 2")
        self.assertIn("mine", self.ok("%who").out.split())
        self.ok("%reset -f")
        self.assertEqual(self.fails("mine").error, "NameError: name 'mine' is not defined")
        self.assertEqual(self.ok("runtime.__name__").out, "'mcp.runtime'\n")
        self.fails("%load_ext sql")

    def test_autoreload(self):
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            self.ok("import sys\nsys.path.insert(0, %r)\n%%load_ext autoreload\n%%autoreload 2" % folder)
            path = os.path.join(folder, "reloaded.py")
            self.ok("%%%%writefile %s\ndef f(): return 1" % path)
            self.assertEqual(self.ok("import reloaded\nfrom reloaded import f\nf()").out, "1\n")
            self.ok("%%%%writefile %s\ndef f(): return 22" % path)
            self.assertEqual(self.ok("reloaded.f(), f()").out, "(22, 22)\n")
            self.ok("%autoreload 0")

    def test_help(self):
        self.ok("def f(a, b=2):\n    'Adds.'\n    return a + b\nd = {'k': len}")
        for code in "f?", "?f", "  f?":
            self.assertEqual(self.ok(code).out, "Signature: f(a, b=2)\nType:      function\nDocstring:\nAdds.\n", code)
        self.assertIn("Source:\ndef f(a, b=2):", self.ok("f??").out)
        self.assertIn("builtin_function", self.ok("d['k']?").out)
        self.assertEqual(self.ok("nothing?").out, "Object `nothing` not found.\n")
        self.assertIn("as in IPython", self.ok("%cd?").out)

    def test_cells_with_a_fence_or_indented_as_a_whole(self):
        for code in (
            "```python\nx = 1\nx + 1\n```",
            "\n```\n1 + 1\n```\n",
            "```py\n1 + 1",
            "    x = 1\n    if x:\n        print(2)",
            "\n\tprint(2)\n\n\tx = 1",
            "```bash\necho 2\n```",
        ):
            result = self.guest.run(code)
            self.assertEqual((result.status, result.out), ("ok", "2\n"), (code, result))
        result = self.guest.run("```python\nx = 1\n1 / 0\n```")
        self.assertIn("line 3, in", result.traceback)
        self.assertIn("    1 / 0\n", result.traceback)


class Values(CellTest):
    def test_a_semicolon_shows_nothing(self):
        for code in "1 + 1;", "(1 +\n1) ; # comment", "'ä'; ":
            self.assertEqual(self.ok(code).out, "", code)
        for code in "';'", "2 # a;", "x = 1; x":
            self.assertNotEqual(self.ok(code).out, "", code)

    def test_the_last_values_are_kept(self):
        with Guest() as guest:
            for number in range(1, 13):
                guest.run("'v%d'" % number)
            self.assertEqual(guest.run("_, __, ___").out, "('v12', 'v11', 'v10')\n")
            self.assertEqual(guest.run("Out[4], In[4], In[-1], len(Out)").out, "('v4', \"'v4'\", 'Out[4], In[4], In[-1], len(Out)', 10)\n")
            self.assertIn("it keeps the last ten", guest.run("Out[1]").error)
            self.assertEqual(guest.run("for _ in range(3): pass").out, "")
            self.assertEqual(guest.run("_").out, "2\n")

    def test_large_values_are_not_kept(self):
        with Guest("data=%d" % (400 << 20)) as guest:
            guest.run("class Large:\n    def __init__(self): self.data = b'x' * (110 << 20)\n    def __repr__(self): return 'large'")
            for _ in range(6):
                self.assertEqual(guest.run("Large()").out, "large\n")
            self.assertEqual(guest.run("len(Out)").out, "1\n")

    def test_the_loop_is_there_in_any_cell(self):
        self.assertEqual(self.ok("import asyncio\nasync def f(): return 4\nasyncio.get_event_loop().run_until_complete(f())").out, "4\n")
        self.ok("asyncio.run(f())\ndef get(): return asyncio.get_event_loop()")
        self.assertEqual(self.ok("get().run_until_complete(f())").out, "4\n")
        self.assertEqual(self.ok("get() is asyncio.get_running_loop(), await f()").out, "(True, 4)\n")


class Reset(unittest.TestCase):
    def test_the_interpreter_is_replaced(self):
        with Guest() as guest:
            guest.send(b"S", 0, "kept\ndef kept(): return 5")
            pid = guest.run("import os, sys, threading, time\nx = 1\nos.environ['A'] = 'b'\nos.getpid()").out
            before = guest.run("cwd = os.getcwd()\nos.chdir('/')\nfile = open('/etc/passwd')\ncwd").out
            code = "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\nprint('last')\nawait runtime.reset()"
            result = guest.run(code)
            self.assertEqual((result.status, result.out), ("ok", "last\nThe next call gets a fresh interpreter; files stay.\n"))
            self.assertEqual(guest.run("x").error, "NameError: name 'x' is not defined")
            self.assertEqual(guest.run("import os, threading\nos.getpid()").out, pid)
            self.assertEqual(guest.run("os.getcwd()").out, before)
            self.assertEqual(guest.run("'A' in os.environ, threading.active_count(), kept()").out, "(False, 1, 5)\n")
            descriptors = guest.run("sorted(os.listdir('/proc/self/fd'), key=int)").out
            with Guest() as other:
                self.assertEqual(descriptors, other.run("import os\nsorted(os.listdir('/proc/self/fd'), key=int)").out)

    def test_also_after_an_error_again_and_again(self):
        with Guest("data=%d" % (400 << 20)) as guest:
            for _ in range(3):
                result = guest.run("runtime.reset()\nraise SystemExit(4)")
                self.assertEqual((result.status, result.code), ("exit", 4))
            number = guest.start("print('ready')\nimport time\ntime.sleep(1000)")
            guest.until(lambda: guest.results[number].out)
            guest.interrupt(number)
            self.assertEqual(guest.finish(number).status, "interrupted")
            self.assertIn("RLIMIT_DATA", guest.run("import resource\n'RLIMIT_DATA', resource.getrlimit(resource.RLIMIT_DATA)").out)
            self.assertEqual(guest.run("%reset -f\n1 + 1").out, "2\n")


if __name__ == "__main__":
    unittest.main()
