"""Packages: what code asks the host to install, and how a package that is missing is explained."""

import os
import tempfile
import unittest

from guest_client import IN_CHROOT, Guest, Refusal
from test_cells import CellTest

ADDED = {"packages": [{"name": "humanize", "version": "4.9.0"}], "notices": ["from yesterday"]}
NOTHING = {"packages": [], "notices": []}


class Packages(CellTest):
    def setUp(self):
        del self.guest.questions[:]

    def asked(self):
        return [params for _, method, params in self.guest.questions if method == "install"]

    def test_requirements_are_asked_for_with_what_the_choice_depends_on(self):
        self.guest.answers["install"] = ADDED
        done = self.ok("[runtime.install('humanize', 'six>=1'), await runtime.install(['humanize'], upgrade=True)]")
        self.assertEqual(done.out, "[['humanize 4.9.0'], ['humanize 4.9.0']]\n")
        self.assertEqual(done.notices, ["from yesterday"])
        first, second = self.asked()
        self.assertEqual((first["requirements"], first["upgrade"]), (["humanize", "six>=1"], False))
        self.assertEqual((second["requirements"], second["upgrade"]), (["humanize"], True))
        self.assertRegex(first["python"]["version"], r"^3\.\d+\.\d+$")
        self.assertRegex(first["python"]["libc"], "^(glibc|musl) ")
        self.assertTrue(self.ok("runtime.install()").out == "[]\n" and len(self.asked()) == 2)

    def test_the_folder_comes_after_the_standard_library(self):
        self.guest.answers["install"] = ADDED
        self.ok(
            """
            import os, sys
            runtime.install("humanize")
            runtime.install("humanize")
            at = sys.path.index("/packages")
            library = sys.path.index(os.path.dirname(os.__file__))
            others = [i for i, path in enumerate(sys.path) if path.endswith(("site-packages", "dist-packages"))]
            assert library < at and all(at < other for other in others), sys.path
            assert sys.path.count("/packages") == 1
            """
        )

    def test_processes_that_code_starts_see_the_folder(self):
        with Guest() as guest:
            guest.answers["install"] = NOTHING
            guest.run("import os; os.environ['PYTHONPATH'] = '/of/the/user'; runtime.install('humanize')")
            self.assertEqual(guest.run("os.environ['PYTHONPATH']").out, "'/of/the/user'\n")
            guest.answers["install"] = ADDED
            guest.run("runtime.install('humanize'); runtime.install('humanize')")
            self.assertEqual(guest.run("os.environ['PYTHONPATH']").out, "'/of/the/user:/packages'\n")

    def test_a_program_of_a_package_is_named_as_a_module(self):
        self.guest.answers["install"] = ADDED
        done = self.ok(
            """
            import os, tempfile
            folder = tempfile.mkdtemp()
            os.makedirs(folder + "/humanize-4.9.0.dist-info")
            os.makedirs(folder + "/humanize")
            open(folder + "/humanize/__main__.py", "w").close()
            with open(folder + "/humanize-4.9.0.dist-info/entry_points.txt", "w") as file:
                print("[x]\\na = b\\n[console_scripts]\\nhumanize = other.cli:main\\nother = humanize:x\\n[y]\\nc = d", file=file)
            packages = runtime._guest.part("packages")
            before, packages.FOLDER = packages.FOLDER, folder
            try:
                print(list(packages.programs(["humanize 4.9.0", "missing 1.0"])))
            finally:
                packages.FOLDER = before
            """
        )
        self.assertEqual(done.out, "[('humanize', 'humanize')]\n")

    def test_a_refusal_is_an_error_of_the_bridge_and_the_session_goes_on(self):
        self.guest.answers["install"] = Refusal("installing x is not allowed: because; hint: ask", "packages")
        self.assertIn("MCPError: installing x is not allowed", self.run_cell("runtime.install('x')").error)
        self.assertIn("TypeError", self.run_cell("runtime.install(3)").error)
        self.ok("1")

    def test_the_metadata_of_a_script_is_sent_as_it_stands(self):
        self.guest.answers["install"] = NOTHING
        self.ok("# /// script\n# dependencies = [\n#   'six',\n# ]\n#\n# ///\nprint(1)")
        self.assertEqual(self.asked()[0]["script"], "dependencies = [\n  'six',\n]\n\n")
        self.ok("text = '# /// script'\n# /// other\n# x = 1\n# ///\n")
        self.assertEqual(len(self.asked()), 1)
        twice = "# /// script\n# a = 1\n# ///\nx = 1\n# /// script\n# a = 1\n# ///\n"
        refused = self.run_cell(twice)
        self.assertEqual((refused.status, refused.traceback), ("refused", ""))
        self.assertIn("2 blocks", refused.error)

    def test_what_the_operator_named_is_installed_before_the_first_cell(self):
        with Guest("with=1") as guest:
            guest.answers["install"] = Refusal("no network", "packages")
            refused = guest.run("print('ran')")
            # None of the code is to blame: there is no traceback.
            self.assertEqual((refused.status, refused.error, refused.traceback, refused.out), ("refused", "no network", "", ""))
            guest.answers["install"] = NOTHING
            self.assertEqual(guest.run("print('ran')").out, "ran\n")
            guest.run("1")
            asked = [params.get("with") for _, method, params in guest.questions if method == "install"]
            self.assertEqual(asked, [True, True])

    def test_a_missing_module_gets_a_hint_and_others_do_not(self):
        self.guest.answers["missing_module"] = lambda params: "hint: get %s" % params["module"]
        self.assertEqual(self.run_cell("import polrs.x").notices, ["hint: get polrs"])
        wrapped = """
            try:
                import openpyxl_not
            except ImportError as error:
                raise ImportError("optional") from error
            """
        self.assertEqual(self.run_cell(wrapped).notices, ["hint: get openpyxl_not"])
        for code in "from os import nope", "import json.nope", "import mcp.nope", "raise ImportError":
            self.assertEqual(self.run_cell(code).notices, [], code)
        self.guest.answers["missing_module"] = Refusal("broken")
        self.assertEqual(self.run_cell("import polrs").notices, [])

    def pip(self, words):
        return self.run_cell("runtime._guest.part('packages').pip(%r)" % words.split())

    @unittest.skipIf(IN_CHROOT, "the guest sees other files")
    def test_pip_installs_and_refuses_what_it_cannot_do(self):
        self.guest.answers["install"] = ADDED
        self.assertEqual(self.pip("install humanize>=4").out, "Installed humanize 4.9.0\n")
        self.assertEqual(self.pip("install -q -U humanize").out, "")
        self.assertTrue(self.asked()[-1]["upgrade"])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "requirements.txt")
            with open(path, "w") as file:
                file.write("# two\nsix>=1  # one\n\nhumanize\n")
            self.pip("install -r " + path)
        self.assertEqual(self.asked()[-1]["requirements"], ["six>=1", "humanize"])
        count = len(self.asked())
        for words in "install", "install --index-url=http://x y", "install -e .", "uninstall x", "", "show no-such-thing":
            self.assertIn("ValueError", self.pip(words).error, words)
        self.assertEqual(len(self.asked()), count)
        self.assertEqual(self.pip("list").status, "ok")


if __name__ == "__main__":
    unittest.main()
