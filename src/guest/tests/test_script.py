"""A run of the command line: arguments, modules beside the script, files for the working directory, standard input."""

import json
import os
import tempfile
import unittest

from guest_client import LATER, Guest, Refusal


def started(guest, argv=("-c",), file=None, modules=(), files=(), has_input=False):
    given = dict(argv=argv, file=file, modules=modules, files=files, input=has_input)
    guest.send(b"Z", 0, json.dumps(given))
    return guest


class Scripts(unittest.TestCase):
    def setUp(self):
        self.guest = Guest()

    def tearDown(self):
        self.guest.close()

    def test_a_script_has_its_name_and_arguments(self):
        started(self.guest, ["tools/a.py", "-x", "y z"], "tools/a.py")
        result = self.guest.run("import sys, os\nprint(sys.argv, __name__, os.path.basename(__file__))\n5\n1 / 0")
        self.assertEqual(result.out, "['tools/a.py', '-x', 'y z'] __main__ a.py\n")
        self.assertIn('File "tools/a.py", line 4, in <module>\n    1 / 0', result.traceback)

    def test_the_value_of_the_last_line_of_a_script_is_not_shown(self):
        started(self.guest, ["a.py"], "a.py")
        self.assertEqual(self.guest.run("def main(): return 0\nmain()").out, "")

    def test_modules_beside_the_script_come_from_the_host(self):
        sources = {
            "helper": {"path": "helper.py", "source": "def f():\n    raise ValueError('in helper')\nx = 1", "is_package": False},
            "package": {"path": "package/__init__.py", "source": "from .part import y", "is_package": True},
            "package.part": {"path": "package/part.py", "source": "y = 2", "is_package": False},
            "json": {"path": "json/__init__.py", "source": "", "is_package": True},
            "folder": {"path": "folder/__init__.py", "source": "", "is_package": True},
            "folder.inner": {"path": "folder/inner.py", "source": "z = 3", "is_package": False},
        }
        # Its answer may be null.
        self.guest.answer = self.answer(sources)
        started(self.guest, ["d/a.py"], "d/a.py", ["helper", "package", "json", "folder"])
        result = self.guest.run(
            "import helper, package, json, csv, folder.inner, inspect\nprint(helper.x, package.y, folder.inner.z, json.dumps(1))\n"
            "print(inspect.getsource(helper.f))\ntry:\n    import package.missing\nexcept ModuleNotFoundError as e: print(e)\nhelper.f()"
        )
        self.assertEqual(
            result.out,
            "1 2 3 1\ndef f():\n    raise ValueError('in helper')\n\nNo module named 'package.missing'\n",
            result,
        )
        self.assertIn('File "d/helper.py", line 2, in f\n    raise ValueError', result.traceback)
        asked = {params["name"] for _, method, params in self.guest.questions if method == "module"}
        self.assertNotIn("csv", asked)

    def answer(self, sources):
        def answer(number, query):
            self.guest.questions.append((number, query["method"], query["params"]))
            self.guest.send(b"A", number, json.dumps({"ok": sources.get(query["params"]["name"])}))

        return answer

    def test_processes_of_all_start_methods_import_the_script_and_the_modules_beside_it(self):
        sources = {"helper": {"path": "helper.py", "source": "y = 10", "is_package": False}}
        code = (
            "import multiprocessing, os\nimport helper\ndef f(x): return x + helper.y\n"
            "if __name__ == '__main__':\n    for method in 'spawn', 'forkserver':\n"
            "        with multiprocessing.get_context(method).Pool(2) as pool: print(pool.map(f, [1, 2]), os.path.basename(__file__))"
        )
        self.guest.answer = self.answer(sources)
        started(self.guest, ["d/a.py"], "d/a.py", ["helper"])
        result = self.guest.run(code)
        self.assertEqual((result.err, result.out), ("", "[11, 12] a.py\n" * 2), result)

    def test_a_pool_whose_processes_cannot_import_the_script_ends(self):
        started(self.guest, ["a.py"], "a.py")
        head = "import multiprocessing\ndef f(x): return x\n"
        for way in "pool.map(f, range(40), 1)", "list(pool.imap(f, [1, 2]))", "pool.apply(f, [1])":
            # Without a guard, each process would start others.
            result = self.guest.run(head + "with multiprocessing.get_context('spawn').Pool(2) as pool: print(%s)" % way)
            self.assertEqual((result.status, result.out), ("error", ""), result)
            self.assertIn("With the start method 'spawn' each process imports the script: start them under if", result.error)
        self.assertEqual(self.guest.run("print(1)").out, "1\n")

    @unittest.skipIf("GUEST_PYTHON" in os.environ, "it runs in another folder")
    def test_files_are_written_before_the_code_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            before = os.getcwd()
            os.chdir(folder)
            try:
                guest = Guest("workspace=%s" % folder)
            finally:
                os.chdir(before)
            with guest:
                content = os.urandom(300000)
                guest.answers["file_in"] = lambda params: content[params["offset"] :][:100000]
                files = [dict(name="a b", bytes=len(content), is_executable=True, modified=10**18), dict(name="big", bytes=1 << 60, is_executable=False, modified=0)]
                started(guest, files=files[:1])
                self.assertEqual(guest.run("import os\nlen(open('a b', 'rb').read()), os.access('a b', os.X_OK)").out, "(300000, True)\n")
                self.assertEqual(guest.run("open('new', 'w').close(); os.stat('a b').st_mtime").files, b"0 new\0")
                # As large as before, and at once.
                started(guest, files=[dict(files[0], name="changed")])
                self.assertEqual(guest.run("_ = open('changed', 'r+b').write(b'x')").files, b"300000 changed\0")
                with open(os.path.join(folder, "a b"), "rb") as file:
                    self.assertEqual(file.read(), content)
                started(guest, files=files[1:])
                result = guest.run("print('not run')")
                self.assertEqual((result.status, result.out, result.traceback), ("refused", "", ""))
                self.assertIn("could not copy big into /workspace: it has 1073741824.0 GiB, and ", result.error)
                started(guest, files=[dict(name="short", bytes=400000, is_executable=False, modified=0)])
                self.assertIn("it changed meanwhile", guest.run("1").error)
                self.assertFalse(os.path.exists(os.path.join(folder, "short")))
                self.assertEqual(guest.run("print('alive')").out, "alive\n")


class Input(unittest.TestCase):
    def setUp(self):
        self.guest = Guest()
        self.pieces = []
        self.guest.answers["input"] = lambda params: self.pieces.pop(0)[: params["bytes"]] if self.pieces else b""

    def tearDown(self):
        self.guest.close()

    def give(self, *pieces):
        self.pieces[:] = pieces
        self.guest.send(b"Z", 0)

    def asked(self):
        return [method for _, method, _ in self.guest.questions].count("input")

    def test_it_is_not_read_unless_the_code_reads_it(self):
        self.give(b"data")
        self.assertEqual(self.guest.run("import sys\nsys.stdin.isatty(), sys.argv").out, "(False, ['-c'])\n")
        self.assertEqual((self.asked(), self.pieces), (0, [b"data"]))

    def test_code_without_a_file_has_the_names_of_python_in_tracebacks(self):
        for payload, argv, name in (b"", "['-c']", "<string>"), (b"-", "['-']", "<stdin>"):
            with self.subTest(name), Guest() as guest:
                guest.send(b"Z", 0, payload)
                result = guest.run("import sys, inspect\nprint(sys.argv)\ndef f():\n    1 / 0\nprint(inspect.getsource(f))\nf()")
                self.assertEqual(result.out, argv + "\ndef f():\n    1 / 0\n\n")
                self.assertIn('File "%s", line 4, in f\n    1 / 0\n' % name, result.traceback)
                self.assertNotIn("<cell", result.traceback)
                self.assertIn('File "%s", line 1\n    a b\n' % name, guest.run("a b").traceback)
                # Code that code makes has that name too, and other lines.
                made = guest.run("import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int\n    def __post_init__(self): 1 / 0\nA(1)")
                self.assertEqual(made.traceback.count("1 / 0"), 1, made.traceback)
        with Guest() as guest:
            started(guest, ["-c", "x"], has_input=True)
            self.assertIn('File "<string>", line 1', guest.run("1 / 0").traceback)

    def test_a_file_of_the_host_is_missed(self):
        def notices(code):
            return "".join(self.guest.run(code).notices)

        self.assertEqual(notices("open('missing.csv')"), "")
        self.give()
        self.assertIn("--in missing.csv", notices("open('missing.csv')"))
        self.assertEqual(notices("open('missing.csv')"), "")
        self.assertIn("--share some/data`, which code reads at /shared/data", notices("open('some/data/x.csv')"))
        self.assertIn("no folder is shared", notices("open('/shared/data/x')"))
        listed = "import os\nold, isdir = os.listdir, os.path.isdir\nos.listdir = lambda p: ['b', 'a']\nos.path.isdir = lambda p: True\n"
        self.assertIn("no /shared/data; the shared folders are /shared/a, /shared/b", notices(listed + "open('/shared/data/x')"))
        self.assertEqual(notices("open('/shared/a/x')"), "")

    def test_all_ways_to_read_it(self):
        for code, printed in (
            ("import sys\nsys.stdin.read()", "'a\\nb\\n'"),
            ("import sys\nsys.stdin.buffer.read()", "b'a\\nb\\n'"),
            ("import sys\n[line for line in sys.stdin]", "['a\\n', 'b\\n']"),
            ("input() + input('?')", "?'ab'"),
            ("import subprocess\nsubprocess.run(['wc', '-l']).returncode", "2\n0"),
            ("import os\nos.system('cat')", "a\nb\n0"),
            ("open(0).read()", "'a\\nb\\n'"),
            ("import os\nos.read(0, 100)[:1]", "b'a'"),
            ("open('/dev/stdin').read()", "'a\\nb\\n'"),
            ("!cat", "a\nb"),
            ("import sys, select\nlen(select.select([sys.stdin], [], [])[0]), sys.stdin.readline()", "(1, 'a\\n')"),
            ("import fileinput\nlist(fileinput.input([]))", "['a\\n', 'b\\n']"),
            ("import sys\nsys.stdin.reconfigure(encoding='latin-1')\nsys.stdin.readlines()", "['a\\n', 'b\\n']"),
        ):
            with self.subTest(code):
                self.guest.close()
                self.setUp()
                self.give(b"a\n", b"b\n")
                result = self.guest.run(code)
                self.assertEqual((result.status, result.out), ("ok", printed + "\n"), result)

    def test_its_end_is_an_end(self):
        self.give()
        self.assertIn("EOFError", self.guest.run("input()").error)
        self.assertEqual(self.guest.run("import sys\nsys.stdin.read()").out, "''\n")

    def test_what_nobody_reads_is_not_asked_for(self):
        self.give(*[b"x" * 65536] * 1000)
        self.assertEqual(self.guest.run("import sys\nsys.stdin.read(10)").out, "'xxxxxxxxxx'\n")
        # A pipe of 64 KiB, and a piece that waits to be written.
        self.assertEqual(self.guest.run("import time\ntime.sleep(0.2)").status, "ok")
        self.assertLess(self.asked(), 10)
        self.assertEqual(self.guest.run("len(sys.stdin.read())").out, "%d\n" % (65536000 - 10))

    def test_a_wait_for_input_is_interrupted_and_other_questions_are_answered(self):
        self.guest.answers["input"] = LATER
        self.guest.answers["list_saved_tools"] = ["f"]
        self.guest.send(b"Z", 0)
        number = self.guest.start("input()")
        self.guest.until(lambda: self.asked())
        self.assertEqual(self.guest.interrupt_until_done(number).status, "interrupted")
        self.assertEqual(self.guest.run("runtime.list_saved_tools()").out, "['f']\n")

    def test_an_error_of_the_host_is_said(self):
        self.guest.answers["input"] = Refusal("failed to read standard input: Is a directory")
        self.guest.send(b"Z", 0)
        result = self.guest.run("import sys\nsys.stdin.read()")
        self.assertEqual((result.out, result.notices), ("''\n", ["failed to read standard input: Is a directory"]))

    def test_a_forked_child_sees_the_end(self):
        self.give(b"data")
        code = "import os, sys\nsys.stdin.fileno()\npid = os.fork()\nif not pid:\n    os._exit(sys.stdin.read() != 'data')\nos.waitpid(pid, 0)[1]"
        self.assertEqual(self.guest.run("import warnings\nwarnings.simplefilter('ignore')\n" + code).out, "0\n")


if __name__ == "__main__":
    unittest.main()
